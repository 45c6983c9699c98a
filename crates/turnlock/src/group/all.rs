use std::collections::HashSet;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::{self, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use turnlock_core::Backoff;

use super::group_lock::{GroupLock, Policy, Refusal};
use crate::engine::{CallLocation, CheckedSettings, WaitLimit, time_out};
use crate::{Error, Guard, Inspection, Lock, MultiGuard, MultiHeld, clock};

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
pub type MultiLock = GroupLock<All>;

/// The policy of a [`MultiLock`]: all members are needed.
#[derive(Clone, Debug)]
pub struct All {
    /// The members by rank, sorted by key, so that all users of the same locks have the same order.
    by_rank: Vec<usize>,
}

/// How long a refused attempt waits for the other replies, to release what they grant. The engine handles later replies.
const LINGER: Duration = Duration::from_millis(50);

impl Policy for All {
    const AT_LEAST: &str = "at least one";

    fn new(members: &[Lock]) -> Result<Self, Error> {
        let (mut known, mut by_rank) = (HashSet::new(), Vec::new());
        for (index, lock) in members.iter().enumerate() {
            let key = lock.named.checked()?.key();
            if !known.insert((Arc::as_ptr(&lock.named.engine), key)) {
                let name = lock.name();
                let reason = format!("lock {name:?} is given twice, and would wait for itself; give it once");
                return Err(Error::bad_argument("locks", reason));
            }
            by_rank.push((key, index));
        }
        by_rank.sort_unstable();
        Ok(Self { by_rank: by_rank.into_iter().map(|(_, index)| index).collect() })
    }

    /// Requests all members; while one refuses, waits for that one, holding nothing, and then requests the others.
    async fn acquire(
        lock: &MultiLock,
        wait_limit: WaitLimit,
        location: CallLocation,
    ) -> Result<Option<MultiGuard>, Error> {
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(64));
        // If other waiters of this client are queued, a request would be refused, and the rest held in vain.
        let is_wanted_here =
            |rank: &usize| wait_limit != WaitLimit::None && lock.member(*rank).has_waiters_here();
        let mut wait_for = (0..lock.len()).find(is_wanted_here);
        loop {
            let in_hand = match wait_for {
                None => None,
                Some(rank) => match lock.member(rank).acquire(wait_limit, location).await? {
                    Some(guard) => Some((rank, guard)),
                    None => return Ok(None),
                },
            };
            let had_one = in_hand.is_some();
            let refusal = match lock.request_all(in_hand, wait_limit, location).await {
                Ok(guard) => return Ok(Some(guard)),
                Err(refusal) => refusal,
            };
            wait_for = match refusal.error {
                // The wait for this member decides for how long to retry.
                Some(error) if !error.is_retryable() || clock::now() >= wait_limit.end() => {
                    return Err(error);
                }
                None if wait_limit == WaitLimit::None => return Ok(None),
                _ => Some(refusal.member),
            };
            if had_one {
                // The holder of the other member may want this one: retry after a random pause.
                let rest = wait_limit.end().since(clock::now());
                tokio::time::sleep(backoff.pause(fastrand::f64()).min(rest)).await;
            }
        }
    }
}

impl MultiLock {
    /// Inspects each member, in the order in which they were given: [`Lock::inspect`].
    pub async fn inspect(&self) -> Result<Vec<Inspection>, Error> {
        try_join_all(self.members.iter().map(Lock::inspect)).await
    }

    fn member(&self, rank: usize) -> &Lock {
        &self.members[self.policy.by_rank[rank]]
    }

    /// Requests every member at the same time, except the one in hand. Returns the guard of all members.
    ///
    /// If refused, all are released. The refusal has the rank of the member to wait for.
    async fn request_all(
        &self,
        in_hand: Option<(usize, Guard)>,
        wait_limit: WaitLimit,
        location: CallLocation,
    ) -> Result<MultiGuard, Refusal> {
        let rank_in_hand = in_hand.as_ref().map(|(rank, _)| *rank);
        let mut granted: Vec<_> = in_hand.into_iter().collect();
        let others = (0..self.len()).filter(|rank| Some(*rank) != rank_in_hand);
        let request = |rank: usize| {
            self.member(rank).acquire(WaitLimit::None, location).map(move |reply| (rank, reply))
        };
        let mut requests: FuturesUnordered<_> = others.map(request).collect();
        let first_refusal = async {
            while let Some((rank, reply)) = requests.next().await {
                match reply {
                    Ok(Some(guard)) => granted.push((rank, guard)),
                    refused => return Some(Refusal { member: rank, error: refused.err() }),
                }
            }
            None
        };
        // While one store does not reply, the grants of the others exclude other owners: limit that time.
        let limit = self.longest(CheckedSettings::usual_limit);
        let mut refusal = match tokio::time::timeout(limit, first_refusal).await {
            Ok(None) => return Ok(self.guard(granted)),
            Ok(Some(refusal)) => refusal,
            Err(_) => {
                let is_open = |rank: &usize| granted.iter().all(|(known, _)| known != rank);
                let member = (0..self.len()).find(is_open).unwrap_or_default();
                Refusal { member, error: Some(self.timed_out(limit)) }
            }
        };
        // Release the grants now, and later grants as they arrive.
        let late_grants = requests.filter_map(|(rank, reply)| match reply {
            Ok(Some(guard)) => ready(Some((rank, guard))),
            refused => {
                let other = Refusal { member: rank, error: refused.err() };
                if order(&other) < order(&refusal) {
                    refusal = other;
                }
                ready(None)
            }
        });
        let grants = stream::iter(granted).chain(late_grants);
        let releases = grants.for_each_concurrent(None, |(_, guard)| async {
            if let Err(error) = guard.unlock().await {
                tracing::warn!(error = %error.with_causes(), "release of a member failed");
            }
        });
        let rest = wait_limit.end().since(clock::now());
        let linger = if wait_limit == WaitLimit::None { LINGER } else { LINGER.min(rest) };
        let _ = tokio::time::timeout(linger, releases).await;
        Err(refusal)
    }

    fn guard(&self, mut granted: Vec<(usize, Guard)>) -> MultiGuard {
        granted.sort_unstable_by_key(|(rank, _)| *rank);
        let held = MultiHeld::new(&self.members, self.len(), LINGER);
        for (rank, guard) in granted {
            held.join(self.policy.by_rank[rank], guard);
        }
        MultiGuard { held }
    }

    fn timed_out(&self, limit: Duration) -> Error {
        let names: Vec<_> = (0..self.len()).map(|rank| self.member(rank).name()).collect();
        let source = time_out(format!("not all members replied within {limit:?}"));
        Error::Unavailable { what: format!("the locks {names:?}"), source }
    }
}

/// Orders refusals: an error first, then the member with the lowest rank.
///
/// All users of the same members wait for the same one.
fn order(refusal: &Refusal) -> (u8, usize) {
    match &refusal.error {
        Some(error) if !error.is_retryable() => (0, 0),
        Some(_) => (1, refusal.member),
        None => (2, refusal.member),
    }
}
