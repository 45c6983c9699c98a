use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::CounterOp;
use turnlock_core::{Kind, Lease, LeaseError};

use crate::engine::{
    AcquireRequest, CallSite, Engine, LeaseMode, WaitLimit, acquire_permits, checked_number,
};
use crate::error::Error;
use crate::inspection::Inspection;
use crate::named::{Named, endless};
use crate::permits::Permits;
use crate::try_acquire::TryAcquire;

/// A handle to a semaphore whose permits have ids and leases: Redisson's `RPermitExpirableSemaphore`.
///
/// The watchdog renews permits while their guard lives, unless [`with_lease`](PermitSemaphore::with_lease) sets a fixed
/// lease. Permits of a process that dies are free when their lease ends, 30 s by default. The holder learns of the end
/// first, as with a lock.
///
/// The store records the end of a permit by its own clock; clients of Redisson compare it with theirs. A Java client
/// whose clock is ahead by more than two thirds of the lease gives away permits that are still held.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let slots = client.permit_semaphore("slots");
/// slots.try_set_permits(2).await?;
/// let permits = slots.acquire(2).await?; // renewed while the guard lives
/// assert!(slots.try_acquire(1).await?.is_busy());
/// assert_eq!(permits.ids().len(), 2);
/// drop(permits);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `acquire()`, `try_acquire()` or `try_acquire_for()`"]
pub struct PermitSemaphore {
    named: Named,
    lease: Option<Result<Lease, LeaseError>>,
}

impl PermitSemaphore {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        Self { named: Named::new(engine, Kind::Permits, name), lease: None }
    }

    /// Sets a fixed lease: permits are not renewed, and expire after `lease`.
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lease: Some(Lease::new(lease)), ..self.clone() }
    }

    /// Requires `replicas` replicas to acknowledge each grant: [`Lock::with_replicas`](crate::Lock::with_replicas).
    ///
    /// Renewals need the same number. Releases and changes of the number are not acknowledged.
    pub fn with_replicas(&self, replicas: u32) -> Self {
        Self { named: self.named.with_replicas(replicas), ..self.clone() }
    }

    /// Returns the name of the semaphore. Empty if the given name is not valid.
    pub fn name(&self) -> &str {
        self.named.as_str()
    }

    /// Sets the number of permits if it was never set. Returns `true` if this call set it.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        let permits = u64::from(checked_number("permits", permits)?);
        Ok(self.named.perform(CounterOp::SetOnce(permits)).await? == 1)
    }

    /// Sets the total number of permits, free and taken. Returns how many are free.
    ///
    /// The result is negative if more permits are taken than the new total.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn set_permits(&self, permits: u32) -> Result<i64, Error> {
        let permits = u64::from(checked_number("permits", permits)?);
        self.named.perform(CounterOp::SetTotal(permits)).await
    }

    /// Adds `difference` to the number of permits. Returns how many are free.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        self.named.perform(CounterOp::Add(i64::from(difference))).await
    }

    /// Acquires `permits` permits together, and waits until they are free.
    ///
    /// A wait for a semaphore whose number was never [set](PermitSemaphore::try_set_permits) is logged as a warning
    /// after a second.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the store does not reply for [`retry_for`](crate::Builder::retry_for).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. A request that was sent is finished in the background, and a grant is released.
    #[track_caller]
    pub fn acquire(&self, permits: u32) -> impl Future<Output = Result<Permits, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { endless(self.acquire_within(permits, WaitLimit::Endless, location).await) }
    }

    /// Acquires `permits` permits together if they are free, and does not wait.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](PermitSemaphore::acquire).
    #[track_caller]
    pub fn try_acquire(
        &self,
        permits: u32,
    ) -> impl Future<Output = Result<TryAcquire<Permits>, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { self.acquire_within(permits, WaitLimit::None, location).await.map(TryAcquire::from) }
    }

    /// Acquires `permits` permits together, and waits at most `wait`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](PermitSemaphore::acquire).
    #[track_caller]
    pub fn try_acquire_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> impl Future<Output = Result<TryAcquire<Permits>, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { self.acquire_within(permits, WaitLimit::of(wait), location).await.map(TryAcquire::from) }
    }

    /// Deletes the semaphore. Returns `true` if it existed. Taken permits are lost.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn delete(&self) -> Result<bool, Error> {
        Ok(self.named.perform(CounterOp::Delete).await? == 1)
    }

    /// Returns how many permits are free. Zero if the number was never set.
    pub async fn available(&self) -> Result<i64, Error> {
        Ok(self.inspect().await?.available.unwrap_or_default())
    }

    /// Returns the free permits, the taken ones with their leases, and the local waiters.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect().await
    }

    pub(crate) async fn acquire_within(
        &self,
        permits: u32,
        wait_limit: WaitLimit,
        location: &'static Location<'static>,
    ) -> Result<Option<Permits>, Error> {
        let lease_mode = match &self.lease {
            None => LeaseMode::Renewed(self.named.engine.shared.settings.watchdog_timeout),
            Some(lease) => LeaseMode::Fixed(lease.clone()?),
        };
        let request = AcquireRequest {
            name: self.named.checked()?.clone(),
            lease_mode,
            wait_limit,
            permits,
            replicas: self.named.replicas(),
            accepts_hand_over: false,
            under: None,
            call_site: CallSite::new(location),
        };
        acquire_permits(&self.named.engine, request).await
    }
}
