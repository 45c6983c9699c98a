use std::sync::Arc;
use std::time::Duration;

use super::bridge::Bridge;
use super::interrupt::Interrupt;
use super::permits::Permits;
use crate::error::Error;
use crate::inspection::Inspection;
use crate::try_acquire::TryAcquire;

/// A handle to a semaphore whose permits have leases: [`turnlock::PermitSemaphore`](crate::PermitSemaphore).
///
/// # Examples
///
/// ```
/// let client = turnlock::blocking::Client::connect("memory://")?;
/// let slots = client.permit_semaphore("slots");
/// slots.try_set_permits(1)?;
/// let permit = slots.acquire(1)?;
/// assert!(slots.try_acquire(1)?.is_busy());
/// permit.release()?;
/// # Ok::<(), turnlock::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `acquire()`, `try_acquire()` or `try_acquire_for()`"]
pub struct PermitSemaphore {
    inner: crate::PermitSemaphore,
    bridge: Bridge,
}

impl PermitSemaphore {
    pub(super) fn new(inner: crate::PermitSemaphore, bridge: Bridge) -> Self {
        Self { inner, bridge }
    }

    /// Sets a fixed lease of permits: [`turnlock::PermitSemaphore::with_lease`](crate::PermitSemaphore::with_lease).
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { inner: self.inner.with_lease(lease), ..self.clone() }
    }

    /// Requires replicas to acknowledge each grant:
    /// [`turnlock::PermitSemaphore::with_replicas`](crate::PermitSemaphore::with_replicas).
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
    /// [`turnlock::PermitSemaphore::try_set_permits`](crate::PermitSemaphore::try_set_permits).
    ///
    /// Returns `true` if this call set it.
    pub fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.try_set_permits(permits))
    }

    /// Sets the total number of permits:
    /// [`turnlock::PermitSemaphore::set_permits`](crate::PermitSemaphore::set_permits).
    ///
    /// Returns how many are free.
    pub fn set_permits(&self, permits: u32) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.set_permits(permits))
    }

    /// Adds `difference` to the number of permits:
    /// [`turnlock::PermitSemaphore::add_permits`](crate::PermitSemaphore::add_permits).
    ///
    /// Returns how many are free.
    pub fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.add_permits(difference))
    }

    /// Acquires permits together, and waits until they are free:
    /// [`turnlock::PermitSemaphore::acquire`](crate::PermitSemaphore::acquire).
    #[track_caller]
    pub fn acquire(&self, permits: u32) -> Result<Permits, Error> {
        self.bridge.wait(self.name(), self.inner.acquire(permits)).map(|permits| self.permits(permits))
    }

    /// Acquires permits together if they are free, and does not wait:
    /// [`turnlock::PermitSemaphore::try_acquire`](crate::PermitSemaphore::try_acquire).
    #[track_caller]
    pub fn try_acquire(&self, permits: u32) -> Result<TryAcquire<Permits>, Error> {
        let outcome = self.bridge.wait(self.name(), self.inner.try_acquire(permits))?;
        Ok(outcome.map(|permits| self.permits(permits)))
    }

    /// Acquires permits together, and waits at most `wait`:
    /// [`turnlock::PermitSemaphore::try_acquire_for`](crate::PermitSemaphore::try_acquire_for).
    #[track_caller]
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<TryAcquire<Permits>, Error> {
        let outcome = self.bridge.wait(self.name(), self.inner.try_acquire_for(permits, wait))?;
        Ok(outcome.map(|permits| self.permits(permits)))
    }

    /// Deletes the semaphore: [`turnlock::PermitSemaphore::delete`](crate::PermitSemaphore::delete).
    ///
    /// Returns `true` if it existed.
    pub fn delete(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.delete())
    }

    /// Returns how many permits are free: [`turnlock::PermitSemaphore::available`](crate::PermitSemaphore::available).
    pub fn available(&self) -> Result<i64, Error> {
        self.bridge.block_on(self.inner.available())
    }

    /// Returns the free and the taken permits: [`turnlock::PermitSemaphore::inspect`](crate::PermitSemaphore::inspect).
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.bridge.block_on(self.inner.inspect())
    }

    fn permits(&self, permits: crate::Permits) -> Permits {
        Permits::new(permits, Arc::clone(&self.bridge.thread))
    }
}
