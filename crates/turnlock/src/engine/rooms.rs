use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use turnlock_core::LockName;
use turnlock_core::wait_queue::{Ticket, WaitQueue};

use super::hold::Hold;
use crate::backend::Backend;

/// The waiting rooms of this process: one for each lock that somebody here holds or wants.
#[derive(Debug)]
pub(crate) struct Rooms {
    rooms: Mutex<HashMap<LockName, Room>>,
    backend: Arc<dyn Backend>,
}

#[derive(Debug, Default)]
struct Room {
    queue: WaitQueue<Arc<Bell>>,
    /// The hold of this process on the lock, as far as is known.
    hold: Option<Arc<Hold>>,
    listening: bool,
}

/// Wakes one waiter, and tells it that something happened since it last looked.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Notify,
    hint: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        self.hint.store(true, Ordering::Release);
        self.rung.notify_one();
    }

    /// Waits for the bell; one that rang before counts.
    pub(crate) async fn rings(&self) {
        self.rung.notified().await;
    }

    /// Leaves a hint to itself.
    pub(crate) fn give_hint(&self) {
        self.hint.store(true, Ordering::Release);
    }

    pub(crate) fn take_hint(&self) -> bool {
        self.hint.swap(false, Ordering::AcqRel)
    }
}

/// Whether to join a queue in which somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Anyway,
    /// The way of those who will not wait and must not push in.
    IfEmpty,
}

/// What a waiter sees when it looks around in its room.
pub(crate) struct Look {
    pub(crate) is_head: bool,
    pub(crate) held_here: bool,
    pub(crate) listening: bool,
}

impl Rooms {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { rooms: Mutex::default(), backend }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockName, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the queue at its end; `None` when that would mean to wait behind somebody and `join` forbids it.
    pub(crate) fn enter(self: &Arc<Self>, name: &LockName, join: Join) -> Option<(Seat, Look)> {
        let bell = Arc::new(Bell::default());
        let mut rooms = self.lock();
        let (ticket, look) = match rooms.get_mut(name) {
            Some(room) if join == Join::IfEmpty && !room.queue.is_empty() => return None,
            Some(room) => room.enter(&bell),
            None => rooms.entry(name.clone()).or_default().enter(&bell),
        };
        drop(rooms);
        Some((Seat { rooms: Arc::clone(self), name: name.clone(), ticket, bell, seated: true }, look))
    }

    /// A hold of this process ended, by whatever way: the head may ask now.
    pub(crate) fn vacate(&self, hold: &Arc<Hold>) {
        let mut rooms = self.lock();
        let Some(room) = rooms.get_mut(&hold.name) else {
            return;
        };
        if room.hold.as_ref().is_some_and(|known| Arc::ptr_eq(known, hold)) {
            room.hold = None;
            room.ring_head();
            self.tidy(rooms, &hold.name);
        }
    }

    /// A release of `name` was heard of.
    pub(crate) fn ring(&self, name: &LockName) {
        if let Some(room) = self.lock().get(name) {
            room.ring_head();
        }
    }

    /// Something happened that concerns every lock.
    pub(crate) fn ring_all_heads(&self) {
        self.lock().values().for_each(Room::ring_head);
    }

    /// Something happened that concerns every waiter.
    pub(crate) fn ring_everybody(&self) {
        self.lock().values().flat_map(|room| room.queue.iter()).for_each(|bell| bell.ring());
    }

    /// The hold of this process on `name`, as far as is known.
    pub(crate) fn hold(&self, name: &LockName) -> Option<Arc<Hold>> {
        self.lock().get(name).and_then(|room| room.hold.clone())
    }

    /// How many locks are held here, or are being given back; and how many are only wanted.
    pub(crate) fn census(&self) -> (usize, usize) {
        let rooms = self.lock();
        let held = rooms.values().filter(|room| room.hold.is_some()).count();
        (held, rooms.len() - held)
    }

    /// How many tasks of this process wait for `name`.
    pub(crate) fn waiting(&self, name: &LockName) -> usize {
        self.lock().get(name).map_or(0, |room| room.queue.len())
    }

    /// Clears a room that nobody uses any more.
    fn tidy(&self, mut rooms: MutexGuard<'_, HashMap<LockName, Room>>, name: &LockName) {
        let Some(room) = rooms.get_mut(name) else { return };
        if !room.queue.is_empty() {
            return;
        }
        let was_listening = std::mem::take(&mut room.listening);
        if room.hold.is_none() {
            rooms.remove(name);
        }
        // Under the lock, so that it cannot overtake the wish of one who comes next.
        if was_listening {
            self.backend.unlisten(name);
        }
    }
}

impl Room {
    fn enter(&mut self, bell: &Arc<Bell>) -> (Ticket, Look) {
        let ticket = self.queue.enter(Arc::clone(bell));
        (ticket, self.look(ticket))
    }

    fn look(&self, ticket: Ticket) -> Look {
        Look {
            is_head: self.queue.is_head(ticket),
            held_here: self.hold.is_some(),
            listening: self.listening,
        }
    }

    fn ring_head(&self) {
        if let Some(bell) = self.queue.head() {
            bell.ring();
        }
    }
}

/// A place in a waiting room. Dropping it leaves the queue, and tells the next one if it has become the head.
#[derive(Debug)]
pub(crate) struct Seat {
    rooms: Arc<Rooms>,
    name: LockName,
    ticket: Ticket,
    pub(crate) bell: Arc<Bell>,
    seated: bool,
}

impl Seat {
    pub(crate) fn look(&self) -> Look {
        let rooms = self.rooms.lock();
        let nowhere = Look { is_head: false, held_here: false, listening: false };
        rooms.get(&self.name).map_or(nowhere, |room| room.look(self.ticket))
    }

    pub(crate) fn set_listening(&self) {
        if let Some(room) = self.rooms.lock().get_mut(&self.name) {
            room.listening = true;
        }
    }

    /// The lock was granted: leaves the queue and puts the hold in the room, in one go, so that the next head never
    /// sees a room that looks free. The hold that stood there before, if any, which a new grant proves to be gone.
    pub(crate) fn trade_for(&mut self, hold: &Arc<Hold>) -> Option<Arc<Hold>> {
        self.leave(Some(hold))
    }

    fn leave(&mut self, hold: Option<&Arc<Hold>>) -> Option<Arc<Hold>> {
        if !std::mem::take(&mut self.seated) {
            return None;
        }
        let mut rooms = self.rooms.lock();
        let room = rooms.get_mut(&self.name)?;
        let displaced = hold.and_then(|hold| room.hold.replace(Arc::clone(hold)));
        if let Some(bell) = room.queue.leave(self.ticket) {
            bell.ring();
        }
        self.rooms.tidy(rooms, &self.name);
        displaced
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave(None);
    }
}
