use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::{Claim, CounterOp, Released, Snapshot};
use turnlock_core::request::RetryWindow;
use turnlock_core::{ClientId, Kind, LockName, Moment, OwnerId};

use super::engine::Engine;
use super::request::{WaitLimit, describe, time_out};
use super::retry::{RetryState, retry_once};
use super::run_to_completion::RunToCompletion;
use super::state::{CallSite, Caller, Join, LONGEST_SLEEP, Wakeup};
use crate::activity::{Reader, Situation};
use crate::clock;
use crate::error::{Error, IntoError};
use crate::identity::Identity;
use crate::metrics::{AcquireMetrics, AcquireOutcome, HoldMetrics};
use turnlock_store::{ActivityScope, Failure, FailureKind, StepReply};

/// When a query is sent again after a failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    Always,
    /// Only if the first request was certainly not executed.
    IfNotExecuted,
}

/// The number of clients per request for their records.
const RECORDS_PER_REQUEST: usize = 256;

impl Engine {
    /// Sends a request that concerns no local hold, and retries once after a broken connection.
    ///
    /// A request that times out is not sent again.
    pub(crate) async fn query<T, F: Future<Output = Result<StepReply<T>, Failure>>>(
        &self,
        name: &LockName,
        resend: Resend,
        step: impl Fn(Duration) -> F,
    ) -> Result<T, Error> {
        let limit = self.settings.usual_limit();
        let end = clock::now() + limit;
        let may_repeat = |failure: &Failure| {
            clock::now() < end && (resend == Resend::Always || failure.in_doubt.is_none())
        };
        let reply = self.on_runtime(retry_once(|| step(limit), may_repeat)).await;
        self.note_outcome("query", &reply);
        reply.map(|StepReply { value, .. }| value).map_err(|failure| failure.into_error(|| describe(name)))
    }

    /// Notes for the log of outages how a request ended.
    fn note_outcome<T>(&self, request: &'static str, outcome: &Result<T, Failure>) {
        match outcome {
            Ok(_) => self.outage_log.note_reply(),
            // What is no outage is an error of the caller.
            Err(failure) => drop(self.outage_log.note_failure(request, failure, clock::now())),
        }
    }

    /// Reads the state of `name`.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        self.query(name, Resend::Always, |limit| self.store.inspect(name, limit)).await
    }

    /// Reads the records of `clients`, in their order.
    pub(crate) async fn client_records(&self, clients: &[ClientId]) -> Result<Vec<Option<Identity>>, Error> {
        let limit = self.settings.usual_limit();
        let mut found = Vec::with_capacity(clients.len());
        for clients in clients.chunks(RECORDS_PER_REQUEST) {
            let reply = retry_once(|| self.store.directory().client_records(clients, limit), |_| true).await;
            let records = match reply {
                Ok(StepReply { value, .. }) => value,
                // Without the right to read records, all clients are unknown.
                Err(Failure { kind: FailureKind::Denied(cause), .. }) => {
                    tracing::debug!(%cause, "no permission to read client records");
                    vec![None; clients.len()]
                }
                Err(failure) => return Err(failure.into_error(|| "the client records".to_owned())),
            };
            let identity =
                |(client, record): (&ClientId, Option<String>)| Identity::from_record(*client, &record?);
            found.extend(clients.iter().zip(records).map(identity));
        }
        Ok(found)
    }

    /// Reads what clients have announced about their waits and holds.
    pub(crate) async fn situation(&self) -> Result<Situation, Error> {
        let limit = self.settings.usual_limit();
        let read = || self.store.directory().activity(ActivityScope::All, limit);
        match retry_once(read, |_| true).await {
            Ok(StepReply { value, .. }) => Ok(Situation::new(&value)),
            Err(failure) => Err(failure.into_error(|| "the announced waits".to_owned())),
        }
    }

    /// The same, for a caller that can do without it: empty if this user may not read it, or the store does not reply
    /// soon. In a cluster, the announced waits may be on another shard than the lock.
    pub(crate) async fn situation_if_known(&self) -> Situation {
        let limit = self.settings.usual_limit();
        let read = self.store.directory().activity(ActivityScope::All, limit);
        // A request that reaches its own limit without any reply ends its connection, which would be too early here.
        match tokio::time::timeout(limit / 2, read).await {
            Ok(Ok(StepReply { value, .. })) => return Situation::new(&value),
            Ok(Err(failure)) => tracing::debug!(%failure, "announced waits not read"),
            Err(_) => tracing::debug!("announced waits not read in time"),
        }
        Situation::default()
    }

    /// This client, as a reader of records.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { client: self.client, key_prefix: &self.settings.key_prefix }
    }

    /// Executes one operation on a counter without owners.
    ///
    /// The operation takes effect once, however often it is sent. It is not resent when the store may have
    /// forgotten the request id. Once started, it is completed even if the caller is dropped.
    pub(crate) async fn perform(self: &Arc<Self>, name: &LockName, op: CounterOp) -> Result<i64, Error> {
        self.check_open()?;
        let (engine, name, request) = (Arc::clone(self), name.clone(), self.new_owner());
        let work = async move {
            let limit = engine.settings.usual_limit();
            let mut state = RetryState::new(engine.settings.retry_for, WaitLimit::Endless, limit);
            let mut repeats = RetryWindow::default();
            loop {
                check_resendable(&name, repeats)?;
                let sent = clock::now();
                let reply = engine.store.perform(&name, op, &request, limit).await;
                engine.note_outcome("counter", &reply);
                let failure = match reply {
                    Ok(StepReply { value, .. }) => {
                        if !repeats.is_in_doubt() {
                            engine.forget_request(&name, &request);
                        }
                        return Ok(value);
                    }
                    Err(failure) => failure,
                };
                if let Some(unanswered) = failure.in_doubt {
                    repeats.mark_in_doubt(unanswered.at);
                }
                state.pause(failure, sent).await.map_err(|failure| failure.into_error(|| describe(&name)))?;
            }
        };
        self.on_runtime(RunToCompletion::boxed(&self.background, work)).await
    }

    /// Removes a request id of a counter from the store, in the background.
    ///
    /// Called for a request that was sent once and got its reply, so that no copy can arrive. If the removal
    /// fails, the id expires.
    pub(super) fn forget_request(&self, name: &LockName, request: &OwnerId) {
        let step = self.store.forget(name, request, self.settings.usual_limit());
        self.background.spawn(async move { drop(step.await) });
    }

    /// Ends all holds on `name`. Returns `true` if there was one.
    pub(crate) async fn force_unlock(&self, name: &LockName) -> Result<bool, Error> {
        check_kind(name, None)?;
        // Not resent if it may have been executed: by then another owner may hold the lock.
        let was_held =
            self.query(name, Resend::IfNotExecuted, |limit| self.store.force_unlock(name, limit)).await?;
        self.check_holds(name, |_| true);
        Ok(was_held)
    }

    /// Ends the hold of `owner` on `name`, or the permit with that id. Returns `true` if it was held.
    pub(crate) async fn force_unlock_of(&self, name: &LockName, owner: &OwnerId) -> Result<bool, Error> {
        check_kind(name, Some(owner))?;
        if name.kind() == Kind::Fair {
            // The release of an owner that only waits would remove it from the queue.
            let holders = self.inspect(name).await?.holders;
            if !holders.iter().any(|holder| holder.owner == *owner) {
                return Ok(false);
            }
        }
        // Not resent, as above: an owner of Redisson is a thread, which may have acquired the lock again.
        let released = self.query(name, Resend::IfNotExecuted, |limit| {
            self.store.release(Claim::new(name, owner, 0), limit)
        });
        let was_held = released.await? == Released::Freed;
        self.check_holds(name, |held| held == owner);
        Ok(was_held)
    }

    /// Makes the watchdog check the local holds that are affected.
    fn check_holds(&self, name: &LockName, is_affected: impl Fn(&OwnerId) -> bool) {
        self.wait_queues.for_holds(name, |hold| {
            if is_affected(&hold.owner) || hold.permit_ids().any(|id| is_affected(&id)) {
                self.watchdog.plan_now(hold);
            }
        });
    }
}

/// Fails if the store may have forgotten the outcome of an earlier copy of a counter request.
pub(super) fn check_resendable(name: &LockName, repeats: RetryWindow) -> Result<(), Error> {
    if !repeats.is_in_doubt() || clock::now() < repeats.end() {
        return Ok(());
    }
    let source =
        time_out("a request got no reply, so its outcome is unknown, and it is too old to be sent again");
    Err(Error::Unavailable { what: describe(name), source })
}

/// Fails if holds of this kind cannot be ended by force.
fn check_kind(name: &LockName, owner: Option<&OwnerId>) -> Result<(), Error> {
    let advice = match (name.kind(), owner) {
        (Kind::Semaphore, _) => {
            "its permits have no owners; use Semaphore::add_permits to replace lost permits"
        }
        (Kind::Latch, _) => "it has no holder; use Latch::count_down to open it",
        (Kind::Permits, None) => "it has several holders; pass the id of one permit, as shown by `inspect`",
        _ => return Ok(()),
    };
    Err(Error::Unsupported(format!("forced unlock of {} {:?}: {advice}", name.kind().label(), name.as_str())))
}

/// Waits until a latch is open. Returns `false` if the wait limit passes first.
///
/// Failures are retried within the wait limit. Of the waiters of this client, the first one asks the store, for all
/// of them. The others ask only if it does not get a reply in time, as when its caller does not poll it.
pub(crate) async fn until_zero(
    engine: &Arc<Engine>,
    name: &LockName,
    wait_limit: WaitLimit,
) -> Result<bool, Error> {
    let began = clock::now();
    let mut counted = CountedWait { metrics: engine.metrics.begin_acquire(name), began };
    let outcome = read_until_zero(engine, name, wait_limit, began).await;
    counted.end(match &outcome {
        Ok(true) => AcquireOutcome::Granted,
        Ok(false) if wait_limit == WaitLimit::None => AcquireOutcome::Busy,
        Ok(false) => AcquireOutcome::TimedOut,
        Err(_) => AcquireOutcome::Failed,
    });
    outcome
}

/// A wait for a latch, which is counted as an acquire without a hold. One that is dropped before its end counts as cancelled.
struct CountedWait<'a> {
    metrics: AcquireMetrics<'a>,
    began: Moment,
}

impl CountedWait<'_> {
    fn end(&mut self, outcome: AcquireOutcome) {
        if self.metrics.is_open() {
            self.metrics.end(outcome, clock::now().since(self.began), &HoldMetrics::default());
        }
    }
}

impl Drop for CountedWait<'_> {
    fn drop(&mut self) {
        self.end(AcquireOutcome::Cancelled);
    }
}

async fn read_until_zero(
    engine: &Arc<Engine>,
    name: &LockName,
    wait_limit: WaitLimit,
    began: Moment,
) -> Result<bool, Error> {
    let call_site = CallSite::current(Location::caller()).await;
    let (ends, owner) = (wait_limit.end(), engine.new_owner_number());
    let caller = Caller { call_site, began, ends, name: name.clone(), owner };
    let (waiter, _) = engine.wait_queues.enter(name, Join::AtEnd, Wakeup::new(None, caller));
    let (limit, poll) = (engine.settings.usual_limit(), engine.settings.poll_interval);
    let end = wait_limit.end();
    let mut state = RetryState::new(engine.settings.retry_for, wait_limit, limit);
    // A change of the count was published then, and no reply is known that is later.
    let mut hint: Option<Moment> = None;
    loop {
        engine.check_open()?;
        let (view, now) = (waiter.view(), clock::now());
        if view.opened.is_some_and(|sent| sent >= began) {
            return Ok(true);
        }
        // The last reply to any of the waiters, which was not zero.
        let last_reply = view.refusal.map(|refusal| refusal.sent).filter(|sent| *sent >= began);
        if now >= end && last_reply.is_some_and(|sent| now < sent + limit + LONGEST_SLEEP) {
            return Ok(false);
        }
        if waiter.wakeup.take_hint() {
            hint = Some(now);
        }
        hint = hint.filter(|hint| last_reply.is_none_or(|sent| sent < *hint));
        let ask_at = if view.may_send {
            let next_poll = last_reply.map_or(began, |sent| sent + poll);
            // Messages published before the subscription are missed, so the count is read again at once.
            if view.is_subscribed { hint.unwrap_or(next_poll).min(next_poll) } else { now }
        } else {
            let overdue = last_reply.unwrap_or(began) + poll + limit / 4;
            hint.map_or(overdue, |hint| overdue.min(hint + limit / 4))
        };
        if now < ask_at.min(end) {
            let sleep_for = ask_at.min(end).since(now).min(LONGEST_SLEEP);
            let _ = tokio::time::timeout(sleep_for, waiter.wakeup.notified()).await;
            continue;
        }
        if view.may_send && last_reply.is_some() && !view.is_subscribed {
            waiter.set_subscribed();
            waiter.wakeup.set_hint();
            let time_left = end.since(now).min(LONGEST_SLEEP);
            let _ = tokio::time::timeout(time_left, engine.store.subscribe(name)).await;
            continue;
        }
        if let Some(outage) = waiter.outage(limit + LONGEST_SLEEP) {
            // The failures of earlier waiters count, for the time that this one has waited.
            state.inherit(outage.since.max(began), outage.failure);
            if state.is_exhausted()
                && let Some(failure) = state.failure()
            {
                return Err(failure.into_error(|| describe(name)));
            }
        }
        // A request may outlast the caller's deadline by one response time-out.
        let reply = wait_limit.bound(limit, engine.store.inspect(name, limit)).await;
        let no_reply =
            || Failure::refused(FailureKind::Unavailable(time_out(format!("no reply within {limit:?}"))));
        let reply = reply.unwrap_or_else(|_| Err(no_reply()));
        engine.note_outcome("wait for a latch", &reply);
        match reply {
            Ok(StepReply { value, .. }) if value.number.unwrap_or_default() <= 0 => {
                waiter.set_opened(now);
                return Ok(true);
            }
            Ok(_) => {
                state.reset();
                waiter.set_refusal(name.kind(), 0, now);
            }
            Err(failure) => {
                waiter.set_outage(now, &failure);
                state.pause(failure, now).await.map_err(|failure| failure.into_error(|| describe(name)))?;
                waiter.wakeup.set_hint();
            }
        }
    }
}
