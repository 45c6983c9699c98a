use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use turnlock_core::tally::majority;
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
use crate::red_round::{RedRound, RoundEnd};

/// One lock on several independent servers: who has a majority of them has it. So it outlives the loss of any minority,
/// with its data or without.
///
/// Give one lock a server, usually of the same name, of any kind. The servers must not replicate to each other.
///
/// **Guarantees.** One holder at a time, as long as no more than a minority loses data that it had confirmed. All servers
/// are asked at once, and **a slow or dead minority costs no waiting**, neither to lock nor to unlock: the lock is had
/// as soon as a majority has granted, and a server that answers later joins. It is believed in for the lease, less the
/// time that it took and a margin for clocks, as the majority-th latest of the servers' own ends says
/// ([`MultiGuard::valid_until`]). Each server's part is renewed on its own; the lock is lost when less than a majority
/// is left ([`MultiGuard::lost`]). It is given back everywhere, also where the answer was lost.
///
/// **Limits.** A server that restarts empty while one holds, and grants to another, counts against the minority that may
/// be lost: let it rest for a lease before it comes back. A member that was lost is not taken again. With an even
/// number of servers a majority is no safer than with one server less. As with every lock that has a lease, a process that
/// was paused may go on for a moment after its end.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use turnlock::{Client, RedLock};
///
/// // Three stores of their own; three servers in earnest.
/// let mut locks = Vec::new();
/// for url in ["memory://a", "memory://b", "memory://c"] {
///     locks.push(Client::connect(url).await?.lock("orders"));
/// }
/// let lock = RedLock::new(locks)?;
/// let guard = lock.lock().await?;
/// assert!(guard.held() >= 2);
/// assert!(lock.try_lock().await?.is_none());
/// guard.unlock().await?;
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct RedLock {
    members: Vec<Lock>,
    node_timeout: Duration,
}

/// How long a server has to answer when nothing was said.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);

/// How long one who was refused waits for a message before it asks all again: half of it at least, and by chance.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl RedLock {
    /// A lock that a majority of these locks makes up, one on each server. An error when there are none, when a name is not
    /// valid, or when two are of the same client, and so of the same server.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let members: Vec<_> = locks.into_iter().collect();
        if members.is_empty() {
            return Err(Error::bad_setting(
                "locks",
                "a majority of no servers decides nothing: give at least one",
            ));
        }
        for (place, lock) in members.iter().enumerate() {
            lock.checked_name()?;
            if members[..place].iter().any(|other| Arc::ptr_eq(other.engine(), lock.engine())) {
                let reason = "two of them are of the same client: give one lock of each server";
                return Err(Error::bad_setting("locks", reason));
            }
        }
        Ok(Self { members, node_timeout: NODE_TIMEOUT })
    }

    /// The same lock, taken with a fixed lease: not renewed, so it ends by itself.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { members: self.members.iter().map(|lock| lock.lease(lease)).collect(), ..self.clone() }
    }

    /// The same lock, whose servers have so long to answer before they count as silent; 50 ms when not set. Several times a
    /// round trip, and far below the lease.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn node_timeout(&self, timeout: Duration) -> Self {
        Self { node_timeout: timeout, ..self.clone() }
    }

    /// The name of the lock on the first server.
    pub fn name(&self) -> &str {
        self.members[0].name()
    }

    /// Takes the lock, and waits for it as long as it takes.
    ///
    /// While less than a majority of the servers answers, they are asked again, for the longest
    /// [`retry_for`](crate::Builder::retry_for) of their clients, before this gives up with [`Error::Unavailable`], which
    /// says how many granted, refused and did not answer.
    ///
    /// Cancelling: safe. Requests under way are finished in the background, and what they got is given back.
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        endless(self.acquire(Patience::Endless).await)
    }

    /// Takes the lock if it is free, and does not wait: one [`node_timeout`](RedLock::node_timeout) for the answers at the
    /// most, and one to give back what was not enough. `None` when a majority of the servers has answered, and too few have
    /// granted; [`Error::Unavailable`] when too few answered.
    ///
    /// Cancelling: as for [`lock`](RedLock::lock).
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        self.acquire(Patience::None).await
    }

    /// Takes the lock, and waits for it for `wait` at the most. `None` when that was not enough; [`Error::Unavailable`] when
    /// too few servers answered to the last.
    ///
    /// Cancelling: as for [`lock`](RedLock::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        self.acquire(Patience::of(wait)).await
    }

    /// Takes the lock, runs `body`, and gives the lock back.
    ///
    /// When less than a majority is left, `body` is cancelled where it stands and the result is [`Error::Lost`].
    ///
    /// Cancelling: safe. `body` is dropped, then the lock is given back.
    pub async fn run<B, F>(&self, body: B) -> Result<F::Output, Error>
    where
        B: FnOnce(MultiHeld) -> F,
        F: Future,
    {
        self.lock().await?.run(body).await
    }

    /// As [`run`](RedLock::run), but waits for the lock for `wait` at the most. `None`: it was not free in time, and `body`
    /// did not run.
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

    /// Who holds the lock on each server, in the order in which they were given; an error for each that cannot tell.
    ///
    /// Cancelling: safe, nothing is changed.
    pub async fn inspect(&self) -> Vec<Result<Inspection, Error>> {
        join_all(self.members.iter().map(Lock::inspect)).await
    }

    async fn acquire(&self, patience: Patience) -> Result<Option<MultiGuard>, Error> {
        if self.node_timeout.is_zero() {
            return Err(Error::bad_setting("node_timeout", "zero leaves no server the time to answer"));
        }
        self.members[0].engine().shared.on_runtime(self.take_turns(patience)).await
    }

    /// Asks all; while refused, waits for one of those that refused, or a while, holding nothing, and asks again.
    async fn take_turns(&self, patience: Patience) -> Result<Option<MultiGuard>, Error> {
        let end = patience.end();
        let mut backoff = Backoff::new(Duration::from_millis(4), Duration::from_millis(64));
        let mut in_hand = None;
        let mut trouble: Option<(Moment, Backoff)> = None;
        loop {
            let (guard, round_end) = self.ask_all(in_hand.take()).await;
            let refusal = match round_end {
                RoundEnd::Granted => return Ok(Some(guard)),
                RoundEnd::Refused(first) => Ok(first),
                RoundEnd::Unavailable(error) => Err(error),
            };
            // Before anything else, so that it does not meet itself when it asks again.
            self.give_back(guard).await;
            let now = clock::now();
            let (pause, refused) = match refusal {
                Err(error) => {
                    let (since, backoff) = trouble.get_or_insert_with(|| (now, Backoff::default()));
                    let is_borne = now < (*since + self.retry_for()).min(end);
                    if !is_borne || !error.is_passing() {
                        return Err(error);
                    }
                    (backoff.pause(fastrand::f64()), None)
                }
                Ok(_) if now >= end => return Ok(None),
                Ok(first) => {
                    trouble = None;
                    (backoff.pause(fastrand::f64()), Some(first))
                }
            };
            // Who comes first is a matter of chance, so that those who split the servers do not do so again.
            tokio::time::sleep(pause.min(end.since(clock::now()))).await;
            if let Some(first) = refused {
                in_hand = self.wait_for(first, end).await;
                if in_hand.is_none() && clock::now() >= end {
                    return Ok(None);
                }
            }
        }
    }

    /// One round. What it has got is in the guard.
    async fn ask_all(&self, in_hand: Option<(usize, Guard)>) -> (MultiGuard, RoundEnd) {
        let servers = self.members.len();
        let engine = self.members[0].engine();
        let guard = MultiGuard::new(Group::new(engine, majority(servers), servers, self.node_timeout));
        let round = RedRound::new(guard.group(), servers, self.node_timeout);
        if let Some((server, held)) = in_hand {
            round.grant(server, held);
        }
        let end = round.ask_all(&self.members).await;
        (guard, end)
    }

    /// Waits for one server that refused, as anybody waits there, but only for a while: it may be the one that is dead.
    async fn wait_for(&self, server: usize, end: Moment) -> Option<(usize, Guard)> {
        let wait = LOOK_AGAIN.mul_f64(0.5 + fastrand::f64() / 2.0).min(end.since(clock::now()));
        let turn = self.members[server].try_lock_for(wait);
        match tokio::time::timeout(wait.saturating_add(self.node_timeout), turn).await {
            Ok(Ok(Some(guard))) => Some((server, guard)),
            // The next round says how things are.
            Ok(Ok(None) | Err(_)) | Err(_) => None,
        }
    }

    /// Gives back what a round got that was not enough. The slow are left to their engines.
    async fn give_back(&self, guard: MultiGuard) {
        let _ = tokio::time::timeout(self.node_timeout, guard.unlock()).await;
    }

    fn retry_for(&self) -> Duration {
        let retry_for = |lock: &Lock| lock.engine().shared.settings.retry_for;
        self.members.iter().map(retry_for).max().unwrap_or_default()
    }
}
