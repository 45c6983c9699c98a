//! Acquires of an owner that holds the lock already: once more, or the read lock under its write lock.

use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, pending, select};
use tokio::sync::{Mutex, MutexGuard};
use turnlock_core::Kind;
use turnlock_core::hold_state::Event;
use turnlock_core::model::Acquired;

use super::acquire::{acquire, max_age, outcome_behind};
use super::engine::Engine;
use super::grant::Grant;
use super::request::{AcquireRequest, ReenterRequest, WaitLimit, describe, timed_out};
use super::retry::RetryState;
use super::run_to_completion::RunToCompletion;
use super::state::{CallSite, Hold, LeaseMode, StepTurn};
use crate::clock;
use crate::error::{Error, IntoError, LostReason};
use turnlock_store::{Failure, StepOptions, StepReply};

/// Acquires a held lock once more. Does not queue behind the waiters.
///
/// # Cancel safety
///
/// The engine completes a request that is under way, and drops the new guard.
pub(crate) async fn reenter(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    request: ReenterRequest,
) -> Result<Grant, Error> {
    engine.check_open()?;
    engine.settings.response_limit(request.lease_mode.lease())?;
    if hold.name.kind() == Kind::Plain {
        let reason =
            format!("reentry of plain lock {:?}: a plain lock has no hold count", hold.name.as_str());
        return Err(Error::Unsupported(reason));
    }
    RunToCompletion::boxed(&engine.background, send_reenter(Arc::clone(engine), Arc::clone(hold), request))
        .await
}

async fn send_reenter(engine: Arc<Engine>, hold: Arc<Hold>, request: ReenterRequest) -> Result<Grant, Error> {
    let limit = engine.settings.response_limit(request.lease_mode.lease())?;
    let mut state = RetryState::new(engine.settings.retry_for, request.wait_limit, limit);
    loop {
        let sent = clock::now();
        let failure = match try_reenter(&engine, &hold, request, limit).await {
            Ok(outcome) => return outcome,
            Err(failure) => failure,
        };
        if let Err(failure) = state.pause(failure, sent).await {
            // If the store replies, the caller sees the error only after the old count is restored.
            if !failure.took_effect || engine.send_releases(&hold, clock::now() + limit, None).await.is_err()
            {
                engine.send_releases_in_background(&hold);
            }
            return Err(failure.into_error(|| format!("the reentry of lock {:?}", hold.name.as_str())));
        }
    }
}

/// Sends one request for a reentry.
async fn try_reenter(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    ReenterRequest { lease_mode, replicas, .. }: ReenterRequest,
    limit: Duration,
) -> Result<Result<Grant, Error>, Failure> {
    let lost = |reason| {
        engine.mark_lost(hold, reason);
        Ok(Err(Error::Lost { name: hold.name.to_string(), reason }))
    };
    // Released between two tries, so that a release does not wait for a store that does not reply.
    let _step = StepTurn::of(hold).await;
    if let Some(reason) = hold.lost() {
        return lost(reason);
    }
    let target = hold.guards() + 1;
    if target == 1 {
        return Ok(Err(Error::NotHeld { name: hold.name.to_string(), owner: hold.owner.to_string() }));
    }
    let lease = lease_mode.lease();
    let replicas = replicas.max(hold.replicas_wanted());
    let options = engine.options(&hold.name, lease, false);
    let step_options = StepOptions::of_engine(limit, replicas);
    let StepReply { value, sent, replicas: reached, .. } =
        match engine.store.acquire(hold.claim(target), options, step_options).await {
            Ok(reply) => reply,
            Err(failure) => {
                engine.outage_log.note_failure("reentry", &failure, clock::now());
                if failure.in_doubt.is_some() {
                    hold.extend_may_last(lease);
                    let mut inner = hold.inner();
                    inner.state.doubt = failure.merge_doubt(inner.state.doubt, lease.as_duration());
                    drop(inner);
                    // The next release sends its target count, whether the store has the old count or the new one.
                    hold.apply(Event::ReentryInDoubt { target }, clock::now());
                }
                return Err(failure);
            }
        };
    let token = match value {
        Acquired::Busy { .. } | Acquired::Queued | Acquired::Gone => return lost(engine.loss_reason(hold)),
        Acquired::GrantedWith { token } => Some(token),
        Acquired::Granted => None,
    };
    engine.outage_log.note_reply();
    token.inspect(|token| engine.tokens.observe(&hold.name, *token));
    hold.confirm_for(lease, sent.at);
    hold.note_replicas(replicas, reached);
    // Unless the hold has ended meanwhile.
    Ok(engine.finish(hold, hold.confirm_reentry(target, lease_mode), None).map(|()| {
        engine.watchdog.watch(hold, clock::now());
        Grant::new(engine, Arc::clone(hold), lease_mode, token)
    }))
}

/// Acquires the read lock for the owner of a write hold, past the queue.
///
/// On the wire the reader gets a new owner, so that no late step of an earlier reader can affect it.
///
/// # Cancel safety
///
/// As [`acquire`].
pub(crate) async fn read_under(
    engine: &Arc<Engine>,
    write: &Arc<Hold>,
    lease_mode: LeaseMode,
    replicas: u32,
) -> Result<Grant, Error> {
    if write.name.kind() != Kind::Write {
        let reason =
            format!("downgrade of {}: only a write lock can become a read lock", describe(&write.name));
        return Err(Error::Unsupported(reason));
    }
    if let Some(reason) = write.lost() {
        return Err(Error::Lost { name: write.name.to_string(), reason });
    }
    let name = write.name.with_kind(Kind::Read);
    let here = CallSite::current(Location::caller()).await;
    let under = Some(Arc::clone(write));
    let request = AcquireRequest {
        name,
        lease_mode,
        wait_limit: WaitLimit::Endless,
        permits: 1,
        replicas,
        accepts_hand_over: false,
        under,
        call_site: write.call_site.map_or(here, |call_site| call_site.run_by(&here)),
    };
    let lost = || Error::Lost { name: write.name.to_string(), reason: LostReason::Taken };
    acquire(engine, request).await?.ok_or_else(lost)
}

/// Locks `turn` for a caller that does not wait, behind another task of the same owner.
///
/// Waits until the request of that task ends. Returns `None` if that task waits for a lock that is held.
pub(crate) async fn try_owner_turn<'a>(
    engine: &Engine,
    request: &AcquireRequest,
    turn: &'a Mutex<()>,
) -> Result<Option<MutexGuard<'a, ()>>, Error> {
    let limit = engine.settings.response_limit(request.lease_mode.lease())?;
    let overdue = clock::now() + limit;
    loop {
        let front = engine.wait_queues.front_state(&request.name, max_age(limit));
        let sending = front.as_ref().map(|front| front.sending.clone());
        if let Some(front) = front
            && let Some(outcome) = outcome_behind(engine, &request.name, limit, front).await
        {
            return outcome.map(|()| None);
        }
        let front_changed = async {
            match &sending {
                Some(Some(wakeup)) => wakeup.request_ended().await,
                // It retries soon.
                Some(None) => tokio::time::sleep(RETRY_SOON).await,
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

/// The approximate pause after a failed request.
const RETRY_SOON: Duration = Duration::from_millis(10);
