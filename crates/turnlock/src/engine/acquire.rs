use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use turnlock_core::wait_step::{WaitMove, WaitView, next_move};
use turnlock_core::{Backoff, Kind, LockName, Moment};

use super::attempt::{Attempt, Outcome};
use super::grant::Grant;
use super::request::{AcquireRequest, WaitLimit, time_out};
use super::retry::RetryState;
use super::run_to_completion::RunToCompletion;
use super::shared::{Engine, Shared};
use super::state::{FrontState, LONGEST_SLEEP, QueueView, Waiter};
use super::wait_warning::WaitWarning;
use crate::clock;
use crate::error::{Error, IntoError};
use turnlock_store::{Caller, Failure};

/// Acquires a lock: queues, sends requests, and waits. Returns `None` if the lock is held until the wait
/// limit.
///
/// `None` means that the store refused a request during this call, that a local hold blocks the lock, or that
/// a local waiter is ahead and the store replies. If the request of the waiter ahead gets no reply for a
/// while, a request is sent past it. If its requests have failed for a while, their failure is returned.
///
/// # Cancel safety
///
/// When this future is dropped, it leaves the queue. The engine completes a request that is under way and
/// undoes its effect.
pub(crate) async fn acquire(engine: &Arc<Engine>, request: AcquireRequest) -> Result<Option<Grant>, Error> {
    let shared = &engine.shared;
    shared.check_open()?;
    let limit = shared.settings.response_limit(request.lease_mode.lease())?;
    let began = clock::now();
    let mut wait = Wait::new(shared, &request, limit, began);
    let (mut attempt, view) = Attempt::begin(engine, request, limit, began);
    let mut first_view = Some(view);
    loop {
        shared.check_open()?;
        if let Some(grant) = attempt.accept_hand_over() {
            return Ok(Some(grant));
        }
        let now = clock::now();
        let view = first_view.take().unwrap_or_else(|| attempt.waiter.view());
        match wait.next(now, &attempt, &view).await? {
            Move::CheckAgain => {}
            Move::AwaitFront => await_front(&attempt).await,
            Move::Subscribe => subscribe(&attempt, wait.end).await,
            Move::Sleep { until, hint } => sleep(&attempt.waiter, until.min(wait.end), hint).await,
            Move::GiveUp(error) => return give_up(attempt, error).await,
            Move::Send => {
                attempt.check_resendable()?;
                let (returned, outcome) = send(shared, attempt).await?;
                attempt = returned;
                match outcome {
                    Ok(Ok(grant)) => return granted(shared, grant, began).map(Some),
                    Ok(Err(ttl)) => {
                        wait.note_refusal(&attempt.request, now, ttl)?;
                        if wait.final_check.is_some() {
                            return give_up(attempt, None).await;
                        }
                    }
                    Err(failure) => wait.pause_after_failure(&mut attempt, failure, now).await?,
                }
            }
        }
    }
}

/// What an acquire does next.
enum Move {
    CheckAgain,
    /// Wait until it comes to the front of the queue.
    AwaitFront,
    Send,
    Subscribe,
    Sleep {
        until: Moment,
        hint: bool,
    },
    GiveUp(Option<Error>),
}

/// What an acquire knows about its wait.
struct Wait<'a> {
    shared: &'a Shared,
    /// The response time-out of a request.
    limit: Duration,
    began: Moment,
    end: Moment,
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
    warning: WaitWarning,
}

impl<'a> Wait<'a> {
    fn new(shared: &'a Shared, request: &AcquireRequest, limit: Duration, began: Moment) -> Self {
        Self {
            shared,
            limit,
            began,
            end: request.wait_limit.end(),
            head_since: None,
            refused: None,
            final_check: (request.wait_limit == WaitLimit::None).then(|| began + limit / 4),
            retry: RetryState::new(shared.settings.retry_for, request.wait_limit, limit),
            spin: Backoff::new(SHORTEST_SPIN, LONGEST_SPIN),
            pause: SHORTEST_SPIN,
            warning: WaitWarning::new(began),
        }
    }

    /// Decides what to do next.
    async fn next(&mut self, now: Moment, attempt: &Attempt, view: &QueueView) -> Result<Move, Error> {
        let request = &attempt.request;
        if self.final_check.is_none() && now >= self.end {
            let is_held_locally = attempt.waiter.is_held_locally();
            if self.was_refused_recently(attempt) || is_held_locally || self.retry.is_failing() {
                tracing::debug!(name = %request.name, waited = ?now.since(self.began), "gave up waiting");
                return Ok(Move::GiveUp(self.retry.error(&request.name).filter(|_| !is_held_locally)));
            }
            self.final_check = Some(now + self.limit / 4);
        }
        if let Some(reason) = request.under.as_ref().and_then(|write| write.lost()) {
            return Err(Error::Lost { name: request.name.to_string(), reason });
        }
        if self.final_check.is_some() && self.was_queue_refused(request, view) {
            return Ok(Move::GiveUp(None));
        }
        if !view.may_send {
            let Some(overdue) = self.final_check else { return Ok(Move::AwaitFront) };
            match final_move(attempt, overdue).await {
                Move::Send => {}
                other => return Ok(other),
            }
        }
        if self.final_check.is_none() && self.is_outage_too_long(attempt) {
            return Ok(Move::GiveUp(self.retry.error(&request.name)));
        }
        self.warning.check(now, self.shared, &attempt.waiter, request);
        let kind = request.name.kind();
        let wait_view = WaitView {
            head_since: *self.head_since.get_or_insert(now),
            refused: self.refused,
            listening: view.is_subscribed,
            hint: attempt.waiter.wakeup.take_hint(),
            held_here: view.is_held_locally,
            not_before: view.not_before,
            poll: longest_poll(kind, self.shared.settings.poll_interval),
            pause: (!kind.publishes_releases()).then_some(self.pause),
        };
        if self.final_check.is_some() {
            return Ok(Move::Send);
        }
        Ok(match next_move(now, &wait_view) {
            WaitMove::Send => Move::Send,
            WaitMove::Listen => Move::Subscribe,
            WaitMove::SleepUntil(until) => Move::Sleep { until, hint: wait_view.hint },
        })
    }

    /// Records that the store refused the request that was sent at `sent`.
    fn note_refusal(
        &mut self,
        AcquireRequest { name, under, .. }: &AcquireRequest,
        sent: Moment,
        ttl: Option<Duration>,
    ) -> Result<(), Error> {
        if let Some(hold) = under {
            // The store grants a read under a write hold that it has, so the hold is gone.
            self.shared.watchdog.check_now(hold);
            return Err(Error::Lost { name: name.to_string(), reason: self.shared.loss_reason(hold) });
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
        tracing::warn!(name = %attempt.request.name, %failure, "acquire failed");
        let Some(pause) = self.retry.pause_after(&failure, sent) else {
            attempt.undo_unacknowledged_grant().await;
            return Err(failure.into_error(|| format!("lock {:?}", attempt.request.name.as_str())));
        };
        // The whole pause: a wake-up may come from the very connection that has just failed.
        tokio::time::sleep(pause.min(self.end.since(clock::now()))).await;
        // An earlier refusal must not delay the next request.
        self.refused = None;
        Ok(())
    }

    /// Returns `true` if the last request was refused recently and no hint came since.
    ///
    /// An older refusal proves nothing about a store that has stopped replying since.
    fn was_refused_recently(&self, attempt: &Attempt) -> bool {
        self.refused.is_some_and(|(sent, _)| clock::now() < sent + max_age(self.limit))
            && !attempt.waiter.wakeup.has_hint()
    }

    /// Returns `true` if the store has refused another request of the queue since this acquire began, and would
    /// refuse this one too.
    ///
    /// A waiter in front that has waited sends its own request.
    fn was_queue_refused(&self, request: &AcquireRequest, view: &QueueView) -> bool {
        request.under.is_none()
            && (request.wait_limit == WaitLimit::None || !view.may_send)
            && view.refusal.is_some_and(|refusal| {
                refusal.covers(self.began, request.name.kind(), request.permits)
                    && refusal.is_recent(max_age(self.limit))
            })
    }

    /// Returns `true` if requests have failed for too long to send another one.
    ///
    /// The failures of earlier waiters in front count, for the time that this one has waited.
    fn is_outage_too_long(&mut self, attempt: &Attempt) -> bool {
        if self.head_since.is_none()
            && let Some(outage) = attempt.waiter.outage(max_age(self.limit))
        {
            self.retry.inherit(outage.since.max(self.began), outage.failure);
        }
        self.retry.is_exhausted()
    }
}

/// Returns a new grant, unless the client is shutting down: no watchdog would renew the hold.
fn granted(shared: &Shared, grant: Grant, began: Moment) -> Result<Grant, Error> {
    shared.check_open()?;
    let waited = clock::now().since(began);
    tracing::debug!(name = %grant.hold.name, owner = %grant.hold.owner, ?waited, "acquired");
    Ok(grant)
}

/// Waits until a wake-up or the end of the wait.
async fn await_front(attempt: &Attempt) {
    let (wait_limit, notified) = (attempt.request.wait_limit, attempt.waiter.wakeup.notified());
    match wait_limit {
        WaitLimit::Endless => notified.await,
        _ => drop(tokio::time::timeout(wait_limit.end().since(clock::now()), notified).await),
    }
}

/// Sleeps until `until` or a wake-up. A hint that came too early is set again.
async fn sleep(waiter: &Waiter, until: Moment, hint: bool) {
    waiter.wakeup.end_request();
    if hint {
        waiter.wakeup.set_hint();
    }
    let time_left = until.since(clock::now()).min(LONGEST_SLEEP);
    let _ = tokio::time::timeout(time_left, waiter.wakeup.notified()).await;
}

/// Decides the next move of a waiter whose wait is over and that is not in front.
///
/// Waits for the outcome of a request of the front until it is overdue. Then a request is sent past the
/// front, whose caller may have stopped polling it, unless the requests of the front have failed for too
/// long. If the front has sent no request, this only checks that the store replies, and does not overtake.
async fn final_move(attempt: &Attempt, overdue: Moment) -> Move {
    if attempt.waiter.is_held_locally() {
        return Move::GiveUp(None);
    }
    let now = clock::now();
    let outage = match attempt.waiter.front_state(max_age(attempt.limit)) {
        FrontState::Refused => return Move::GiveUp(None),
        FrontState::Sending(wakeup, _) if now < overdue => {
            let _ = tokio::time::timeout(overdue.since(now), wakeup.request_ended()).await;
            return Move::CheckAgain;
        }
        FrontState::Idle => {
            return Move::GiveUp(
                check_store(&attempt.engine.shared, &attempt.request.name, attempt.limit).await.err(),
            );
        }
        FrontState::Failing(outage) => Some(outage),
        FrontState::Sending(_, outage) => outage,
    };
    match outage.filter(|outage| outage.has_lasted(attempt.limit)) {
        Some(outage) => {
            let error = outage.failure.into_error(|| format!("lock {:?}", attempt.request.name.as_str()));
            Move::GiveUp(Some(error))
        }
        None => Move::Send,
    }
}

/// Checks that the store replies, with a request that changes nothing.
pub(super) async fn check_store(shared: &Shared, name: &LockName, limit: Duration) -> Result<(), Error> {
    // A new connection may be needed first, which has the same limit.
    let outcome = tokio::time::timeout(limit * 2, shared.inspect(name)).await;
    outcome.unwrap_or_else(|_| Err(no_reply(name, limit * 2))).map(drop)
}

/// How old a refusal or a failure may be to describe the current state of the store.
pub(super) fn max_age(limit: Duration) -> Duration {
    limit + LONGEST_SLEEP
}

/// Ends an attempt without a grant, unless the lock was handed over meanwhile.
async fn give_up(mut attempt: Attempt, error: Option<Error>) -> Result<Option<Grant>, Error> {
    if let Some(grant) = attempt.accept_hand_over() {
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
async fn send(shared: &Shared, attempt: Attempt) -> Result<(Attempt, Outcome), Error> {
    let AcquireRequest { wait_limit, replicas, ref name, .. } = attempt.request;
    let name = name.clone();
    // A request that replicas must acknowledge may have to wait for earlier ones.
    let limit = if replicas > 0 { attempt.limit * 2 } else { attempt.limit };
    let presence = Arc::new(());
    let sending = RunToCompletion::new(&shared.background, attempt.send(Caller::with(&presence)));
    match wait_limit {
        WaitLimit::Endless => Ok(sending.await),
        WaitLimit::Until(end) => tokio::time::timeout(end.since(clock::now()).max(limit), sending)
            .await
            .map_err(|_| timed_out(&name, format!("no reply within the wait, nor within {limit:?}"))),
        // A new connection may be needed first, which has the same limit.
        WaitLimit::None => {
            tokio::time::timeout(limit * 2, sending).await.map_err(|_| no_reply(&name, limit * 2))
        }
    }
}

/// Subscribes to releases of the lock.
///
/// Messages published before the subscription are missed, so a hint makes the next move a request. A slow
/// subscription does not delay that request: the waiter is woken when the subscription is active.
async fn subscribe(attempt: &Attempt, end: Moment) {
    let (shared, waiter) = (&attempt.engine.shared, &attempt.waiter);
    waiter.wakeup.end_request();
    waiter.set_subscribed();
    let subscription = shared.store.subscribe(waiter.name());
    let time_left = end.since(clock::now()).min(shared.settings.poll_interval).min(LONGEST_SLEEP);
    let _ = tokio::time::timeout(time_left, select(subscription, pin!(waiter.wakeup.notified()))).await;
    waiter.wakeup.set_hint();
    if attempt.request.name.kind().shares_front() {
        // The other waiters in front rely on this subscription.
        shared.wait_queues.wake(waiter.name());
    }
}

fn no_reply(name: &LockName, limit: Duration) -> Error {
    timed_out(name, format!("no reply within {limit:?}"))
}

pub(super) fn timed_out(name: &LockName, text: String) -> Error {
    Error::Unavailable { what: format!("lock {:?}", name.as_str()), source: time_out(text) }
}
