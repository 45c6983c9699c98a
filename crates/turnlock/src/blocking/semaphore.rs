use std::sync::Arc;
use std::time::Duration;

use super::bridge::Bridge;
use super::interrupt::Interrupt;
use super::permits::Permits;
use crate::error::Error;
use crate::inspection::Inspection;

/// As [`turnlock::Semaphore`](crate::Semaphore), for programs without a runtime.
///
/// ```
/// let client = turnlock::blocking::Client::connect("memory://")?;
/// let slots = client.semaphore("slots");
/// slots.try_set_permits(1)?;
/// let permit = slots.acquire(1)?;
/// assert!(slots.try_acquire(1)?.is_none());
/// permit.release()?;
/// # Ok::<(), turnlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    inner: crate::Semaphore,
    bridge: Bridge,
}

impl Semaphore {
    pub(super) fn new(inner: crate::Semaphore, bridge: Bridge) -> Self {
        Self { inner, bridge }
    }

    /// As [`turnlock::Semaphore::acknowledged_by`](crate::Semaphore::acknowledged_by).
    #[must_use = "this makes another handle; the semaphore is as it was"]
    pub fn acknowledged_by(&self, replicas: u32) -> Self {
        Self { inner: self.inner.acknowledged_by(replicas), ..self.clone() }
    }

    /// The same, whose waits end with [`Error::Interrupted`] when `interrupt` is raised.
    #[must_use = "this makes another handle; nothing else is changed"]
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
    }

    /// The name, as it was given.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// As [`turnlock::Semaphore::try_set_permits`](crate::Semaphore::try_set_permits).
    pub fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.try_set_permits(permits))
    }

    /// As [`turnlock::Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire(&self, permits: u32) -> Result<Permits, Error> {
        self.bridge.wait(self.name(), self.inner.acquire(permits)).map(|permits| self.permits(permits))
    }

    /// As [`turnlock::Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_acquire(&self, permits: u32) -> Result<Option<Permits>, Error> {
        let permits = self.bridge.wait(self.name(), self.inner.try_acquire(permits))?;
        Ok(permits.map(|permits| self.permits(permits)))
    }

    /// As [`turnlock::Semaphore::try_acquire_for`](crate::Semaphore::try_acquire_for).
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<Permits>, Error> {
        let permits = self.bridge.wait(self.name(), self.inner.try_acquire_for(permits, wait))?;
        Ok(permits.map(|permits| self.permits(permits)))
    }

    /// As [`turnlock::Semaphore::release`](crate::Semaphore::release).
    pub fn release(&self, permits: u32) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.release(permits))
    }

    /// As [`turnlock::Semaphore::add_permits`](crate::Semaphore::add_permits).
    pub fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.add_permits(difference))
    }

    /// As [`turnlock::Semaphore::drain`](crate::Semaphore::drain).
    pub fn drain(&self) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.drain())
    }

    /// As [`turnlock::Semaphore::delete`](crate::Semaphore::delete).
    pub fn delete(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.delete())
    }

    /// As [`turnlock::Semaphore::available`](crate::Semaphore::available).
    pub fn available(&self) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.available())
    }

    /// As [`turnlock::Semaphore::inspect`](crate::Semaphore::inspect).
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.bridge.block_on(self.inner.inspect())
    }

    fn permits(&self, permits: crate::Permits) -> Permits {
        Permits::new(permits, Arc::clone(&self.bridge.home))
    }
}
