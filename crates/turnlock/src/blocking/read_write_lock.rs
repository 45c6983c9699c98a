use std::sync::Arc;
use std::time::Duration;

use super::bridge::Bridge;
use super::guard::Guard;
use super::interrupt::Interrupt;
use super::lock::Lock;
use super::write_guard::WriteGuard;
use crate::error::Error;
use crate::inspection::Inspection;
use crate::try_acquire::TryAcquire;

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
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `read()` or `write()`"]
pub struct ReadWriteLock {
    inner: crate::ReadWriteLock,
    bridge: Bridge,
}

impl ReadWriteLock {
    pub(super) fn new(inner: crate::ReadWriteLock, bridge: Bridge) -> Self {
        Self { inner, bridge }
    }

    /// Sets a fixed lease for both sides: [`turnlock::ReadWriteLock::with_lease`](crate::ReadWriteLock::with_lease).
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { inner: self.inner.with_lease(lease), ..self.clone() }
    }

    /// Requires replicas to acknowledge:
    /// [`turnlock::ReadWriteLock::with_replicas`](crate::ReadWriteLock::with_replicas).
    pub fn with_replicas(&self, replicas: u32) -> Self {
        Self { inner: self.inner.with_replicas(replicas), ..self.clone() }
    }

    /// Makes waits interruptible: they end with [`Error::Interrupted`] when `interrupt` is raised.
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
    }

    /// Returns the name of the lock. Empty if the given name is not valid.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Acquires the read lock, and waits until no writer holds it.
    #[track_caller]
    pub fn read(&self) -> Result<Guard, Error> {
        self.reader().lock()
    }

    /// Acquires the read lock if it is free, and does not wait.
    #[track_caller]
    pub fn try_read(&self) -> Result<TryAcquire<Guard>, Error> {
        self.reader().try_lock()
    }

    /// Acquires the write lock, and waits until the lock is free.
    #[track_caller]
    pub fn write(&self) -> Result<WriteGuard, Error> {
        let lock = self.inner.with_owner(&self.bridge.owner());
        let guard = self.bridge.wait(self.name(), lock.write())?;
        Ok(self.write_guard(guard))
    }

    /// Acquires the write lock if it is free, and does not wait.
    #[track_caller]
    pub fn try_write(&self) -> Result<TryAcquire<WriteGuard>, Error> {
        let lock = self.inner.with_owner(&self.bridge.owner());
        let outcome = self.bridge.wait(self.name(), lock.try_write())?;
        Ok(outcome.map(|guard| self.write_guard(guard)))
    }

    /// Returns a handle to the read lock.
    pub fn reader(&self) -> Lock {
        Lock::new(self.inner.reader(), self.bridge.clone())
    }

    /// Returns a handle to the write lock.
    pub fn writer(&self) -> Lock {
        Lock::new(self.inner.writer(), self.bridge.clone())
    }

    /// Returns the readers or the writer.
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.bridge.block_on(self.inner.inspect())
    }

    fn write_guard(&self, guard: crate::WriteGuard) -> WriteGuard {
        WriteGuard::new(guard, Arc::clone(&self.bridge.thread), self.bridge.client.id())
    }
}
