use std::sync::Arc;
use std::time::Duration;

use super::bridge::Bridge;
use super::interrupt::Interrupt;
use super::permits::Permits;
use crate::error::Error;
use crate::inspection::Inspection;
use crate::try_acquire::TryAcquire;

/// A handle to a semaphore whose permits have no lease: [`turnlock::Semaphore`](crate::Semaphore).
///
/// # Examples
///
/// ```
/// let client = turnlock::blocking::Client::connect("memory://")?;
/// let slots = client.semaphore("slots");
/// slots.try_set_permits(1)?;
/// let permit = slots.acquire(1)?;
/// assert!(slots.try_acquire(1)?.is_busy());
/// permit.release()?;
/// # Ok::<(), turnlock::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `acquire()`, `try_acquire()` or `try_acquire_for()`"]
pub struct Semaphore {
    inner: crate::Semaphore,
    bridge: Bridge,
}

impl Semaphore {
    pub(super) fn new(inner: crate::Semaphore, bridge: Bridge) -> Self {
        Self { inner, bridge }
    }

    /// Requires replicas to acknowledge each grant:
    /// [`turnlock::Semaphore::with_replicas`](crate::Semaphore::with_replicas).
    pub fn with_replicas(&self, replicas: u32) -> Self {
        Self { inner: self.inner.with_replicas(replicas), ..self.clone() }
    }

    /// Makes waits interruptible: they end with [`Error::Interrupted`] when `interrupt` is raised.
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
    }

    /// Returns the name of the semaphore. Empty if the given name is not valid.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Sets the number of permits if it was never set:
    /// [`turnlock::Semaphore::try_set_permits`](crate::Semaphore::try_set_permits).
    ///
    /// Returns `true` if this call set it.
    pub fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.try_set_permits(permits))
    }

    /// Acquires permits together, and waits until they are free:
    /// [`turnlock::Semaphore::acquire`](crate::Semaphore::acquire).
    #[track_caller]
    pub fn acquire(&self, permits: u32) -> Result<Permits, Error> {
        self.bridge.wait(self.name(), self.inner.acquire(permits)).map(|permits| self.permits(permits))
    }

    /// Acquires permits together if they are free, and does not wait:
    /// [`turnlock::Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    #[track_caller]
    pub fn try_acquire(&self, permits: u32) -> Result<TryAcquire<Permits>, Error> {
        let outcome = self.bridge.wait(self.name(), self.inner.try_acquire(permits))?;
        Ok(outcome.map(|permits| self.permits(permits)))
    }

    /// Acquires permits together, and waits at most `wait`:
    /// [`turnlock::Semaphore::try_acquire_for`](crate::Semaphore::try_acquire_for).
    #[track_caller]
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<TryAcquire<Permits>, Error> {
        let outcome = self.bridge.wait(self.name(), self.inner.try_acquire_for(permits, wait))?;
        Ok(outcome.map(|permits| self.permits(permits)))
    }

    /// Adds permits that this process need not have acquired:
    /// [`turnlock::Semaphore::release`](crate::Semaphore::release).
    ///
    /// Returns how many are free.
    pub fn release(&self, permits: u32) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.release(permits))
    }

    /// Adds `difference` to the number of free permits:
    /// [`turnlock::Semaphore::add_permits`](crate::Semaphore::add_permits).
    ///
    /// Returns how many are free.
    pub fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.add_permits(difference))
    }

    /// Acquires all free permits for good: [`turnlock::Semaphore::drain`](crate::Semaphore::drain).
    ///
    /// Returns how many there were.
    pub fn drain(&self) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.drain())
    }

    /// Deletes the semaphore: [`turnlock::Semaphore::delete`](crate::Semaphore::delete).
    ///
    /// Returns `true` if it existed.
    pub fn delete(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.delete())
    }

    /// Returns how many permits are free: [`turnlock::Semaphore::available`](crate::Semaphore::available).
    pub fn available(&self) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.available())
    }

    /// Returns the free permits, and the number of waiters of this client:
    /// [`turnlock::Semaphore::inspect`](crate::Semaphore::inspect).
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.bridge.block_on(self.inner.inspect())
    }

    fn permits(&self, permits: crate::Permits) -> Permits {
        Permits::new(permits, Arc::clone(&self.bridge.thread))
    }
}
