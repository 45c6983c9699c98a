use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, pending, select};
use tokio::sync::{Mutex, MutexGuard};
use turnlock_core::wait_step::{WaitMove, WaitView, next_move};
use turnlock_core::{Backoff, Kind, LockName, Moment};

use super::attempt::{Attempt, Outcome};
use super::call_site::CallSite;
use super::hold::{Hold, LeaseMode};
use super::retry::RetryState;
use super::run_to_completion::RunToCompletion;
use super::wait_queues::{FrontState, QueueView, Waiter};
use super::wait_warning::WaitWarning;
use super::{Engine, Shared};
use crate::backend::{Caller, Failure};
use crate::clock;
use crate::error::Error;
use crate::guard::Guard;

/// The parameters of an acquire.
#[derive(Clone, Debug)]
pub(crate) struct AcquireRequest {
    pub(crate) name: LockName,
    pub(crate) lease_mode: LeaseMode,
    pub(crate) wait_limit: WaitLimit,
    /// The number of permits, for semaphores.
    pub(crate) permits: u32,
    /// The number of replicas that must acknowledge the grant and each renewal.
    pub(crate) replicas: u32,
    /// Whether a hold of this client may be handed over to it. It then has the owner of that hold.
    pub(crate) accepts_hand_over: bool,
    /// The write hold of the same owner, for a read lock acquired beside it.
    pub(crate) under: Option<Arc<Hold>>,
    pub(crate) call_site: CallSite,
}

/// How long to wait for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// Do not wait.
    None,
    Until(Moment),
    Endless,
}

impl WaitLimit {
    pub(crate) fn of(wait: Duration) -> Self {
        if wait.is_zero() { Self::None } else { Self::Until(clock::now() + wait) }
    }

    /// Locks `mutex` within the wait limit. With [`WaitLimit::None`], only if it is free now.
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
pub(crate) async fn acquire(engine: &Arc<Engine>, request: AcquireRequest) -> Result<Option<Guard>, Error> {
    let shared = &engine.shared;
    shared.check_open()?;
    let limit = shared.settings.response_limit(request.lease_mode.lease())?;
    let kind = request.name.kind();
    let began = clock::now();
    let (mut attempt, first_view) = Attempt::begin(engine, &request, limit, began);
    let mut first_view = Some(first_view);
    let mut spin = Backoff::new(SHORTEST_SPIN, LONGEST_SPIN);
    let mut pause = SHORTEST_SPIN;
    let end = request.wait_limit.end();
    let mut head_since = None;
    let mut refused = None;
    let mut warning = WaitWarning::new(began);
    let mut retry = RetryState::new(shared.settings.retry_for, request.wait_limit, limit);
    // Set once the wait is over: the next reply decides. Until this moment, a request of a waiter ahead is
    // awaited.
    let mut final_check = (request.wait_limit == WaitLimit::None).then(|| began + limit / 4);
    loop {
        shared.check_open()?;
        if let Some(guard) = attempt.accept_hand_over() {
            return Ok(Some(guard));
        }
        let now = clock::now();
        let view = first_view.take().unwrap_or_else(|| attempt.waiter.view());
        if final_check.is_none() && now >= end {
            let is_refused = was_refused_recently(&attempt, refused.map(|(sent, _)| sent));
            let is_held_locally = attempt.waiter.is_held_locally();
            if is_refused || is_held_locally || retry.is_failing() {
                tracing::debug!(name = %request.name, waited = ?now.since(began), "gave up waiting");
                let failure = retry.into_error(&request.name).filter(|_| !is_held_locally);
                return give_up(attempt, failure).await;
            }
            final_check = Some(now + limit / 4);
        }
        if let Some(reason) = request.under.as_ref().and_then(|write| write.lost()) {
            return Err(Error::Lost { name: request.name.to_string(), reason });
        }
        if final_check.is_some() && was_queue_refused(&request, &view, began, limit) {
            return give_up(attempt, None).await;
        }
        if !view.may_send {
            let Some(overdue) = final_check else {
                await_front(&attempt.waiter, request.wait_limit).await;
                continue;
            };
            match final_move(&attempt, &request, overdue).await {
                FinalMove::GiveUp(error) => return give_up(attempt, error).await,
                FinalMove::CheckAgain => continue,
                FinalMove::Send => {}
            }
        }
        if final_check.is_none() && is_outage_too_long(&mut retry, &attempt, head_since, began) {
            return give_up(attempt, retry.into_error(&request.name)).await;
        }
        warning.check(now, shared, &attempt.waiter, &request);
        let wait_view = WaitView {
            head_since: *head_since.get_or_insert(now),
            refused,
            listening: view.is_subscribed,
            hint: attempt.waiter.wakeup.take_hint(),
            held_here: view.is_held_locally,
            not_before: view.not_before,
            poll: longest_poll(kind, shared.settings.poll_interval),
            pause: (!kind.publishes_releases()).then_some(pause),
        };
        match if final_check.is_some() { WaitMove::Send } else { next_move(now, &wait_view) } {
            WaitMove::Send => {
                attempt.check_resendable()?;
                let (returned, outcome) = send(shared, attempt, &request).await?;
                attempt = returned;
                match outcome {
                    Ok(Ok(guard)) => return granted(shared, guard, began).map(Some),
                    Ok(Err(ttl)) => {
                        if let Some(hold) = &request.under {
                            return Err(write_hold_lost(shared, hold, &request.name));
                        }
                        if final_check.is_some() {
                            return give_up(attempt, None).await;
                        }
                        pause = spin.pause(fastrand::f64());
                        if refused.is_none() {
                            tracing::debug!(name = %request.name, ?ttl, "waiting for the lock");
                        }
                        retry.reset();
                        refused = Some((now, ttl));
                    }
                    Err(failure) => {
                        tracing::warn!(name = %request.name, %failure, "acquire failed");
                        pause_after_failure(&mut attempt, &mut retry, failure, now, end).await?;
                        // An earlier refusal must not delay the next request.
                        refused = None;
                    }
                }
            }
            WaitMove::Listen => subscribe(&attempt, end).await,
            WaitMove::SleepUntil(moment) => sleep(&attempt.waiter, moment.min(end), wait_view.hint).await,
        }
    }
}

/// Returns a new guard, unless the client is shutting down: no watchdog would renew the hold.
fn granted(shared: &Shared, guard: Guard, began: Moment) -> Result<Guard, Error> {
    shared.check_open()?;
    let waited = clock::now().since(began);
    tracing::debug!(name = %guard.name(), owner = %guard.owner_id(), ?waited, "acquired");
    Ok(guard)
}

/// Waits until a wake-up or the end of the wait.
async fn await_front(waiter: &Waiter, wait_limit: WaitLimit) {
    match wait_limit {
        WaitLimit::Endless => waiter.wakeup.notified().await,
        _ => drop(tokio::time::timeout(wait_limit.end().since(clock::now()), waiter.wakeup.notified()).await),
    }
}

/// Returns `true` if the last request of this attempt, sent at `sent`, was refused recently and no hint came
/// since.
///
/// An older refusal proves nothing about a store that has stopped replying since.
fn was_refused_recently(attempt: &Attempt, sent: Option<Moment>) -> bool {
    sent.is_some_and(|sent| clock::now() < sent + max_age(attempt.limit)) && !attempt.waiter.wakeup.has_hint()
}

/// Returns `true` if the store has refused another request of the queue since `began`, and would refuse this
/// one too.
///
/// A waiter in front that has waited sends its own request.
fn was_queue_refused(request: &AcquireRequest, view: &QueueView, began: Moment, limit: Duration) -> bool {
    request.under.is_none()
        && (request.wait_limit == WaitLimit::None || !view.may_send)
        && view.refusal.is_some_and(|refusal| {
            refusal.covers(began, request.name.kind(), request.permits) && refusal.is_recent(max_age(limit))
        })
}

/// Returns `true` if requests have failed for too long to send another one.
///
/// The failures of earlier waiters in front count, for the time that this one has waited.
fn is_outage_too_long(
    retry: &mut RetryState,
    attempt: &Attempt,
    head_since: Option<Moment>,
    began: Moment,
) -> bool {
    if head_since.is_none()
        && let Some(outage) = attempt.waiter.outage(max_age(attempt.limit))
    {
        retry.inherit(outage.since.max(began), outage.failure);
    }
    retry.is_exhausted()
}

/// The error of a refused read under a write hold. The store grants it under a hold that it has, so the hold
/// is gone.
fn write_hold_lost(shared: &Shared, hold: &Arc<Hold>, name: &LockName) -> Error {
    shared.watchdog.check_now(hold);
    Error::Lost { name: name.to_string(), reason: shared.loss_reason(hold) }
}

/// Sleeps until `until` or a wake-up. A hint that came too early is set again.
async fn sleep(waiter: &Waiter, until: Moment, hint: bool) {
    waiter.wakeup.end_request();
    if hint {
        waiter.wakeup.set_hint();
    }
    wait_for_wakeup(waiter, until).await;
}

/// Waits before the next try, or undoes an unacknowledged grant and returns the error if there is no next
/// try.
async fn pause_after_failure(
    attempt: &mut Attempt,
    retry: &mut RetryState,
    failure: Failure,
    sent: Moment,
    end: Moment,
) -> Result<(), Error> {
    match retry.pause_after(failure, sent, || format!("lock {:?}", attempt.name.as_str())) {
        Ok(pause) => {
            // The whole pause: a wake-up may come from the very connection that has just failed.
            tokio::time::sleep(pause.min(end.since(clock::now()))).await;
            Ok(())
        }
        Err(error) => {
            attempt.undo_unacknowledged_grant().await;
            Err(error)
        }
    }
}

/// How old a refusal or a failure may be to describe the current state of the store.
fn max_age(limit: Duration) -> Duration {
    limit + LONGEST_SLEEP
}

/// The next move of a waiter whose wait is over and that is not in front.
enum FinalMove {
    GiveUp(Option<Error>),
    CheckAgain,
    Send,
}

/// Decides the next move of a waiter whose wait is over and that is not in front.
///
/// Waits for the outcome of a request of the front until it is overdue. Then a request is sent past the
/// front, whose caller may have stopped polling it, unless the requests of the front have failed for too
/// long. If the front has sent no request, this only checks that the store replies, and does not overtake.
async fn final_move(attempt: &Attempt, request: &AcquireRequest, overdue: Moment) -> FinalMove {
    if attempt.waiter.is_held_locally() {
        return FinalMove::GiveUp(None);
    }
    let now = clock::now();
    let outage = match attempt.waiter.front_state(max_age(attempt.limit)) {
        FrontState::Refused => return FinalMove::GiveUp(None),
        FrontState::Sending(wakeup, _) if now < overdue => {
            let _ = tokio::time::timeout(overdue.since(now), wakeup.request_ended()).await;
            return FinalMove::CheckAgain;
        }
        FrontState::Idle => {
            return FinalMove::GiveUp(
                check_store(&attempt.engine.shared, request, attempt.limit).await.err(),
            );
        }
        FrontState::Failing(outage) => Some(outage),
        FrontState::Sending(_, outage) => outage,
    };
    match outage.filter(|outage| outage.has_lasted(attempt.limit)) {
        Some(outage) => {
            let error = outage.failure.into_error(|| format!("lock {:?}", request.name.as_str()));
            FinalMove::GiveUp(Some(error))
        }
        None => FinalMove::Send,
    }
}

/// Checks that the store replies, with a request that changes nothing.
async fn check_store(shared: &Shared, request: &AcquireRequest, limit: Duration) -> Result<(), Error> {
    // A new connection may be needed first, which has the same limit.
    let outcome = tokio::time::timeout(limit * 2, shared.inspect(&request.name)).await;
    outcome.unwrap_or_else(|_| Err(no_reply(&request.name, limit * 2))).map(drop)
}

/// Locks `turn` for a caller that does not wait, behind another task of the same owner.
///
/// Waits until the request of that task ends. Returns `None` if that task waits for a lock that is held.
pub(crate) async fn try_owner_turn<'a>(
    shared: &Shared,
    request: &AcquireRequest,
    turn: &'a Mutex<()>,
) -> Result<Option<MutexGuard<'a, ()>>, Error> {
    let limit = shared.settings.response_limit(request.lease_mode.lease())?;
    let overdue = clock::now() + limit;
    loop {
        let front_state = match shared.wait_queues.front_state(&request.name, max_age(limit)) {
            Some(FrontState::Refused) => return Ok(None),
            Some(FrontState::Idle) => return check_store(shared, request, limit).await.map(|()| None),
            Some(FrontState::Failing(outage) | FrontState::Sending(_, Some(outage)))
                if outage.has_lasted(limit) =>
            {
                return Err(outage.failure.into_error(|| format!("lock {:?}", request.name.as_str())));
            }
            front_state => front_state,
        };
        let front_changed = async {
            match &front_state {
                Some(FrontState::Sending(wakeup, _)) => wakeup.request_ended().await,
                // It retries soon.
                Some(_) => tokio::time::sleep(RETRY_SOON).await,
                // It is in a reentry, or about to end.
                None => pending().await,
            }
        };
        let time_left = overdue.since(clock::now());
        match tokio::time::timeout(time_left, select(pin!(turn.lock()), pin!(front_changed))).await {
            Ok(Either::Left((turn, _))) => return Ok(Some(turn)),
            Ok(Either::Right(_)) => {}
            Err(_) => {
                let text = format!("another task of the same owner did not finish within {limit:?}");
                return Err(timed_out(&request.name, text));
            }
        }
    }
}

/// Ends an attempt without a grant, unless the lock was handed over meanwhile.
async fn give_up(mut attempt: Attempt, error: Option<Error>) -> Result<Option<Guard>, Error> {
    if let Some(guard) = attempt.accept_hand_over() {
        return Ok(Some(guard));
    }
    attempt.undo_unacknowledged_grant().await;
    attempt.leave_queue().await;
    error.map_or(Ok(None), Err)
}

/// The approximate pause after a failed request.
const RETRY_SOON: Duration = Duration::from_millis(10);

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
async fn send(
    shared: &Shared,
    attempt: Attempt,
    request: &AcquireRequest,
) -> Result<(Attempt, Outcome), Error> {
    // A request that replicas must acknowledge may have to wait for earlier ones.
    let limit = if request.replicas > 0 { attempt.limit * 2 } else { attempt.limit };
    let presence = Arc::new(());
    let sending = RunToCompletion::new(&shared.background, attempt.send(Caller::with(&presence)));
    match request.wait_limit {
        WaitLimit::Until(end) => tokio::time::timeout(end.since(clock::now()).max(limit), sending)
            .await
            .map_err(|_| timed_out(&request.name, format!("no reply within the wait, nor within {limit:?}"))),
        // A new connection may be needed first, which has the same limit.
        WaitLimit::None => {
            tokio::time::timeout(limit * 2, sending).await.map_err(|_| no_reply(&request.name, limit * 2))
        }
        WaitLimit::Endless => Ok(sending.await),
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
    let subscription = shared.backend.subscribe(waiter.name());
    let time_left = end.since(clock::now()).min(shared.settings.poll_interval).min(LONGEST_SLEEP);
    let _ = tokio::time::timeout(time_left, select(subscription, pin!(waiter.wakeup.notified()))).await;
    waiter.wakeup.set_hint();
    if attempt.name.kind().shares_front() {
        // The other waiters in front rely on this subscription.
        shared.wait_queues.wake(waiter.name());
    }
}

/// The longest sleep of a waiter in front. After a suspend of the machine it reads the clock within this
/// time.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Waits for a wake-up, or until `moment`.
async fn wait_for_wakeup(waiter: &Waiter, moment: Moment) {
    let time_left = moment.since(clock::now()).min(LONGEST_SLEEP);
    let _ = tokio::time::timeout(time_left, waiter.wakeup.notified()).await;
}

fn no_reply(name: &LockName, limit: Duration) -> Error {
    timed_out(name, format!("no reply within {limit:?}"))
}

fn timed_out(name: &LockName, text: String) -> Error {
    let cause = io::Error::new(io::ErrorKind::TimedOut, text);
    Error::Unavailable { what: format!("lock {:?}", name.as_str()), source: Arc::new(cause) }
}
