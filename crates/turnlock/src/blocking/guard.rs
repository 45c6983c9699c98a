use std::sync::Arc;
use std::time::{Duration, Instant};

use turnlock_core::{ClientId, LockName, OwnerId};

use super::client_thread::ClientThread;
use super::thread_owner;
use crate::error::{Error, LostReason};
use crate::guard_error::GuardError;

/// A held lock: [`turnlock::Guard`](crate::Guard). Dropping it releases the lock in the background.
#[must_use = "the lock is released when the guard is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct Guard {
    // Dropped before the thread, which runs its release.
    inner: crate::Guard,
    thread: Arc<ClientThread>,
    client: ClientId,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, thread: Arc<ClientThread>, client: ClientId) -> Self {
        Self { inner: guard, thread, client }
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns the owner id on the store: [`turnlock::Guard::owner_id`](crate::Guard::owner_id).
    pub fn owner_id(&self) -> &OwnerId {
        self.inner.owner_id()
    }

    /// Returns how many guards share this hold.
    pub fn hold_count(&self) -> u32 {
        self.inner.hold_count()
    }

    /// Acquires the lock once more: [`turnlock::Guard::reenter`](crate::Guard::reenter).
    pub fn reenter(&self) -> Result<Self, Error> {
        let guard = self.thread.block_on(self.inner.reenter())?;
        Ok(Self::new(guard, Arc::clone(&self.thread), self.client))
    }

    /// Returns the fencing token: [`turnlock::Guard::token`](crate::Guard::token).
    pub fn token(&self) -> Option<u64> {
        self.inner.token()
    }

    /// Returns how many replicas acknowledged: [`turnlock::Guard::replicas`](crate::Guard::replicas).
    pub fn replicas(&self) -> u32 {
        self.inner.replicas()
    }

    /// Releases the lock, and waits for the store: [`turnlock::Guard::unlock`](crate::Guard::unlock).
    pub fn unlock(self) -> Result<(), Error> {
        self.thread.block_on(self.inner.unlock())
    }

    /// Lets the store release the lock after `time`: [`turnlock::Guard::unlock_after`](crate::Guard::unlock_after).
    pub fn unlock_after(self, time: Duration) -> Result<(), GuardError<Self>> {
        let Self { inner, thread, client } = self;
        let outcome = thread.block_on(inner.unlock_after(time));
        outcome.map_err(|error| error.map(|inner| Self { inner, thread, client }))
    }

    /// Writes since when the lock is held: [`turnlock::Guard::announce`](crate::Guard::announce).
    pub fn announce(&self) -> Result<(), Error> {
        self.thread.block_on(self.inner.announce())
    }

    /// Keeps the lock held without the guard, until this thread calls [`Lock::unlock`](super::Lock::unlock) or ends.
    ///
    /// For code that locks in one place and unlocks in another, as in Java.
    pub fn detach(self) {
        thread_owner::detach(self.client, self);
    }

    pub(super) fn into_parts(self) -> (crate::Guard, Arc<ClientThread>, ClientId) {
        (self.inner, self.thread, self.client)
    }

    pub(super) fn lock_name(&self) -> &LockName {
        &self.inner.hold().name
    }

    /// Returns why the lock was lost, if it was.
    pub(super) fn lost(&self) -> Option<LostReason> {
        self.inner.hold().lost()
    }

    /// Blocks until the lock is lost: [`turnlock::Guard::lost`](crate::Guard::lost).
    pub fn wait_lost(&self) -> LostReason {
        self.thread.block_on(self.inner.lost())
    }

    /// Returns `true` if the lock is held: [`turnlock::Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// Returns until when the lock is held: [`turnlock::Guard::valid_until`](crate::Guard::valid_until).
    pub fn valid_until(&self) -> Instant {
        self.inner.valid_until()
    }
}
