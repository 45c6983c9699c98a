use super::requests::Requests;
use super::{Acquired, Claim, CounterOp, Model, Notification, Now, Owners, Released, Reply, Snapshot, Step};
use crate::OwnerId;
use crate::planted::Bug;

/// The state of a semaphore: a number of free permits, and the outcomes of recent requests.
///
/// The number has no owners and no leases. Each hold is one request, identified by its owner, and takes and
/// returns its permits once, however often the steps arrive.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SemaphoreState {
    /// `None` until the number of permits is set.
    free: Option<i64>,
    holds: Requests<Hold>,
    answers: Requests<i64>,
}

/// The remembered outcome of a hold.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Taken(u32),
    #[cfg_attr(feature = "serde", serde(rename = "GivenBack"))]
    Released,
    /// Ended without a release. A late acquire must not begin it again.
    #[cfg_attr(feature = "serde", serde(rename = "Void"))]
    Cancelled,
}

impl SemaphoreState {
    /// Acquires as many permits as the claim asks for, or none.
    ///
    /// A repeated request that was granted is granted again without counting. A request whose hold was
    /// released or cancelled before it arrived gets [`Acquired::Gone`].
    pub fn acquire(&mut self, now: Now, claim: &Claim) -> Acquired {
        let permits = i64::from(claim.permits);
        match self.holds.outcome(now.moment, &claim.owner) {
            Some(Hold::Taken(_)) => Acquired::Granted,
            Some(Hold::Released | Hold::Cancelled) => Acquired::Gone,
            None => match &mut self.free {
                Some(free) if *free >= permits => {
                    *free -= permits;
                    self.holds.remember(now.moment, &claim.owner, Hold::Taken(claim.permits));
                    Acquired::Granted
                }
                _ => Acquired::Busy { ttl: None },
            },
        }
    }

    /// Returns the permits of the owner. Never creates the number: if it is gone, so are the permits.
    ///
    /// An [unsure](Claim::unsure) claim returns only permits that are remembered as taken. If nothing is
    /// remembered, the request is cancelled, so that a late acquire gets [`Acquired::Gone`]. Any other claim
    /// returns its permits even if the store has forgotten the hold, since it may have outlasted the memory.
    pub fn release(&mut self, now: Now, claim: &Claim) -> (Released, Notification) {
        let permits = match self.holds.outcome(now.moment, &claim.owner) {
            Some(Hold::Released) if !Bug::PermitsReleasedTwice.is_planted() => {
                return (Released::Freed, Notification::None);
            }
            Some(Hold::Cancelled) => return (Released::NotHeld, Notification::None),
            Some(Hold::Taken(permits)) => Some(permits),
            None if claim.unsure => None,
            None | Some(Hold::Released) => Some(claim.permits),
        };
        if let (Some(free), Some(permits)) = (&mut self.free, permits) {
            *free = free.saturating_add(i64::from(permits));
            self.holds.remember(now.moment, &claim.owner, Hold::Released);
            return (Released::Freed, Notification::Subscribers);
        }
        self.holds.remember(now.moment, &claim.owner, Hold::Cancelled);
        (Released::NotHeld, Notification::None)
    }

    /// Performs an operation on the number itself. A repeated request gets the reply of the first.
    pub fn perform(&mut self, now: Now, op: CounterOp, request: &OwnerId) -> (i64, Notification) {
        if let Some(reply) = self.answers.outcome(now.moment, request) {
            return (reply, Notification::None);
        }
        let (reply, notification) = match op {
            CounterOp::SetOnce(_) if self.free.is_some() => (0, Notification::None),
            CounterOp::SetOnce(permits) => {
                self.free = Some(i64::try_from(permits).unwrap_or(i64::MAX));
                (1, Notification::Subscribers)
            }
            CounterOp::Add(change) => (self.add(change), Notification::Subscribers),
            CounterOp::Release(permits) => (self.add(i64::from(permits)), Notification::Subscribers),
            CounterOp::Drain => (self.free.as_mut().map_or(0, std::mem::take), Notification::None),
            CounterOp::Delete => (i64::from(self.free.take().is_some()), Notification::None),
            CounterOp::SetTotal(_) | CounterOp::CountDown => return (0, Notification::None),
        };
        self.answers.remember(now.moment, request, reply);
        (reply, notification)
    }

    fn add(&mut self, change: i64) -> i64 {
        let free = self.free.unwrap_or(0).saturating_add(change);
        *self.free.insert(free)
    }

    /// Removes the number, as an expiry set by a user would, without a notification. For tests.
    pub fn expire(&mut self) {
        self.free = None;
    }

    /// Forgets a request. No copy of it may be under way.
    pub fn forget(&mut self, request: &OwnerId) {
        self.holds.forget(request);
        self.answers.forget(request);
    }
}

impl Model for SemaphoreState {
    fn apply(&mut self, now: Now, step: &Step) -> Option<(Reply, Notification)> {
        Some(match step {
            Step::Acquire(claim, _) => Reply::Acquired(self.acquire(now, claim)).quiet(),
            Step::Release(claim) => Reply::of(Reply::Released, self.release(now, claim)),
            Step::Perform(_, op, request) => Reply::of(Reply::Number, self.perform(now, *op, request)),
            Step::Forget(_, request) => {
                self.forget(request);
                Reply::Forgotten.quiet()
            }
            _ => return None,
        })
    }

    fn snapshot(&mut self, _: Now) -> Snapshot {
        Snapshot { number: self.free, ..Snapshot::default() }
    }

    /// Returns the owners whose holds are remembered.
    fn owners(&self) -> Owners {
        let taken = self.holds.iter().filter(|(_, hold)| matches!(hold, Hold::Taken(_)));
        Owners { holders: taken.map(|(owner, _)| owner.clone()).collect(), waiters: Vec::new() }
    }

    /// Returns the permits of owners that no longer exist, if their holds are remembered.
    fn remove_owners(&mut self, now: Now, is_gone: &dyn Fn(&OwnerId) -> bool) -> Notification {
        let mut permits = 0;
        for owner in self.owners().holders.iter().filter(|owner| is_gone(owner)) {
            // Not forgotten: a late release would count again.
            if let Some(Hold::Taken(taken)) = self.holds.remember(now.moment, owner, Hold::Cancelled) {
                permits += i64::from(taken);
            }
        }
        return_permits(&mut self.free, permits)
    }

    fn forget_all(&mut self) {
        (self.holds, self.answers) = (Requests::default(), Requests::default());
    }

    fn is_free(&mut self, now: Now) -> bool {
        self.free.is_none() && self.holds.is_empty(now.moment) && self.answers.is_empty(now.moment)
    }
}

/// Adds permits to the number of free ones. If there is no number, they are lost with it.
pub(super) fn return_permits(free: &mut Option<i64>, permits: i64) -> Notification {
    match free {
        Some(free) if permits > 0 => {
            *free = free.saturating_add(permits);
            Notification::Subscribers
        }
        _ => Notification::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, LockName, Moment};

    const NOW: Now = Now { moment: Moment::from_micros(0), wall: 0 };

    fn with_permits(permits: u64) -> SemaphoreState {
        let mut state = SemaphoreState::default();
        state.perform(NOW, CounterOp::SetOnce(permits), &OwnerId::from_wire("set"));
        state
    }

    fn acquire(state: &mut SemaphoreState, owner: &str, permits: u32) -> Acquired {
        let (name, owner) = (name(), OwnerId::from_wire(owner));
        state.acquire(NOW, &Claim { permits, ..Claim::new(&name, &owner, 1) })
    }

    fn release(state: &mut SemaphoreState, owner: &str, permits: u32, unsure: bool) -> Released {
        let (name, owner) = (name(), OwnerId::from_wire(owner));
        state.release(NOW, &Claim { permits, unsure, ..Claim::new(&name, &owner, 0) }).0
    }

    fn name() -> LockName {
        LockName::of(Kind::Semaphore, "", "n").expect("a valid name")
    }

    fn free(state: &mut SemaphoreState) -> Option<i64> {
        state.snapshot(NOW).number
    }

    #[test]
    fn a_repeated_acquire_or_release_counts_once() {
        let mut state = with_permits(3);
        for _ in 0..2 {
            assert_eq!(acquire(&mut state, "a", 2), Acquired::Granted);
        }
        assert_eq!(free(&mut state), Some(1));
        assert_eq!(acquire(&mut state, "b", 2), Acquired::Busy { ttl: None });
        for _ in 0..2 {
            assert_eq!(release(&mut state, "a", 2, false), Released::Freed);
        }
        assert_eq!(free(&mut state), Some(3));
        // A late copy of the acquire must not take them again.
        assert_eq!(acquire(&mut state, "a", 2), Acquired::Gone);
        assert_eq!(free(&mut state), Some(3));
    }

    #[test]
    fn a_cancelled_request_begins_no_hold_when_it_arrives() {
        let mut state = with_permits(1);
        for _ in 0..2 {
            assert_eq!(release(&mut state, "a", 1, true), Released::NotHeld);
        }
        assert_eq!(acquire(&mut state, "a", 1), Acquired::Gone);
        assert_eq!(acquire(&mut state, "b", 1), Acquired::Granted);
        assert_eq!(release(&mut state, "b", 1, true), Released::Freed);
        assert_eq!(free(&mut state), Some(1));
    }

    #[test]
    fn permits_released_to_a_lost_number_stay_lost() {
        let mut state = with_permits(1);
        acquire(&mut state, "a", 1);
        state.expire();
        assert_eq!(release(&mut state, "a", 1, false), Released::NotHeld);
        assert_eq!(free(&mut state), None);
        state.perform(NOW, CounterOp::SetOnce(1), &OwnerId::from_wire("again"));
        assert_eq!(release(&mut state, "a", 1, false), Released::NotHeld);
        assert_eq!(free(&mut state), Some(1));
    }

    #[test]
    fn an_unsure_release_of_a_forgotten_hold_returns_nothing() {
        let mut state = with_permits(3);
        acquire(&mut state, "a", 1);
        // As on a promoted replica that has received one acquire and not the other.
        assert_eq!(release(&mut state, "forgotten", 1, true), Released::NotHeld);
        assert_eq!(free(&mut state), Some(2));
        assert_eq!(release(&mut state, "a", 1, true), Released::Freed);
        assert_eq!(free(&mut state), Some(3));
    }

    #[test]
    fn a_hold_that_outlasts_the_memory_can_be_released() {
        let mut state = with_permits(1);
        acquire(&mut state, "a", 1);
        state.forget(&OwnerId::from_wire("a"));
        assert_eq!(release(&mut state, "a", 1, false), Released::Freed);
        assert_eq!(free(&mut state), Some(1));
    }

    #[test]
    fn a_counter_operation_takes_effect_once_for_each_request() {
        let mut state = SemaphoreState::default();
        let [one, two, three, four, five] = ["1", "2", "3", "4", "5"].map(OwnerId::from_wire);
        assert_eq!(state.perform(NOW, CounterOp::SetOnce(5), &one), (1, Notification::Subscribers));
        assert_eq!(state.perform(NOW, CounterOp::SetOnce(5), &one), (1, Notification::None));
        assert_eq!(state.perform(NOW, CounterOp::Add(-7), &two), (-2, Notification::Subscribers));
        assert_eq!(state.perform(NOW, CounterOp::Add(-7), &two), (-2, Notification::None));
        assert_eq!(state.perform(NOW, CounterOp::Drain, &three), (-2, Notification::None));
        assert_eq!(free(&mut state), Some(0));
        assert_eq!(state.perform(NOW, CounterOp::Delete, &four), (1, Notification::None));
        assert_eq!(state.perform(NOW, CounterOp::SetOnce(5), &five), (1, Notification::Subscribers));
        // A repeated delete does not delete what was set since.
        assert_eq!(state.perform(NOW, CounterOp::Delete, &four), (1, Notification::None));
        assert_eq!(free(&mut state), Some(5));
        state.expire();
        assert!(!state.is_free(NOW), "the requests are still remembered");
        let later = Now { moment: NOW.moment + crate::request::REMEMBERED_FOR, wall: 0 };
        assert!(state.is_free(later));
    }
}
