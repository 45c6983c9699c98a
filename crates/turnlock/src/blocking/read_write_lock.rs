use std::time::Duration;

use super::bridge::Bridge;
use super::interrupt::Interrupt;
use super::lock::Lock;
use crate::error::Error;
use crate::inspection::Inspection;

/// As [`turnlock::ReadWriteLock`](crate::ReadWriteLock), for programs without a runtime; the calling thread is the owner.
///
/// ```
/// let client = turnlock::blocking::Client::connect("memory://")?;
/// let catalogue = client.read_write_lock("catalogue");
/// let writer = catalogue.write().lock()?;
/// let reader = catalogue.read().lock()?; // the same thread may read while it writes
/// writer.unlock()?; // and go on reading: a downgrade
/// let would_wait_for_itself = catalogue.write().lock();
/// assert!(matches!(would_wait_for_itself, Err(turnlock::Error::WouldDeadlock { .. })));
/// # drop(reader);
/// # Ok::<(), turnlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    inner: crate::ReadWriteLock,
    bridge: Bridge,
}

impl ReadWriteLock {
    pub(super) fn new(inner: crate::ReadWriteLock, bridge: Bridge) -> Self {
        Self { inner, bridge }
    }

    /// As [`turnlock::ReadWriteLock::lease`](crate::ReadWriteLock::lease).
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { inner: self.inner.lease(lease), ..self.clone() }
    }

    /// As [`turnlock::ReadWriteLock::acknowledged_by`](crate::ReadWriteLock::acknowledged_by).
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn acknowledged_by(&self, replicas: u32) -> Self {
        Self { inner: self.inner.acknowledged_by(replicas), ..self.clone() }
    }

    /// The same lock, whose waits end with [`Error::Interrupted`] when `interrupt` is raised.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
    }

    /// The side for many at a time.
    pub fn read(&self) -> Lock {
        Lock::new(self.inner.read(), self.bridge.clone())
    }

    /// The side for one at a time.
    pub fn write(&self) -> Lock {
        Lock::new(self.inner.write(), self.bridge.clone())
    }

    /// Who reads or writes.
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.bridge.block_on(self.inner.inspect())
    }
}
