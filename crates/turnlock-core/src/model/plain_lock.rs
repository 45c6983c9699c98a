use super::{Acquired, LockState, Released, Renewed, Snapshot};
use crate::{Lease, Moment, OwnerId};

/// The state of a plain lock: a value that is set if absent, and compared before it is deleted or extended.
///
/// The value is the owner. There is no count, so a hold cannot be reentered, and no step notifies waiters.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlainLockState(LockState);

impl PlainLockState {
    /// Sets the value if absent. A repeated request of the same owner never shortens the lease.
    pub fn acquire(&mut self, now: Moment, owner: &OwnerId, target: u32, lease: Lease) -> Acquired {
        if target > 1 {
            return Acquired::Gone;
        }
        self.0.acquire(now, owner, 1, lease)
    }

    /// Deletes the value if it is the owner's.
    pub fn release(&mut self, now: Moment, owner: &OwnerId) -> Released {
        self.0.release(now, owner, 0)
    }

    /// Extends the lease if the value is the owner's. With `lease` of `None`, only checks that it is.
    pub fn renew(&mut self, now: Moment, owner: &OwnerId, lease: Option<Lease>) -> Renewed {
        self.0.renew(now, owner, lease)
    }

    /// Sets the lease to exactly `lease` if the value is the owner's.
    pub fn unlock_after(&mut self, now: Moment, owner: &OwnerId, lease: Lease) -> Renewed {
        self.0.unlock_after(now, owner, lease).0
    }

    /// Deletes the value of any owner. Returns `true` if there was one.
    pub fn force_unlock(&mut self, now: Moment) -> bool {
        self.0.force_unlock(now)
    }

    /// Returns the state as seen from outside.
    pub fn snapshot(&mut self, now: Moment) -> Snapshot {
        self.0.snapshot(now)
    }

    /// Ends the hold as its expiry would. For tests.
    pub fn expire(&mut self) {
        self.0.expire();
    }

    /// As [`LockState::owner`].
    pub fn owner(&self) -> Option<&OwnerId> {
        self.0.owner()
    }

    /// As [`LockState::remove_owners`].
    pub fn remove_owners(&mut self, is_gone: impl Fn(&OwnerId) -> bool) -> bool {
        self.0.remove_owners(is_gone)
    }

    /// Returns `true` if nothing is left to remember, so that the state can be deleted.
    pub fn is_free(&mut self, now: Moment) -> bool {
        self.0.is_free(now)
    }
}
