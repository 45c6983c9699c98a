use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{error, fmt};

use turnlock_core::{Kind, Moment, OwnerId};

use crate::engine::{self, Engine, Grant, Hold, LeaseMode, ReenterRequest, WaitLimit};
use crate::owner::OwnerHolds;
use crate::{Error, LostReason, clock};

/// A held lock. Dropping it releases the lock in the background.
///
/// [`unlock`](Guard::unlock) releases the lock and waits for the confirmation of the store.
///
/// While the guard lives, [`lost`](Guard::lost) is pending and [`is_valid`](Guard::is_valid) is `true`, no other owner
/// holds the lock, provided that the store keeps its data and its clock runs at the usual speed.
///
/// A lease cannot stop a process that was paused: it can run for a moment after the lease has ended. Call `is_valid`
/// before a step that must not happen twice, or use a [fencing token](Guard::token).
///
/// A guard can be dropped on any thread, with or without a runtime, and during a panic. The release of a dropped guard
/// runs on the runtime on which the client was made. A program that ends right after the drop calls `unlock` or
/// [`Client::shutdown`](crate::Client::shutdown) first; otherwise the lock stays held until its lease ends.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let guard = client.lock("orders").await?;
/// assert!(guard.is_valid());
/// guard.unlock().await?;
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[must_use = "the lock is released when the guard is dropped: bind it to a variable"]
#[derive(Debug)]
pub struct Guard {
    pub(crate) grant: Grant,
    /// The holds of the explicit owner, if there is one. The hold is recorded there.
    pub(super) owner_holds: Weak<OwnerHolds>,
}

impl Guard {
    pub(crate) fn new(grant: Grant) -> Self {
        Self { grant, owner_holds: Weak::new() }
    }

    /// Returns the error of a lock that is lost.
    pub(crate) fn lost_error(&self) -> Option<Error> {
        self.hold().lost().map(|reason| Error::Lost { name: self.name().to_owned(), reason })
    }

    pub(super) async fn until_lost(&self) -> Error {
        Error::Lost { reason: self.lost().await, name: self.name().to_owned() }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.grant.hold
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> &str {
        self.hold().name.as_str()
    }

    /// Returns the owner id on the store: `<client uuid>:<number>`.
    ///
    /// Guards of one [hand-over window](crate::Builder::hand_over_window) have the same id.
    pub fn owner_id(&self) -> &OwnerId {
        &self.hold().owner
    }

    /// Returns the fencing token: higher than the token of every earlier grant.
    ///
    /// `None` unless this is a [fenced lock](crate::Client::fenced_lock).
    pub fn token(&self) -> Option<u64> {
        self.grant.token
    }

    /// Returns how many replicas acknowledged the last grant, renewal or reentry.
    ///
    /// 0 if none were [required](crate::Lock::with_replicas).
    pub fn replicas(&self) -> u32 {
        self.hold().replicas_reached()
    }

    /// Returns how many guards share this hold: one, plus one for each [`reenter`](Guard::reenter).
    pub fn hold_count(&self) -> u32 {
        self.hold().guards()
    }

    /// Acquires the lock once more for the same owner. Does not queue behind waiters.
    ///
    /// The hold count rises on the store, too. The lock is free when all guards of the hold are dropped, in any order.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is no longer held. [`Error::Unsupported`] for a plain lock.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. A reentry that the store has counted is undone in the background.
    pub async fn reenter(&self) -> Result<Self, Error> {
        self.engine().on_runtime(self.reenter_with(self.grant.lease_mode, 0)).await
    }

    /// Acquires the lock once more, with another lease.
    pub(crate) async fn reenter_with(&self, lease_mode: LeaseMode, replicas: u32) -> Result<Self, Error> {
        let request = ReenterRequest { lease_mode, wait_limit: WaitLimit::Endless, replicas };
        let mut grant = engine::reenter(self.engine(), self.hold(), request).await?;
        if let Some(holds) = self.owner_holds.upgrade() {
            grant = holds.bind(grant);
        }
        Ok(Self { grant, owner_holds: Weak::clone(&self.owner_holds) })
    }

    /// Acquires the read lock under this write lock, and keeps this guard.
    pub(crate) async fn read_lock(&self) -> Result<Self, Error> {
        let read = self.read_under(self.grant.lease_mode, self.hold().replicas_wanted());
        self.engine().on_runtime(read).await
    }

    /// Acquires the read lock for the owner of this write lock.
    pub(crate) async fn read_under(&self, lease_mode: LeaseMode, replicas: u32) -> Result<Self, Error> {
        let holds = self.owner_holds.upgrade().filter(|_| self.hold().name.kind() == Kind::Write);
        match holds {
            Some(holds) => {
                let grant = holds.read_under(self.engine(), self.hold(), lease_mode, replicas).await?;
                Ok(Self { grant, owner_holds: Weak::clone(&self.owner_holds) })
            }
            None => engine::read_under(self.engine(), self.hold(), lease_mode, replicas).await.map(Self::new),
        }
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.grant.engine
    }

    /// Releases the lock, and waits until the store confirms it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock was no longer held. [`Error::InDoubt`] if the store does not reply: the release is
    /// retried in the background until the lease ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. The release continues in the background.
    pub async fn unlock(self) -> Result<(), Error> {
        self.grant.release().await
    }

    /// Drops the guard, and lets the store release the lock after `time`.
    ///
    /// For work that one of many processes does once in an interval: an acquire within `time` is refused or waits, even
    /// if the work took a second and its process has ended.
    ///
    /// After `Ok`, the store holds the lock for the same owner for `time` from the call, without renewal, whatever was
    /// left of the lease. [Required replicas](crate::Lock::with_replicas) have acknowledged it.
    ///
    /// The record of the client tells until when: [`Identity::kept_until_of`](crate::Identity::kept_until_of). One small
    /// write, at the same time.
    ///
    /// The lock can last longer than `time` by the duration of a request, or by a renewal that is delivered late after a
    /// broken connection. Only [`force_unlock`](crate::Lock::force_unlock) releases it sooner. A write lock lasts at
    /// least as long as the read locks under it.
    ///
    /// # Errors
    ///
    /// Refused, and the [guard is returned](GuardError::into_guard): [`Error::BadLease`] if `time` is not a valid lease;
    /// [`Error::Unsupported`] if other guards share the hold, or if the permits have no lease.
    ///
    /// [`Error::Denied`] and [`Error::NotALock`] if the store refuses: the lock is released. [`Error::Lost`] if it was no
    /// longer held. [`Error::InDoubt`] if the store, or enough replicas, do not reply: the request is retried in the
    /// background while the lock can be held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Once begun, it continues in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use std::time::Duration;
    ///
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let report = client.lock("hourly-report");
    /// let guard = report.lock().await?;
    /// // … the work, which takes less than an hour …
    /// guard.unlock_after(Duration::from_secs(3600)).await?;
    /// assert!(report.try_lock().await?.is_busy());
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn unlock_after(mut self, time: Duration) -> Result<(), GuardError> {
        let engine = Arc::clone(self.engine());
        let delayed = match engine.begin_unlock_after(self.hold(), self.grant.lease_mode, time) {
            Ok(delayed) => delayed,
            Err(error) => return Err(GuardError::refused(error, self)),
        };
        self.grant.set_released();
        Ok(engine.on_runtime(engine.finish_unlock_after(delayed)).await?)
    }

    /// Writes to the store since when this lock is held.
    ///
    /// [`Identity::since_of`](crate::Identity::since_of) reads it. One small write, together with the record of the
    /// client. The store keeps the latest 64 holds of a client.
    ///
    /// # Errors
    ///
    /// Nothing was written. The lock is still held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. The record may have been written or not.
    pub async fn announce(&self) -> Result<(), Error> {
        let engine = self.engine();
        engine.on_runtime(engine.client_record.announce(self.hold())).await
    }

    /// Waits until the lock is lost, and returns why. Pending while the lock is held.
    ///
    /// Completes before the store can grant the lock to another owner because the lease ended: earlier by a hundredth
    /// of the lease and 2 ms. This needs neither the runtime of the client nor timers on the runtime that polls.
    ///
    /// After a forced release, or when the store loses its data, it completes at the next renewal or check, within a
    /// third of the lease. A [fixed lease](crate::Lock::with_lease) is not renewed but checked, every third of it or of
    /// the [watchdog time-out](crate::Builder::watchdog_timeout), whichever is shorter. A renewal or check that fails is
    /// retried ten times as often.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> LostReason {
        self.hold().until_lost().await
    }

    /// Returns `true` if the lock is held, as far as this process knows.
    ///
    /// Sends no request. `false` if the lock was lost or its lease has ended.
    pub fn is_valid(&self) -> bool {
        self.hold().is_valid()
    }

    /// Returns until when the lock is held if no further renewal is confirmed.
    ///
    /// Counts from before the last confirmed request was sent, less a safety margin. Each renewal moves it. An
    /// `Instant` does not count the time that a machine is suspended: [`is_valid`](Guard::is_valid) does.
    pub fn valid_until(&self) -> Instant {
        clock::instant_of(self.hold().valid_until())
    }

    /// As [`valid_until`](Self::valid_until), by the clock of the leases. For simulations.
    #[doc(hidden)]
    pub fn valid_until_moment(&self) -> Moment {
        self.hold().valid_until()
    }
}

/// The error of an operation that consumes a guard, with the guard.
///
/// A refused call does not release the lock: [`into_guard`](GuardError::into_guard) returns the guard.
///
/// In a function that returns [`Error`], the `?` operator converts this and drops the guard, which releases the lock. A
/// boxed error, as anyhow's, keeps the guard and the lock: use `.map_err(turnlock::Error::from)?`.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = turnlock::Client::connect("memory://").await?;
/// let guard = client.lock("hourly-report").await?;
/// let refused = guard.unlock_after(Duration::ZERO).await.expect_err("the shortest lease is 10 ms");
/// let guard = refused.into_guard().expect("the lock is still held");
/// assert!(guard.is_valid());
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct GuardError<G = Guard> {
    error: Error,
    guard: Option<Box<G>>,
}

impl<G> GuardError<G> {
    /// The call was refused before anything changed.
    pub(crate) fn refused(error: Error, guard: G) -> Self {
        Self { error, guard: Some(Box::new(guard)) }
    }

    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the guard, or `None` if the operation had begun when it failed.
    pub fn into_guard(self) -> Option<G> {
        self.guard.map(|guard| *guard)
    }

    pub(crate) fn map<T>(self, convert: impl FnOnce(G) -> T) -> GuardError<T> {
        GuardError { error: self.error, guard: self.guard.map(|guard| Box::new(convert(*guard))) }
    }
}

impl<G> From<Error> for GuardError<G> {
    fn from(error: Error) -> Self {
        Self { error, guard: None }
    }
}

impl<G> From<GuardError<G>> for Error {
    fn from(error: GuardError<G>) -> Self {
        error.error
    }
}

impl<G> fmt::Display for GuardError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<G: fmt::Debug> error::Error for GuardError<G> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        error::Error::source(&self.error)
    }
}
