use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use turnlock_core::wait_queue::{Ticket, WaitQueue};
use turnlock_core::{Kind, Moment, Yielding};

use super::call_site::CallSite;
use super::caller::Caller;
use super::hold::Hold;
use crate::clock;
use crate::sync::{AtomicBool, Mutex};
use turnlock_store::{Failure, Presence};

/// The local holds and waiters of one lock, and what its waiters know of each other's requests.
#[derive(Debug, Default)]
pub(crate) struct LockQueue {
    pub(crate) waiters: WaitQueue<Arc<Wakeup>>,
    /// The known local holds: at most one, except for readers and permits.
    pub(crate) holds: SmallVec<[Arc<Hold>; 1]>,
    pub(crate) is_subscribed: bool,
    /// The turns left to other processes since the last release of this client.
    pub(crate) yielding: Option<Yielding>,
    /// The number of clients that received the last release of this client.
    pub(crate) listeners: u32,
    /// The failures of the waiters in front since the last reply.
    pub(crate) outage: Option<Box<Outage>>,
    /// The last refusal by the store.
    pub(crate) refusal: Option<Refusal>,
    /// When the last request was sent that found a latch open.
    pub(crate) opened: Option<Moment>,
}

/// A refused request: what it requested, and when it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) sent: Moment,
    pub(crate) kind: Kind,
    pub(crate) permits: u32,
}

impl Refusal {
    /// Returns `true` if a waiter since `began` for `permits` is refused too: the refused request was sent
    /// later.
    pub(crate) fn covers(&self, began: Moment, kind: Kind, permits: u32) -> bool {
        self.sent >= began && self.kind == kind && self.permits <= permits
    }

    /// Returns `true` if it was sent within `max_age`. An older one proves nothing about a store that has
    /// stopped replying.
    pub(crate) fn is_recent(&self, max_age: Duration) -> bool {
        clock::now() < self.sent + max_age
    }
}

/// Consecutive failures of the requests for one lock.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    /// When the first failed request was sent.
    pub(crate) since: Moment,
    /// When the last failure happened.
    pub(crate) last: Moment,
    pub(crate) failure: Failure,
}

impl Outage {
    /// Returns `true` if it has lasted longer than a response time-out.
    ///
    /// A shorter one may be a dead connection that the next request replaces.
    pub(crate) fn has_lasted(&self, limit: Duration) -> bool {
        self.last >= self.since + limit
    }
}

/// The state of the waiters in front, for a waiter behind them.
pub(crate) struct FrontState {
    /// One of them that has a request under way.
    pub(crate) sending: Option<Arc<Wakeup>>,
    /// The failures of their requests since the last reply.
    pub(crate) outage: Option<Outage>,
    /// They wait for a held lock: the store refused a request of theirs recently.
    pub(crate) is_refused: bool,
}

/// How to enter a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    AtEnd,
    /// Without a place in the queue, for an owner that already has a hold.
    NotQueued,
}

/// The state of a queue, as one of its waiters sees it.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each read on its own")]
pub(crate) struct QueueView {
    pub(crate) may_send: bool,
    pub(crate) is_held_locally: bool,
    pub(crate) is_subscribed: bool,
    /// Until when the waiters yield to other processes.
    pub(crate) not_before: Moment,
    /// The last refusal of a request of this queue.
    pub(crate) refusal: Option<Refusal>,
    /// Requests of this queue have failed since the last reply.
    pub(crate) has_outage: bool,
    /// When the last request was sent that found a latch open.
    pub(crate) opened: Option<Moment>,
}

impl LockQueue {
    pub(crate) fn view(&self, ticket: Option<Ticket>, kind: Kind) -> QueueView {
        QueueView {
            may_send: ticket.is_none_or(|ticket| self.waiters.is_in_front(ticket)),
            is_held_locally: ticket.is_some()
                && self.holds.iter().any(|hold| !kind.is_compatible_with(hold.name.kind())),
            is_subscribed: self.is_subscribed,
            not_before: self.yielding.as_ref().map_or(Moment::from_micros(0), Yielding::ends),
            refusal: self.refusal,
            has_outage: self.outage.is_some(),
            opened: self.opened,
        }
    }

    /// Adds a new hold. Returns the holds that conflict with it, except `under`.
    pub(crate) fn add_hold(&mut self, hold: &Arc<Hold>, under: Option<&Arc<Hold>>) -> Vec<Arc<Hold>> {
        // Another hold can begin while this client yields the permit that it has released.
        if !hold.name.kind().is_compatible_with(hold.name.kind()) {
            self.yielding = None;
        }
        (self.outage, self.refusal) = (None, None);
        let mut displaced = Vec::new();
        self.holds.retain(|known| {
            let stays = hold.name.kind().is_compatible_with(known.name.kind())
                || under.is_some_and(|under| Arc::ptr_eq(under, known));
            if !stays {
                displaced.push(Arc::clone(known));
            }
            stays
        });
        self.holds.push(Arc::clone(hold));
        displaced
    }

    pub(crate) fn has_hold(&self, hold: &Arc<Hold>) -> bool {
        self.holds.iter().any(|known| Arc::ptr_eq(known, hold))
    }

    /// Removes a hold. Returns `true` if it was present.
    pub(crate) fn remove_hold(&mut self, hold: &Arc<Hold>) -> bool {
        let index = self.holds.iter().position(|known| Arc::ptr_eq(known, hold));
        index.map(|index| self.holds.swap_remove(index)).is_some()
    }

    pub(crate) fn wake_all(&self) {
        self.waiters.iter().for_each(|wakeup| wakeup.wake());
    }

    pub(crate) fn wake_front(&self) {
        self.waiters.front().for_each(|wakeup| wakeup.wake());
    }

    /// The outage, if its last failure is not older than `max_age`.
    pub(crate) fn outage(&self, max_age: Duration) -> Option<&Outage> {
        self.outage.as_deref().filter(|outage| clock::now() < outage.last + max_age)
    }
}

/// Wakes one waiter, with a hint that the state may have changed since its last check.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    /// `None` for an internal waiter.
    pub(crate) caller: Option<Caller>,
    /// Why the wait must end, if it is part of a deadlock.
    deadlock: OnceLock<Box<str>>,
    notify: Notify,
    hint: AtomicBool,
    /// Whether a request of this waiter is under way.
    pub(crate) is_sending: AtomicBool,
    /// Notified when the request has ended.
    ended: Notify,
    /// The number of acknowledging replicas that a handed-over hold must have. `None`: none is accepted.
    pub(crate) hand_over_replicas: Option<u32>,
    /// Whether the caller was dropped while a request is under way.
    is_gone: AtomicBool,
    /// The hold that was handed over. Set only while the waiter is queued, under the lock of the wait queues.
    pub(crate) handed: Mutex<Option<Arc<Hold>>>,
}

impl Wakeup {
    /// For a caller that accepts a hold with so many acknowledging replicas, or none.
    pub(crate) fn new(hand_over_replicas: Option<u32>, caller: Caller) -> Self {
        Self { caller: Some(caller), hand_over_replicas, ..Self::default() }
    }

    /// Returns the caller, if it waits since `since` or longer.
    pub(crate) fn waiting_since(&self, since: Moment) -> Option<&CallSite> {
        self.caller.as_ref().filter(|caller| caller.began <= since).map(|caller| &caller.call_site)
    }

    /// Ends the wait: it is part of a deadlock, which `reason` describes.
    pub(crate) fn set_deadlock(&self, reason: &str) {
        let _ = self.deadlock.set(reason.into());
        self.wake();
    }

    /// Returns why the wait must end, if it is part of a deadlock.
    pub(crate) fn deadlock(&self) -> Option<&str> {
        self.deadlock.get().map(|reason| &**reason)
    }

    /// Notes that the caller was dropped. Returns `false` if that is known already.
    pub(crate) fn set_gone(&self) -> bool {
        !self.is_gone.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn take_handed(&self) -> Option<Arc<Hold>> {
        self.handed.lock().take()
    }

    pub(crate) fn wake(&self) {
        self.hint.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Waits for a wake-up. An earlier one that was not awaited counts.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.notify.notified()
    }

    /// Sets the hint without a wake-up.
    pub(crate) fn set_hint(&self) {
        self.hint.store(true, Ordering::Release);
    }

    /// Marks a request of this waiter as under way.
    pub(crate) fn begin_request(&self) {
        self.is_sending.store(true, Ordering::Release);
    }

    /// Marks the request as ended: it has an outcome, or is given up.
    pub(crate) fn end_request(&self) {
        if self.is_sending.swap(false, Ordering::AcqRel) {
            self.ended.notify_waiters();
        }
    }

    /// Waits until no request of this waiter is under way.
    pub(crate) async fn request_ended(&self) {
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        if self.is_sending.load(Ordering::Acquire) {
            ended.await;
        }
    }

    /// Returns `true` if the state may have changed since the last check.
    pub(crate) fn has_hint(&self) -> bool {
        self.hint.load(Ordering::Acquire)
    }

    pub(crate) fn take_hint(&self) -> bool {
        self.hint.swap(false, Ordering::AcqRel)
    }
}

impl Presence for Wakeup {
    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}
