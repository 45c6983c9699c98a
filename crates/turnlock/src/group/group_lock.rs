use std::fmt;
use std::future::IntoFuture;
use std::panic::Location;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};

use crate::engine::{CallLocation, CheckedSettings, WaitLimit};
use crate::lock::endless;
use crate::{Error, Lock, MultiGuard, MultiHeld, Owner, TryAcquire};

/// A handle to several locks as one: a [`MultiLock`](crate::MultiLock) or a [`RedLock`](crate::RedLock).
///
/// The policy `P` decides how many members must grant: [`All`](crate::All) of them, or a
/// [`Majority`](crate::Majority). All members are requested at the same time.
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: `.await` it, or call `lock()`, `try_lock()` or `try_lock_for()`"]
pub struct GroupLock<P> {
    /// In the order in which they were given.
    pub(super) members: Vec<Lock>,
    pub(super) policy: P,
}

/// How many members must grant, and how they are requested.
pub(crate) trait Policy: Clone + fmt::Debug + Send + Sync + Sized {
    /// What to give instead of no members.
    const AT_LEAST: &str;

    /// Checks that these members can be granted together. There is at least one.
    fn new(members: &[Lock]) -> Result<Self, Error>;

    /// Acquires enough members. Returns `None` if the wait limit passes first.
    fn acquire(
        lock: &GroupLock<Self>,
        wait_limit: WaitLimit,
        location: CallLocation,
    ) -> impl Future<Output = Result<Option<MultiGuard>, Error>> + Send;
}

/// Why a round of requests did not grant enough members.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The member to wait for: its position among those that were requested. Unused if there is an error.
    pub(super) member: usize,
    /// `None` if the member is busy.
    pub(super) error: Option<Error>,
}

#[expect(private_bounds, reason = "there are two policies, and users add none")]
impl<P: Policy> GroupLock<P> {
    /// Combines locks: for a [`RedLock`](crate::RedLock), one of each server.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there are none, and if they can never be granted together: for a
    /// [`MultiLock`](crate::MultiLock), if two are the same lock of the same client; for a
    /// [`RedLock`](crate::RedLock), if two are of the same client. [`Error::BadName`] if a name is not valid.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let in_group = |lock: Lock| Lock { named: lock.named.in_group(), ..lock };
        let members: Vec<_> = locks.into_iter().map(in_group).collect();
        if members.is_empty() {
            return Err(Error::bad_argument("locks", format!("there is none; give {}", P::AT_LEAST)));
        }
        let policy = P::new(&members)?;
        Ok(Self { members, policy })
    }

    /// Sets a fixed lease for all members: [`Lock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        self.map(|_, lock| lock.with_lease(lease))
    }

    /// Returns the number of members.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the name of the first member. Usually, a [`RedLock`](crate::RedLock) has this name on every server.
    pub fn name(&self) -> &str {
        self.members[0].name()
    }

    /// Acquires the lock, and waits until enough members grant it: all, or a majority.
    ///
    /// While a store of a [`MultiLock`](crate::MultiLock) does not reply, the request is retried for the
    /// [`retry_for`](crate::Builder::retry_for) of its client; nothing is held on the other stores meanwhile. While less
    /// than a majority of the servers of a [`RedLock`](crate::RedLock) replies, the requests are retried for the longest
    /// `retry_for` of their clients.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] after that time. For a [`RedLock`](crate::RedLock), it has the number of servers that
    /// granted, refused and did not reply.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Requests that were sent are finished in the background, and grants are released.
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<MultiGuard, Error>> + Send + use<'_, P> {
        self.acquire(WaitLimit::Endless, Location::caller()).map(endless)
    }

    /// Acquires the lock if it is free, and does not wait.
    ///
    /// A [`RedLock`](crate::RedLock) takes at most one [time-out](crate::RedLock::with_node_timeout) for the replies, and
    /// one to release a minority. It is busy if a majority of the servers replied, and too few granted.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if a store of a [`MultiLock`](crate::MultiLock) does not reply within the
    /// [`response_timeout`](crate::Builder::response_timeout), or too few servers of a [`RedLock`](crate::RedLock)
    /// replied.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](GroupLock::lock).
    #[track_caller]
    pub fn try_lock(
        &self,
    ) -> impl Future<Output = Result<TryAcquire<MultiGuard>, Error>> + Send + use<'_, P> {
        self.acquire(WaitLimit::None, Location::caller()).map_ok(TryAcquire::from)
    }

    /// Acquires the lock, and waits at most `wait`.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if a store of a [`MultiLock`](crate::MultiLock), or too many servers of a
    /// [`RedLock`](crate::RedLock), did not reply to the last requests.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](GroupLock::lock).
    #[track_caller]
    pub fn try_lock_for(
        &self,
        wait: Duration,
    ) -> impl Future<Output = Result<TryAcquire<MultiGuard>, Error>> + Send + use<'_, P> {
        let location = Location::caller();
        async move { self.acquire(WaitLimit::of(wait), location).await.map(TryAcquire::from) }
    }

    /// Acquires the lock, runs `body`, and releases the lock.
    ///
    /// If fewer members are held than are needed, `body` is cancelled at its next await.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](GroupLock::lock), and [`Error::Lost`] if the lock was lost before `body` ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. `body` is dropped, then the members are released.
    #[track_caller]
    pub fn run<B, F>(&self, body: B) -> impl Future<Output = Result<F::Output, Error>> + use<'_, P, B, F>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        self.lock().and_then(|guard| guard.run(body))
    }

    /// Acquires the lock within `wait`, runs `body`, and releases the lock.
    ///
    /// Returns `None` if the lock was busy, and `body` did not run. Otherwise as [`run`](GroupLock::run).
    #[track_caller]
    pub fn try_run_for<B, F>(
        &self,
        wait: Duration,
        body: B,
    ) -> impl Future<Output = Result<Option<F::Output>, Error>> + use<'_, P, B, F>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        self.try_lock_for(wait).and_then(|outcome| async {
            let Some(guard) = outcome.acquired() else { return Ok(None) };
            guard.run(body).await.map(Some)
        })
    }

    async fn acquire(&self, limit: WaitLimit, at: CallLocation) -> Result<Option<MultiGuard>, Error> {
        self.members[0].named.engine.on_runtime(P::acquire(self, limit, at)).await
    }

    /// Returns this lock with an owner of each member, by its index.
    pub(crate) fn with_owners(&self, owner: impl Fn(usize) -> Owner) -> Self {
        self.map(|index, lock| lock.with_owner(&owner(index)))
    }

    fn map(&self, change: impl Fn(usize, &Lock) -> Lock) -> Self {
        let members = self.members.iter().enumerate().map(|(index, lock)| change(index, lock)).collect();
        Self { members, policy: self.policy.clone() }
    }

    /// Returns the longest of a setting of the members' clients.
    pub(super) fn longest(&self, setting: impl Fn(&CheckedSettings) -> Duration) -> Duration {
        let settings = self.members.iter().map(|lock| &lock.named.engine.settings);
        settings.map(setting).max().unwrap_or_default()
    }
}

/// Acquires the lock, and waits until enough members grant it: [`GroupLock::lock`].
impl<P: Policy + 'static> IntoFuture for GroupLock<P> {
    type Output = Result<MultiGuard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    #[track_caller]
    fn into_future(self) -> Self::IntoFuture {
        let location = Location::caller();
        Box::pin(async move { endless(self.acquire(WaitLimit::Endless, location).await) })
    }
}
