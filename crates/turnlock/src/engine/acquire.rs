use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::{Mutex, MutexGuard};
use turnlock_core::wait_step::{WaitMove, WaitView, next_move};
use turnlock_core::{Backoff, Kind, LockName, Moment};

use super::attempt::{Attempt, Outcome};
use super::errand::Errand;
use super::hold::{Hold, Term};
use super::rooms::Seat;
use super::troubles::Troubles;
use super::{Engine, Shared};
use crate::backend::Caller;
use crate::clock;
use crate::error::Error;
use crate::guard::Guard;

/// What somebody wants.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) name: LockName,
    pub(crate) term: Term,
    pub(crate) patience: Patience,
    /// How many permits, where there are permits.
    pub(crate) permits: u32,
    /// How many replicas must have acknowledged the grant, and each renewal.
    pub(crate) replicas: u32,
    /// Whether it may be handed over by one of this process; then it has the owner of that one.
    pub(crate) is_anybodys: bool,
    /// The write hold of the same owner, under which it wants to read.
    pub(crate) under: Option<Arc<Hold>>,
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

    pub(crate) fn end(self) -> Moment {
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
    let kind = ask.name.kind();
    let Some((mut attempt, first_look)) = Attempt::begin(engine, &ask, limit) else { return Ok(None) };
    let mut first_look = Some(first_look);
    let mut spin = Backoff::new(SHORTEST_SPIN, LONGEST_SPIN);
    let mut pause = SHORTEST_SPIN;
    let end = ask.patience.end();
    let began = clock::now();
    let mut head_since = None;
    let mut refused = None;
    let mut troubles = Troubles::new(shared.settings.retry_for, ask.patience);
    loop {
        shared.check_open()?;
        if let Some(guard) = attempt.take_over() {
            tracing::trace!(name = %ask.name, "handed over");
            return Ok(Some(guard));
        }
        let now = clock::now();
        let look = first_look.take().unwrap_or_else(|| attempt.seat.look());
        if ask.patience != Patience::None && now >= end {
            tracing::debug!(name = %ask.name, waited = ?now.since(began), "gave up waiting");
            let last_word = troubles.last_word(&ask.name);
            attempt.give_back().await;
            attempt.leave().await;
            return last_word.map_or(Ok(None), Err);
        }
        if let Some(reason) = ask.under.as_ref().and_then(|write| write.lost()) {
            return Err(Error::Lost { name: ask.name.to_string(), reason });
        }
        if !look.may_ask {
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
            // Who will not wait is told by the store, not by what this process believes, and at once.
            held_here: look.held_here && ask.patience != Patience::None,
            not_before: if ask.patience == Patience::None { now } else { look.not_before },
            poll: longest_poll(kind, shared.settings.poll),
            pause: (!kind.is_told()).then_some(pause),
        };
        match next_move(now, &view) {
            WaitMove::Ask => {
                attempt.check_age()?;
                let (back, outcome) = send(shared, attempt, &ask).await?;
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
                        if let Some(hold) = &ask.under {
                            // A write hold that stands lets its owner read.
                            shared.watchdog.look_now(hold);
                            let name = ask.name.to_string();
                            return Err(Error::Lost { name, reason: shared.reason_of_absence(hold) });
                        }
                        if ask.patience == Patience::None {
                            return Ok(None);
                        }
                        pause = spin.pause(fastrand::f64());
                        if refused.is_none() {
                            tracing::debug!(name = %ask.name, ?ttl, "held by another: waiting");
                        }
                        troubles.are_over();
                        refused = Some((now, ttl));
                    }
                    Err(failure) => {
                        tracing::warn!(name = %ask.name, %failure, "acquire was not answered as it should be");
                        let pause = troubles.after(failure, || format!("lock {:?}", ask.name.as_str()));
                        if pause.is_err() {
                            attempt.give_back().await;
                        }
                        let pause = pause?;
                        // The whole pause: the bell may ring for the very connection that has just failed.
                        tokio::time::sleep(pause.min(end.since(clock::now()))).await;
                        // Ask again whatever was refused before.
                        refused = None;
                    }
                }
            }
            WaitMove::Listen => listen(&attempt, end).await,
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

/// The pauses of one who waits where nothing is told.
const SHORTEST_SPIN: Duration = Duration::from_millis(2);
const LONGEST_SPIN: Duration = Duration::from_millis(128);

/// As good as never.
const NO_POLL: Duration = Duration::from_secs(3600);

/// The longest time between two looks of one who waits.
fn longest_poll(kind: Kind, usual: Duration) -> Duration {
    match kind {
        // A fair lock's waiters are looked after by the attendance.
        Kind::Fair => NO_POLL,
        // The word that a writer waits has to be said again.
        Kind::Write => usual.min(LONGEST_NAP),
        _ => usual,
    }
}

/// Asks the store once, as an errand. Past the caller's end a request gets the time that any request gets, and no more.
async fn send(shared: &Shared, attempt: Attempt, ask: &Ask) -> Result<(Attempt, Outcome), Error> {
    // What must be acknowledged may have to wait for those that went before it.
    let limit = if ask.replicas > 0 { attempt.limit * 2 } else { attempt.limit };
    let presence = Arc::new(());
    let errand = Errand::new(&shared.errands, attempt.send(Caller::with(&presence)));
    match ask.patience {
        Patience::Until(end) => tokio::time::timeout(end.since(clock::now()).max(limit), errand)
            .await
            .map_err(|_| too_late(&ask.name, limit)),
        Patience::None | Patience::Endless => Ok(errand.await),
    }
}

/// Begins to listen. What was published before the subscription stood went unheard, so the next move is to look again. A
/// subscription that is long in coming does not keep the head from looking: it is told when it stands.
async fn listen(attempt: &Attempt, end: Moment) {
    let (shared, seat) = (&attempt.engine.shared, &attempt.seat);
    seat.set_listening();
    let listening = shared.backend.listen(seat.name());
    let patience = end.since(clock::now()).min(shared.settings.poll).min(LONGEST_NAP);
    let _ = tokio::time::timeout(patience, select(listening, pin!(seat.bell.rings()))).await;
    seat.bell.give_hint();
    if attempt.name.kind().asks_in_company() {
        // The others in front took it for granted that somebody listens.
        shared.rooms.ring(seat.name());
    }
}

/// How long the head of a queue sleeps at the most: a machine that slept longer finds out on waking.
pub(super) const LONGEST_NAP: Duration = Duration::from_secs(1);

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
