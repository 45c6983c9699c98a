use std::sync::Arc;
use std::time::{Duration, Instant};

use turnlock_core::{ClientId, LockName, OwnerId};

use super::home::Home;
use super::thread_owner;
use crate::error::{Error, LostReason};

/// As [`turnlock::Guard`](crate::Guard), for programs without a runtime.
#[must_use = "a guard that is not kept is dropped, and the lock with it"]
#[derive(Debug)]
pub struct Guard {
    // Dropped before the home, so that the thread is there to do its release.
    inner: crate::Guard,
    home: Arc<Home>,
    client: ClientId,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, home: Arc<Home>, client: ClientId) -> Self {
        Self { inner: guard, home, client }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The owner on the wire.
    pub fn owner_id(&self) -> &OwnerId {
        self.inner.owner_id()
    }

    /// How many guards share this hold.
    pub fn hold_count(&self) -> u32 {
        self.inner.hold_count()
    }

    /// As [`turnlock::Guard::reenter`](crate::Guard::reenter).
    pub fn reenter(&self) -> Result<Self, Error> {
        let guard = self.home.block_on(self.inner.reenter())?;
        Ok(Self::new(guard, Arc::clone(&self.home), self.client))
    }

    /// The fencing token of this grant. As [`turnlock::Guard::token`](crate::Guard::token).
    pub fn token(&self) -> Option<u64> {
        self.inner.token()
    }

    /// As [`turnlock::Guard::replicas`](crate::Guard::replicas).
    pub fn replicas(&self) -> u32 {
        self.inner.replicas()
    }

    /// As [`turnlock::Guard::downgrade`](crate::Guard::downgrade).
    pub fn downgrade(self) -> Result<Self, Error> {
        let guard = self.home.block_on(self.inner.downgrade())?;
        Ok(Self::new(guard, self.home, self.client))
    }

    /// As [`turnlock::Guard::unlock`](crate::Guard::unlock).
    pub fn unlock(self) -> Result<(), Error> {
        self.home.block_on(self.inner.unlock())
    }

    /// As [`turnlock::Guard::keep_for`](crate::Guard::keep_for).
    pub fn keep_for(self, time: Duration) -> Result<(), Error> {
        self.home.block_on(self.inner.keep_for(time))
    }

    /// As [`turnlock::Guard::announce`](crate::Guard::announce).
    pub fn announce(&self) -> Result<(), Error> {
        self.home.block_on(self.inner.announce())
    }

    /// Leaves the lock held until this thread calls [`Lock::unlock`](super::Lock::unlock), or ends: Java's way, where the
    /// place that unlocks is not the place that locked.
    pub fn keep(self) {
        thread_owner::keep(self.client, self);
    }

    pub(super) fn lock_name(&self) -> &LockName {
        &self.inner.hold().name
    }

    /// How the lock was lost, if it was.
    pub(super) fn lost(&self) -> Option<LostReason> {
        self.inner.hold().lost()
    }

    /// Blocks until the lock is lost. As [`turnlock::Guard::lost`](crate::Guard::lost).
    pub fn wait_lost(&self) -> LostReason {
        self.home.block_on(self.inner.lost())
    }

    /// As [`turnlock::Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// As [`turnlock::Guard::valid_until`](crate::Guard::valid_until).
    pub fn valid_until(&self) -> Instant {
        self.inner.valid_until()
    }
}
