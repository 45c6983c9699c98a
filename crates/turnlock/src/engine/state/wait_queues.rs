use std::collections::hash_map::{Entry, OccupiedEntry};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use turnlock_core::name::NameMap;
use turnlock_core::wait_queue::Ticket;
use turnlock_core::{Kind, LockName, Moment, OwnerId, Yielding};

use super::call_site::CallSite;
use super::hold::Hold;
use super::hold_durations::HoldDurations;
use super::lock_queue::{FrontState, Join, LockQueue, Outage, QueueView, Refusal, Wakeup};
use crate::clock;
use crate::sync::Mutex;
use turnlock_store::{Failure, Presence, Store};

/// The time between two turns that a client with several permits yields.
const YIELD_PAUSE: Duration = Duration::from_millis(20);

/// The local wait queues: one for each lock that this client holds or waits for.
///
/// Each waiter for a fair lock has a queue of its own, since it has its own entry in the queue on the store.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    pub(super) queues: Mutex<NameMap<LockQueue>>,
    /// The number of callers with a place in a queue. Changed with the queues locked.
    pub(super) waiting_callers: AtomicUsize,
    store: Arc<dyn Store>,
    /// How long locks were held lately.
    pub(crate) durations: HoldDurations,
}

impl WaitQueues {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            queues: Mutex::default(),
            waiting_callers: AtomicUsize::new(0),
            store,
            durations: HoldDurations::default(),
        }
    }

    /// Enters the queue of `name`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        name: &LockName,
        join: Join,
        wakeup: Wakeup,
    ) -> (Waiter, QueueView) {
        let wakeup = Arc::new(wakeup);
        let mut queues = self.queues.lock();
        let queue = queues.entry(name.clone()).or_default();
        let ticket = match join {
            Join::NotQueued => None,
            Join::AtEnd => {
                self.waiting_callers.fetch_add(1, Ordering::Relaxed);
                Some(queue.waiters.enter(Arc::clone(&wakeup), name.kind().shares_front()))
            }
        };
        let view = queue.view(ticket, name.kind());
        if view.may_send {
            // It is about to send a request, unless it reports otherwise.
            wakeup.begin_request();
        }
        drop(queues);
        (Waiter { wait_queues: Arc::clone(self), name: name.clone(), ticket, wakeup, is_entered: true }, view)
    }

    /// Returns the callers in the queue of `waiter` that have waited since `since` for a valid hold of their own task,
    /// each with the call site of that hold.
    ///
    /// Where waiters share the front, each checks itself only: their number does not matter to the others.
    pub(crate) fn self_waits(
        &self,
        waiter: &Waiter,
        name: &LockName,
        since: Moment,
    ) -> Vec<(CallSite, CallSite)> {
        let queues = self.queues.lock();
        let (Some(holder), Some(queue)) = (queues.get(name), queues.get(&waiter.name)) else {
            return Vec::new();
        };
        let held: Vec<_> =
            holder.holds.iter().filter(|hold| hold.is_valid()).filter_map(|hold| hold.call_site).collect();
        let self_wait = |wakeup: &Wakeup| {
            let waiting = wakeup.waiting_since(since)?;
            let held = held.iter().find(|held| held.is_same_task(waiting))?;
            Some((*held, *waiting))
        };
        if name.kind().shares_front() {
            return self_wait(&waiter.wakeup).into_iter().collect();
        }
        queue.waiters.iter().filter_map(|wakeup| self_wait(wakeup)).collect()
    }

    /// Removes a local hold that has ended, and wakes the waiters in front.
    pub(crate) fn remove_hold(&self, hold: &Arc<Hold>) {
        let mut queues = self.queues.lock();
        let Entry::Occupied(mut entry) = queues.entry(hold.name.clone()) else { return };
        if entry.get_mut().remove_hold(hold) {
            entry.get().wake_front();
            self.remove_if_unused(entry);
        }
    }

    /// Hands a hold over to the first waiter, if it accepts the hold and `end_guard` ends the current guard.
    ///
    /// Returns `true` on success.
    pub(crate) fn hand_over(&self, hold: &Arc<Hold>, end_guard: impl FnOnce() -> bool) -> bool {
        let queues = self.queues.lock();
        let Some(queue) = queues.get(&hold.name) else { return false };
        let Some(wakeup) = queue.waiters.front().next() else { return false };
        let is_accepted =
            wakeup.hand_over_replicas.is_some_and(|replicas| hold.replicas_wanted() >= replicas);
        if !is_accepted || wakeup.is_gone() || !queue.has_hold(hold) || !end_guard() {
            return false;
        }
        *wakeup.handed.lock() = Some(Arc::clone(hold));
        wakeup.wake();
        true
    }

    /// Ends the hand-over window of an owner's hold. Takes back a hold that was handed over and not accepted.
    ///
    /// A waiter that does not run must not block other processes. If there is nothing to take back, wakes the
    /// first waiter, which may not know that it is in front.
    pub(crate) fn end_window(&self, name: &LockName, owner: &OwnerId) -> Option<Arc<Hold>> {
        let queues = self.queues.lock();
        let wakeup = queues.get(name)?.waiters.front().next()?;
        let mut handed = wakeup.handed.lock();
        let handed = handed.take_if(|hold| hold.owner == *owner);
        if handed.is_none() {
            wakeup.wake();
        }
        handed
    }

    /// Starts to yield to other processes, before a release. Returns `false` if that is not necessary.
    ///
    /// It is not if no local waiter is queued and no client received the release before. A client with many permits
    /// yields now and then, not with each release: the others may wait for more permits than that.
    pub(crate) fn begin_yielding(&self, name: &LockName, now: Moment) -> bool {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(name) else { return false };
        if queue.waiters.is_empty() && queue.listeners == 0 {
            return false;
        }
        let last = queue.yielding.as_ref().map(Yielding::ends);
        if last.is_some_and(|end| now < end || (queue.holds.len() > 1 && now < end + YIELD_PAUSE)) {
            return false;
        }
        queue.yielding = Some(Yielding::begin(queue.listeners, now));
        true
    }

    /// Sets the number of clients that received the message of a release, after which this client yields or not.
    pub(crate) fn set_listeners(&self, name: &LockName, listeners: u32, yields: bool) {
        if let Some(queue) = self.queues.lock().get_mut(name) {
            let is_alone = listeners <= u32::from(queue.is_subscribed);
            let listeners = if is_alone { 0 } else { listeners };
            queue.listeners = listeners;
            if let Some(yielding) = queue.yielding.as_mut().filter(|_| yields) {
                yielding.release_published(listeners, clock::now());
            }
        }
    }

    /// Wakes the waiters in front, after a message that `name` was released. Returns `false` if it has no queue.
    pub(crate) fn wake(&self, name: &LockName) -> bool {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(name) else { return false };
        if let Some(yielding) = &mut queue.yielding {
            yielding.release_received(clock::now());
        }
        if name.kind() == Kind::Latch {
            // The first one asks for all, but the others must know how long to wait for it.
            queue.wake_all();
        } else {
            queue.wake_front();
        }
        true
    }

    /// Returns `true` if this client holds `name`, as far as it knows.
    pub(crate) fn has_holds(&self, name: &LockName) -> bool {
        self.queues.lock().get(name).is_some_and(|queue| !queue.holds.is_empty())
    }

    /// Wakes the waiters in front of all queues.
    pub(crate) fn wake_all_fronts(&self) {
        self.queues.lock().values().for_each(LockQueue::wake_front);
    }

    /// Wakes all waiters.
    pub(crate) fn wake_all(&self) {
        self.queues.lock().values().for_each(LockQueue::wake_all);
    }

    /// Calls `each` with the local holds on `name`, while none of them can be handed over.
    pub(crate) fn for_holds(&self, name: &LockName, each: impl FnMut(&Arc<Hold>)) {
        if let Some(queue) = self.queues.lock().get(name) {
            queue.holds.iter().for_each(each);
        }
    }

    /// The number of holds, including those being released, and the number of locks with waiters only.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let queues = self.queues.lock();
        let held = queues.values().map(|queue| queue.holds.len()).sum();
        (held, queues.values().filter(|queue| queue.holds.is_empty()).count())
    }

    /// The state of the waiters in front of a queue; for a fair lock, of one of its waiters. `None` without a
    /// waiter.
    ///
    /// Replies and failures older than `max_age` do not count.
    pub(crate) fn front_state(&self, name: &LockName, max_age: Duration) -> Option<FrontState> {
        let queues = self.queues.lock();
        let queue = if name.kind() == Kind::Fair && !name.is_for_one_waiter() {
            let is_waiter_queue = |other: &LockName| other.is_for_one_waiter() && other.key() == name.key();
            queues.iter().find(|(other, _)| is_waiter_queue(other)).map(|(_, queue)| queue)
        } else {
            queues.get(name)
        };
        let queue = queue.filter(|queue| !queue.waiters.is_empty())?;
        let sending = queue.waiters.front().find(|wakeup| wakeup.is_sending.load(Ordering::Acquire));
        Some(FrontState {
            sending: sending.cloned(),
            outage: queue.outage(max_age).cloned(),
            is_refused: queue.refusal.is_some_and(|refusal| refusal.is_recent(max_age)),
        })
    }

    /// The number of local waiters for `name`.
    pub(crate) fn waiting(&self, name: &LockName) -> usize {
        self.queues.lock().get(name).map_or(0, |queue| queue.waiters.len())
    }

    /// Unsubscribes a queue without waiters, and removes it if it has no holds.
    fn remove_if_unused(&self, mut entry: OccupiedEntry<'_, LockName, LockQueue>) {
        if !entry.get().waiters.is_empty() {
            return;
        }
        // Under the lock, so that it cannot overtake the subscription of the next waiter.
        if std::mem::take(&mut entry.get_mut().is_subscribed) {
            self.store.unsubscribe(entry.key());
        }
        if entry.get().holds.is_empty() {
            entry.remove();
        }
    }
}

/// A waiter in a local queue. Dropping it leaves the queue, and wakes the waiters that come to the front.
#[derive(Debug)]
pub(crate) struct Waiter {
    wait_queues: Arc<WaitQueues>,
    /// The name of its queue. For a fair lock, it names this waiter too.
    pub(crate) name: LockName,
    ticket: Option<Ticket>,
    pub(crate) wakeup: Arc<Wakeup>,
    is_entered: bool,
}

impl Waiter {
    /// Moves the place in the queue out of this waiter.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            wait_queues: Arc::clone(&self.wait_queues),
            name: self.name.clone(),
            ticket: self.ticket,
            wakeup: Arc::clone(&self.wakeup),
            is_entered: std::mem::take(&mut self.is_entered),
        }
    }

    pub(crate) fn view(&self) -> QueueView {
        let queues = self.wait_queues.queues.lock();
        // A waiter without a place in the queue does not keep the queue alive, and may send all the same.
        let no_queue = LockQueue::default();
        queues.get(&self.name).unwrap_or(&no_queue).view(self.ticket, self.name.kind())
    }

    /// Returns `true` if a valid local hold blocks the lock.
    ///
    /// A hold that is being released does not count: only the store knows whether it has ended.
    pub(crate) fn is_held_locally(&self) -> bool {
        let is_blocking =
            |hold: &Arc<Hold>| !self.name.kind().is_compatible_with(hold.name.kind()) && hold.is_valid();
        self.ticket.is_some()
            && (self.wait_queues.queues.lock().get(&self.name))
                .is_some_and(|queue| queue.holds.iter().any(is_blocking))
    }

    /// The failures of earlier waiters in front, if the last one is not older than `max_age`.
    pub(crate) fn outage(&self, max_age: Duration) -> Option<Outage> {
        self.wait_queues.queues.lock().get(&self.name)?.outage(max_age).cloned()
    }

    /// Records a failed request that was sent at `sent`.
    pub(crate) fn set_outage(&self, sent: Moment, failure: &Failure) {
        if let Some(queue) = self.wait_queues.queues.lock().get_mut(&self.name) {
            let since = queue.outage.as_ref().map_or(sent, |outage| outage.since);
            let outage = Outage { since, last: clock::now(), failure: failure.clone() };
            // An earlier refusal does not describe the current state of the store.
            (queue.outage, queue.refusal) = (Some(Box::new(outage)), None);
        }
    }

    /// Records a refused request for `permits` that was sent at `sent`.
    pub(crate) fn set_refusal(&self, kind: Kind, permits: u32, sent: Moment) {
        if let Some(queue) = self.wait_queues.queues.lock().get_mut(&self.name) {
            queue.outage = None;
            queue.refusal = Some(Refusal { sent, kind, permits });
        }
    }

    /// Records that a request sent at `sent` found a latch open, and wakes all its waiters.
    pub(crate) fn set_opened(&self, sent: Moment) {
        if let Some(queue) = self.wait_queues.queues.lock().get_mut(&self.name) {
            queue.opened = Some(sent);
            queue.wake_all();
        }
    }

    pub(crate) fn set_subscribed(&self) {
        if let Some(queue) = self.wait_queues.queues.lock().get_mut(&self.name) {
            queue.is_subscribed = true;
        }
    }

    /// Leaves the queue and adds the granted hold, atomically, so that the next waiter never sees a free
    /// lock.
    ///
    /// Returns the earlier holds that conflict with the new one, except `under`. The new grant proves that
    /// they are gone.
    pub(crate) fn leave_granted(&mut self, hold: &Arc<Hold>, under: Option<&Arc<Hold>>) -> Vec<Arc<Hold>> {
        self.leave(Some((hold, under)))
    }

    /// Replaces `handed` by `hold` and leaves the queue, atomically.
    ///
    /// Returns `false` if the handed-over hold is gone or `transfer` fails. The waiter that comes to the
    /// front is woken only from `wake_from` on. Before, it will most likely be handed the lock next, and
    /// waking it twice would double the cost of a turn.
    pub(crate) fn accept_hand_over(
        &mut self,
        handed: &Arc<Hold>,
        hold: &Arc<Hold>,
        wake_from: Moment,
        transfer: impl FnOnce() -> bool,
    ) -> bool {
        let mut queues = self.wait_queues.queues.lock();
        let Entry::Occupied(mut entry) = queues.entry(self.name.clone()) else { return false };
        let queue = entry.get_mut();
        if !queue.has_hold(handed) || !transfer() {
            return false;
        }
        queue.remove_hold(handed);
        queue.holds.push(Arc::clone(hold));
        self.is_entered = false;
        self.wakeup.end_request();
        if let Some(ticket) = self.ticket {
            let wakes = clock::now() >= wake_from;
            self.wait_queues.waiting_callers.fetch_sub(1, Ordering::Relaxed);
            queue.waiters.leave(ticket).filter(|_| wakes).for_each(|wakeup| wakeup.wake());
        }
        self.wait_queues.remove_if_unused(entry);
        true
    }

    /// Leaves the queue. Returns a hold that was handed over and not accepted.
    pub(crate) fn give_up(&mut self) -> Option<Arc<Hold>> {
        self.leave(None);
        self.wakeup.take_handed()
    }

    fn leave(&mut self, granted: Option<(&Arc<Hold>, Option<&Arc<Hold>>)>) -> Vec<Arc<Hold>> {
        if !std::mem::take(&mut self.is_entered) {
            return Vec::new();
        }
        let mut queues = self.wait_queues.queues.lock();
        self.wakeup.end_request();
        if self.ticket.is_some() {
            self.wait_queues.waiting_callers.fetch_sub(1, Ordering::Relaxed);
        }
        let mut displaced = Vec::new();
        // The hold of a fair lock belongs in the queue of the lock, not in that of the waiter.
        let elsewhere = granted.filter(|(hold, _)| hold.name != self.name);
        if let Some((hold, under)) = elsewhere {
            displaced = queues.entry(hold.name.clone()).or_default().add_hold(hold, under);
        }
        let here = granted.filter(|_| elsewhere.is_none());
        let mut entry = match queues.entry(self.name.clone()) {
            Entry::Occupied(entry) => entry,
            // A waiter without a place may find no queue.
            Entry::Vacant(entry) if here.is_some() => entry.insert_entry(LockQueue::default()),
            Entry::Vacant(_) => return displaced,
        };
        if let Some((hold, under)) = here {
            displaced = entry.get_mut().add_hold(hold, under);
        }
        if let Some(ticket) = self.ticket {
            entry.get_mut().waiters.leave(ticket).for_each(|wakeup| wakeup.wake());
        }
        self.wait_queues.remove_if_unused(entry);
        displaced
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.leave(None);
    }
}

#[cfg(test)]
#[path = "tests/wait_queues.rs"]
mod tests;
