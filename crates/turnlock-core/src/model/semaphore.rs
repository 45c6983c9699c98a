use super::requests::Requests;
use super::{Acquired, Claim, Deed, Now, Parties, Released, Snapshot, Wake, Wish};
use crate::OwnerId;

/// The state of one semaphore: a number of free permits, and what was answered to the latest requests.
///
/// The number has no owners and no leases. Each hold is one request, named by its owner: it takes once and gives back
/// once, however often the steps arrive.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SemaphoreState {
    /// `None` until somebody says how many there are.
    free: Option<i64>,
    holds: Requests<Hold>,
    answers: Requests<i64>,
}

/// What is known of a hold.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Taken(u32),
    GivenBack,
    /// Ended without anything given back; it must not begin any more either.
    Void,
}

impl SemaphoreState {
    /// Takes as many permits as the claim says, or none.
    ///
    /// A copy of a request that was granted is granted without counting again; one that comes after its hold was given
    /// back, or was called off before it began, is [`Acquired::Gone`].
    pub fn acquire(&mut self, now: Now, claim: &Claim<'_>, _: &Wish) -> (Acquired, Wake) {
        let permits = i64::from(claim.permits);
        let answer = match self.holds.outcome(now.moment, claim.owner) {
            Some(Hold::Taken(_)) => Acquired::Granted,
            Some(Hold::GivenBack | Hold::Void) => Acquired::Gone,
            None => match &mut self.free {
                Some(free) if *free >= permits => {
                    *free -= permits;
                    self.holds.remember(now.moment, claim.owner, Hold::Taken(claim.permits));
                    Acquired::Granted
                }
                _ => Acquired::Busy { ttl: None },
            },
        };
        (answer, Wake::Nobody)
    }

    /// Gives back what the owner took. Never creates the number: where it is gone, so are the permits.
    ///
    /// An unsure claim gives back only what is known to be taken. Where nothing is known, the request is called off, so
    /// that it finds itself gone when it arrives after all. A claim that is not unsure is one whose memory may have
    /// expired.
    pub fn release(&mut self, now: Now, claim: &Claim<'_>) -> (Released, Wake) {
        let permits = match self.holds.outcome(now.moment, claim.owner) {
            Some(Hold::GivenBack) => return (Released::Freed, Wake::Nobody),
            Some(Hold::Void) => return (Released::NotHeld, Wake::Nobody),
            Some(Hold::Taken(permits)) => Some(permits),
            None if claim.unsure => None,
            None => Some(claim.permits),
        };
        if let (Some(free), Some(permits)) = (&mut self.free, permits) {
            *free = free.saturating_add(i64::from(permits));
            self.holds.remember(now.moment, claim.owner, Hold::GivenBack);
            return (Released::Freed, Wake::Listeners);
        }
        self.holds.remember(now.moment, claim.owner, Hold::Void);
        (Released::NotHeld, Wake::Nobody)
    }

    /// A step on the number itself. A copy of a request gets the first one's answer.
    pub fn perform(&mut self, now: Now, deed: Deed, request: &OwnerId) -> (i64, Wake) {
        if let Some(answer) = self.answers.outcome(now.moment, request) {
            return (answer, Wake::Nobody);
        }
        let (answer, wake) = match deed {
            Deed::SetOnce(_) if self.free.is_some() => (0, Wake::Nobody),
            Deed::SetOnce(permits) => {
                self.free = Some(i64::try_from(permits).unwrap_or(i64::MAX));
                (1, Wake::Listeners)
            }
            Deed::Add(change) => (self.add(change), Wake::Listeners),
            Deed::Release(permits) => (self.add(i64::from(permits)), Wake::Listeners),
            Deed::Drain => (self.free.as_mut().map_or(0, std::mem::take), Wake::Nobody),
            Deed::Delete => (i64::from(self.free.take().is_some()), Wake::Nobody),
            Deed::SetTotal(_) | Deed::CountDown => return (0, Wake::Nobody),
        };
        self.answers.remember(now.moment, request, answer);
        (answer, wake)
    }

    fn add(&mut self, change: i64) -> i64 {
        let free = self.free.unwrap_or(0).saturating_add(change);
        *self.free.insert(free)
    }

    /// What the semaphore looks like.
    pub fn snapshot(&mut self, _: Now) -> Snapshot {
        Snapshot { number: self.free, ..Snapshot::default() }
    }

    /// Removes the number as an expiry that a user gave it would: nobody is told.
    pub fn expire(&mut self) {
        self.free = None;
    }

    /// Forgets a request, as time would: no copy of it is under way.
    pub fn forget(&mut self, request: &OwnerId) {
        self.holds.forget(request);
        self.answers.forget(request);
    }

    /// Who has something of it, as far as is remembered.
    pub fn parties(&self) -> Parties {
        let taken = self.holds.iter().filter(|(_, hold)| matches!(hold, Hold::Taken(_)));
        Parties { holding: taken.map(|(owner, _)| owner.clone()).collect(), waiting: Vec::new() }
    }

    /// Gives back what those took who are gone, as far as is remembered.
    pub fn void(&mut self, now: Now, is_gone: impl Fn(&OwnerId) -> bool) -> Wake {
        let gone = self.parties().holding.into_iter().filter(|owner| is_gone(owner)).collect::<Vec<_>>();
        let taken = |(owner, hold): (&OwnerId, Hold)| match hold {
            Hold::Taken(permits) if gone.contains(owner) => i64::from(permits),
            _ => 0,
        };
        let permits = self.holds.iter().map(taken).sum::<i64>();
        for owner in &gone {
            // Not forgotten: a release that comes all the same would count again.
            self.holds.remember(now.moment, owner, Hold::Void);
        }
        match &mut self.free {
            Some(free) if permits > 0 => {
                *free = free.saturating_add(permits);
                Wake::Listeners
            }
            _ => Wake::Nobody,
        }
    }

    /// Forgets every request: of those who sent them, nobody is left.
    pub fn forget_all(&mut self) {
        self.holds.clear();
        self.answers.clear();
    }

    /// Whether nothing is left to remember.
    pub fn is_free(&mut self, now: Now) -> bool {
        self.free.is_none() && self.holds.is_empty(now.moment) && self.answers.is_empty(now.moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Lease, LockName, Moment};

    const NOW: Now = Now { moment: Moment::from_micros(0), wall: 0 };
    const WISH: Wish = Wish { lease: Lease::WATCHDOG, waits: true, highest_token: 0 };

    fn with_permits(permits: u64) -> SemaphoreState {
        let mut state = SemaphoreState::default();
        state.perform(NOW, Deed::SetOnce(permits), &OwnerId::from_wire("set"));
        state
    }

    fn acquire(state: &mut SemaphoreState, owner: &str, permits: u32) -> Acquired {
        let (name, owner) = (name(), OwnerId::from_wire(owner));
        state.acquire(NOW, &Claim { permits, ..Claim::new(&name, &owner, 1) }, &WISH).0
    }

    fn release(state: &mut SemaphoreState, owner: &str, permits: u32, unsure: bool) -> Released {
        let (name, owner) = (name(), OwnerId::from_wire(owner));
        state.release(NOW, &Claim { permits, unsure, ..Claim::new(&name, &owner, 0) }).0
    }

    fn name() -> LockName {
        LockName::of(Kind::Semaphore, "", "n").expect("a good name")
    }

    fn free(state: &mut SemaphoreState) -> Option<i64> {
        state.snapshot(NOW).number
    }

    #[test]
    fn a_hold_takes_once_and_gives_back_once() {
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
        // A late copy of the request must not take them again.
        assert_eq!(acquire(&mut state, "a", 2), Acquired::Gone);
        assert_eq!(free(&mut state), Some(3));
    }

    #[test]
    fn a_request_that_was_called_off_does_not_begin_when_it_arrives() {
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
    fn what_is_given_back_to_a_lost_number_is_lost_and_stays_so() {
        let mut state = with_permits(1);
        acquire(&mut state, "a", 1);
        state.expire();
        assert_eq!(release(&mut state, "a", 1, false), Released::NotHeld);
        assert_eq!(free(&mut state), None);
        state.perform(NOW, Deed::SetOnce(1), &OwnerId::from_wire("again"));
        assert_eq!(release(&mut state, "a", 1, false), Released::NotHeld);
        assert_eq!(free(&mut state), Some(1));
    }

    #[test]
    fn a_hold_that_would_be_remembered_and_is_not_gives_nothing_back() {
        let mut state = with_permits(3);
        acquire(&mut state, "a", 1);
        // As a promoted replica that has heard of one acquire and not of the other.
        assert_eq!(release(&mut state, "forgotten", 1, true), Released::NotHeld);
        assert_eq!(free(&mut state), Some(2));
        assert_eq!(release(&mut state, "a", 1, true), Released::Freed);
        assert_eq!(free(&mut state), Some(3));
    }

    #[test]
    fn a_hold_longer_than_the_memory_is_given_back_all_the_same() {
        let mut state = with_permits(1);
        acquire(&mut state, "a", 1);
        state.forget(&OwnerId::from_wire("a"));
        assert_eq!(release(&mut state, "a", 1, false), Released::Freed);
        assert_eq!(free(&mut state), Some(1));
    }

    #[test]
    fn a_deed_counts_once_for_each_request() {
        let mut state = SemaphoreState::default();
        let [one, two, three, four, five] = ["1", "2", "3", "4", "5"].map(OwnerId::from_wire);
        assert_eq!(state.perform(NOW, Deed::SetOnce(5), &one), (1, Wake::Listeners));
        assert_eq!(state.perform(NOW, Deed::SetOnce(5), &one), (1, Wake::Nobody));
        assert_eq!(state.perform(NOW, Deed::Add(-7), &two), (-2, Wake::Listeners));
        assert_eq!(state.perform(NOW, Deed::Add(-7), &two), (-2, Wake::Nobody));
        assert_eq!(state.perform(NOW, Deed::Drain, &three), (-2, Wake::Nobody));
        assert_eq!(free(&mut state), Some(0));
        assert_eq!(state.perform(NOW, Deed::Delete, &four), (1, Wake::Nobody));
        assert_eq!(state.perform(NOW, Deed::SetOnce(5), &five), (1, Wake::Listeners));
        // A copy of the removal does not remove what was set since.
        assert_eq!(state.perform(NOW, Deed::Delete, &four), (1, Wake::Nobody));
        assert_eq!(free(&mut state), Some(5));
        state.expire();
        assert!(!state.is_free(NOW), "the requests are still remembered");
        let later = Now { moment: NOW.moment + crate::request::REMEMBERED_FOR, wall: 0 };
        assert!(state.is_free(later));
    }
}
