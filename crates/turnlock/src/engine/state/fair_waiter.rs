use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{Lease, Moment, OwnerId};

use super::lock_queue::Wakeup;
use crate::clock;
use crate::sync::Mutex;
use turnlock_store::{Failure, Sent};

/// How long a waiter may ignore its turn before its heartbeats stop, or a grant before it is undone.
pub(super) const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(4);

/// A waiter of this client in the queue of a fair lock on the store.
///
/// A local holder that releases the lock can have it granted to this waiter in the same step. So there are two
/// that send requests for the owner of this waiter, the waiter itself and the holder, and never both at once.
#[derive(Debug)]
pub(crate) struct FairWaiter {
    pub(crate) owner: OwnerId,
    pub(crate) wakeup: Arc<Wakeup>,
    /// The lease that the release of a local holder may grant it. `None` if only its own request counts.
    accepted_lease: Option<Lease>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    request: Request,
    /// When it last sent a request itself. A waiter that has just sent one need not be woken for its turn.
    last_request: Moment,
    /// Since when it has been its turn without a request.
    turn_since: Option<Moment>,
}

/// The requests for the owner of a waiter.
#[derive(Debug)]
enum Request {
    None,
    /// The waiter sends one.
    Own,
    /// A local holder has named it in its release.
    ByHolder,
    /// A release brought this outcome at that time, and the waiter has not seen it.
    Outcome(PassedOn, Moment),
    /// The grant is being taken back. Until the reply, nothing else is sent for the owner.
    TakingBack,
    /// The outcome is being undone, or its taking back is in doubt. The owner is not used again: that may arrive late.
    Undone,
    /// The waiter has the lock.
    Granted,
    /// The waiter is gone.
    Gone,
}

/// The outcome of a release for the waiter that it named: when the grant was sent, or a failure in doubt.
pub(crate) type PassedOn = Result<Sent, Failure>;

/// What a waiter finds of a release that named it.
pub(crate) enum FoundOutcome {
    Granted(Sent),
    /// Granted too long ago to be trusted. A request of its own confirms it.
    Outdated,
    InDoubt(Failure),
    /// The waiter has to queue again, as another owner.
    Undone,
}

/// What to do about an outcome that a waiter has not seen in time.
pub(crate) enum IgnoredOutcome {
    /// The waiter returns to the head of the queue. [`FairWaiter::end_taking_back`] must follow.
    TakeBack,
    Undo(Failure),
}

impl FairWaiter {
    pub(super) fn new(owner: &OwnerId, wakeup: &Arc<Wakeup>, accepted_lease: Option<Lease>) -> Self {
        let state = State { request: Request::None, last_request: clock::now(), turn_since: None };
        let (owner, wakeup) = (owner.clone(), Arc::clone(wakeup));
        Self { owner, wakeup, accepted_lease, state: Mutex::new(state) }
    }

    /// Begins a request of the waiter itself. Returns `false` while a release names it, or has an outcome for it.
    pub(crate) fn begin_request(&self) -> bool {
        let mut state = self.state.lock();
        let is_possible = matches!(state.request, Request::None);
        if is_possible {
            state.request = Request::Own;
        }
        is_possible
    }

    /// Ends the request of the waiter itself.
    pub(crate) fn end_request(&self) {
        let mut state = self.state.lock();
        (state.last_request, state.turn_since) = (clock::now(), None);
        if matches!(state.request, Request::Own) {
            state.request = Request::None;
        }
    }

    /// Names the waiter in a release. Returns its lease, or `None` if that is not possible now.
    pub(super) fn name_in_release(&self) -> Option<Lease> {
        let mut state = self.state.lock();
        let is_possible = matches!(state.request, Request::None) && state.turn_since.is_none();
        let lease = self.accepted_lease.filter(|_| is_possible)?;
        state.request = Request::ByHolder;
        Some(lease)
    }

    /// Ends a release that named the waiter: `None` if it did not concern the waiter.
    ///
    /// Returns the outcome if the waiter is gone. Then it must be undone.
    pub(crate) fn end_release(&self, outcome: Option<PassedOn>) -> Option<PassedOn> {
        let mut state = self.state.lock();
        if !matches!(state.request, Request::ByHolder) {
            return outcome;
        }
        let wakes = outcome.is_some() || self.wakeup.has_hint();
        state.request = outcome.map_or(Request::None, |outcome| Request::Outcome(outcome, clock::now()));
        drop(state);
        if wakes {
            self.wakeup.wake();
        }
        None
    }

    /// Takes the outcome of a release that named the waiter. A grant that was sent before `oldest` is outdated.
    pub(crate) fn take_outcome(&self, oldest: Moment) -> Option<FoundOutcome> {
        let mut state = self.state.lock();
        let (found, next) = match std::mem::replace(&mut state.request, Request::None) {
            Request::Outcome(Ok(sent), _) if sent.at >= oldest => {
                (Some(FoundOutcome::Granted(sent)), Request::Granted)
            }
            Request::Outcome(Ok(_), _) => (Some(FoundOutcome::Outdated), Request::None),
            Request::Outcome(Err(failure), _) => (Some(FoundOutcome::InDoubt(failure)), Request::None),
            Request::Undone => (Some(FoundOutcome::Undone), Request::Undone),
            request => (None, request),
        };
        state.request = next;
        found
    }

    /// Returns what to do about an outcome that arrived too long ago, and the lease of its grant.
    ///
    /// The waiter does not run. It gets no more heartbeats before its next request.
    pub(super) fn take_ignored(&self, now: Moment) -> Option<(IgnoredOutcome, Lease)> {
        let lease = self.accepted_lease?;
        let seen_by = UNRESPONSIVE_AFTER.min(lease.as_duration() / 3);
        let mut state = self.state.lock();
        let (ignored, next) = match std::mem::replace(&mut state.request, Request::None) {
            Request::Outcome(outcome, arrived) if arrived + seen_by <= now => {
                state.turn_since = Some(arrived);
                match outcome {
                    Ok(_) => (Some(IgnoredOutcome::TakeBack), Request::TakingBack),
                    Err(failure) => (Some(IgnoredOutcome::Undo(failure)), Request::Undone),
                }
            }
            request => (None, request),
        };
        state.request = next;
        Some((ignored?, lease))
    }

    /// Ends the taking back of a grant: it is confirmed, or must be undone.
    pub(crate) fn end_taking_back(&self, is_confirmed: bool) {
        let mut state = self.state.lock();
        if matches!(state.request, Request::TakingBack) {
            state.request = if is_confirmed { Request::None } else { Request::Undone };
            drop(state);
            self.wakeup.wake();
        }
    }

    /// Ends the waiter. Returns an outcome that it has not seen.
    pub(super) fn close(&self) -> Option<PassedOn> {
        let mut state = self.state.lock();
        if matches!(state.request, Request::Granted) {
            return None;
        }
        match std::mem::replace(&mut state.request, Request::Gone) {
            Request::Outcome(outcome, _) => Some(outcome),
            _ => None,
        }
    }

    /// Returns `true` if its heartbeat is to be sent: it waits, and uses its turns.
    pub(super) fn needs_heartbeat(&self, ignored_since: Moment) -> bool {
        let state = self.state.lock();
        matches!(state.request, Request::None | Request::Own)
            && state.turn_since.is_none_or(|since| since > ignored_since)
    }

    /// Returns `true` if no request for it is under way, and it has no outcome.
    pub(super) fn only_waits(&self) -> bool {
        matches!(self.state.lock().request, Request::None)
    }

    /// Records whether it is its turn. Returns `true` if it was its turn before.
    pub(super) fn note_turn(&self, is_its_turn: bool, now: Moment) -> bool {
        let mut state = self.state.lock();
        let before = state.turn_since;
        let is_unused = is_its_turn && state.last_request < now;
        state.turn_since = is_unused.then(|| before.unwrap_or(now));
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Sent = Sent { connection: 1, at: Moment::from_micros(1_000_000) };

    /// A waiter that a release has granted the lock, and that has not run since.
    fn granted_unseen() -> FairWaiter {
        let wakeup = Arc::new(Wakeup::default());
        let waiter = FairWaiter::new(&OwnerId::from_wire("client:1"), &wakeup, Some(Lease::WATCHDOG));
        assert!(waiter.name_in_release().is_some());
        assert!(waiter.end_release(Some(Ok(SENT))).is_none());
        waiter
    }

    fn take_ignored(waiter: &FairWaiter) -> Option<IgnoredOutcome> {
        assert!(waiter.take_ignored(clock::now()).is_none(), "it has some seconds");
        waiter.take_ignored(clock::now() + UNRESPONSIVE_AFTER).map(|(ignored, _)| ignored)
    }

    #[test]
    fn nothing_is_sent_for_a_waiter_whose_grant_is_being_taken_back() {
        for is_confirmed in [true, false] {
            let waiter = granted_unseen();
            assert!(matches!(take_ignored(&waiter), Some(IgnoredOutcome::TakeBack)));
            assert!(!waiter.begin_request() && waiter.name_in_release().is_none());
            assert!(waiter.take_outcome(SENT.at).is_none() && take_ignored(&waiter).is_none());
            waiter.end_taking_back(is_confirmed);
            assert_eq!(waiter.begin_request(), is_confirmed, "in doubt, the owner is not used again");
            let found = waiter.take_outcome(SENT.at);
            assert_eq!(matches!(found, Some(FoundOutcome::Undone)), !is_confirmed);
        }
    }

    #[test]
    fn a_waiter_that_has_seen_its_grant_is_not_named_again() {
        let waiter = granted_unseen();
        assert!(matches!(waiter.take_outcome(SENT.at), Some(FoundOutcome::Granted(_))));
        assert!(waiter.name_in_release().is_none() && !waiter.begin_request());
        assert!(take_ignored(&waiter).is_none() && waiter.close().is_none());
    }

    #[test]
    fn an_outdated_grant_is_confirmed_by_a_request() {
        let waiter = granted_unseen();
        let later = SENT.at + Duration::from_micros(1);
        assert!(matches!(waiter.take_outcome(later), Some(FoundOutcome::Outdated)));
        assert!(waiter.begin_request());
    }
}
