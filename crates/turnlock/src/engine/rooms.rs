use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use turnlock_core::wait_queue::{Ticket, WaitQueue};
use turnlock_core::{Kind, LockName};

use super::hold::Hold;
use crate::backend::Backend;

/// The waiting rooms of this process: one for each lock that somebody here holds or wants. Who waits for a fair lock has
/// a room of its own, since it has a place of its own in the queue on the store.
#[derive(Debug)]
pub(crate) struct Rooms {
    rooms: Mutex<HashMap<LockName, Room>>,
    backend: Arc<dyn Backend>,
}

#[derive(Debug, Default)]
struct Room {
    queue: WaitQueue<Arc<Bell>>,
    holds: Holds,
    listening: bool,
}

/// The holds of this process on one lock, as far as is known: at most one, but for readers and permits.
#[derive(Debug, Default)]
struct Holds {
    first: Option<Arc<Hold>>,
    more: Vec<Arc<Hold>>,
}

impl Holds {
    fn iter(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.first.iter().chain(&self.more)
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }

    fn add(&mut self, hold: &Arc<Hold>) {
        match &mut self.first {
            None => self.first = Some(Arc::clone(hold)),
            Some(_) => self.more.push(Arc::clone(hold)),
        }
    }

    /// Whether it was there.
    fn remove(&mut self, hold: &Arc<Hold>) -> bool {
        if self.first.as_ref().is_some_and(|first| Arc::ptr_eq(first, hold)) {
            self.first = self.more.pop();
            return true;
        }
        let place = self.more.iter().position(|known| Arc::ptr_eq(known, hold));
        place.map(|place| self.more.swap_remove(place)).is_some()
    }

    /// Takes out those that `which` says.
    fn take(&mut self, which: impl Fn(&Arc<Hold>) -> bool) -> Vec<Arc<Hold>> {
        let mut taken: Vec<_> = self.first.take_if(|hold| which(hold)).into_iter().collect();
        taken.extend(self.more.extract_if(.., |hold| which(hold)));
        if self.first.is_none() {
            self.first = self.more.pop();
        }
        taken
    }
}

/// Wakes one waiter, and tells it that something happened since it last looked.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Notify,
    hint: AtomicBool,
}

impl Bell {
    pub(super) fn ring(&self) {
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
    /// Not in the queue at all: for one who holds already and only wants more of it.
    Aside,
}

/// What a waiter sees when it looks around in its room.
pub(crate) struct Look {
    pub(crate) may_ask: bool,
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
            Some(room) => room.enter(&bell, name.kind(), join),
            None => rooms.entry(name.clone()).or_default().enter(&bell, name.kind(), join),
        };
        drop(rooms);
        Some((Seat { rooms: Arc::clone(self), name: name.clone(), ticket, bell, seated: true }, look))
    }

    /// A hold of this process ended, by whatever way: those in front may ask now.
    pub(crate) fn vacate(&self, hold: &Arc<Hold>) {
        let mut rooms = self.lock();
        let Some(room) = rooms.get_mut(&hold.name) else {
            return;
        };
        if room.holds.remove(hold) {
            room.ring_front();
            self.tidy(rooms, &hold.name);
        }
    }

    /// A release of `name` was heard of.
    pub(crate) fn ring(&self, name: &LockName) {
        if let Some(room) = self.lock().get(name) {
            room.ring_front();
        }
    }

    /// Something happened that concerns every lock.
    pub(crate) fn ring_all_fronts(&self) {
        self.lock().values().for_each(Room::ring_front);
    }

    /// Something happened that concerns every waiter.
    pub(crate) fn ring_everybody(&self) {
        self.lock().values().flat_map(|room| room.queue.iter()).for_each(|bell| bell.ring());
    }

    /// The holds of this process on `name`, as far as is known.
    pub(crate) fn holds(&self, name: &LockName) -> Vec<Arc<Hold>> {
        self.lock().get(name).map_or_else(Vec::new, |room| room.holds.iter().cloned().collect())
    }

    /// How many holds there are, or are being given back; and how many locks are only wanted.
    pub(crate) fn census(&self) -> (usize, usize) {
        let rooms = self.lock();
        let held = rooms.values().map(|room| room.holds.iter().count()).sum();
        (held, rooms.values().filter(|room| room.holds.is_empty()).count())
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
        if room.holds.is_empty() {
            rooms.remove(name);
        }
        // Under the lock, so that it cannot overtake the wish of one who comes next.
        if was_listening {
            self.backend.unlisten(name);
        }
    }
}

impl Room {
    fn enter(&mut self, bell: &Arc<Bell>, kind: Kind, join: Join) -> (Option<Ticket>, Look) {
        let ticket = match join {
            Join::Aside => None,
            Join::Anyway | Join::IfEmpty => Some(self.queue.enter(Arc::clone(bell), kind.asks_in_company())),
        };
        (ticket, self.look(ticket, kind))
    }

    fn look(&self, ticket: Option<Ticket>, kind: Kind) -> Look {
        Look {
            may_ask: ticket.is_none_or(|ticket| self.queue.is_in_front(ticket)),
            held_here: ticket.is_some() && self.holds.iter().any(|hold| !kind.goes_with(hold.name.kind())),
            listening: self.listening,
        }
    }

    /// Takes a new hold in. Those that cannot go with it, and are not what it stands under.
    fn admit(&mut self, hold: &Arc<Hold>, under: Option<&Arc<Hold>>) -> Vec<Arc<Hold>> {
        let is_gone = |known: &Arc<Hold>| {
            !hold.name.kind().goes_with(known.name.kind())
                && !under.is_some_and(|under| Arc::ptr_eq(under, known))
        };
        let displaced = if self.holds.is_empty() { Vec::new() } else { self.holds.take(is_gone) };
        self.holds.add(hold);
        displaced
    }

    fn ring_front(&self) {
        self.queue.front().for_each(|bell| bell.ring());
    }
}

/// A place in a waiting room. Dropping it leaves the queue, and tells those who have come to the front by that.
#[derive(Debug)]
pub(crate) struct Seat {
    rooms: Arc<Rooms>,
    name: LockName,
    ticket: Option<Ticket>,
    pub(crate) bell: Arc<Bell>,
    seated: bool,
}

impl Seat {
    /// The name that the room goes by: for a fair lock, that of just this waiter.
    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn look(&self) -> Look {
        let rooms = self.rooms.lock();
        // One who stands aside keeps no room open, and may ask all the same.
        let nowhere = Look { may_ask: self.ticket.is_none(), held_here: false, listening: false };
        rooms.get(&self.name).map_or(nowhere, |room| room.look(self.ticket, self.name.kind()))
    }

    pub(crate) fn set_listening(&self) {
        if let Some(room) = self.rooms.lock().get_mut(&self.name) {
            room.listening = true;
        }
    }

    /// The lock was granted: leaves the queue and puts the hold in the room, in one go, so that the next head never
    /// sees a room that looks free. The holds that stood there before and cannot go with it, which a new grant proves to
    /// be gone; all but `under`, under which the new one stands.
    pub(crate) fn trade_for(&mut self, hold: &Arc<Hold>, under: Option<&Arc<Hold>>) -> Vec<Arc<Hold>> {
        self.leave(Some((hold, under)))
    }

    fn leave(&mut self, granted: Option<(&Arc<Hold>, Option<&Arc<Hold>>)>) -> Vec<Arc<Hold>> {
        if !std::mem::take(&mut self.seated) {
            return Vec::new();
        }
        let mut rooms = self.rooms.lock();
        let displaced = granted.map(|(hold, under)| {
            // The room of one waiter of a fair lock is not the one that the hold belongs in, and one who stood aside may
            // find no room at all.
            match rooms.get_mut(&hold.name) {
                Some(room) => room.admit(hold, under),
                None => rooms.entry(hold.name.clone()).or_default().admit(hold, under),
            }
        });
        let Some(room) = rooms.get_mut(&self.name) else { return displaced.unwrap_or_default() };
        if let Some(ticket) = self.ticket {
            room.queue.leave(ticket).for_each(|bell| bell.ring());
        }
        self.rooms.tidy(rooms, &self.name);
        displaced.unwrap_or_default()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave(None);
    }
}
