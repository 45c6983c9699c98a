use std::collections::HashSet;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use turnlock_core::{Backoff, Moment};

use crate::clock;
use crate::engine::Patience;
use crate::error::Error;
use crate::group::Group;
use crate::guard::Guard;
use crate::inspection::Inspection;
use crate::lock::Lock;
use crate::multi_guard::{MultiGuard, MultiHeld};
use crate::named::endless;

/// Several locks as one: all of them or none. The locks may be of any kind, of one client or of several, on one server or
/// on several.
///
/// **Guarantees.** When it is granted, every member is held as if it had been taken alone: whoever takes one of them alone
/// is excluded and excludes, and so is Redisson's `MultiLock` over the same names, in whatever order; no key of its own
/// is used. All members are asked at once, so taking them costs what the slowest costs, not the sum. **Nothing is held
/// while it waits**, so two of them that share members in opposed orders cannot block each other.
///
/// **Limits.** Since nothing is held while it waits, others may take one member while it waits for another: under steady
/// contention for several members it can be passed by. Two members that are the same lock on the same server through
/// two clients cannot be told apart from two locks, and are never granted together. When a process dies, each member is
/// free when its own lease ends.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use turnlock::{Client, MultiLock};
///
/// let client = Client::connect("memory://").await?;
/// let transfer = MultiLock::new([client.lock("account:7"), client.lock("account:3")])?;
/// let guard = transfer.lock().await?;
/// assert!(client.lock("account:3").try_lock().await?.is_none());
/// guard.unlock().await?;
///
/// let moved = transfer.run(|_held| async { 100 }).await?;
/// assert_eq!(moved, 100);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// In the order of their keys, which is the same for all who use the same locks; each with its place as given.
    members: Vec<(usize, Lock)>,
}

/// What became of one question to all members. Where not all granted, all is given back.
enum Round {
    All(Vec<(usize, Guard)>),
    /// This one, by its rank, is to be waited for.
    Refused(usize),
    /// As `Refused`; and so it said.
    Failed(usize, Error),
}

/// How long one who was refused waits for the other answers, to give back in good order what they bring. Answers that
/// take longer are left to the engine.
const LINGER: Duration = Duration::from_millis(50);

impl MultiLock {
    /// One lock of all these. An error when there are none, when a name is not valid, or when two are the same lock of the
    /// same client, which could never be granted together.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let mut members: Vec<_> = locks.into_iter().enumerate().collect();
        if members.is_empty() {
            return Err(Error::bad_setting(
                "locks",
                "a lock of no locks protects nothing: give at least one",
            ));
        }
        let mut known = HashSet::new();
        for (_, lock) in &members {
            let key = lock.checked_name()?.key();
            if !known.insert((Arc::as_ptr(lock.engine()), key)) {
                let name = lock.name();
                let reason = format!("lock {name:?} is there twice, and would wait for itself: give it once");
                return Err(Error::bad_setting("locks", reason));
            }
        }
        let key = |lock: &Lock| lock.checked_name().map(|name| name.key().to_owned()).unwrap_or_default();
        members.sort_by_cached_key(|(_, lock)| key(lock));
        Ok(Self { members })
    }

    /// The same locks, all taken with a fixed lease: not renewed, so they end by themselves.
    #[must_use = "this makes another handle; the locks are as they were"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { members: self.members.iter().map(|(place, lock)| (*place, lock.lease(lease))).collect() }
    }

    /// How many locks these are.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Takes all the locks, and waits for them as long as it takes.
    ///
    /// While a store does not answer, its client's [`retry_for`](crate::Builder::retry_for) says for how long it is asked
    /// again; nothing is held on the others meanwhile.
    ///
    /// Cancelling: safe. Requests under way are finished in the background, and what they got is given back.
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        endless(self.acquire(Patience::Endless).await)
    }

    /// Takes all the locks if all are free, and does not wait. `None` when somebody holds one of them;
    /// [`Error::Unavailable`] when one does not answer within the [`response_timeout`](crate::Builder::response_timeout).
    ///
    /// Cancelling: as for [`lock`](MultiLock::lock).
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        self.acquire(Patience::None).await
    }

    /// Takes all the locks, and waits for them for `wait` at the most. `None` when that was not enough.
    ///
    /// Cancelling: as for [`lock`](MultiLock::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        self.acquire(Patience::of(wait)).await
    }

    /// Takes all the locks, runs `body`, and gives them back.
    ///
    /// When any of them is lost, `body` is cancelled where it stands and the result is [`Error::Lost`].
    ///
    /// Cancelling: safe. `body` is dropped, then the locks are given back.
    pub async fn run<B, F>(&self, body: B) -> Result<F::Output, Error>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        self.lock().await?.run(body).await
    }

    /// As [`run`](MultiLock::run), but waits for the locks for `wait` at the most. `None`: they were not free in time, and
    /// `body` did not run.
    pub async fn try_run_for<B, F>(&self, wait: Duration, body: B) -> Result<Option<F::Output>, Error>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        match self.try_lock_for(wait).await? {
            Some(guard) => guard.run(body).await.map(Some),
            None => Ok(None),
        }
    }

    /// Who holds each of the locks, in the order in which they were given.
    ///
    /// Cancelling: safe, nothing is changed.
    pub async fn inspect(&self) -> Result<Vec<Inspection>, Error> {
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by_key(|(place, _)| *place);
        try_join_all(members.into_iter().map(|(_, lock)| lock.inspect())).await
    }

    async fn acquire(&self, patience: Patience) -> Result<Option<MultiGuard>, Error> {
        let engine = self.members[0].1.engine();
        engine.shared.on_runtime(self.take_turns(patience)).await
    }

    /// Asks all; while refused, waits for one of those that refused, holding nothing, and asks the others with that in hand.
    async fn take_turns(&self, patience: Patience) -> Result<Option<MultiGuard>, Error> {
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(64));
        // Where others of this client wait already, asking would be refused, and the rest be held for nothing.
        let mut wait_for = (patience != Patience::None).then(|| self.first_wanted_here()).flatten();
        loop {
            let in_hand = match wait_for {
                None => None,
                Some(rank) => match self.members[rank].1.acquire(patience).await? {
                    Some(guard) => Some((rank, guard)),
                    None => return Ok(None),
                },
            };
            let had_one = in_hand.is_some();
            let round = match patience {
                Patience::Until(end) => {
                    let limit = self.usual_patience().max(end.since(clock::now()));
                    tokio::time::timeout(limit, self.ask_all(in_hand, end))
                        .await
                        .map_err(|_| self.too_late(limit))?
                }
                Patience::None | Patience::Endless => self.ask_all(in_hand, Moment::NEVER).await,
            };
            wait_for = match round {
                Round::All(guards) => return Ok(Some(self.guard(guards))),
                Round::Refused(_) if patience == Patience::None => return Ok(None),
                Round::Refused(rank) => Some(rank),
                // Its own wait knows for how long to bear that.
                Round::Failed(rank, error) if error.is_passing() && patience != Patience::None => Some(rank),
                Round::Failed(_, error) => return Err(error),
            };
            if had_one {
                // Whoever has the other one may be after this one: who comes back first must be a matter of chance.
                let rest = patience.end().since(clock::now());
                tokio::time::sleep(backoff.pause(fastrand::f64()).min(rest)).await;
            }
        }
    }

    /// Asks every member at once, but the one that is in hand.
    async fn ask_all(&self, in_hand: Option<(usize, Guard)>, end: Moment) -> Round {
        let rank_in_hand = in_hand.as_ref().map(|(rank, _)| *rank);
        let mut granted: Vec<_> = in_hand.into_iter().collect();
        let others = (0..self.members.len()).filter(|rank| Some(*rank) != rank_in_hand);
        let mut asks: FuturesUnordered<_> =
            others.map(|rank| self.members[rank].1.try_lock().map(move |answer| (rank, answer))).collect();
        // A store that does not answer must not keep the others' locks from others for long.
        let limit = self.usual_patience();
        let mut patience = pin!(tokio::time::sleep(limit));
        let mut refusal = loop {
            let answer = tokio::select! {
                answer = asks.next() => answer,
                () = &mut patience => {
                    let is_open = |rank: &usize| granted.iter().all(|(known, _)| known != rank);
                    let silent = (0..self.members.len()).find(is_open).unwrap_or_default();
                    break Round::Failed(silent, self.too_late(limit));
                }
            };
            match answer {
                Some((rank, Ok(Some(guard)))) => granted.push((rank, guard)),
                Some((rank, Ok(None))) => break Round::Refused(rank),
                Some((rank, Err(error))) => break Round::Failed(rank, error),
                None => {
                    granted.sort_unstable_by_key(|(rank, _)| *rank);
                    return Round::All(granted);
                }
            }
        };
        // What was granted goes back now, and what still comes, as it comes.
        let mut returns: FuturesUnordered<_> = granted.into_iter().map(|(_, guard)| guard.unlock()).collect();
        let draining = async {
            while !(asks.is_empty() && returns.is_empty()) {
                tokio::select! {
                    Some((rank, answer)) = asks.next() => match answer {
                        Ok(Some(guard)) => returns.push(guard.unlock()),
                        Ok(None) => refusal.also(Round::Refused(rank)),
                        Err(error) => refusal.also(Round::Failed(rank, error)),
                    },
                    Some(outcome) = returns.next() => if let Err(error) = outcome {
                        tracing::warn!(%error, "a member could not be given back");
                    },
                }
            }
        };
        let _ = tokio::time::timeout(LINGER.min(end.since(clock::now())), draining).await;
        refusal
    }

    /// The first member that others of its client wait for.
    fn first_wanted_here(&self) -> Option<usize> {
        let is_wanted =
            |lock: &Lock| lock.checked_name().is_ok_and(|name| lock.engine().shared.rooms.waiting(name) > 0);
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

    fn usual_patience(&self) -> Duration {
        let patience = |(_, lock): &(usize, Lock)| lock.engine().shared.settings.usual_patience();
        self.members.iter().map(patience).max().unwrap_or_default()
    }

    fn too_late(&self, limit: Duration) -> Error {
        let names: Vec<_> = self.members.iter().map(|(_, lock)| lock.name()).collect();
        let cause = io::Error::new(
            io::ErrorKind::TimedOut,
            format!("not all have answered within the wait, nor within {limit:?}"),
        );
        Error::Unavailable { what: format!("the locks {names:?}"), source: Arc::new(cause) }
    }
}

impl Round {
    /// One more that did not grant. The first in order is waited for, so that those who want the same locks meet at the
    /// same one; before that, one that failed, since nothing goes without it.
    fn also(&mut self, other: Self) {
        let place = |round: &Self| match round {
            Self::Failed(_, error) if !error.is_passing() => (0, 0),
            Self::Failed(rank, _) => (1, *rank),
            Self::Refused(rank) => (2, *rank),
            Self::All(_) => (3, 0),
        };
        if place(&other) < place(self) {
            *self = other;
        }
    }
}
