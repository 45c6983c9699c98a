use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};
use turnlock_core::Kind;
use turnlock_core::model::CounterOp;

use crate::engine::{self, AcquireRequest, CallLocation, CallSite, Engine, WaitLimit, checked_number};
use crate::lock::{Named, endless};
use crate::{Error, Guard, Inspection, Permits, TryAcquire};

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
///
/// The kind `K` decides about the lease: [`PermitSemaphore`] is this type with [`Leased`] permits.
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `acquire()`, `try_acquire()` or `try_acquire_for()`"]
pub struct Semaphore<K = Unleased> {
    named: Named,
    kind: PhantomData<K>,
}

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
pub type PermitSemaphore = Semaphore<Leased>;

/// The kind of a [`Semaphore`] whose permits have no lease.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Unleased;

/// The kind of a [`PermitSemaphore`], whose permits have ids and leases.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Leased;

/// The most permits with ids in one acquire: each id is sent in that request and in every renewal.
const MAX_PERMITS_PER_REQUEST: u32 = 10_000;

/// A kind of semaphore.
pub(crate) trait SemaphoreKind: Clone + Send + Sync {
    const KIND: Kind;
}

impl SemaphoreKind for Unleased {
    const KIND: Kind = Kind::Semaphore;
}

impl SemaphoreKind for Leased {
    const KIND: Kind = Kind::Permits;
}

#[expect(private_bounds, reason = "there are two kinds, and users add none")]
impl<K: SemaphoreKind> Semaphore<K> {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        Self { named: Named::new(engine, K::KIND, name), kind: PhantomData }
    }

    /// Requires `replicas` replicas to acknowledge each grant: [`Lock::with_replicas`](crate::Lock::with_replicas).
    ///
    /// Renewals need the same number. Releases and changes of the number are not acknowledged.
    pub fn with_replicas(&self, replicas: u32) -> Self {
        Self { named: self.named.with_replicas(replicas), kind: PhantomData }
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
        self.named.perform_once(CounterOp::SetOnce(permits)).await
    }

    /// Adds `difference` to the number of permits. Returns how many are free.
    ///
    /// The result can be negative.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        self.named.perform(CounterOp::Add(i64::from(difference))).await
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
    pub fn acquire(&self, permits: u32) -> impl Future<Output = Result<Permits, Error>> + Send + use<'_, K> {
        self.acquire_within(permits, WaitLimit::Endless, Location::caller()).map(endless)
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
    ) -> impl Future<Output = Result<TryAcquire<Permits>, Error>> + Send + use<'_, K> {
        self.acquire_within(permits, WaitLimit::None, Location::caller()).map_ok(TryAcquire::from)
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
    ) -> impl Future<Output = Result<TryAcquire<Permits>, Error>> + Send + use<'_, K> {
        let location = Location::caller();
        async move { self.acquire_within(permits, WaitLimit::of(wait), location).await.map(TryAcquire::from) }
    }

    /// Deletes the semaphore. Returns `true` if it existed. Taken permits with a lease are lost.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn delete(&self) -> Result<bool, Error> {
        self.named.perform_once(CounterOp::Delete).await
    }

    /// Returns how many permits are free. Zero if the number was never set.
    pub async fn available(&self) -> Result<i64, Error> {
        Ok(self.named.snapshot().await?.number.unwrap_or_default())
    }

    /// Returns the free permits, the taken ones with leases, and the local waiters.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect().await
    }

    /// Returns `None` if the wait limit passes first.
    async fn acquire_within(
        &self,
        permits: u32,
        wait_limit: WaitLimit,
        location: CallLocation,
    ) -> Result<Option<Permits>, Error> {
        let request =
            AcquireRequest { permits, ..self.named.request(wait_limit, CallSite::current(location).await)? };
        checked_number("permits", permits)?;
        if K::KIND == Kind::Permits && permits > MAX_PERMITS_PER_REQUEST {
            let reason = format!(
                "{permits} permits with ids are too many for one acquire; use at most {MAX_PERMITS_PER_REQUEST}"
            );
            return Err(Error::bad_argument("permits", reason));
        }
        let engine = &self.named.engine;
        let grant = engine.on_runtime(engine::acquire(engine, request)).await?;
        Ok(grant.map(|grant| Permits { inner: Guard::new(grant) }))
    }
}

impl Semaphore<Unleased> {
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

    /// Acquires all free permits for good. Returns how many there were.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it is finished in the background.
    pub async fn drain(&self) -> Result<i64, Error> {
        self.named.perform(CounterOp::Drain).await
    }
}

impl Semaphore<Leased> {
    /// Sets a fixed lease: permits are not renewed, and expire after `lease`.
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { named: self.named.with_lease(lease), kind: PhantomData }
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
}

#[cfg(test)]
mod tests {
    use turnlock_core::model::Claim;
    use turnlock_core::{Lease, Moment};
    use turnlock_testkit::{RedisServer, TempDir};

    use super::*;
    use crate::engine::{Hold, LeaseMode};
    use crate::{Client, clock};

    /// Releases a hold that the store does not have, as after the promotion of a replica that lacks it.
    async fn release_what_the_store_does_not_have(url: &str) {
        let client = Client::connect(url).await.expect("a store");
        let slots = client.semaphore("slots");
        assert!(slots.try_set_permits(3).await.expect("a reply"));
        let (engine, name) = (&slots.named.engine, slots.named.checked().expect("a good name"));
        let lease_mode = LeaseMode::Fixed(Lease::LONGEST);
        let hold = || {
            let (owner, now) = (engine.new_owner(), clock::now());
            Hold::granted(Claim { permits: 2, ..Claim::new(name, &owner, 1) }, lease_mode, (now, now), None)
        };
        let lost = engine.release(Arc::new(hold()), lease_mode).await;
        assert!(matches!(lost, Err(Error::Lost { .. })), "{url}: {lost:?}");
        assert_eq!(slots.available().await.expect("a reply"), 3, "{url}: nothing was taken there");
        // An old hold: the store may have dropped the request id.
        let mut old = hold();
        old.remembered_until = Moment::from_micros(0);
        engine.release(Arc::new(old), lease_mode).await.expect("it may be held");
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
