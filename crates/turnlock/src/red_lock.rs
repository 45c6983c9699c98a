use std::future::IntoFuture;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use turnlock_core::tally::majority;
use turnlock_core::{Backoff, Moment};

use crate::clock;
use crate::engine::WaitLimit;
use crate::error::Error;
use crate::group::Group;
use crate::guard::Guard;
use crate::inspection::Inspection;
use crate::lock::Lock;
use crate::multi_guard::{MultiGuard, MultiHeld};
use crate::named::endless;
use crate::red_round::{RedRound, RoundEnd};
use crate::try_acquire::TryAcquire;

/// A handle to one lock on several independent servers: a majority grants it (the Redlock algorithm).
///
/// The lock survives the loss of any minority of the servers, with or without their data. Give one lock per server,
/// usually of the same name. The servers must not replicate to each other.
///
/// One holder at a time, provided that no more than a minority loses data that it had confirmed. All servers are requested
/// at the same time, and **a slow or dead minority costs no waiting**: the lock is acquired when a majority has granted,
/// and a server that replies later is added. It is valid for the lease, less the time of the acquire and a margin for
/// clocks ([`MultiGuard::valid_until`]). Each member is renewed on its own; the lock is lost when less than a majority
/// is held ([`MultiGuard::lost`]). It is released on every server, also where a reply was lost.
///
/// A server that restarts empty while the lock is held, and grants it to another owner, counts as lost: keep it down for
/// a lease before it returns. A member that was lost is not acquired again. An even number of servers is no safer than
/// one server less. A process that was paused can run for a moment after the lease has ended, as with every lease.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use turnlock::{Client, RedLock};
///
/// // Three independent stores; in production, three servers.
/// let mut locks = Vec::new();
/// for url in ["memory://a", "memory://b", "memory://c"] {
///     locks.push(Client::connect(url).await?.lock("orders"));
/// }
/// let lock = RedLock::new(locks)?;
/// let guard = lock.lock().await?;
/// assert!(guard.held() >= 2);
/// assert!(lock.try_lock().await?.is_busy());
/// guard.unlock().await?;
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: `.await` it, or call `lock()`, `try_lock()` or `try_lock_for()`"]
pub struct RedLock {
    members: Vec<Lock>,
    node_timeout: Duration,
}

/// The default time-out of one server.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// How long a refused attempt waits for one server before it requests all again: at random, at least half of it.
const REFUSAL_WAIT: Duration = Duration::from_millis(200);

impl RedLock {
    /// Combines locks, one on each server.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there are none, or if two are of the same client. [`Error::BadName`] if a name is not
    /// valid.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let members: Vec<_> = locks.into_iter().collect();
        if members.is_empty() {
            return Err(Error::bad_argument("locks", "there is none; give one lock of each server"));
        }
        for (index, lock) in members.iter().enumerate() {
            lock.checked_name()?;
            if members[..index].iter().any(|other| Arc::ptr_eq(other.engine(), lock.engine())) {
                let reason = "two are of the same client; give one lock of each server";
                return Err(Error::bad_argument("locks", reason));
            }
        }
        Ok(Self { members, node_timeout: NODE_TIMEOUT })
    }

    /// Sets a fixed lease: [`Lock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { members: self.members.iter().map(|lock| lock.with_lease(lease)).collect(), ..self.clone() }
    }

    /// Sets the time-out of one server. 50 ms by default.
    ///
    /// Choose several round trips, and far less than the lease.
    pub fn with_node_timeout(&self, timeout: Duration) -> Self {
        Self { node_timeout: timeout, ..self.clone() }
    }

    /// Returns the name of the lock on the first server.
    pub fn name(&self) -> &str {
        self.members[0].name()
    }

    /// Acquires the lock, and waits until a majority grants it.
    ///
    /// While less than a majority of the servers replies, the requests are retried for the longest
    /// [`retry_for`](crate::Builder::retry_for) of their clients.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] after that time, with the number of servers that granted, refused and did not reply.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Requests that were sent are finished in the background, and grants are released.
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<MultiGuard, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { endless(self.acquire(WaitLimit::Endless, location).await) }
    }

    /// Acquires the lock if it is free, and does not wait.
    ///
    /// Takes at most one [time-out](RedLock::with_node_timeout) for the replies, and one to release a minority. Busy
    /// means that a majority of the servers replied, and too few granted.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if too few servers replied.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](RedLock::lock).
    #[track_caller]
    pub fn try_lock(&self) -> impl Future<Output = Result<TryAcquire<MultiGuard>, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { self.acquire(WaitLimit::None, location).await.map(TryAcquire::from) }
    }

    /// Acquires the lock, and waits at most `wait`.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if too few servers replied to the last requests.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](RedLock::lock).
    #[track_caller]
    pub fn try_lock_for(
        &self,
        wait: Duration,
    ) -> impl Future<Output = Result<TryAcquire<MultiGuard>, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { self.acquire(WaitLimit::of(wait), location).await.map(TryAcquire::from) }
    }

    /// Acquires the lock, runs `body`, and releases the lock.
    ///
    /// If less than a majority is held, `body` is cancelled at its next await.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](RedLock::lock), and [`Error::Lost`] if the lock was lost before `body` ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. `body` is dropped, then the lock is released.
    #[track_caller]
    pub fn run<B, F>(&self, body: B) -> impl Future<Output = Result<F::Output, Error>> + use<'_, B, F>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        let guard = self.lock();
        async move { guard.await?.run(body).await }
    }

    /// Acquires the lock within `wait`, runs `body`, and releases the lock.
    ///
    /// Returns `None` if the lock was busy, and `body` did not run. Otherwise as [`run`](RedLock::run).
    #[track_caller]
    pub fn try_run_for<B, F>(
        &self,
        wait: Duration,
        body: B,
    ) -> impl Future<Output = Result<Option<F::Output>, Error>> + use<'_, B, F>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        let outcome = self.try_lock_for(wait);
        async move {
            match outcome.await?.acquired() {
                Some(guard) => guard.run(body).await.map(Some),
                None => Ok(None),
            }
        }
    }

    /// Inspects the lock on each server, in the order in which they were given.
    ///
    /// Each server has its own result.
    pub async fn inspect(&self) -> Vec<Result<Inspection, Error>> {
        join_all(self.members.iter().map(Lock::inspect)).await
    }

    async fn acquire(
        &self,
        wait_limit: WaitLimit,
        location: &'static Location<'static>,
    ) -> Result<Option<MultiGuard>, Error> {
        if self.node_timeout.is_zero() {
            return Err(Error::bad_argument("node time-out", "zero leaves no time for a reply"));
        }
        self.members[0].engine().shared.on_runtime(self.acquire_majority(wait_limit, location)).await
    }

    /// Requests all servers; while refused, waits for one that refused, or for a while, holding nothing, and repeats.
    async fn acquire_majority(
        &self,
        wait_limit: WaitLimit,
        location: &'static Location<'static>,
    ) -> Result<Option<MultiGuard>, Error> {
        let end = wait_limit.end();
        let mut backoff = Backoff::new(Duration::from_millis(4), Duration::from_millis(64));
        let mut in_hand = None;
        let mut failing_since: Option<(Moment, Backoff)> = None;
        loop {
            let (guard, round_end) = self.request_all(in_hand.take(), location).await;
            let refusal = match round_end {
                RoundEnd::Granted => return Ok(Some(guard)),
                RoundEnd::Refused(first) => Ok(first),
                RoundEnd::Unavailable(error) => Err(error),
            };
            // First, so that the next requests do not find these grants.
            self.release(guard).await;
            let now = clock::now();
            let (pause, refused) = match refusal {
                Err(error) => {
                    let (since, backoff) = failing_since.get_or_insert_with(|| (now, Backoff::default()));
                    let retries = now < (*since + self.retry_for()).min(end);
                    if !retries || !error.is_retryable() {
                        return Err(error);
                    }
                    (backoff.pause(fastrand::f64()), None)
                }
                Ok(_) if now >= end => return Ok(None),
                Ok(first) => {
                    failing_since = None;
                    (backoff.pause(fastrand::f64()), Some(first))
                }
            };
            // A random pause, so that clients that split the servers do not split them again.
            tokio::time::sleep(pause.min(end.since(clock::now()))).await;
            if let Some(first) = refused {
                in_hand = self.wait_for(first, end, location).await;
                if in_hand.is_none() && clock::now() >= end {
                    return Ok(None);
                }
            }
        }
    }

    /// Sends one request to each server. The guard has the grants.
    async fn request_all(
        &self,
        in_hand: Option<(usize, Guard)>,
        location: &'static Location<'static>,
    ) -> (MultiGuard, RoundEnd) {
        let servers = self.members.len();
        let engine = self.members[0].engine();
        let guard = MultiGuard::new(Group::new(engine, majority(servers), servers, self.node_timeout));
        let round = RedRound::new(guard.group(), servers, self.node_timeout);
        if let Some((server, held)) = in_hand {
            round.grant(server, held);
        }
        let end = round.request_all(&self.members, location).await;
        (guard, end)
    }

    /// Waits in the queue of one server that refused, for a limited time: it may have died.
    async fn wait_for(
        &self,
        server: usize,
        end: Moment,
        location: &'static Location<'static>,
    ) -> Option<(usize, Guard)> {
        let wait = REFUSAL_WAIT.mul_f64(0.5 + fastrand::f64() / 2.0).min(end.since(clock::now()));
        let acquire = self.members[server].acquire(WaitLimit::of(wait), location);
        match tokio::time::timeout(wait.saturating_add(self.node_timeout), acquire).await {
            Ok(Ok(Some(guard))) => Some((server, guard)),
            // The next round tells the state of this server.
            Ok(Ok(None) | Err(_)) | Err(_) => None,
        }
    }

    /// Releases a minority. The engines finish what takes longer than the time-out.
    async fn release(&self, guard: MultiGuard) {
        let _ = tokio::time::timeout(self.node_timeout, guard.unlock()).await;
    }

    fn retry_for(&self) -> Duration {
        let retry_for = |lock: &Lock| lock.engine().shared.settings.retry_for;
        self.members.iter().map(retry_for).max().unwrap_or_default()
    }
}

/// Acquires the lock, and waits until a majority grants it: [`RedLock::lock`].
impl IntoFuture for RedLock {
    type Output = Result<MultiGuard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    #[track_caller]
    fn into_future(self) -> Self::IntoFuture {
        let location = Location::caller();
        Box::pin(async move { endless(self.acquire(WaitLimit::Endless, location).await) })
    }
}
