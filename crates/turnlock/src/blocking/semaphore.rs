use std::time::{Duration, Instant};

use super::bridge::{Bridge, IntoBlocking, blocking_form};
use crate::permits::SemaphoreKind;
use crate::{Error, GuardError, Inspection, Leased, LostReason, TryAcquire, Unleased};

blocking_form! {
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
    #[must_use = "a handle holds nothing: call `acquire()`, `try_acquire()` or `try_acquire_for()`"]
    handle Semaphore<K = Unleased>
}

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
pub type PermitSemaphore = Semaphore<Leased>;

#[expect(private_bounds, reason = "there are two kinds, and users add none")]
impl<K: SemaphoreKind> Semaphore<K> {
    delegate! { Semaphore:
        /// Requires replicas to acknowledge each grant.
        set with_replicas(&self, replicas: u32) -> Self;
        /// Returns the name of the semaphore. Empty if the given name is not valid.
        get name(&self) -> &str;
        /// Sets the number of permits if it was never set. Returns `true` if this call set it.
        block try_set_permits(&self, permits: u32) -> Result<bool, Error>;
        /// Adds `difference` to the number of permits. Returns how many are free.
        block add_permits(&self, difference: i32) -> Result<i64, Error>;
        /// Acquires permits together, and waits until they are free.
        wait acquire(&self, permits: u32) -> Result<Permits, Error>;
        /// Acquires permits together if they are free, and does not wait.
        wait try_acquire(&self, permits: u32) -> Result<TryAcquire<Permits>, Error>;
        /// Acquires permits together, and waits at most `wait`.
        wait try_acquire_for(&self, permits: u32, wait: Duration) -> Result<TryAcquire<Permits>, Error>;
        /// Deletes the semaphore. Returns `true` if it existed.
        block delete(&self) -> Result<bool, Error>;
        /// Returns how many permits are free.
        block available(&self) -> Result<i64, Error>;
        /// Returns the free and the taken permits, and the number of waiters of this client.
        block inspect(&self) -> Result<Inspection, Error>;
    }
}

impl Semaphore<Unleased> {
    delegate! { Semaphore:
        /// Adds permits that this process need not have acquired. Returns how many are free.
        block release(&self, permits: u32) -> Result<i64, Error>;
        /// Acquires all free permits for good. Returns how many there were.
        block drain(&self) -> Result<i64, Error>;
    }
}

impl Semaphore<Leased> {
    delegate! { PermitSemaphore:
        /// Sets a fixed lease of permits.
        set with_lease(&self, lease: Duration) -> Self;
        /// Sets the total number of permits. Returns how many are free.
        block set_permits(&self, permits: u32) -> Result<i64, Error>;
    }
}

blocking_form! {
    /// Permits of a semaphore: [`turnlock::Permits`](crate::Permits). Dropping it releases them in the background.
    #[must_use = "the permits are released when this is dropped: bind it to a variable"]
    guard Permits
}

impl Permits {
    delegate! { Permits:
        /// Returns the name of the semaphore.
        get name(&self) -> &str;
        /// Returns how many permits these are.
        get count(&self) -> u32;
        /// Returns the ids of the permits on the store.
        get ids(&self) -> Vec<String>;
        /// Returns how many replicas acknowledged.
        get replicas(&self) -> u32;
        /// Returns `true` if the permits are held.
        get is_valid(&self) -> bool;
        /// Returns until when the permits are held.
        get valid_until(&self) -> Instant;
        /// Writes since when the permits are taken.
        block announce(&self) -> Result<(), Error>;
    }

    /// Releases the permits, and waits for the store: [`turnlock::Permits::release`](crate::Permits::release).
    pub fn release(self) -> Result<(), Error> {
        self.bridge.block_on(self.inner.release())
    }

    /// Lets the store release the permits after `time`:
    /// [`turnlock::Permits::release_after`](crate::Permits::release_after).
    pub fn release_after(self, time: Duration) -> Result<(), GuardError<Self>> {
        let outcome = self.bridge.block_on(self.inner.release_after(time));
        outcome.map_err(|error| error.map(|permits| permits.into_blocking(&self.bridge)))
    }

    /// Leaves the permits taken: [`turnlock::Permits::detach`](crate::Permits::detach).
    pub fn detach(self) {
        self.inner.detach();
    }

    /// Blocks until the permits are lost: [`turnlock::Permits::lost`](crate::Permits::lost).
    pub fn wait_lost(&self) -> LostReason {
        self.bridge.block_on(self.inner.lost())
    }
}
