use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::{Mutex, MutexGuard};
use turnlock_core::model::Acquired;
use turnlock_core::wait_step::{WaitMove, WaitView, next_move};
use turnlock_core::{Doubt, LockName, Moment, OwnerId};

use super::Engine;
use super::errand::Errand;
use super::hold::{Hold, Term};
use super::rooms::{Join, Seat};
use super::troubles::Troubles;
use crate::backend::{Answer, Claim, Failure};
use crate::clock;
use crate::error::{Error, LostReason};
use crate::guard::Guard;

/// What somebody wants.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) name: LockName,
    pub(crate) term: Term,
    pub(crate) patience: Patience,
}

/// How long somebody is willing to wait for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    Until(Moment),
    Endless,
}

impl Patience {
    pub(crate) fn of(wait: Duration) -> Self {
        if wait.is_zero() { Self::None } else { Self::Until(clock::now() + wait) }
    }

    /// Takes a mutex, if it is free before patience ends. One without patience takes only what is free now.
    pub(crate) async fn lock<T>(self, mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        match self {
            Self::Endless => Some(mutex.lock().await),
            Self::None => mutex.try_lock().ok(),
            Self::Until(end) => tokio::time::timeout(end.since(clock::now()), mutex.lock()).await.ok(),
        }
    }

    pub(super) fn end(self) -> Moment {
        match self {
            Self::None => Moment::from_micros(0),
            Self::Until(end) => end,
            Self::Endless => Moment::NEVER,
        }
    }
}

/// The acquire loop. `None` when the lock was held for as long as `ask` was willing to wait.
///
/// Cancel-safe: when this future is dropped, its place in the queue is given up, and a request that is under way is
/// finished by the engine, which gives back what it may have got.
pub(crate) async fn acquire(engine: &Arc<Engine>, ask: Ask) -> Result<Option<Guard>, Error> {
    let shared = &engine.shared;
    shared.check_open()?;
    let limit = shared.settings.patience(ask.term.lease())?;
    let join = if ask.patience == Patience::None { Join::IfEmpty } else { Join::Anyway };
    let Some((seat, first_look)) = shared.rooms.enter(&ask.name, join) else { return Ok(None) };
    let mut first_look = Some(first_look);
    let mut attempt = Attempt::new(engine, &ask, seat, limit);
    let end = ask.patience.end();
    let began = clock::now();
    let mut head_since = None;
    let mut refused = None;
    let mut troubles = Troubles::new(shared.settings.retry_for, ask.patience);
    loop {
        shared.check_open()?;
        let now = clock::now();
        let look = first_look.take().unwrap_or_else(|| attempt.seat.look());
        if ask.patience != Patience::None && now >= end {
            tracing::debug!(name = %ask.name, waited = ?now.since(began), "gave up waiting");
            return troubles.last_word(&ask.name).map_or(Ok(None), Err);
        }
        if !look.is_head {
            match ask.patience {
                Patience::Endless => attempt.seat.bell.rings().await,
                _ => drop(tokio::time::timeout(end.since(now), attempt.seat.bell.rings()).await),
            }
            continue;
        }
        let view = WaitView {
            head_since: *head_since.get_or_insert(now),
            refused,
            listening: look.listening,
            hint: attempt.seat.bell.take_hint(),
            // Who will not wait is told by the store, not by what this process believes.
            held_here: look.held_here && ask.patience != Patience::None,
            poll: shared.settings.poll,
        };
        match next_move(now, &view) {
            WaitMove::Ask => {
                let errand = Errand::new(&shared.errands, attempt.send());
                let (back, outcome) = match ask.patience {
                    // Past the caller's end, a request gets the time that any request gets, and no more.
                    Patience::Until(end) => tokio::time::timeout(end.since(now).max(limit), errand)
                        .await
                        .map_err(|_| too_late(&ask.name, limit))?,
                    Patience::None | Patience::Endless => errand.await,
                };
                attempt = back;
                match outcome {
                    Ok(Ok(guard)) => {
                        // Granted while the client was being closed: nobody would renew it.
                        shared.check_open()?;
                        let owner = guard.owner_id();
                        tracing::debug!(name = %ask.name, %owner, waited = ?clock::now().since(began), "acquired");
                        return Ok(Some(guard));
                    }
                    Ok(Err(ttl)) => {
                        if ask.patience == Patience::None {
                            return Ok(None);
                        }
                        if refused.is_none() {
                            tracing::debug!(name = %ask.name, ?ttl, "held by another: waiting");
                        }
                        troubles.are_over();
                        refused = Some((now, ttl));
                    }
                    Err(failure) => {
                        tracing::warn!(name = %ask.name, %failure, "acquire was not answered");
                        let pause = troubles.after(failure, || format!("lock {:?}", ask.name.as_str()))?;
                        // The whole pause: the bell may ring for the very connection that has just failed.
                        tokio::time::sleep(pause.min(end.since(clock::now()))).await;
                        // Ask again whatever was refused before.
                        refused = None;
                    }
                }
            }
            WaitMove::Listen => {
                attempt.seat.set_listening();
                // What was published before the subscription stood went unheard, so look again at once. A subscription
                // that is long in coming does not keep the head from looking: it is told when it stands.
                let listening = shared.backend.listen(&ask.name);
                let patience = end.since(now).min(shared.settings.poll).min(LONGEST_NAP);
                let _ =
                    tokio::time::timeout(patience, select(listening, pin!(attempt.seat.bell.rings()))).await;
                attempt.seat.bell.give_hint();
            }
            WaitMove::SleepUntil(moment) => {
                if view.hint {
                    // Seen, but too early to act on.
                    attempt.seat.bell.give_hint();
                }
                ring_or(&attempt.seat, moment.min(end)).await;
            }
        }
    }
}

/// How long the head of a queue sleeps at the most: a machine that slept longer finds out on waking.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// Waits for the bell, or until `moment`.
async fn ring_or(seat: &Seat, moment: Moment) {
    let rest = moment.since(clock::now()).min(LONGEST_NAP);
    let _ = tokio::time::timeout(rest, seat.bell.rings()).await;
}

fn too_late(name: &LockName, limit: Duration) -> Error {
    let cause =
        io::Error::new(io::ErrorKind::TimedOut, format!("no answer within the wait, nor within {limit:?}"));
    Error::Unavailable { what: format!("lock {:?}", name.as_str()), source: Arc::new(cause) }
}

/// One attempt at one hold: everything that a request needs, and what has to be done if it is given up.
struct Attempt {
    engine: Arc<Engine>,
    name: LockName,
    owner: OwnerId,
    term: Term,
    limit: Duration,
    seat: Seat,
    /// A request of this attempt that got no answer: it may have been granted, or may still be.
    doubt: Option<Doubt>,
}

impl Attempt {
    fn new(engine: &Arc<Engine>, ask: &Ask, seat: Seat, limit: Duration) -> Self {
        let owner = engine.shared.new_owner();
        Self {
            engine: Arc::clone(engine),
            name: ask.name.clone(),
            owner,
            term: ask.term,
            limit,
            seat,
            doubt: None,
        }
    }

    /// Asks the store once. Gives itself back, with a guard, the rest of another's lease, or a failure.
    async fn send(mut self) -> (Self, Result<Result<Guard, Option<Duration>>, Failure>) {
        let lease = self.term.lease();
        let claim = Claim { name: &self.name, owner: &self.owner, target: 1 };
        match self.engine.shared.backend.acquire(claim, lease, self.limit).await {
            Ok(Answer { value: Acquired::Granted, sent }) => {
                let (name, owner) = (self.name.clone(), self.owner.clone());
                let hold = Arc::new(Hold::granted(name, owner, self.term, sent.at, self.doubt.take()));
                self.engine.shared.watchdog.watch(&hold);
                if let Some(gone) = self.seat.trade_for(&hold) {
                    self.engine.shared.lose(&gone, LostReason::Taken);
                }
                let guard = Guard::new(Arc::clone(&self.engine), hold, self.term);
                (self, Ok(Ok(guard)))
            }
            Ok(Answer { value: Acquired::Busy { ttl }, sent }) => {
                // On one connection answers come in order: an earlier request on it was refused too, or has ended.
                self.doubt = sent.leaves_of(self.doubt);
                (self, Ok(Err(ttl)))
            }
            // The answer to a reentry, which this is not.
            Ok(Answer { value: Acquired::Gone, .. }) => (self, Ok(Err(None))),
            Err(failure) => {
                if let Some(sent) = failure.in_doubt {
                    self.doubt = Some(sent.adds_doubt_to(self.doubt, lease));
                }
                (self, Err(failure))
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(doubt) = self.doubt.take() {
            self.engine.shared.sweep(self.name.clone(), self.owner.clone(), self.limit, doubt);
        }
    }
}
