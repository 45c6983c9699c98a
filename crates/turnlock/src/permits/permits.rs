use std::time::{Duration, Instant};

use turnlock_core::model::PermitId;
use turnlock_core::{Kind, Moment};

use crate::{Error, Guard, GuardError, LostReason};

/// Permits of a [`Semaphore`](crate::Semaphore) or a [`PermitSemaphore`](crate::PermitSemaphore).
///
/// Dropping it releases the permits in the background. [`release`](Permits::release) waits for the confirmation of the
/// store.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let slots = client.semaphore("slots");
/// slots.try_set_permits(3).await?;
/// let permits = slots.acquire(2).await?;
/// assert_eq!((permits.count(), slots.available().await?), (2, 1));
/// permits.release().await?;
/// assert_eq!(slots.available().await?, 3);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[must_use = "the permits are released when this is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct Permits {
    pub(super) inner: Guard,
}

impl Permits {
    /// Returns the name of the semaphore.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns how many permits these are.
    pub fn count(&self) -> u32 {
        self.inner.hold().permits
    }

    /// Returns the ids of the permits on the store: 32 hexadecimal digits each, as Redisson's.
    ///
    /// Empty for a [`Semaphore`](crate::Semaphore).
    pub fn ids(&self) -> Vec<String> {
        let hold = self.inner.hold();
        let permits = if hold.name.kind() == Kind::Permits { hold.permits } else { 0 };
        PermitId::of_hold(&hold.owner, permits).map(|id| id.to_string()).collect()
    }

    /// Releases the permits, and waits until the store confirms it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if they were no longer taken: their lease ended, the store lost its data, or a fail-over forgot
    /// them. [`Error::InDoubt`] if the store does not reply.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. The release continues in the background.
    pub async fn release(self) -> Result<(), Error> {
        self.inner.unlock().await
    }

    /// Drops the guard, and leaves the permits taken.
    ///
    /// For code that releases them elsewhere: [`Semaphore::release`](crate::Semaphore::release). Permits of a
    /// [`PermitSemaphore`](crate::PermitSemaphore) are no longer renewed, and are free when their lease ends.
    pub fn detach(self) {
        self.inner.grant.detach();
    }

    /// Drops the guard, and lets the store release the permits after `time`: [`Guard::unlock_after`].
    ///
    /// # Errors
    ///
    /// Those of [`Guard::unlock_after`]. Permits of a [`Semaphore`](crate::Semaphore) have no lease: this is
    /// [`Error::Unsupported`], and they are [returned](GuardError::into_guard).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Once begun, it continues in the background.
    pub async fn release_after(self, time: Duration) -> Result<(), GuardError<Self>> {
        self.inner.unlock_after(time).await.map_err(|error| error.map(|inner| Self { inner }))
    }

    /// Writes to the store who has taken the permits, and since when: [`Guard::announce`].
    ///
    /// Permits of a [`PermitSemaphore`](crate::PermitSemaphore) get a record of their own, since a permit id does not
    /// contain the client.
    pub async fn announce(&self) -> Result<(), Error> {
        self.inner.announce().await
    }

    /// Waits until the permits are lost, and returns why. Pending while they are held.
    ///
    /// Permits without a lease do not expire.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> LostReason {
        self.inner.lost().await
    }

    delegate! { Guard:
        /// Returns `true` if the permits are held.
        get is_valid(&self) -> bool;
        /// Returns until when the permits are held without a further renewal.
        get valid_until(&self) -> Instant;
        /// Returns how many replicas acknowledged the last grant or renewal.
        get replicas(&self) -> u32;
        /// As [`valid_until`](Self::valid_until), by the clock of the leases. For simulations.
        #[doc(hidden)]
        get valid_until_moment(&self) -> Moment;
    }
}
