use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, pending, select};
use tokio::sync::{Mutex, MutexGuard};
use turnlock_core::wait_step::{WaitMove, WaitView, next_move};
use turnlock_core::{Backoff, Kind, LockName, Moment};

use super::attempt::{Attempt, Outcome};
use super::errand::Errand;
use super::hold::{Hold, Term};
use super::rooms::{Ahead, Look, Seat};
use super::troubles::Troubles;
use super::{Engine, Shared};
use crate::backend::{Caller, Failure};
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
/// `None` means that the store refused a request during this call, that a hold of this process stands in the way, or that a
/// waiter of this process is ahead, and the store answers. When the request of the one ahead is not answered for a while, the store
/// is asked; when its requests have failed for a while, their failure is the outcome.
///
/// Cancel-safe: when this future is dropped, its place in the queue is given up, and a request that is under way is
/// finished by the engine, which gives back what it may have got.
pub(crate) async fn acquire(engine: &Arc<Engine>, ask: Ask) -> Result<Option<Guard>, Error> {
    let shared = &engine.shared;
    shared.check_open()?;
    let limit = shared.settings.patience(ask.term.lease())?;
    let kind = ask.name.kind();
    let (mut attempt, first_look) = Attempt::begin(engine, &ask, limit);
    let mut first_look = Some(first_look);
    let mut spin = Backoff::new(SHORTEST_SPIN, LONGEST_SPIN);
    let mut pause = SHORTEST_SPIN;
    let end = ask.patience.end();
    let began = clock::now();
    let mut head_since = None;
    let mut refused = None;
    let mut troubles = Troubles::new(shared.settings.retry_for, ask.patience, limit);
    // Set when it waits no longer: the next answer of the store decides. Until then, the request of one ahead is waited for.
    let mut last_look = (ask.patience == Patience::None).then(|| began + limit / 4);
    loop {
        shared.check_open()?;
        if let Some(guard) = attempt.take_over() {
            return Ok(Some(guard));
        }
        let now = clock::now();
        let look = first_look.take().unwrap_or_else(|| attempt.seat.look());
        if last_look.is_none() && now >= end {
            let is_refused = is_refused_lately(&attempt, refused.map(|(asked, _)| asked));
            let is_held_here = attempt.seat.is_held_here();
            if is_refused || is_held_here || troubles.are_there() {
                tracing::debug!(name = %ask.name, waited = ?now.since(began), "gave up waiting");
                let failure = troubles.last_word(&ask.name).filter(|_| !is_held_here);
                return give_up(attempt, failure).await;
            }
            last_look = Some(now + limit / 4);
        }
        if let Some(reason) = ask.under.as_ref().and_then(|write| write.lost()) {
            return Err(Error::Lost { name: ask.name.to_string(), reason });
        }
        if last_look.is_some() && is_refused_to_all(&ask, &look, began, limit) {
            return give_up(attempt, None).await;
        }
        if !look.may_ask {
            let Some(overdue) = last_look else {
                await_front(&attempt.seat, ask.patience).await;
                continue;
            };
            match behind(&attempt, &ask, overdue).await {
                Behind::GiveUp(error) => return give_up(attempt, error).await,
                Behind::LookAgain => continue,
                Behind::Ask => {}
            }
        }
        if last_look.is_none() && is_out_for_too_long(&mut troubles, &attempt, head_since, began) {
            return give_up(attempt, troubles.last_word(&ask.name)).await;
        }
        let view = WaitView {
            head_since: *head_since.get_or_insert(now),
            refused,
            listening: look.listening,
            hint: attempt.seat.bell.take_hint(),
            held_here: look.held_here,
            not_before: look.not_before,
            poll: longest_poll(kind, shared.settings.poll),
            pause: (!kind.is_told()).then_some(pause),
        };
        match if last_look.is_some() { WaitMove::Ask } else { next_move(now, &view) } {
            WaitMove::Ask => {
                attempt.check_age()?;
                let (back, outcome) = send(shared, attempt, &ask).await?;
                attempt = back;
                match outcome {
                    Ok(Ok(guard)) => {
                        // Granted while the client was being closed: nobody would renew it.
                        shared.check_open()?;
                        let waited = clock::now().since(began);
                        tracing::debug!(name = %ask.name, owner = %guard.owner_id(), ?waited, "acquired");
                        return Ok(Some(guard));
                    }
                    Ok(Err(ttl)) => {
                        if let Some(hold) = &ask.under {
                            return Err(taken(shared, hold, &ask.name));
                        }
                        if last_look.is_some() {
                            return give_up(attempt, None).await;
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
                        bear(&mut attempt, &mut troubles, failure, now, end).await?;
                        // Ask again whatever was refused before.
                        refused = None;
                    }
                }
            }
            WaitMove::Listen => listen(&attempt, end).await,
            WaitMove::SleepUntil(moment) => sleep(&attempt.seat, moment.min(end), view.hint).await,
        }
    }
}

/// Waits for its place in front, or for the end of its wait.
async fn await_front(seat: &Seat, patience: Patience) {
    match patience {
        Patience::Endless => seat.bell.rings().await,
        _ => drop(tokio::time::timeout(patience.end().since(clock::now()), seat.bell.rings()).await),
    }
}

/// Whether the last request of this attempt, which was sent at that time, was refused a moment ago. An older refusal says nothing of
/// a store that has fallen silent since then.
fn is_refused_lately(attempt: &Attempt, asked: Option<Moment>) -> bool {
    asked.is_some_and(|asked| clock::now() < asked + recent(attempt.limit)) && !attempt.seat.bell.has_hint()
}

/// Whether the store has refused another request of the same queue since `began` that would have been granted if this one
/// would. One in front that has waited asks itself.
fn is_refused_to_all(ask: &Ask, look: &Look, began: Moment, limit: Duration) -> bool {
    ask.under.is_none()
        && (ask.patience == Patience::None || !look.may_ask)
        && look.refusal.is_some_and(|refusal| {
            refusal.is_for(began, ask.name.kind(), ask.permits) && refusal.is_of_late(recent(limit))
        })
}

/// Whether requests have failed for too long to send another one. Those of the waiters that were in front before count, as far
/// as this one has waited for them.
fn is_out_for_too_long(
    troubles: &mut Troubles,
    attempt: &Attempt,
    head_since: Option<Moment>,
    began: Moment,
) -> bool {
    if head_since.is_none()
        && let Some(outage) = attempt.seat.outage(recent(attempt.limit))
    {
        troubles.take_over(outage.since.max(began), outage.failure);
    }
    troubles.are_unbearable()
}

/// A write hold that stands lets its owner read: this one is gone.
fn taken(shared: &Shared, hold: &Arc<Hold>, name: &LockName) -> Error {
    shared.watchdog.look_now(hold);
    Error::Lost { name: name.to_string(), reason: shared.reason_of_absence(hold) }
}

/// Sleeps until `until` or a ring. A hint that was seen but came too early to act on is kept.
async fn sleep(seat: &Seat, until: Moment, hint: bool) {
    seat.bell.end_asking();
    if hint {
        seat.bell.give_hint();
    }
    ring_or(seat, until).await;
}

/// Waits before the next try after a request that failed, or gives back what it took and says why there is none.
async fn bear(
    attempt: &mut Attempt,
    troubles: &mut Troubles,
    failure: Failure,
    sent: Moment,
    end: Moment,
) -> Result<(), Error> {
    match troubles.after(failure, sent, || format!("lock {:?}", attempt.name.as_str())) {
        Ok(pause) => {
            // The whole pause: the bell may ring for the very connection that has just failed.
            tokio::time::sleep(pause.min(end.since(clock::now()))).await;
            Ok(())
        }
        Err(error) => {
            attempt.give_back().await;
            Err(error)
        }
    }
}

/// How old a refusal, or the last failure of those in front, may be to speak of the store as it is now.
fn recent(limit: Duration) -> Duration {
    limit + LONGEST_NAP
}

/// What one does that waits no longer and is not in front.
enum Behind {
    GiveUp(Option<Error>),
    LookAgain,
    Ask,
}

/// Waits for the outcome of a request of one in front, until it is overdue. Then it asks itself, past the one in front, whose caller
/// may have given up; unless that one's requests have failed for so long that there is nothing to hope for. Where the one in front
/// has not asked yet, it does not push in: it only sees whether the store answers.
async fn behind(attempt: &Attempt, ask: &Ask, overdue: Moment) -> Behind {
    if attempt.seat.is_held_here() {
        return Behind::GiveUp(None);
    }
    let now = clock::now();
    let outage = match attempt.seat.ahead(recent(attempt.limit)) {
        Ahead::Waiting => return Behind::GiveUp(None),
        Ahead::Asking(bell, _) if now < overdue => {
            let _ = tokio::time::timeout(overdue.since(now), bell.has_asked()).await;
            return Behind::LookAgain;
        }
        Ahead::NotAsked => {
            return Behind::GiveUp(answers(&attempt.engine.shared, ask, attempt.limit).await.err());
        }
        Ahead::Failing(outage) => Some(outage),
        Ahead::Asking(_, outage) => outage,
    };
    match outage.filter(|outage| outage.has_lasted(attempt.limit)) {
        Some(outage) => {
            let error = outage.failure.into_error(|| format!("lock {:?}", ask.name.as_str()));
            Behind::GiveUp(Some(error))
        }
        None => Behind::Ask,
    }
}

/// Sees whether the store answers, by a request that changes nothing.
async fn answers(shared: &Shared, ask: &Ask, limit: Duration) -> Result<(), Error> {
    // The connection may have to be made first, which has the same limit.
    let outcome = tokio::time::timeout(limit * 2, shared.inspect(&ask.name)).await;
    outcome.unwrap_or_else(|_| Err(no_answer(&ask.name, limit * 2))).map(drop)
}

/// For one that will not wait for the turn of another task of the same owner. Gives back the turn when that task is done with
/// its request; `None` when it waits for a lock that is held.
pub(crate) async fn behind_own_task<'a>(
    shared: &Shared,
    ask: &Ask,
    turn: &'a Mutex<()>,
) -> Result<Option<MutexGuard<'a, ()>>, Error> {
    let limit = shared.settings.patience(ask.term.lease())?;
    let overdue = clock::now() + limit;
    loop {
        let ahead = match shared.rooms.ahead(&ask.name, recent(limit)) {
            Some(Ahead::Waiting) => return Ok(None),
            Some(Ahead::NotAsked) => return answers(shared, ask, limit).await.map(|()| None),
            Some(Ahead::Failing(outage) | Ahead::Asking(_, Some(outage))) if outage.has_lasted(limit) => {
                return Err(outage.failure.into_error(|| format!("lock {:?}", ask.name.as_str())));
            }
            ahead => ahead,
        };
        let goes_on = async {
            match &ahead {
                Some(Ahead::Asking(bell, _)) => bell.has_asked().await,
                // It asks again soon.
                Some(_) => tokio::time::sleep(RETRY_SOON).await,
                // It goes deeper into a hold that stands, or is about to end.
                None => pending().await,
            }
        };
        let rest = overdue.since(clock::now());
        match tokio::time::timeout(rest, select(pin!(turn.lock()), pin!(goes_on))).await {
            Ok(Either::Left((turn, _))) => return Ok(Some(turn)),
            Ok(Either::Right(_)) => {}
            Err(_) => {
                let text = format!("another task of the same owner was not done within {limit:?}");
                return Err(too_late(&ask.name, text));
            }
        }
    }
}

/// Ends an attempt that the store did not grant. It may have been handed the lock meanwhile.
async fn give_up(mut attempt: Attempt, error: Option<Error>) -> Result<Option<Guard>, Error> {
    if let Some(guard) = attempt.take_over() {
        return Ok(Some(guard));
    }
    attempt.give_back().await;
    attempt.leave().await;
    error.map_or(Ok(None), Err)
}

/// About how long one pauses whose request has failed.
const RETRY_SOON: Duration = Duration::from_millis(10);

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
            .map_err(|_| too_late(&ask.name, format!("no answer within the wait, nor within {limit:?}"))),
        // The connection may have to be made first, which has the same limit.
        Patience::None => {
            tokio::time::timeout(limit * 2, errand).await.map_err(|_| no_answer(&ask.name, limit * 2))
        }
        Patience::Endless => Ok(errand.await),
    }
}

/// Begins to listen. What was published before the subscription stood went unheard, so the next move is to look again. A
/// subscription that is long in coming does not keep the head from looking: it is told when it stands.
async fn listen(attempt: &Attempt, end: Moment) {
    let (shared, seat) = (&attempt.engine.shared, &attempt.seat);
    seat.bell.end_asking();
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

fn no_answer(name: &LockName, limit: Duration) -> Error {
    too_late(name, format!("no answer within {limit:?}"))
}

fn too_late(name: &LockName, text: String) -> Error {
    let cause = io::Error::new(io::ErrorKind::TimedOut, text);
    Error::Unavailable { what: format!("lock {:?}", name.as_str()), source: Arc::new(cause) }
}
