use std::future::IntoFuture;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};
use turnlock_core::{Kind, OwnerId};

use super::named::{Named, endless};
use crate::clock;
use crate::engine::{self, CallLocation, CallSite, Observation, Observed, WaitLimit};
use crate::owner::holds_read_lock;
use crate::{Error, Guard, Inspection, Owner, Role, TryAcquire};

/// A handle to a lock: cheap to make and to clone, and it holds nothing.
///
/// `.await` on the handle acquires the lock and returns a [`Guard`]; [`lock`](Lock::lock) does the same.
///
/// All kinds of locks have this type: [`Client::lock`], [`fair_lock`], [`fenced_lock`], [`plain_lock`], [`spin_lock`]
/// and the two sides of a [`read_write_lock`]. All but the plain lock have the wire format of Redisson: a Java service
/// that locks the same name is excluded.
///
/// Each acquire is a new owner, so two tasks that share a handle exclude each other. [`with_owner`](Lock::with_owner)
/// makes several acquires one owner.
///
/// A name or a lease that is not valid is an error of the first call that uses it.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = turnlock::Client::connect("memory://").await?;
/// let lock = client.lock("orders:42"); // a handle: holds nothing yet
///
/// let guard = lock.lock().await?; // waits; renewed while the guard lives
/// assert!(lock.try_lock().await?.is_busy()); // does not wait
/// assert!(lock.try_lock_for(Duration::from_millis(10)).await?.is_busy()); // waits at most 10 ms
/// guard.unlock().await?;
///
/// let guard = lock.with_lease(Duration::from_secs(10)).lock().await?; // expires after 10 s
/// # drop(guard);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
///
/// [`Client::lock`]: crate::Client::lock
/// [`fair_lock`]: crate::Client::fair_lock
/// [`fenced_lock`]: crate::Client::fenced_lock
/// [`plain_lock`]: crate::Client::plain_lock
/// [`spin_lock`]: crate::Client::spin_lock
/// [`read_write_lock`]: crate::Client::read_write_lock
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: `.await` it, or call `lock()`, `try_lock()` or `try_lock_for()`"]
pub struct Lock {
    pub(crate) named: Named,
    pub(crate) owner: Option<Owner>,
}

impl Lock {
    /// Sets a fixed lease: the lock is not renewed, and expires after `lease`.
    ///
    /// The client still checks the hold on the store, every third of the lease or of the
    /// [watchdog time-out](crate::Builder::watchdog_timeout), whichever is shorter: see [`Guard::lost`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { named: self.named.with_lease(lease), owner: self.owner.clone() }
    }

    /// Acquires as `owner`. Succeeds at once if `owner` already holds the lock.
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { owner: Some(owner.clone()), ..self.clone() }
    }

    /// Requires `replicas` replicas to acknowledge each grant (Redis `WAIT`).
    ///
    /// With `replicas` equal to the number of replicas that can be promoted, a held lock survives a fail-over. Fewer is
    /// best effort. The default is [`Builder::replicas`](crate::Builder::replicas).
    ///
    /// A grant that too few replicas acknowledge is released again. Renewals and reentries need the same number: a lock
    /// that cannot be renewed in time is [lost](Guard::lost). Replicas acknowledge from memory, not from disk. Releases
    /// and counters are not acknowledged: a release that a fail-over forgets delays the next holder by one lease.
    ///
    /// Such requests have a connection of their own, so a slow replica does not delay other locks.
    ///
    /// # Errors
    ///
    /// [`Error::NotEnoughReplicas`] after the caller's wait, or at once on a store without replicas.
    pub fn with_replicas(&self, replicas: u32) -> Self {
        Self { named: self.named.with_replicas(replicas), owner: self.owner.clone() }
    }

    /// Returns the name of the lock. Empty if the given name is not valid.
    pub fn name(&self) -> &str {
        self.named.as_str()
    }

    /// Acquires the lock, and waits until it is free.
    ///
    /// Waiters of one client are served in order of arrival; waiters of a fair lock, over all clients. While the store
    /// does not reply, the request is retried for [`retry_for`](crate::Builder::retry_for).
    ///
    /// A task that waits for a lock that it holds itself is logged as a warning after a second, with both call sites.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the store does not reply for [`retry_for`](crate::Builder::retry_for).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. The waiter leaves the queue. A request that was sent is finished in the background, and a grant is
    /// released.
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<Guard, Error>> + Send + use<'_> {
        self.acquire(WaitLimit::Endless, Location::caller()).map(endless)
    }

    /// Acquires the lock if it is free, and does not wait.
    ///
    /// Busy means that the store refused, that a valid hold of this client is in the way, or that another waiter of
    /// this client is ahead and the store replies.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the store does not reply within about one
    /// [`response_timeout`](crate::Builder::response_timeout): two if the connection is new, four if
    /// [replicas](Lock::with_replicas) must acknowledge.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](Lock::lock).
    #[track_caller]
    pub fn try_lock(&self) -> impl Future<Output = Result<TryAcquire<Guard>, Error>> + Send + use<'_> {
        self.acquire(WaitLimit::None, Location::caller()).map_ok(TryAcquire::from)
    }

    /// Acquires the lock, and waits at most `wait`.
    ///
    /// Busy means the same as for [`try_lock`](Lock::try_lock). If no request was sent during the wait, one is sent at
    /// its end.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the store does not reply to the last request. This can take two response time-outs
    /// longer than `wait`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](Lock::lock).
    #[track_caller]
    pub fn try_lock_for(
        &self,
        wait: Duration,
    ) -> impl Future<Output = Result<TryAcquire<Guard>, Error>> + Send + use<'_> {
        let location = Location::caller();
        // The wait begins with the first poll.
        async move { self.acquire(WaitLimit::of(wait), location).await.map(TryAcquire::from) }
    }

    /// Acquires the lock for the owner of `guard`.
    ///
    /// This reenters the lock that `guard` holds, as [`Guard::reenter`], or acquires the read lock under the write lock
    /// of the same name.
    ///
    /// # Errors
    ///
    /// [`Error::WouldDeadlock`] if `guard` holds the read lock and this is the write lock. [`Error::BadArgument`] if
    /// `guard` holds another lock.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](Lock::lock).
    pub async fn lock_with(&self, guard: &Guard) -> Result<Guard, Error> {
        let (name, hold) = (self.named.checked()?, guard.hold());
        if !Arc::ptr_eq(&guard.grant.engine, &self.named.engine) || hold.name.key() != name.key() {
            let reason = format!("it holds another lock than {:?}", self.name());
            return Err(Error::bad_argument("guard", reason));
        }
        let (lease_mode, replicas) = (self.named.lease_mode()?, self.named.replicas());
        let engine = &self.named.engine;
        match (name.kind(), hold.name.kind()) {
            (Kind::Read, Kind::Write) => engine.on_runtime(guard.read_under(lease_mode, replicas)).await,
            (Kind::Write, Kind::Read) => Err(holds_read_lock(name)),
            _ => engine.on_runtime(guard.reenter_with(lease_mode, replicas)).await,
        }
    }

    /// Returns `true` if the lock is held, by any owner of any process.
    ///
    /// Of a read-write lock, only the side of this handle counts.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let kind = self.named.checked()?.kind();
        let holders = self.named.snapshot().await?.holders;
        Ok(holders.iter().any(|holder| Role::from_core(holder.role).matches_kind(kind)))
    }

    /// Returns `true` if `owner` holds the lock on the store.
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool, Error> {
        Ok(self.hold_count(owner).await? > 0)
    }

    /// Returns the hold count of `owner` on the store, or 0.
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, Error> {
        owner.check_client(&self.named.engine)?;
        let name = self.named.checked()?;
        let Some(hold) = owner.holds(name).hold(name.kind()) else {
            return Ok(0);
        };
        let holders = self.named.snapshot().await?.holders;
        let ours = holders.iter().find(|holder| {
            holder.owner == hold.owner && Role::from_core(holder.role).matches_kind(name.kind())
        });
        Ok(ours.map_or(0, |holder| holder.count))
    }

    /// Returns the remaining lease of the holder.
    ///
    /// `None` if the lock is free, or held without a lease.
    pub async fn remaining(&self) -> Result<Option<Duration>, Error> {
        Ok(self.named.snapshot().await?.ttl)
    }

    /// Releases the lock of any owner by force, and wakes the waiters.
    ///
    /// Returns `true` if it was held. Of a read-write lock, releases only the side of this handle.
    ///
    /// A holder of this client learns of it at once, by [`Guard::lost`]; others at their next renewal or check, within a
    /// third of their lease. Within the [hand-over window](crate::Builder::hand_over_window), 10 ms, the lock can still
    /// pass to waiters of the holder's client.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a cancelled call may have released the lock or not.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        self.named.engine.force_unlock(self.named.checked()?).await
    }

    /// Releases the lock by force if `owner` holds it.
    ///
    /// Returns `true` if it did. Of a read-write lock, releases only the side of this handle. The holder learns of it as
    /// for [`force_unlock`](Lock::force_unlock).
    ///
    /// Within the [hand-over window](crate::Builder::hand_over_window), waiters of one client share an owner id: the
    /// lock is taken from whichever of them holds it at the time of the call.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a cancelled call may have released the lock or not.
    pub async fn force_unlock_of(&self, owner: &OwnerId) -> Result<bool, Error> {
        self.named.engine.force_unlock_of(self.named.checked()?, owner).await
    }

    /// Returns the holders, their counts and leases, and the waiters of this client.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] or [`Error::NotALock`] if the key holds something else.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect().await
    }

    /// Returns `true` if callers of this client wait for the lock.
    pub(crate) fn has_waiters_here(&self) -> bool {
        self.named.checked().is_ok_and(|name| self.named.engine.wait_queues.waiting(name) > 0)
    }

    pub(crate) async fn acquire(&self, limit: WaitLimit, at: CallLocation) -> Result<Option<Guard>, Error> {
        let mut request = self.named.request(limit, CallSite::current(at).await)?;
        request.accepts_hand_over = self.owner.is_none();
        request.call_site.explicit_owner = self.owner.as_ref().and_then(Owner::number);
        let engine = &self.named.engine;
        if let Some(owner) = &self.owner {
            owner.check_client(engine)?;
            let holds = owner.holds(&request.name);
            let observation = Observation::begin(engine, &request, clock::now());
            let acquire = Observed::new(observation, holds.acquire(engine, request));
            // Boxed, since it is larger, and most acquires have no explicit owner.
            let grant = Box::pin(engine.on_runtime(acquire)).await?;
            return Ok(grant.map(|grant| Guard { grant, owner_holds: Arc::downgrade(&holds) }));
        }
        let grant = engine.on_runtime(engine::acquire(engine, request)).await?;
        Ok(grant.map(Guard::new))
    }
}

impl Owner {
    /// Keeps the lock held without the guard, until [`unlock`](Owner::unlock).
    ///
    /// For code that locks in one place and unlocks in another.
    pub fn detach(&self, guard: Guard) {
        guard.hold().inner().may_be_shared = true;
        self.holds(&guard.hold().name).detach(guard.grant);
    }

    /// Releases the guard of `lock` that was [detached](Owner::detach) last.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if there is none. [`Error::Lost`] if the lock was lost since.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. The release continues in the background.
    pub async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        let name = lock.named.checked()?;
        match self.holds(name).take_detached(name.kind()) {
            Some(grant) => grant.release().await,
            None => Err(Error::NotHeld { name: name.to_string(), owner: self.to_string() }),
        }
    }
}

/// Acquires the lock, and waits until it is free: [`Lock::lock`].
impl IntoFuture for Lock {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    #[track_caller]
    fn into_future(self) -> Self::IntoFuture {
        let location = Location::caller();
        Box::pin(async move { endless(self.acquire(WaitLimit::Endless, location).await) })
    }
}

/// Acquires the lock, and waits until it is free: [`Lock::lock`].
impl<'a> IntoFuture for &'a Lock {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    #[track_caller]
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.lock())
    }
}
