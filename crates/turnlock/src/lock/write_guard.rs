use std::ops::Deref;
use std::time::Duration;

use crate::{Error, Guard, GuardError};

/// A held write lock of a [`ReadWriteLock`](crate::ReadWriteLock).
///
/// It is a [`Guard`] that can be [downgraded](WriteGuard::downgrade).
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let catalogue = client.read_write_lock("catalogue");
/// let writer = catalogue.write().await?;
/// let reader = writer.downgrade().await?; // no other writer can come between
/// assert!(catalogue.reader().is_locked().await?);
/// # drop(reader);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[must_use = "the lock is released when the guard is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct WriteGuard {
    guard: Guard,
}

impl WriteGuard {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard }
    }

    /// Turns the write lock into a read lock. No other writer can come between.
    ///
    /// Waiting readers are woken.
    ///
    /// # Errors
    ///
    /// If the store does not grant the read lock, the [write guard is returned](GuardError::into_guard). If it grants the
    /// read lock and does not confirm the release of the write lock, both are released.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Both locks are released.
    pub async fn downgrade(self) -> Result<Guard, GuardError<Self>> {
        let read = match self.guard.read_lock().await {
            Ok(read) => read,
            Err(error) => return Err(GuardError::refused(error, self)),
        };
        self.guard.unlock().await?;
        Ok(read)
    }

    /// Releases the lock, and waits until the store confirms it: [`Guard::unlock`].
    pub async fn unlock(self) -> Result<(), Error> {
        self.guard.unlock().await
    }

    /// Drops the guard, and lets the store release the lock after `time`: [`Guard::unlock_after`].
    pub async fn unlock_after(self, time: Duration) -> Result<(), GuardError<Self>> {
        self.guard.unlock_after(time).await.map_err(|error| error.map(Self::new))
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
