use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::ClientId;

use super::client_thread::ClientThread;
use super::guard::Guard;
use crate::error::Error;
use crate::guard_error::GuardError;

/// A held write lock: [`turnlock::WriteGuard`](crate::WriteGuard).
#[must_use = "the lock is released when the guard is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct WriteGuard {
    guard: Guard,
}

impl WriteGuard {
    pub(super) fn new(guard: crate::WriteGuard, thread: Arc<ClientThread>, client: ClientId) -> Self {
        Self { guard: Guard::new(guard.into_guard(), thread, client) }
    }

    /// Turns the write lock into a read lock: [`turnlock::WriteGuard::downgrade`](crate::WriteGuard::downgrade).
    pub fn downgrade(self) -> Result<Guard, GuardError<Self>> {
        let (write, thread, client) = self.guard.into_parts();
        let outcome = thread.block_on(crate::WriteGuard::new(write).downgrade());
        match outcome {
            Ok(read) => Ok(Guard::new(read, thread, client)),
            Err(error) => Err(error.map(|write| Self::new(write, thread, client))),
        }
    }

    /// Releases the lock, and waits for the store: [`turnlock::Guard::unlock`](crate::Guard::unlock).
    pub fn unlock(self) -> Result<(), Error> {
        self.guard.unlock()
    }

    /// Lets the store release the lock after `time`: [`turnlock::Guard::unlock_after`](crate::Guard::unlock_after).
    pub fn unlock_after(self, time: Duration) -> Result<(), GuardError<Self>> {
        self.guard.unlock_after(time).map_err(|error| error.map(|guard| Self { guard }))
    }

    /// Returns the guard without the type of the write lock.
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
