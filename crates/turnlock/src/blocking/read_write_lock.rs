use std::ops::Deref;
use std::time::Duration;

use super::bridge::{Bridge, IntoBlocking, blocking_form};
use super::{Guard, Lock};
use crate::{Error, GuardError, Inspection, TryAcquire};

blocking_form! {
    /// A handle to a lock for many readers or one writer: [`turnlock::ReadWriteLock`](crate::ReadWriteLock).
    ///
    /// The calling thread is the owner.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = turnlock::blocking::Client::connect("memory://")?;
    /// let catalogue = client.read_write_lock("catalogue");
    /// let writer = catalogue.write()?;
    /// let reader = catalogue.read()?; // the same thread can read while it writes
    /// writer.unlock()?; // and continue to read: a downgrade
    /// assert!(matches!(catalogue.write(), Err(turnlock::Error::WouldDeadlock { .. })));
    /// # drop(reader);
    /// # Ok::<(), turnlock::Error>(())
    /// ```
    #[must_use = "a handle holds nothing: call `read()` or `write()`"]
    handle ReadWriteLock
}

impl ReadWriteLock {
    delegate! { ReadWriteLock:
        /// Sets a fixed lease for both sides.
        set with_lease(&self, lease: Duration) -> Self;
        /// Requires replicas to acknowledge.
        set with_replicas(&self, replicas: u32) -> Self;
        /// Returns the name of the lock. Empty if the given name is not valid.
        get name(&self) -> &str;
        /// Acquires the read lock, and waits until no writer holds it.
        own read(&self) -> Result<Guard, Error>;
        /// Acquires the read lock if it is free, and does not wait.
        own try_read(&self) -> Result<TryAcquire<Guard>, Error>;
        /// Acquires the write lock, and waits until the lock is free.
        own write(&self) -> Result<WriteGuard, Error>;
        /// Acquires the write lock if it is free, and does not wait.
        own try_write(&self) -> Result<TryAcquire<WriteGuard>, Error>;
        /// Returns a handle to the read lock.
        make reader(&self) -> Lock;
        /// Returns a handle to the write lock.
        make writer(&self) -> Lock;
        /// Returns the readers or the writer.
        block inspect(&self) -> Result<Inspection, Error>;
    }

    fn with_thread_owner(&self) -> crate::ReadWriteLock {
        self.inner.with_owner(&self.bridge.owner(0))
    }
}

/// A held write lock: [`turnlock::WriteGuard`](crate::WriteGuard).
#[must_use = "the lock is released when the guard is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct WriteGuard {
    guard: Guard,
}

impl IntoBlocking for crate::WriteGuard {
    type Blocking = WriteGuard;

    fn into_blocking(self, bridge: &Bridge) -> WriteGuard {
        WriteGuard { guard: self.into_guard().into_blocking(bridge) }
    }
}

impl WriteGuard {
    /// Turns the write lock into a read lock: [`turnlock::WriteGuard::downgrade`](crate::WriteGuard::downgrade).
    pub fn downgrade(self) -> Result<Guard, GuardError<Self>> {
        let Guard { inner, bridge } = self.guard;
        match bridge.block_on(crate::WriteGuard::new(inner).downgrade()) {
            Ok(read) => Ok(read.into_blocking(&bridge)),
            Err(error) => Err(error.map(|write| write.into_blocking(&bridge))),
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
