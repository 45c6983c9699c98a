use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::CounterOp;
use turnlock_core::{Kind, Lease};

use crate::engine::{
    AcquireRequest, CallSite, Engine, LeaseMode, WaitLimit, acquire_permits, checked_number,
};
use crate::error::Error;
use crate::inspection::Inspection;
use crate::named::{Named, endless};
use crate::permits::Permits;
use crate::try_acquire::TryAcquire;

/// A handle to a semaphore whose permits have no lease: Redisson's `RSemaphore`.
///
/// Permits have no owner and no lease: those of a process that dies stay taken. A
/// [`PermitSemaphore`](crate::PermitSemaphore) recovers them.
///
/// Operations are idempotent: the store keeps each request id for an hour, and a request without a reply is retried for
/// at most 50 minutes. No more permits are taken than were set, provided that the store keeps its data and no caller
/// [releases](Semaphore::release) permits that it did not acquire.
///
/// After a fail-over that forgot an acquire, its permits are free on the new primary: their release does not add them
/// again, and [`Permits::release`] returns [`Error::Lost`]. This holds for 50 minutes from the acquire; the release of
/// permits held for longer always adds them.
///
/// Waiters are woken by a message, and check at least once a second. There is no order between clients.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let slots = client.semaphore("slots");
/// slots.try_set_permits(2).await?; // the first call sets the number
/// let (one, two) = (slots.acquire(1).await?, slots.acquire(1).await?);
/// assert!(slots.try_acquire(1).await?.is_busy());
/// drop((one, two));
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `acquire()`, `try_acquire()` or `try_acquire_for()`"]
pub struct Semaphore {
    named: Named,
}

impl Semaphore {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        Self { named: Named::new(engine, Kind::Semaphore, name) }
    }

    /// Requires `replicas` replicas to acknowledge each grant: [`Lock::with_replicas`](crate::Lock::with_replicas).
    ///
    /// Releases and changes of the number are not acknowledged.
    pub fn with_replicas(&self, replicas: u32) -> Self {
        Self { named: self.named.with_replicas(replicas) }
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

    /// Acquires `permits` permits together, and waits until they are free.
    ///
    /// Waiters of one client are served in order of arrival: a waiter for many permits is not overtaken. A wait for a
    /// semaphore whose number was never [set](Semaphore::try_set_permits) is logged as a warning after a second.
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
    /// Cancel safe, as [`acquire`](Semaphore::acquire).
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
    /// Cancel safe, as [`acquire`](Semaphore::acquire).
    #[track_caller]
    pub fn try_acquire_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> impl Future<Output = Result<TryAcquire<Permits>, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { self.acquire_within(permits, WaitLimit::of(wait), location).await.map(TryAcquire::from) }
    }

    /// Adds `permits` permits that this process need not have acquired. Returns how many are free.
    ///
    /// For code that acquires in one place and releases in another, as in Java. [`Permits::release`] releases what a
    /// guard holds.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn release(&self, permits: u32) -> Result<i64, Error> {
        self.named.perform(CounterOp::Release(checked_number("permits", permits)?)).await
    }

    /// Adds `difference` to the number of free permits, which can become negative. Returns how many are free.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        self.named.perform(CounterOp::Add(i64::from(difference))).await
    }

    /// Acquires all free permits for good. Returns how many there were.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn drain(&self) -> Result<i64, Error> {
        self.named.perform(CounterOp::Drain).await
    }

    /// Deletes the semaphore. Returns `true` if it existed.
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

    /// Returns the free permits, and the number of waiters of this client.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect().await
    }

    pub(crate) async fn acquire_within(
        &self,
        permits: u32,
        wait_limit: WaitLimit,
        location: &'static Location<'static>,
    ) -> Result<Option<Permits>, Error> {
        let request = AcquireRequest {
            name: self.named.checked()?.clone(),
            lease_mode: LeaseMode::Fixed(Lease::LONGEST),
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

#[cfg(test)]
mod tests {
    use turnlock_core::Moment;
    use turnlock_core::model::Claim;
    use turnlock_testkit::{RedisServer, TempDir};

    use super::*;
    use crate::client::Client;
    use crate::clock;
    use crate::engine::Hold;

    /// Releases a hold that the store does not have, as after the promotion of a replica that lacks it.
    async fn release_what_the_store_does_not_have(url: &str) {
        let client = Client::connect(url).await.expect("a store");
        let slots = client.semaphore("slots");
        assert!(slots.try_set_permits(3).await.expect("a reply"));
        let (shared, name) = (&slots.named.engine.shared, slots.named.checked().expect("a good name"));
        let lease_mode = LeaseMode::Fixed(Lease::LONGEST);
        let hold = || {
            let owner = shared.new_owner();
            Hold::granted(Claim { permits: 2, ..Claim::new(name, &owner, 1) }, lease_mode, clock::now(), None)
        };
        let lost = shared.release(Arc::new(hold()), lease_mode).await;
        assert!(matches!(lost, Err(Error::Lost { .. })), "{url}: {lost:?}");
        assert_eq!(slots.available().await.expect("a reply"), 3, "{url}: nothing was taken there");
        // An old hold: the store may have dropped the request id.
        let old = hold().remembered_until(Moment::from_micros(0));
        shared.release(Arc::new(old), lease_mode).await.expect("it may be held");
        assert_eq!(slots.available().await.expect("a reply"), 5, "{url}: the permits are added");
    }

    #[tokio::test]
    async fn the_release_of_permits_that_the_store_never_granted_adds_none() {
        let (server, directory) = (RedisServer::start().await, TempDir::new());
        release_what_the_store_does_not_have("memory://").await;
        release_what_the_store_does_not_have(&server.url()).await;
        #[cfg(all(feature = "file", unix))]
        release_what_the_store_does_not_have(&format!("file:{}", directory.path().join("locks").display()))
            .await;
        drop(directory);
    }
}
