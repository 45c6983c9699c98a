use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use turnlock_core::tally::majority;
use turnlock_core::{Backoff, Moment};

use super::group_lock::{GroupLock, Policy};
use super::round::request_all;
use crate::engine::{CallLocation, WaitLimit};
use crate::{Error, Guard, Inspection, Lock, MultiGuard, MultiHeld, clock};

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
pub type RedLock = GroupLock<Majority>;

/// The policy of a [`RedLock`]: a majority of the members is needed.
#[derive(Clone, Debug)]
pub struct Majority {
    node_timeout: Duration,
}

/// The default time-out of one server.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// How long a refused attempt waits for one server before it requests all again: at random, at least half of it.
const REFUSAL_WAIT: Duration = Duration::from_millis(200);

impl Policy for Majority {
    const AT_LEAST: &str = "one lock of each server";

    fn new(members: &[Lock]) -> Result<Self, Error> {
        for (index, lock) in members.iter().enumerate() {
            lock.named.checked()?;
            if members[..index].iter().any(|other| Arc::ptr_eq(&other.named.engine, &lock.named.engine)) {
                let reason = "two are of the same client; give one lock of each server";
                return Err(Error::bad_argument("locks", reason));
            }
        }
        Ok(Self { node_timeout: NODE_TIMEOUT })
    }

    /// Requests all servers; while refused, waits for one that refused, or for a while, holding nothing, and repeats.
    async fn acquire(
        lock: &RedLock,
        wait_limit: WaitLimit,
        location: CallLocation,
    ) -> Result<Option<MultiGuard>, Error> {
        let timeout = lock.policy.node_timeout;
        if timeout.is_zero() {
            return Err(Error::bad_argument("node time-out", "zero leaves no time for a reply"));
        }
        let end = wait_limit.end();
        let mut backoff = Backoff::new(Duration::from_millis(4), Duration::from_millis(64));
        let mut in_hand = None;
        let mut failing_since: Option<(Moment, Backoff)> = None;
        loop {
            let guard = MultiGuard { held: MultiHeld::new(&lock.members, majority(lock.len()), timeout) };
            let round = request_all(&guard.held, &lock.members, in_hand.take(), timeout, location);
            let Err(refusal) = round.await else { return Ok(Some(guard)) };
            // First, so that the next requests do not find these grants. The engines finish what takes longer.
            let _ = tokio::time::timeout(timeout, guard.unlock()).await;
            let now = clock::now();
            let (pause, refused) = match refusal.error {
                Some(error) => {
                    let (since, backoff) = failing_since.get_or_insert_with(|| (now, Backoff::default()));
                    let retries = now < (*since + lock.longest(|settings| settings.retry_for)).min(end);
                    if !retries || !error.is_retryable() {
                        return Err(error);
                    }
                    (backoff.pause(fastrand::f64()), None)
                }
                None if now >= end => return Ok(None),
                None => {
                    failing_since = None;
                    (backoff.pause(fastrand::f64()), Some(refusal.member))
                }
            };
            // A random pause, so that clients that split the servers do not split them again.
            tokio::time::sleep(pause.min(end.since(clock::now()))).await;
            if let Some(first) = refused {
                in_hand = lock.wait_for(first, end, location).await;
                if in_hand.is_none() && clock::now() >= end {
                    return Ok(None);
                }
            }
        }
    }
}

impl RedLock {
    /// Sets the time-out of one server. 50 ms by default.
    ///
    /// Choose several round trips, and far less than the lease.
    pub fn with_node_timeout(&self, timeout: Duration) -> Self {
        Self { policy: Majority { node_timeout: timeout }, ..self.clone() }
    }

    /// Inspects the lock on each server, in the order in which they were given.
    ///
    /// Each server has its own result.
    pub async fn inspect(&self) -> Vec<Result<Inspection, Error>> {
        join_all(self.members.iter().map(Lock::inspect)).await
    }

    /// Waits in the queue of one server that refused, for a limited time: it may have died.
    async fn wait_for(&self, server: usize, end: Moment, location: CallLocation) -> Option<(usize, Guard)> {
        let wait = REFUSAL_WAIT.mul_f64(0.5 + fastrand::f64() / 2.0).min(end.since(clock::now()));
        let acquire = self.members[server].acquire(WaitLimit::of(wait), location);
        match tokio::time::timeout(wait.saturating_add(self.policy.node_timeout), acquire).await {
            Ok(Ok(Some(guard))) => Some((server, guard)),
            // The next round tells the state of this server.
            Ok(Ok(None) | Err(_)) | Err(_) => None,
        }
    }
}
