use super::{
    Acquired, HolderSnapshot, Model, Notification, Now, Owners, Released, Renewed, Reply, Role, Snapshot,
    Step,
};
use crate::planted::Bug;
use crate::{Kind, Lease, Moment, OwnerId};

/// The state of a reentrant lock: at most one owner, its hold count, and its expiry.
///
/// Steps are idempotent, since each carries a *target* count instead of "one more" or "one less": an acquire
/// raises the count to its target, a release lowers it, and a repeated step changes nothing.
///
/// It is also the state of a plain lock: a value that is set if absent, and compared before it is deleted or
/// extended. The value is the owner. There is no count, so a hold cannot be reentered.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockState {
    hold: Option<Hold>,
}

#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    owner: OwnerId,
    count: u32,
    expires: Moment,
}

impl LockState {
    /// Acquires the lock, or raises the count of the owner's hold.
    ///
    /// A `target` of one may begin a hold. A higher one is a reentry, and needs a hold of the owner. The
    /// lease is never shortened.
    pub fn acquire(&mut self, now: Moment, owner: &OwnerId, target: u32, lease: Lease) -> Acquired {
        self.expire_by(now);
        let expires = now + lease.as_duration();
        match &mut self.hold {
            None if target > 1 => Acquired::Gone,
            None => {
                self.hold = Some(Hold { owner: owner.clone(), count: 1, expires });
                Acquired::Granted
            }
            Some(hold) if hold.owner == *owner => {
                if !Bug::ReentryNotCounted.is_planted() {
                    hold.count = hold.count.max(target);
                }
                hold.expires = hold.expires.max(expires);
                Acquired::Granted
            }
            Some(_) if target > 1 => Acquired::Gone,
            Some(hold) => Acquired::Busy { ttl: Some(hold.expires.since(now)) },
        }
    }

    /// Lowers the count of `owner` to `target`; zero ends the hold. Never begins a hold.
    pub fn release(&mut self, now: Moment, owner: &OwnerId, target: u32) -> Released {
        self.expire_by(now);
        if Bug::ReleaseCreates.is_planted() && self.hold.is_none() {
            self.hold = Some(Hold { owner: owner.clone(), count: 1, expires: Moment::NEVER });
            return Released::NotHeld;
        }
        let Some(hold) = self.held_by(now, owner) else { return Released::NotHeld };
        if target == 0 {
            self.hold = None;
            return Released::Freed;
        }
        hold.count = hold.count.min(target);
        Released::StillHeld
    }

    /// Extends the lease of `owner`, never shortens it. With `lease` of `None`, only checks that it is held.
    pub fn renew(&mut self, now: Moment, owner: &OwnerId, lease: Option<Lease>) -> Renewed {
        if Bug::RenewalCreates.is_planted() && self.held_by(now, owner).is_none() {
            self.hold = Some(Hold { owner: owner.clone(), count: 1, expires: now });
        }
        let Some(hold) = self.held_by(now, owner) else { return Renewed::NotHeld };
        let Some(lease) = lease else { return Renewed::Renewed };
        hold.expires = hold.expires.max(now + lease.as_duration());
        Renewed::until(hold.expires, now, lease)
    }

    /// Sets the lease of `owner` to exactly `lease`.
    ///
    /// If that shortens the lease, the waiters are notified, since they sleep until the old end.
    pub fn unlock_after(&mut self, now: Moment, owner: &OwnerId, lease: Lease) -> (Renewed, Notification) {
        let Some(hold) = self.held_by(now, owner) else { return (Renewed::NotHeld, Notification::None) };
        let part = if Bug::EarlyDelayedUnlock.is_planted() { 2 } else { 1 };
        let before = std::mem::replace(&mut hold.expires, now + lease.as_duration() / part);
        (Renewed::Renewed, Notification::subscribers_if(hold.expires < before))
    }

    /// Ends the hold of any owner. Returns `true` if the lock was held; the waiters must be notified then.
    pub fn force_unlock(&mut self, now: Moment) -> bool {
        self.expire_by(now);
        self.hold.take().is_some()
    }

    /// Ends the hold as its expiry would, without a notification.
    pub fn expire(&mut self) {
        self.hold = None;
    }

    /// Returns the hold, if `owner` has it.
    fn held_by(&mut self, now: Moment, owner: &OwnerId) -> Option<&mut Hold> {
        self.expire_by(now);
        self.hold.as_mut().filter(|hold| hold.owner == *owner)
    }

    fn expire_by(&mut self, now: Moment) {
        if self.hold.as_ref().is_some_and(|hold| hold.expires <= now) {
            self.expire();
        }
    }
}

impl Model for LockState {
    fn apply(&mut self, now: Now, step: &Step) -> Option<(Reply, Notification)> {
        let (now, is_plain) = (now.moment, step.kind() == Kind::Plain);
        Some(match step {
            Step::Acquire(claim, _) if is_plain && claim.target > 1 => {
                Reply::Acquired(Acquired::Gone).quiet()
            }
            Step::Acquire(claim, options) => {
                Reply::Acquired(self.acquire(now, &claim.owner, claim.target, options.lease)).quiet()
            }
            Step::Release(claim) => {
                let target = if is_plain { 0 } else { claim.target };
                let reply = self.release(now, &claim.owner, target);
                (Reply::Released(reply), Notification::subscribers_if(reply == Released::Freed))
            }
            Step::Renew(claim, lease) => Reply::Renewed(self.renew(now, &claim.owner, *lease)).quiet(),
            Step::SetLease { claim, lease, .. } => {
                Reply::of(Reply::Renewed, self.unlock_after(now, &claim.owner, *lease))
            }
            Step::ForceUnlock(_) => {
                let was_held = self.force_unlock(now);
                (Reply::ForceUnlocked(was_held), Notification::subscribers_if(was_held))
            }
            _ => return None,
        })
    }

    fn snapshot(&mut self, now: Now) -> Snapshot {
        self.expire_by(now.moment);
        let holder =
            |hold: &Hold| HolderSnapshot::new(hold.owner.clone(), u64::from(hold.count), Role::Holder, None);
        Snapshot {
            holders: self.hold.iter().map(holder).collect(),
            ttl: self.hold.as_ref().map(|hold| hold.expires.since(now.moment)),
            ..Snapshot::default()
        }
    }

    /// Returns the owner of the hold, expired or not.
    fn owners(&self) -> Owners {
        let holders = self.hold.iter().map(|hold| hold.owner.clone()).collect();
        Owners { holders, waiters: Vec::new() }
    }

    fn remove_owners(&mut self, _: Now, is_gone: &dyn Fn(&OwnerId) -> bool) -> Notification {
        Notification::subscribers_if(self.hold.take_if(|hold| is_gone(&hold.owner)).is_some())
    }

    fn is_free(&mut self, now: Now) -> bool {
        self.expire_by(now.moment);
        self.hold.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn holders(lock: &mut LockState, millis: u64) -> Vec<(OwnerId, u64)> {
        let holders = lock.snapshot(now(millis)).holders;
        holders.into_iter().map(|holder| (holder.owner, holder.count)).collect()
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn lease(millis: u64) -> Lease {
        Lease::new(ms(millis)).expect("valid")
    }

    fn at(millis: u64) -> Moment {
        Moment::from_micros(0) + ms(millis)
    }

    fn now(millis: u64) -> Now {
        Now { moment: at(millis), wall: 0 }
    }

    fn owners() -> (OwnerId, OwnerId) {
        (OwnerId::from_wire("a:1"), OwnerId::from_wire("b:1"))
    }

    #[test]
    fn a_refused_owner_gets_the_rest_of_the_lease() {
        let (a, b) = owners();
        let mut lock = LockState::default();
        assert_eq!(lock.acquire(at(0), &a, 1, lease(100)), Acquired::Granted);
        assert_eq!(lock.acquire(at(40), &b, 1, lease(100)), Acquired::Busy { ttl: Some(ms(60)) });
        assert_eq!(lock.release(at(50), &b, 0), Released::NotHeld);
        assert_eq!(lock.release(at(50), &a, 0), Released::Freed);
        assert_eq!(lock.acquire(at(51), &b, 1, lease(100)), Acquired::Granted);
    }

    #[test]
    fn unlock_after_sets_the_end_of_a_hold() {
        let (a, b) = owners();
        let mut lock = LockState::default();
        assert_eq!(
            lock.unlock_after(at(0), &a, lease(50)),
            (Renewed::NotHeld, Notification::None),
            "begins no hold"
        );
        lock.acquire(at(0), &a, 1, lease(100));
        lock.acquire(at(0), &a, 2, lease(100));
        assert_eq!(
            lock.unlock_after(at(0), &b, lease(50)),
            (Renewed::NotHeld, Notification::None),
            "not the owner"
        );
        assert_eq!(
            lock.unlock_after(at(0), &a, lease(50)),
            (Renewed::Renewed, Notification::Subscribers),
            "shorter"
        );
        assert_eq!(lock.acquire(at(20), &b, 1, lease(10)), Acquired::Busy { ttl: Some(ms(30)) });
        assert_eq!(
            lock.unlock_after(at(20), &a, lease(200)),
            (Renewed::Renewed, Notification::None),
            "longer"
        );
        assert_eq!(holders(&mut lock, 219), [(a.clone(), 2)]);
        assert_eq!(
            lock.unlock_after(at(220), &a, lease(10)),
            (Renewed::NotHeld, Notification::None),
            "revives no hold"
        );
    }

    #[test]
    fn a_repeated_step_counts_once() {
        let (a, _) = owners();
        let mut lock = LockState::default();
        for _ in 0..2 {
            assert_eq!(lock.acquire(at(0), &a, 1, lease(100)), Acquired::Granted);
        }
        for _ in 0..2 {
            assert_eq!(lock.acquire(at(0), &a, 2, lease(100)), Acquired::Granted);
        }
        // A late copy of the first step must not lower the count.
        assert_eq!(lock.acquire(at(0), &a, 1, lease(100)), Acquired::Granted);
        assert_eq!(holders(&mut lock, 0), [(a.clone(), 2)]);
        for _ in 0..2 {
            assert_eq!(lock.release(at(0), &a, 1), Released::StillHeld);
        }
        assert_eq!(holders(&mut lock, 0), [(a.clone(), 1)]);
        assert_eq!(lock.release(at(0), &a, 0), Released::Freed);
        assert_eq!(lock.release(at(0), &a, 0), Released::NotHeld);
    }

    #[test]
    fn a_reentry_never_begins_a_hold() {
        let (a, b) = owners();
        let mut lock = LockState::default();
        assert_eq!(lock.acquire(at(0), &a, 2, lease(100)), Acquired::Gone);
        lock.acquire(at(0), &b, 1, lease(100));
        assert_eq!(lock.acquire(at(0), &a, 2, lease(100)), Acquired::Gone);
        assert_eq!(holders(&mut lock, 0), [(b, 1)]);
    }

    #[test]
    fn a_lease_ends_by_itself_and_is_never_shortened() {
        let (a, b) = owners();
        let mut lock = LockState::default();
        lock.acquire(at(0), &a, 1, lease(100));
        lock.acquire(at(10), &a, 2, lease(20));
        assert_eq!(lock.renew(at(10), &a, Some(lease(30))), Renewed::Longer, "reported to the owner");
        lock.release(at(10), &a, 1);
        assert_eq!(lock.snapshot(now(10)).ttl, Some(ms(90)));
        assert_eq!(lock.renew(at(50), &a, Some(lease(100))), Renewed::Renewed);
        assert_eq!(lock.renew(at(60), &a, None), Renewed::Renewed);
        assert_eq!(lock.snapshot(now(60)).ttl, Some(ms(90)));
        assert_eq!(lock.renew(at(150), &a, Some(lease(100))), Renewed::NotHeld);
        assert_eq!(lock.renew(at(150), &b, None), Renewed::NotHeld);
        assert!(lock.is_free(now(150)));
    }

    #[test]
    fn a_forced_unlock_ends_the_hold_of_any_owner() {
        let (a, _) = owners();
        let mut lock = LockState::default();
        assert!(!lock.force_unlock(at(0)));
        lock.acquire(at(0), &a, 1, lease(100));
        assert!(lock.force_unlock(at(0)));
        assert_eq!(lock.snapshot(now(0)), Snapshot::default());
    }
}
