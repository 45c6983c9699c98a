use std::sync::Arc;

use turnlock_core::Kind;
use turnlock_core::model::Acquired;

use super::Engine;
use super::acquire::WaitLimit;
use super::hold::{Hold, HoldStatus, LeaseMode};
use super::retry::RetryState;
use super::run_to_completion::RunToCompletion;
use crate::backend::{StepOptions, StepReply};
use crate::clock;
use crate::error::{Error, LostReason};
use crate::guard::Guard;

/// The parameters of a reentry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReenterRequest {
    pub(crate) lease_mode: LeaseMode,
    /// How long to retry while the store does not reply.
    pub(crate) wait_limit: WaitLimit,
    /// The number of replicas that must acknowledge it, at least that of the hold.
    pub(crate) replicas: u32,
}

/// Acquires a held lock once more. Does not queue behind the waiters.
///
/// # Cancel safety
///
/// The engine completes a request that is under way, and drops the new guard.
pub(crate) async fn reenter(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    request: ReenterRequest,
) -> Result<Guard, Error> {
    let shared = &engine.shared;
    shared.check_open()?;
    shared.settings.response_limit(request.lease_mode.lease())?;
    if hold.name.kind() == Kind::Plain {
        let reason =
            format!("reentry of plain lock {:?}: a plain lock has no hold count", hold.name.as_str());
        return Err(Error::Unsupported(reason));
    }
    RunToCompletion::new(&shared.background, send_reenter(Arc::clone(engine), Arc::clone(hold), request))
        .await
}

async fn send_reenter(engine: Arc<Engine>, hold: Arc<Hold>, request: ReenterRequest) -> Result<Guard, Error> {
    let shared = &engine.shared;
    let ReenterRequest { lease_mode, wait_limit, replicas } = request;
    let limit = shared.settings.response_limit(lease_mode.lease())?;
    let name = || hold.name.to_string();
    let mut retry = RetryState::new(shared.settings.retry_for, wait_limit, limit);
    loop {
        // Released between two tries, so that a release does not wait for a store that does not reply.
        let step = hold.step_lock.lock().await;
        if let Some(reason) = hold.lost() {
            shared.mark_lost(&hold, reason);
            return Err(Error::Lost { name: name(), reason });
        }
        let target = hold.state().guards + 1;
        if target == 1 {
            return Err(Error::NotHeld { name: name(), owner: hold.owner.to_string() });
        }
        let options = shared.options(&hold.name, lease_mode.lease(), false);
        let replicas = replicas.max(hold.replicas_wanted());
        let step_options = StepOptions::of_engine(limit, replicas);
        let sent_at = clock::now();
        let failure = match shared.backend.acquire(hold.claim(target), options, step_options).await {
            Ok(StepReply { value: Acquired::Busy { .. } | Acquired::Gone, .. }) => {
                let reason = shared.loss_reason(&hold);
                shared.mark_lost(&hold, reason);
                return Err(Error::Lost { name: name(), reason });
            }
            Ok(StepReply { value, sent, replicas: reached, .. }) => {
                let token = match value {
                    Acquired::GrantedWith { token } => Some(token),
                    _ => None,
                };
                token.inspect(|token| shared.tokens.observe(&hold.name, *token));
                hold.confirm_for(lease_mode.lease(), sent.at);
                hold.note_replicas(replicas, reached);
                return finish_reenter(&engine, &hold, target, lease_mode, token);
            }
            Err(failure) => failure,
        };
        if failure.in_doubt.is_some() {
            hold.extend_may_last(lease_mode.lease());
            let mut state = hold.state();
            state.doubt = failure.merge_doubt(state.doubt, lease_mode.lease().as_duration());
            // The store has the old count or the new one. The next release sends its target count either way.
            state.confirmed_count = target;
        }
        drop(step);
        let stands = failure.took_effect;
        match retry.pause_after(failure, sent_at, || format!("the reentry of lock {:?}", hold.name.as_str()))
        {
            Ok(pause) => tokio::time::sleep(pause).await,
            Err(error) => {
                // If the store replies, the caller sees the error only after the old count is restored.
                if !stands || shared.send_releases(&hold, clock::now() + limit).await.is_err() {
                    shared.send_releases_in_background(&hold);
                }
                return Err(error);
            }
        }
    }
}

/// Creates the guard of a confirmed reentry, unless the hold has ended meanwhile.
fn finish_reenter(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    target: u32,
    lease_mode: LeaseMode,
    token: Option<u64>,
) -> Result<Guard, Error> {
    let lost = hold.lost();
    let mut state = hold.state();
    state.confirmed_count = target;
    let name = || hold.name.to_string();
    match state.status {
        HoldStatus::Held if lost.is_none() => {
            state.add_guard(lease_mode);
            drop(state);
            engine.shared.watchdog.watch(hold);
            Ok(Guard::new(Arc::clone(engine), Arc::clone(hold), lease_mode, token))
        }
        HoldStatus::Held => Err(Error::Lost { name: name(), reason: lost.unwrap_or(LostReason::Expired) }),
        HoldStatus::Lost(reason) => Err(Error::Lost { name: name(), reason }),
        // The release of the last guard waits for this step, and then ends the hold whatever its count is.
        HoldStatus::Ended => Err(Error::NotHeld { name: name(), owner: hold.owner.to_string() }),
    }
}
