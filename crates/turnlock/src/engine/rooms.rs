use std::collections::HashMap;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use turnlock_core::wait_queue::{Ticket, WaitQueue};
use turnlock_core::{Courtesy, Kind, LockName, Moment, OwnerId};

use super::hold::Hold;
use crate::backend::{Backend, Failure};
use crate::clock;

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
    /// What is owed to others since the last release of this process.
    courtesy: Option<Courtesy>,
    /// The failures of the waiters in front, since the store last answered one of them.
    outage: Option<Box<Outage>>,
    /// What the store last refused.
    refusal: Option<Refusal>,
}

/// A refusal by the store: what was asked for, and when the request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    sent: Moment,
    kind: Kind,
    permits: u32,
}

impl Outage {
    /// Whether it has lasted for longer than a request waits for its answer. A shorter one may be that of a connection that has
    /// died, and is made anew by the next request.
    pub(super) fn has_lasted(&self, limit: Duration) -> bool {
        self.last >= self.since + limit
    }
}

impl Refusal {
    /// Whether one who has waited since then, for so much, was refused as well: the store was asked after it came.
    pub(super) fn is_for(&self, began: Moment, kind: Kind, permits: u32) -> bool {
        self.sent >= began && self.kind == kind && self.permits <= permits
    }

    /// Whether the request was sent no longer than that ago. An older refusal says nothing of a store that has fallen silent.
    pub(super) fn is_of_late(&self, recent: Duration) -> bool {
        clock::now() < self.sent + recent
    }
}

/// Failures in a row of the requests for one lock.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    /// When the first request was sent that got no answer.
    pub(super) since: Moment,
    /// The last failure, and when that was.
    pub(super) last: Moment,
    pub(super) failure: Failure,
}

/// What a waiter that is not in front knows of those in front.
pub(super) enum Ahead {
    /// They wait for a lock that is held: the store has refused a request of theirs a moment ago.
    Waiting,
    /// None of them has an answer that speaks of the store as it is now, and none asks.
    NotAsked,
    /// The last request of one of them failed.
    Failing(Outage),
    /// A request of one of them is under way, and the last one failed if there is an outage.
    Asking(Arc<Bell>, Option<Outage>),
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

    fn contains(&self, hold: &Arc<Hold>) -> bool {
        self.iter().any(|known| Arc::ptr_eq(known, hold))
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
    /// Whether a request of this waiter is under way, and who waits for its end.
    asking: AtomicBool,
    asked: Notify,
    /// Whether this waiter may be handed a hold of this process, if it is acknowledged by so many replicas.
    takes: Option<u32>,
    /// What it was handed. Set only while the waiter is in its queue, under the lock of the rooms.
    handed: Mutex<Option<Arc<Hold>>>,
}

impl Bell {
    fn of_one_who_takes(takes: Option<u32>) -> Arc<Self> {
        Arc::new(Self { takes, ..Self::default() })
    }

    pub(super) fn take_handed(&self) -> Option<Arc<Hold>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

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

    /// A request of this waiter is sent now.
    pub(super) fn begin_asking(&self) {
        self.asking.store(true, Ordering::Release);
    }

    /// The request has an outcome, or is given up.
    pub(super) fn end_asking(&self) {
        if self.asking.swap(false, Ordering::AcqRel) {
            self.asked.notify_waiters();
        }
    }

    /// Waits until no request of this waiter is under way.
    pub(super) async fn has_asked(&self) {
        let mut asked = pin!(self.asked.notified());
        asked.as_mut().enable();
        if self.asking.load(Ordering::Acquire) {
            asked.await;
        }
    }

    /// Whether something happened since it last looked.
    pub(super) fn has_hint(&self) -> bool {
        self.hint.load(Ordering::Acquire)
    }

    pub(crate) fn take_hint(&self) -> bool {
        self.hint.swap(false, Ordering::AcqRel)
    }
}

/// Whether to join a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    AtEnd,
    /// Not in the queue at all: for one who holds already and only wants more of it.
    Aside,
}

/// What a waiter sees when it looks around in its room.
pub(crate) struct Look {
    pub(crate) may_ask: bool,
    pub(crate) held_here: bool,
    pub(crate) listening: bool,
    /// Until when others go first.
    pub(crate) not_before: Moment,
    /// What the store last refused to one of this queue.
    pub(crate) refusal: Option<Refusal>,
}

impl Rooms {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { rooms: Mutex::default(), backend }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockName, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat.
    pub(crate) fn enter(self: &Arc<Self>, name: &LockName, join: Join) -> (Seat, Look) {
        self.enter_as(name, join, None)
    }

    /// The same, for one who also takes what this process holds, if it is acknowledged by so many replicas.
    pub(super) fn enter_as(
        self: &Arc<Self>,
        name: &LockName,
        join: Join,
        takes: Option<u32>,
    ) -> (Seat, Look) {
        let bell = Bell::of_one_who_takes(takes);
        let mut rooms = self.lock();
        let (ticket, look) = rooms.entry(name.clone()).or_default().enter(&bell, name.kind(), join);
        if look.may_ask {
            // It is about to; else it says so.
            bell.begin_asking();
        }
        drop(rooms);
        (Seat { rooms: Arc::clone(self), name: name.clone(), ticket, bell, seated: true }, look)
    }

    /// A hold of this process ended, by whatever way: those in front may ask now.
    pub(crate) fn vacate(&self, hold: &Arc<Hold>) {
        let mut rooms = self.lock();
        let Entry::Occupied(mut room) = rooms.entry(hold.name.clone()) else { return };
        if room.get_mut().holds.remove(hold) {
            room.get().ring_front();
            self.tidy(room);
        }
    }

    /// Hands a hold to the first who waits, if that one takes it and `end_turn` ends what its guard stands for. Whether it did.
    pub(super) fn hand_over(&self, hold: &Arc<Hold>, end_turn: impl FnOnce() -> bool) -> bool {
        let rooms = self.lock();
        let Some(room) = rooms.get(&hold.name) else { return false };
        let Some(bell) = room.queue.front().next() else { return false };
        let is_taken = bell.takes.is_some_and(|replicas| hold.replicas_wanted() >= replicas);
        if !is_taken || !room.holds.contains(hold) || !end_turn() {
            return false;
        }
        *bell.handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(hold));
        bell.ring();
        true
    }

    /// The window of an owner's hold is over: takes back what was handed over of it and not taken, since who does not run must not
    /// keep it from others. Else the first who waits is told that it is the first, which it may not know.
    pub(super) fn end_window(&self, name: &LockName, owner: &OwnerId) -> Option<Arc<Hold>> {
        let rooms = self.lock();
        let bell = rooms.get(name)?.queue.front().next()?;
        let mut handed = bell.handed.lock().unwrap_or_else(PoisonError::into_inner);
        let handed = handed.take_if(|hold| hold.owner == *owner);
        if handed.is_none() {
            bell.ring();
        }
        handed
    }

    /// A hold is about to be given back to the store. Whether somebody here waits for it, who shall let others go first.
    pub(super) fn is_giving_back(&self, name: &LockName) -> bool {
        let mut rooms = self.lock();
        let room = rooms.get_mut(name).filter(|room| !room.queue.is_empty());
        room.map(|room| room.courtesy = Some(Courtesy::begin(clock::now()))).is_some()
    }

    /// It was given back, and so many were told.
    pub(super) fn has_given_back(&self, name: &LockName, told: u32) {
        if let Some(courtesy) = self.lock().get_mut(name).and_then(|room| room.courtesy.as_mut()) {
            courtesy.was_told_to(told, clock::now());
        }
    }

    /// A release of `name` was heard of.
    pub(crate) fn ring(&self, name: &LockName) {
        if let Some(room) = self.lock().get_mut(name) {
            if let Some(courtesy) = &mut room.courtesy {
                courtesy.hears(clock::now());
            }
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

    /// Does something to the holds of this process on `name`, while none of them can pass to another.
    pub(super) fn for_holds(&self, name: &LockName, each: impl FnMut(&Arc<Hold>)) {
        if let Some(room) = self.lock().get(name) {
            room.holds.iter().for_each(each);
        }
    }

    /// How many holds there are, or are being given back; and how many locks are only wanted.
    pub(crate) fn census(&self) -> (usize, usize) {
        let rooms = self.lock();
        let held = rooms.values().map(|room| room.holds.iter().count()).sum();
        (held, rooms.values().filter(|room| room.holds.is_empty()).count())
    }

    /// What those in front of a queue are doing, if there is one; of a fair lock, what one of its waiters is doing. Answers and
    /// failures that are older than `recent` do not count.
    pub(super) fn ahead(&self, name: &LockName, recent: Duration) -> Option<Ahead> {
        let rooms = self.lock();
        let room = if name.kind() == Kind::Fair && !name.is_for_one_waiter() {
            let is_of_waiter = |other: &LockName| other.is_for_one_waiter() && other.key() == name.key();
            rooms.iter().find(|(other, _)| is_of_waiter(other)).map(|(_, room)| room)
        } else {
            rooms.get(name)
        };
        let room = room.filter(|room| !room.queue.is_empty())?;
        let outage = room.outage(recent).cloned();
        let asking = room.queue.front().find(|bell| bell.asking.load(Ordering::Acquire));
        Some(match (asking, outage) {
            (Some(bell), outage) => Ahead::Asking(Arc::clone(bell), outage),
            (None, Some(outage)) => Ahead::Failing(outage),
            (None, None) if room.refusal.is_some_and(|refusal| refusal.is_of_late(recent)) => Ahead::Waiting,
            (None, None) => Ahead::NotAsked,
        })
    }

    /// How many tasks of this process wait for `name`.
    pub(crate) fn waiting(&self, name: &LockName) -> usize {
        self.lock().get(name).map_or(0, |room| room.queue.len())
    }

    /// Clears a room that nobody uses any more.
    fn tidy(&self, mut room: OccupiedEntry<'_, LockName, Room>) {
        if !room.get().queue.is_empty() {
            return;
        }
        // Under the lock, so that it cannot overtake the wish of one who comes next.
        if std::mem::take(&mut room.get_mut().listening) {
            self.backend.unlisten(room.key());
        }
        if room.get().holds.is_empty() {
            room.remove();
        }
    }
}

impl Room {
    fn enter(&mut self, bell: &Arc<Bell>, kind: Kind, join: Join) -> (Option<Ticket>, Look) {
        let ticket = match join {
            Join::Aside => None,
            Join::AtEnd => Some(self.queue.enter(Arc::clone(bell), kind.asks_in_company())),
        };
        (ticket, self.look(ticket, kind))
    }

    fn look(&self, ticket: Option<Ticket>, kind: Kind) -> Look {
        Look {
            may_ask: ticket.is_none_or(|ticket| self.queue.is_in_front(ticket)),
            held_here: ticket.is_some() && self.holds.iter().any(|hold| !kind.goes_with(hold.name.kind())),
            listening: self.listening,
            not_before: self.courtesy.as_ref().map_or(Moment::from_micros(0), Courtesy::ends),
            refusal: self.refusal,
        }
    }

    /// Takes a new hold in. Those that cannot go with it, and are not what it stands under.
    fn admit(&mut self, hold: &Arc<Hold>, under: Option<&Arc<Hold>>) -> Vec<Arc<Hold>> {
        let is_gone = |known: &Arc<Hold>| {
            !hold.name.kind().goes_with(known.name.kind())
                && !under.is_some_and(|under| Arc::ptr_eq(under, known))
        };
        self.courtesy = None;
        (self.outage, self.refusal) = (None, None);
        let displaced = if self.holds.is_empty() { Vec::new() } else { self.holds.take(is_gone) };
        self.holds.add(hold);
        displaced
    }

    fn ring_front(&self) {
        self.queue.front().for_each(|bell| bell.ring());
    }

    /// The outage, if its last failure is not older than `recent`.
    fn outage(&self, recent: Duration) -> Option<&Outage> {
        self.outage.as_deref().filter(|outage| clock::now() < outage.last + recent)
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
        let nowhere = Look {
            may_ask: self.ticket.is_none(),
            held_here: false,
            listening: false,
            not_before: Moment::from_micros(0),
            refusal: None,
        };
        rooms.get(&self.name).map_or(nowhere, |room| room.look(self.ticket, self.name.kind()))
    }

    /// Whether a hold of this process stands in its way: one that this process may believe in. One that is being given back is
    /// not, since only the store can say what became of it.
    pub(super) fn is_held_here(&self) -> bool {
        let is_in_the_way =
            |hold: &Arc<Hold>| !self.name.kind().goes_with(hold.name.kind()) && hold.is_valid();
        self.ticket.is_some()
            && self.rooms.lock().get(&self.name).is_some_and(|room| room.holds.iter().any(is_in_the_way))
    }

    /// What those in front of its queue are doing. A failure that is older than `recent` does not count.
    pub(super) fn ahead(&self, recent: Duration) -> Ahead {
        self.rooms.ahead(&self.name, recent).unwrap_or(Ahead::Waiting)
    }

    /// The failures of those who were in front before, if the last one is not older than `recent`.
    pub(super) fn outage(&self, recent: Duration) -> Option<Outage> {
        self.rooms.lock().get(&self.name)?.outage(recent).cloned()
    }

    /// A request that was sent at that time got no answer.
    pub(super) fn set_outage(&self, sent: Moment, failure: &Failure) {
        if let Some(room) = self.rooms.lock().get_mut(&self.name) {
            let since = room.outage.as_ref().map_or(sent, |outage| outage.since);
            let outage = Outage { since, last: clock::now(), failure: failure.clone() };
            // What the store said before it says nothing of what is now.
            (room.outage, room.refusal) = (Some(Box::new(outage)), None);
        }
    }

    /// The store has refused a request for so many permits, which was sent at that time.
    pub(super) fn set_refusal(&self, kind: Kind, permits: u32, sent: Moment) {
        if let Some(room) = self.rooms.lock().get_mut(&self.name) {
            room.outage = None;
            room.refusal = Some(Refusal { sent, kind, permits });
        }
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

    /// Takes what was handed over: puts `hold` in the place of `handed` and leaves the queue, in one go. Not when what stood there
    /// is gone, or `is_still_good` says no.
    ///
    /// Who comes to the front by that is told only from `telling_from` on. Before that it will most likely be handed the lock
    /// next, and waking it twice would double the cost of a turn.
    pub(super) fn take_over(
        &mut self,
        handed: &Arc<Hold>,
        hold: &Arc<Hold>,
        telling_from: Moment,
        is_still_good: impl FnOnce() -> bool,
    ) -> bool {
        let mut rooms = self.rooms.lock();
        let Entry::Occupied(mut entry) = rooms.entry(self.name.clone()) else { return false };
        let room = entry.get_mut();
        if !room.holds.contains(handed) || !is_still_good() {
            return false;
        }
        room.holds.remove(handed);
        room.holds.add(hold);
        self.seated = false;
        self.bell.end_asking();
        if let Some(ticket) = self.ticket {
            let is_telling = clock::now() >= telling_from;
            room.queue.leave(ticket).filter(|_| is_telling).for_each(|bell| bell.ring());
        }
        self.rooms.tidy(entry);
        true
    }

    /// Leaves the queue. What was handed over meanwhile and not taken.
    pub(super) fn give_up(&mut self) -> Option<Arc<Hold>> {
        self.leave(None);
        self.bell.take_handed()
    }

    fn leave(&mut self, granted: Option<(&Arc<Hold>, Option<&Arc<Hold>>)>) -> Vec<Arc<Hold>> {
        if !std::mem::take(&mut self.seated) {
            return Vec::new();
        }
        let mut rooms = self.rooms.lock();
        self.bell.end_asking();
        // The room of one waiter of a fair lock is not the one that the hold belongs in, and one who stood aside may find no
        // room at all.
        let (elsewhere, here) = match granted {
            Some((hold, _)) if hold.name != self.name || self.ticket.is_none() => (granted, None),
            granted => (None, granted),
        };
        let mut displaced = Vec::new();
        if let Some((hold, under)) = elsewhere {
            displaced = rooms.entry(hold.name.clone()).or_default().admit(hold, under);
        }
        let Entry::Occupied(mut room) = rooms.entry(self.name.clone()) else { return displaced };
        if let Some((hold, under)) = here {
            displaced = room.get_mut().admit(hold, under);
        }
        if let Some(ticket) = self.ticket {
            room.get_mut().queue.leave(ticket).for_each(|bell| bell.ring());
        }
        self.rooms.tidy(room);
        displaced
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave(None);
    }
}
