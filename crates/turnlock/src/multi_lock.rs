use std::collections::HashSet;
use std::future::IntoFuture;
use std::io;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
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
use crate::try_acquire::TryAcquire;

/// A handle to several locks that are acquired together: all or none.
///
/// The locks can be of any kind, of one client or several, on one server or several.
///
/// Each member is held as if it was acquired alone: it excludes other owners of that member, and Redisson's `MultiLock`
/// over the same names in any order. No other key is used. All members are requested at the same time, so an acquire takes
/// as long as the slowest member. **Nothing is held while it waits**, so two of them that share members cannot block
/// each other.
///
/// Because nothing is held while it waits, another owner can acquire one member while it waits for another: under
/// steady contention for several members it can be overtaken. Two members that are the same lock on the same server,
/// through two clients, look like two locks and are never granted together. When a process dies, each member is free
/// when its own lease ends.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use turnlock::{Client, MultiLock};
///
/// let client = Client::connect("memory://").await?;
/// let transfer = MultiLock::new([client.lock("account:7"), client.lock("account:3")])?;
/// let guard = transfer.lock().await?;
/// assert!(client.lock("account:3").try_lock().await?.is_busy());
/// guard.unlock().await?;
///
/// let moved = transfer.run(|_held| async { 100 }).await?;
/// assert_eq!(moved, 100);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: `.await` it, or call `lock()`, `try_lock()` or `try_lock_for()`"]
pub struct MultiLock {
    /// Sorted by key, so that all users of the same locks have the same order; each with its index as given.
    members: Vec<(usize, Lock)>,
}

/// The outcome of one request to all members. Unless all granted, all are released.
enum Round {
    All(Vec<(usize, Guard)>),
    /// The rank of the member to wait for.
    Refused(usize),
    /// The rank of the member to wait for, and its error.
    Failed(usize, Error),
}

/// How long a refused attempt waits for the other replies, to release what they grant. The engine handles later replies.
const LINGER: Duration = Duration::from_millis(50);

impl MultiLock {
    /// Combines locks.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] if there are none, or if two are the same lock of the same client, which could never be
    /// granted together. [`Error::BadName`] if a name is not valid.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let mut members: Vec<_> = locks.into_iter().enumerate().collect();
        if members.is_empty() {
            return Err(Error::bad_argument("locks", "there is none; give at least one"));
        }
        let mut known = HashSet::new();
        for (_, lock) in &members {
            let key = lock.checked_name()?.key();
            if !known.insert((Arc::as_ptr(lock.engine()), key)) {
                let name = lock.name();
                let reason = format!("lock {name:?} is given twice, and would wait for itself; give it once");
                return Err(Error::bad_argument("locks", reason));
            }
        }
        let key = |lock: &Lock| lock.checked_name().map(|name| name.key().to_owned()).unwrap_or_default();
        members.sort_by_cached_key(|(_, lock)| key(lock));
        Ok(Self { members })
    }

    /// Sets a fixed lease for all members: [`Lock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { members: self.members.iter().map(|(index, lock)| (*index, lock.with_lease(lease))).collect() }
    }

    /// Returns the number of members.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Acquires all members, and waits until they are free.
    ///
    /// While a store does not reply, the request is retried for the [`retry_for`](crate::Builder::retry_for) of its
    /// client. Nothing is held on the other stores meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Requests that were sent are finished in the background, and grants are released.
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<MultiGuard, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { endless(self.acquire(WaitLimit::Endless, location).await) }
    }

    /// Acquires all members if all are free, and does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if a store does not reply within the
    /// [`response_timeout`](crate::Builder::response_timeout).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](MultiLock::lock).
    #[track_caller]
    pub fn try_lock(&self) -> impl Future<Output = Result<TryAcquire<MultiGuard>, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { self.acquire(WaitLimit::None, location).await.map(TryAcquire::from) }
    }

    /// Acquires all members, and waits at most `wait`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`lock`](MultiLock::lock).
    #[track_caller]
    pub fn try_lock_for(
        &self,
        wait: Duration,
    ) -> impl Future<Output = Result<TryAcquire<MultiGuard>, Error>> + Send + use<'_> {
        let location = Location::caller();
        async move { self.acquire(WaitLimit::of(wait), location).await.map(TryAcquire::from) }
    }

    /// Acquires all members, runs `body`, and releases them.
    ///
    /// If any member is lost, `body` is cancelled at its next await.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](MultiLock::lock), and [`Error::Lost`] if a member was lost before `body` ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. `body` is dropped, then the members are released.
    #[track_caller]
    pub fn run<B, F>(&self, body: B) -> impl Future<Output = Result<F::Output, Error>> + use<'_, B, F>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        let guard = self.lock();
        async move { guard.await?.run(body).await }
    }

    /// Acquires all members within `wait`, runs `body`, and releases them.
    ///
    /// Returns `None` if a member was busy, and `body` did not run. Otherwise as [`run`](MultiLock::run).
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

    /// Inspects each member, in the order in which they were given: [`Lock::inspect`].
    pub async fn inspect(&self) -> Result<Vec<Inspection>, Error> {
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by_key(|(index, _)| *index);
        try_join_all(members.into_iter().map(|(_, lock)| lock.inspect())).await
    }

    async fn acquire(
        &self,
        wait_limit: WaitLimit,
        location: &'static Location<'static>,
    ) -> Result<Option<MultiGuard>, Error> {
        let engine = self.members[0].1.engine();
        engine.shared.on_runtime(self.acquire_all(wait_limit, location)).await
    }

    /// Requests all members; while one refuses, waits for that one, holding nothing, and then requests the others.
    async fn acquire_all(
        &self,
        wait_limit: WaitLimit,
        location: &'static Location<'static>,
    ) -> Result<Option<MultiGuard>, Error> {
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(64));
        // If other waiters of this client are queued, a request would be refused, and the rest held in vain.
        let mut wait_for = (wait_limit != WaitLimit::None).then(|| self.first_wanted_here()).flatten();
        loop {
            let in_hand = match wait_for {
                None => None,
                Some(rank) => match self.members[rank].1.acquire(wait_limit, location).await? {
                    Some(guard) => Some((rank, guard)),
                    None => return Ok(None),
                },
            };
            let had_one = in_hand.is_some();
            let round = match wait_limit {
                WaitLimit::Until(end) => {
                    let limit = self.usual_limit().max(end.since(clock::now()));
                    tokio::time::timeout(limit, self.request_all(in_hand, end, location))
                        .await
                        .map_err(|_| self.timed_out(limit))?
                }
                WaitLimit::None | WaitLimit::Endless => {
                    self.request_all(in_hand, Moment::NEVER, location).await
                }
            };
            wait_for = match round {
                Round::All(guards) => return Ok(Some(self.guard(guards))),
                Round::Refused(_) if wait_limit == WaitLimit::None => return Ok(None),
                Round::Refused(rank) => Some(rank),
                // The wait for this member decides for how long to retry.
                Round::Failed(rank, error) if error.is_retryable() && wait_limit != WaitLimit::None => {
                    Some(rank)
                }
                Round::Failed(_, error) => return Err(error),
            };
            if had_one {
                // The holder of the other member may want this one: retry after a random pause.
                let rest = wait_limit.end().since(clock::now());
                tokio::time::sleep(backoff.pause(fastrand::f64()).min(rest)).await;
            }
        }
    }

    /// Requests every member at the same time, except the one in hand.
    async fn request_all(
        &self,
        in_hand: Option<(usize, Guard)>,
        end: Moment,
        location: &'static Location<'static>,
    ) -> Round {
        let rank_in_hand = in_hand.as_ref().map(|(rank, _)| *rank);
        let mut granted: Vec<_> = in_hand.into_iter().collect();
        let others = (0..self.members.len()).filter(|rank| Some(*rank) != rank_in_hand);
        let request = |rank: usize| {
            self.members[rank].1.acquire(WaitLimit::None, location).map(move |reply| (rank, reply))
        };
        let mut requests: FuturesUnordered<_> = others.map(request).collect();
        // While one store does not reply, the grants of the others exclude other owners: limit that time.
        let limit = self.usual_limit();
        let mut timeout = pin!(tokio::time::sleep(limit));
        let mut refusal = loop {
            let reply = tokio::select! {
                reply = requests.next() => reply,
                () = &mut timeout => {
                    let is_open = |rank: &usize| granted.iter().all(|(known, _)| known != rank);
                    let without_reply = (0..self.members.len()).find(is_open).unwrap_or_default();
                    break Round::Failed(without_reply, self.timed_out(limit));
                }
            };
            match reply {
                Some((rank, Ok(Some(guard)))) => granted.push((rank, guard)),
                Some((rank, Ok(None))) => break Round::Refused(rank),
                Some((rank, Err(error))) => break Round::Failed(rank, error),
                None => {
                    granted.sort_unstable_by_key(|(rank, _)| *rank);
                    return Round::All(granted);
                }
            }
        };
        // Release the grants now, and later grants as they arrive.
        let mut releases: FuturesUnordered<_> =
            granted.into_iter().map(|(_, guard)| guard.unlock()).collect();
        let draining = async {
            while !(requests.is_empty() && releases.is_empty()) {
                tokio::select! {
                    Some((rank, reply)) = requests.next() => match reply {
                        Ok(Some(guard)) => releases.push(guard.unlock()),
                        Ok(None) => refusal.also(Round::Refused(rank)),
                        Err(error) => refusal.also(Round::Failed(rank, error)),
                    },
                    Some(outcome) = releases.next() => if let Err(error) = outcome {
                        tracing::warn!(error = %error.with_causes(), "release of a member failed");
                    },
                }
            }
        };
        let _ = tokio::time::timeout(LINGER.min(end.since(clock::now())), draining).await;
        refusal
    }

    /// Returns the first member with waiters of its own client.
    fn first_wanted_here(&self) -> Option<usize> {
        let is_wanted = |lock: &Lock| {
            lock.checked_name().is_ok_and(|name| lock.engine().shared.wait_queues.waiting(name) > 0)
        };
        self.members.iter().position(|(_, lock)| is_wanted(lock))
    }

    fn guard(&self, guards: Vec<(usize, Guard)>) -> MultiGuard {
        let total = self.members.len();
        let group = Group::new(self.members[0].1.engine(), total, total, LINGER);
        for (rank, guard) in guards {
            group.join(self.members[rank].0, guard);
        }
        MultiGuard::new(group)
    }

    fn usual_limit(&self) -> Duration {
        let limit = |(_, lock): &(usize, Lock)| lock.engine().shared.settings.usual_limit();
        self.members.iter().map(limit).max().unwrap_or_default()
    }

    fn timed_out(&self, limit: Duration) -> Error {
        let names: Vec<_> = self.members.iter().map(|(_, lock)| lock.name()).collect();
        let cause =
            io::Error::new(io::ErrorKind::TimedOut, format!("not all members replied within {limit:?}"));
        Error::Unavailable { what: format!("the locks {names:?}"), source: Arc::new(cause) }
    }
}

impl Round {
    /// Combines two outcomes: an error first, then the member with the lowest rank.
    ///
    /// All users of the same members wait for the same one.
    fn also(&mut self, other: Self) {
        let order = |round: &Self| match round {
            Self::Failed(_, error) if !error.is_retryable() => (0, 0),
            Self::Failed(rank, _) => (1, *rank),
            Self::Refused(rank) => (2, *rank),
            Self::All(_) => (3, 0),
        };
        if order(&other) < order(self) {
            *self = other;
        }
    }
}

/// Acquires all members, and waits until they are free: [`MultiLock::lock`].
impl IntoFuture for MultiLock {
    type Output = Result<MultiGuard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    #[track_caller]
    fn into_future(self) -> Self::IntoFuture {
        let location = Location::caller();
        Box::pin(async move { endless(self.acquire(WaitLimit::Endless, location).await) })
    }
}
