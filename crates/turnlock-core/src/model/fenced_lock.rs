use super::{Acquired, LockState, Model, Notification, Now, Owners, Reply, Snapshot, Step};
use crate::planted::Bug;
use crate::{Kind, Lease, OwnerId};

/// The state of a reentrant lock and of its fencing token, which outlives every hold.
///
/// The token of a grant is higher than the last token, than the store's wall clock in microseconds, and than
/// the highest token that the client has seen. So it rises even if the store loses its data, or the name is
/// new.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FencedLockState {
    /// The lock itself. Reentrant and spin locks of the same name use it without a token.
    pub lock: LockState,
    token: u64,
}

impl FencedLockState {
    /// As [`LockState::acquire`], with a token for every grant. `highest` is the highest that the client has
    /// seen.
    pub fn acquire(
        &mut self,
        now: Now,
        owner: &OwnerId,
        target: u32,
        lease: Lease,
        highest: u64,
    ) -> Acquired {
        match self.lock.acquire(now.moment, owner, target, lease) {
            Acquired::Granted => {
                // Saturating: a damaged row, or another program, may have set the highest number.
                let above_seen = highest.saturating_add(1);
                let floor = if Bug::TokenWithoutFloor.is_planted() { 0 } else { now.wall.max(above_seen) };
                self.token = self.token.saturating_add(1).max(floor);
                Acquired::GrantedWith { token: self.token }
            }
            refusal => refusal,
        }
    }

    /// Returns the last token, if there is one.
    pub fn token(&self) -> Option<u64> {
        (self.token > 0).then_some(self.token)
    }
}

impl Model for FencedLockState {
    fn apply(&mut self, now: Now, step: &Step) -> Option<(Reply, Notification)> {
        match step {
            Step::Acquire(claim, options) if step.kind() == Kind::Fenced => {
                let (lease, highest) = (options.lease, options.highest_token);
                Some(Reply::Acquired(self.acquire(now, &claim.owner, claim.target, lease, highest)).quiet())
            }
            _ => self.lock.apply(now, step),
        }
    }

    fn snapshot(&mut self, now: Now) -> Snapshot {
        Snapshot { token: self.token(), ..self.lock.snapshot(now) }
    }

    fn owners(&self) -> Owners {
        self.lock.owners()
    }

    fn remove_owners(&mut self, now: Now, is_gone: &dyn Fn(&OwnerId) -> bool) -> Notification {
        self.lock.remove_owners(now, is_gone)
    }

    /// Returns `true` if nothing is left to remember. A token is remembered for ever.
    fn is_free(&mut self, now: Now) -> bool {
        self.token == 0 && self.lock.is_free(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    fn now(wall: u64) -> Now {
        Now { moment: Moment::from_micros(0), wall }
    }

    fn token(state: &mut FencedLockState, wall: u64, highest: u64) -> u64 {
        let owner = OwnerId::from_wire("a:1");
        let granted = state.acquire(now(wall), &owner, 1, Lease::WATCHDOG, highest);
        state.lock.force_unlock(Moment::from_micros(0));
        let Acquired::GrantedWith { token } = granted else { panic!("granted, and not {granted:?}") };
        token
    }

    #[test]
    fn a_token_is_above_the_last_one_the_clock_and_the_highest_seen() {
        let mut state = FencedLockState::default();
        assert_eq!(token(&mut state, 1_000, 0), 1_000);
        assert_eq!(token(&mut state, 900, 0), 1_001);
        assert_eq!(token(&mut state, 1_100, 2_000), 2_001);
        assert_eq!(token(&mut FencedLockState::default(), 1_200, 2_001), 2_002);
    }

    #[test]
    fn the_highest_token_is_granted_again_and_does_not_overflow() {
        let mut state = FencedLockState::default();
        assert_eq!(token(&mut state, 0, u64::MAX), u64::MAX);
        assert_eq!(token(&mut state, 0, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_refused_acquire_uses_no_token() {
        let mut state = FencedLockState::default();
        let [one, two] = ["a:1", "b:1"].map(OwnerId::from_wire);
        state.acquire(now(10), &one, 1, Lease::WATCHDOG, 0);
        assert!(matches!(state.acquire(now(20), &two, 1, Lease::WATCHDOG, 0), Acquired::Busy { .. }));
        assert_eq!(state.snapshot(now(20)).token, Some(10));
        assert!(!state.is_free(now(20)));
    }
}
