use super::{Acquired, LockState, Released, Renewed, Snapshot};
use crate::{Lease, Moment, OwnerId};

/// The state of one plain lock: a value that is set if there is none, compared before it is deleted or extended.
///
/// The value is the owner; there is no count, so a hold cannot be deepened.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlainLockState(LockState);

impl PlainLockState {
    /// Sets the value if there is none. The same owner again is a resend, and leaves a longer lease as it is.
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

    /// Extends the lease if the value is the owner's, or only looks. Never shortens.
    pub fn renew(&mut self, now: Moment, owner: &OwnerId, lease: Option<Lease>) -> Renewed {
        self.0.renew(now, owner, lease)
    }

    /// Sets the lease to just this if the value is the owner's. Nobody is told, as with everything here.
    pub fn keep(&mut self, now: Moment, owner: &OwnerId, lease: Lease) -> Renewed {
        self.0.keep(now, owner, lease).0
    }

    /// Deletes the value, whosever it is.
    pub fn force_unlock(&mut self, now: Moment) -> bool {
        self.0.force_unlock(now)
    }

    /// What the lock looks like.
    pub fn snapshot(&mut self, now: Moment) -> Snapshot {
        self.0.snapshot(now)
    }

    /// Ends the hold as its expiry would.
    pub fn expire(&mut self) {
        self.0.expire();
    }

    /// As [`LockState::owner`].
    pub fn owner(&self) -> Option<&OwnerId> {
        self.0.owner()
    }

    /// As [`LockState::void`].
    pub fn void(&mut self, is_gone: impl Fn(&OwnerId) -> bool) -> bool {
        self.0.void(is_gone)
    }

    /// Whether nothing is left to remember.
    pub fn is_free(&mut self, now: Moment) -> bool {
        self.0.is_free(now)
    }
}
