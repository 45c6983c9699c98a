use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use turnlock_core::wait_step::{WaitMove, WaitView, next_move};
use turnlock_core::{Backoff, Kind, LockName, Moment};

use super::attempt::{Attempt, Outcome, PassedOnMove};
use super::engine::Engine;
use super::grant::Grant;
use super::observed::{Observation, Observed};
use super::query::check_resendable;
use super::request::{AcquireRequest, WaitLimit, no_reply, timed_out};
use super::retry::RetryState;
use super::state::{FrontState, LONGEST_SLEEP, QueueView};
use super::wait_warning;
use crate::clock;
use crate::error::{Error, IntoError};
use turnlock_store::Failure;

/// Acquires a lock: queues, sends requests, and waits. Returns `None` if the lock is held until the wait
/// limit.
///
/// `None` means that the store refused a request during this call, that a local hold blocks the lock, or that
/// a local waiter is ahead and the store replies. If the request of the waiter ahead gets no reply for a
/// while, a request is sent past it. If its requests have failed for a while, their failure is returned.
///
/// # Cancel safety
///
/// A dropped future leaves the queue. The engine completes a request that is under way and undoes its effect.
pub(crate) fn acquire(
    engine: &Arc<Engine>,
    request: AcquireRequest,
) -> Observed<'_, impl Future<Output = Result<Option<Grant>, Error>>> {
    let began = clock::now();
    Observed::new(Observation::begin(engine, &request, began), acquire_loop(engine, request, began))
}

/// As [`acquire`], as a part of an acquire that is observed.
pub(crate) async fn acquire_loop(
    engine: &Arc<Engine>,
    request: AcquireRequest,
    began: Moment,
) -> Result<Option<Grant>, Error> {
    engine.check_open()?;
    let limit = engine.settings.response_limit(request.lease_mode.lease())?;
    let (mut attempt, view) = Attempt::begin(engine, request, limit, began);
    let mut wait = Wait::new(&attempt, began);
    let mut first_view = Some((began, view));
    loop {
        engine.check_open()?;
        if let Some(grant) = attempt.accept_hand_over() {
            return Ok(Some(grant));
        }
        if let Some(error) = attempt.deadlock_error() {
            return Box::pin(give_up(&mut attempt, Some(error))).await;
        }
        match attempt.take_passed_on() {
            None => {}
            Some(PassedOnMove::Granted(grant)) => return granted(engine, grant, began).map(Some),
            Some(PassedOnMove::Failed(failure)) => {
                Box::pin(wait.pause_after_failure(&mut attempt, failure, clock::now())).await?;
            }
            Some(PassedOnMove::BeginAgain) => {
                let now = clock::now();
                let (again, view) = attempt.begin_again(now);
                (attempt, first_view) = (again, Some((now, view)));
                // The refusal of the request before says nothing about this one.
                wait.refused = None;
            }
        }
        let (now, view) = first_view.take().unwrap_or_else(|| (clock::now(), attempt.waiter.view()));
        match wait.next(now, &attempt, &view)? {
            Move::InFront(WaitMove::Send) => {}
            Move::AwaitFront if attempt.request.wait_limit == WaitLimit::Endless => {
                attempt.waiter.wakeup.notified().await;
                continue;
            }
            // Boxed, so that the future of an acquire is small unless it is in front and waits.
            next => match Box::pin(make_move(&mut attempt, next)).await {
                Moved::Again => continue,
                Moved::Send => {}
                Moved::End(end) => return end,
            },
        }
        if !attempt.reserve_request() {
            // The release of a local holder requests the lock for this waiter, and wakes it.
            attempt.waiter.wakeup.set_hint();
            // That release may have ended before it could see the hint.
            if !attempt.reserve_request() {
                let notified = attempt.waiter.wakeup.notified();
                let _ = Box::pin(tokio::time::timeout(LONGEST_SLEEP, notified)).await;
                continue;
            }
        }
        let rest = match send(&mut attempt, now).await? {
            Ok(Ok(grant)) => return granted(engine, grant, began).map(Some),
            Ok(Err(ttl)) => {
                wait.note_refusal(&attempt, now, ttl)?;
                if wait.final_check.is_none() {
                    continue;
                }
                Either::Left(Box::pin(give_up(&mut attempt, None)))
            }
            Err(failure) => Either::Right(Box::pin(wait.pause_after_failure(&mut attempt, failure, now))),
        };
        match rest {
            Either::Left(end) => return end.await,
            Either::Right(pause) => pause.await?,
        }
    }
}

/// What follows a move that sends nothing.
enum Moved {
    /// Decide again.
    Again,
    Send,
    End(Result<Option<Grant>, Error>),
}

/// Waits as decided, or gives up.
async fn make_move(attempt: &mut Attempt, next: Move) -> Moved {
    let next = match next {
        Move::FinalCheck(overdue) => final_move(attempt, overdue).await,
        next => next,
    };
    match next {
        Move::InFront(WaitMove::Send) => return Moved::Send,
        Move::GiveUp(error) => return Moved::End(give_up(attempt, error).await),
        Move::FinalCheck(_) | Move::CheckAgain => {}
        Move::AwaitFront => {
            let notified = attempt.waiter.wakeup.notified();
            let _ = attempt.request.wait_limit.bound(Duration::ZERO, notified).await;
        }
        Move::InFront(WaitMove::Listen) => subscribe(attempt).await,
        Move::InFront(WaitMove::SleepUntil(until)) => sleep(attempt, until).await,
    }
    Moved::Again
}

/// What an acquire does next.
enum Move {
    CheckAgain,
    /// Wait until it comes to the front of the queue.
    AwaitFront,
    /// Decide by the waiters in front, whose request is overdue from this moment on: [`final_move`].
    FinalCheck(Moment),
    /// As a waiter in front, or past a front that is overdue.
    InFront(WaitMove),
    GiveUp(Option<Error>),
}

/// What an acquire knows about its wait.
struct Wait {
    began: Moment,
    /// Since when it has been in front of the queue.
    head_since: Option<Moment>,
    /// When its last request was sent, and the rest of the holder's lease, if the store refused it.
    refused: Option<(Moment, Option<Duration>)>,
    /// Set once the wait is over: the next reply decides. Until this moment, a request of a waiter ahead is
    /// awaited.
    final_check: Option<Moment>,
    retry: RetryState,
    /// The pauses between requests for a kind whose releases are not published.
    spin: Backoff,
    pause: Duration,
    /// When to check whether the wait will end by itself.
    next_check: Moment,
}

impl Wait {
    fn new(Attempt { engine, request, limit, .. }: &Attempt, began: Moment) -> Self {
        Self {
            began,
            head_since: None,
            refused: None,
            final_check: (request.wait_limit == WaitLimit::None).then(|| began + *limit / 4),
            retry: RetryState::new(engine.settings.retry_for, request.wait_limit, *limit),
            spin: Backoff::new(SHORTEST_SPIN, LONGEST_SPIN),
            pause: SHORTEST_SPIN,
            next_check: began + wait_warning::CHECK_AFTER,
        }
    }

    /// Decides what to do next.
    fn next(&mut self, now: Moment, attempt: &Attempt, view: &QueueView) -> Result<Move, Error> {
        let Attempt { engine, request, limit, .. } = attempt;
        if self.final_check.is_none() && now >= request.wait_limit.end() {
            let is_held_locally = attempt.waiter.is_held_locally();
            if self.was_refused_recently(attempt) || is_held_locally || self.retry.is_failing() {
                tracing::debug!(name = %request.name, waited = ?now.since(self.began), "gave up waiting");
                return Ok(Move::GiveUp(self.retry.error(&request.name).filter(|_| !is_held_locally)));
            }
            self.final_check = Some(now + *limit / 4);
        }
        if let Some(reason) = request.under.as_ref().and_then(|write| write.lost()) {
            return Err(Error::Lost { name: request.name.to_string(), reason });
        }
        if self.final_check.is_some() && self.was_queue_refused(attempt, view) {
            return Ok(Move::GiveUp(None));
        }
        if !view.may_send {
            return Ok(self.final_check.map_or(Move::AwaitFront, Move::FinalCheck));
        }
        if self.final_check.is_none() && self.is_outage_too_long(attempt, view) {
            return Ok(Move::GiveUp(self.retry.error(&request.name)));
        }
        if now >= self.next_check {
            self.next_check = wait_warning::check(now, engine, &attempt.waiter, request);
        }
        let kind = request.name.kind();
        let wait_view = WaitView {
            head_since: *self.head_since.get_or_insert(now),
            refused: self.refused,
            listening: view.is_subscribed || attempt.shares_subscription(),
            hint: attempt.waiter.wakeup.take_hint(),
            held_here: view.is_held_locally,
            not_before: view.not_before,
            poll: longest_poll(kind, engine.settings.poll_interval),
            pause: (!kind.publishes_releases()).then_some(self.pause),
        };
        if self.final_check.is_some() {
            return Ok(Move::InFront(WaitMove::Send));
        }
        let next = next_move(now, &wait_view);
        if matches!(next, WaitMove::SleepUntil(_)) && wait_view.hint {
            // It came too early.
            attempt.waiter.wakeup.set_hint();
        }
        Ok(Move::InFront(next))
    }

    /// Records that the store refused the request that was sent at `sent`.
    fn note_refusal(
        &mut self,
        Attempt { engine, request: AcquireRequest { name, under, .. }, .. }: &Attempt,
        sent: Moment,
        ttl: Option<Duration>,
    ) -> Result<(), Error> {
        if let Some(hold) = under {
            // The store grants a read under a write hold that it has, so the hold is gone.
            engine.watchdog.plan_now(hold);
            return Err(Error::Lost { name: name.to_string(), reason: engine.loss_reason(hold) });
        }
        self.pause = self.spin.pause(fastrand::f64());
        if self.refused.is_none() && self.final_check.is_none() {
            tracing::debug!(%name, ?ttl, "waiting for the lock");
        }
        self.retry.reset();
        self.refused = Some((sent, ttl));
        Ok(())
    }

    /// Waits before the next try, or undoes an unacknowledged grant and returns the error if there is no next
    /// try.
    async fn pause_after_failure(
        &mut self,
        attempt: &mut Attempt,
        failure: Failure,
        sent: Moment,
    ) -> Result<(), Error> {
        // The whole pause: a wake-up may come from the very connection that has just failed.
        if let Err(failure) = self.retry.pause(failure, sent).await {
            attempt.undo_unacknowledged_grant().await;
            return Err(failure.into_error(|| format!("lock {:?}", attempt.request.name.as_str())));
        }
        // An earlier refusal must not delay the next request.
        self.refused = None;
        Ok(())
    }

    /// Returns `true` if the last request was refused recently and no hint came since.
    ///
    /// An older refusal proves nothing about a store that has stopped replying since.
    fn was_refused_recently(&self, attempt: &Attempt) -> bool {
        self.refused.is_some_and(|(sent, _)| clock::now() < sent + max_age(attempt.limit))
            && !attempt.waiter.wakeup.has_hint()
    }

    /// Returns `true` if the store has refused another request of the queue since this acquire began, and would
    /// refuse this one too.
    ///
    /// A waiter in front that has waited sends its own request.
    fn was_queue_refused(&self, Attempt { request, limit, .. }: &Attempt, view: &QueueView) -> bool {
        request.under.is_none()
            && (request.wait_limit == WaitLimit::None || !view.may_send)
            && view.refusal.is_some_and(|refusal| {
                refusal.covers(self.began, request.name.kind(), request.permits)
                    && refusal.is_recent(max_age(*limit))
            })
    }

    /// Returns `true` if requests have failed for too long to send another one.
    ///
    /// The failures of earlier waiters in front count, for the time that this one has waited.
    fn is_outage_too_long(&mut self, attempt: &Attempt, view: &QueueView) -> bool {
        if self.head_since.is_none()
            && view.has_outage
            && let Some(outage) = attempt.waiter.outage(max_age(attempt.limit))
        {
            self.retry.inherit(outage.since.max(self.began), outage.failure);
        }
        self.retry.is_exhausted()
    }
}

/// Returns a new grant, unless the client is shutting down: no watchdog would renew the hold.
fn granted(engine: &Engine, grant: Grant, began: Moment) -> Result<Grant, Error> {
    engine.check_open()?;
    let waited = || clock::now().since(began);
    tracing::debug!(name = %grant.hold.name, owner = %grant.hold.owner, waited = ?waited(), "acquired");
    Ok(grant)
}

/// Sleeps until `until`, a wake-up or the end of the wait.
async fn sleep(Attempt { request, waiter, .. }: &Attempt, until: Moment) {
    waiter.wakeup.end_request();
    let time_left = until.min(request.wait_limit.end()).since(clock::now()).min(LONGEST_SLEEP);
    let _ = tokio::time::timeout(time_left, waiter.wakeup.notified()).await;
}

/// Decides the next move of a waiter whose wait is over and that is not in front.
///
/// Waits for the outcome of a request of the front until it is overdue. Then a request is sent past the
/// front, whose caller may have stopped polling it, unless the requests of the front have failed for too
/// long. If the front has sent no request, this only checks that the store replies, and does not overtake.
async fn final_move(Attempt { engine, request, limit, waiter, .. }: &Attempt, overdue: Moment) -> Move {
    if waiter.is_held_locally() {
        return Move::GiveUp(None);
    }
    let Some(front) = engine.wait_queues.front_state(&waiter.name, max_age(*limit)) else {
        return Move::GiveUp(None);
    };
    let now = clock::now();
    if let Some(sending) = front.sending.as_ref().filter(|_| now < overdue) {
        let _ = tokio::time::timeout(overdue.since(now), sending.request_ended()).await;
        return Move::CheckAgain;
    }
    match outcome_behind(engine, &request.name, *limit, front).await {
        Some(outcome) => Move::GiveUp(outcome.err()),
        None => Move::InFront(WaitMove::Send),
    }
}

/// Returns the outcome for a caller that does not wait, as far as the waiters in front decide it.
///
/// `Ok` if they wait for a held lock, an error if their requests have failed for too long, and `None` if a request is
/// to be sent past them. If none of them has a recent reply or a request under way, checks that the store replies.
pub(super) async fn outcome_behind(
    engine: &Engine,
    name: &LockName,
    limit: Duration,
    FrontState { sending, outage, is_refused }: FrontState,
) -> Option<Result<(), Error>> {
    match outage {
        Some(outage) if outage.has_lasted(limit) => {
            Some(Err(outage.failure.into_error(|| format!("lock {:?}", name.as_str()))))
        }
        None if sending.is_none() && is_refused => Some(Ok(())),
        None if sending.is_none() => Some(check_store(engine, name, limit).await),
        _ => None,
    }
}

/// Checks that the store replies, with a request that changes nothing.
async fn check_store(engine: &Engine, name: &LockName, limit: Duration) -> Result<(), Error> {
    // A new connection may be needed first, which has the same limit.
    let outcome = tokio::time::timeout(limit * 2, engine.inspect(name)).await;
    outcome.unwrap_or_else(|_| Err(no_reply(name, limit * 2))).map(drop)
}

/// How old a refusal or a failure may be to describe the current state of the store.
pub(super) fn max_age(limit: Duration) -> Duration {
    limit + LONGEST_SLEEP
}

/// Ends an attempt without a grant, unless the lock was handed over meanwhile.
async fn give_up(attempt: &mut Attempt, error: Option<Error>) -> Result<Option<Grant>, Error> {
    if let Some(grant) = attempt.accept_hand_over() {
        return Ok(Some(grant));
    }
    if let Some(PassedOnMove::Granted(grant)) = attempt.take_passed_on() {
        return Ok(Some(grant));
    }
    attempt.undo_unacknowledged_grant().await;
    attempt.leave_queue().await;
    error.map_or(Ok(None), Err)
}

/// The shortest and longest pause between requests for a kind whose releases are not published.
const SHORTEST_SPIN: Duration = Duration::from_millis(2);
const LONGEST_SPIN: Duration = Duration::from_millis(128);

/// In effect, never.
const NO_POLL: Duration = Duration::from_secs(3600);

/// The longest time between two requests of a waiter.
fn longest_poll(kind: Kind, usual: Duration) -> Duration {
    match kind {
        // The heartbeats poll for the waiters of a fair lock.
        Kind::Fair => NO_POLL,
        // The mark of a waiting writer must be refreshed.
        Kind::Write => usual.min(LONGEST_SLEEP),
        _ => usual,
    }
}

/// Sends one acquire request.
///
/// If the caller is dropped, the engine completes the request and undoes its effect. The request may outlast
/// the caller's deadline by one response time-out.
async fn send(attempt: &mut Attempt, now: Moment) -> Result<Outcome, Error> {
    check_resendable(&attempt.request.name, attempt.repeats)?;
    let AcquireRequest { wait_limit, replicas, .. } = attempt.request;
    attempt.begin_request(now);
    if wait_limit == WaitLimit::Endless {
        return Ok(attempt.outcome().await);
    }
    // A request that replicas must acknowledge may have to wait for earlier ones.
    let limit = if replicas > 0 { attempt.limit * 2 } else { attempt.limit };
    // Without a wait, a new connection may be needed first, which has the same limit.
    let least = if wait_limit == WaitLimit::None { limit * 2 } else { limit };
    let outcome = Box::pin(wait_limit.bound(least, attempt.outcome())).await;
    outcome.map_err(|_| match wait_limit {
        WaitLimit::None => no_reply(&attempt.request.name, least),
        _ => timed_out(&attempt.request.name, format!("no reply within the wait, nor within {limit:?}")),
    })
}

/// Subscribes to releases of the lock.
///
/// Messages published before the subscription are missed, so a hint makes the next move a request. A slow
/// subscription does not delay that request: the waiter is woken when the subscription is active.
async fn subscribe(Attempt { engine, request, waiter, .. }: &Attempt) {
    waiter.wakeup.end_request();
    waiter.set_subscribed();
    let subscription = engine.store.subscribe(&waiter.name);
    let time_left =
        request.wait_limit.end().since(clock::now()).min(engine.settings.poll_interval).min(LONGEST_SLEEP);
    let _ = tokio::time::timeout(time_left, select(subscription, pin!(waiter.wakeup.notified()))).await;
    waiter.wakeup.set_hint();
    if request.name.kind().shares_front() {
        // The other waiters in front rely on this subscription.
        engine.wait_queues.wake(&waiter.name);
    }
}
