//! Releases on the store, and undoes of requests in doubt.
//!
//! What a reply or a failure means is decided by [`turnlock_core::hold_state`]; this module sends the requests and
//! executes the actions.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use turnlock_core::hold_state::{Action, Event, Phase, Report};
use turnlock_core::lease::coarse_limit;
use turnlock_core::model::{Claim, Released};
use turnlock_core::{Backoff, Doubt, Kind, Moment};

use super::engine::Engine;
use super::retry::pause_until;
use super::state::Hold;
use crate::clock;
use crate::error::{Error, IntoError, LostReason};
use turnlock_store::Failure;

impl Engine {
    /// Releases on the store what ended guards held: the whole hold, if `is_last`.
    pub(super) async fn finish_release(
        self: Arc<Self>,
        hold: Arc<Hold>,
        is_last: bool,
        deadline: Moment,
    ) -> Result<(), Error> {
        let outcome = self.send_releases(&hold, deadline).await;
        if matches!(outcome, Err(Error::InDoubt { .. })) && clock::now() < hold.release_end() {
            self.send_releases_in_background(&hold);
        }
        if is_last {
            self.wait_queues.remove_hold(&hold);
        } else if outcome.is_ok() && Self::is_too_long(&hold) {
            self.shorten_in_background(&hold);
        }
        outcome
    }

    /// Lowers the count on the store to the number of guards, in the background.
    ///
    /// The caller has its result already.
    pub(super) fn send_releases_in_background(self: &Arc<Self>, hold: &Arc<Hold>) {
        let (engine, hold) = (Arc::clone(self), Arc::clone(hold));
        self.background.spawn(async move {
            let outcome = engine.send_releases(&hold, Moment::NEVER).await;
            if let Err(error @ Error::InDoubt { .. }) = outcome
                && !hold.name.kind().is_leased()
            {
                let (name, permits) = (&hold.name, hold.permits);
                tracing::warn!(%name, permits, error = %error.with_causes(), "release failed, permits may be lost");
            }
        });
    }

    /// Lowers the count on the store to the number of guards.
    ///
    /// While the store does not reply, retries until the hold must have expired there, or until `deadline`.
    pub(super) async fn send_releases(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        deadline: Moment,
    ) -> Result<(), Error> {
        let mut backoff = Backoff::default();
        loop {
            // Unlocked between two tries. Each try reads the current target.
            let step = hold.step_lock.lock().await;
            let (target, failure) = match hold.apply(Event::ReleaseDue) {
                Action::Send { target } => match self.send_release(hold, target).await {
                    Ok(action) => return self.finish(hold, action, None),
                    Err(failure) => (target, failure),
                },
                action => return self.finish(hold, action, None),
            };
            drop(step);
            let end = hold.release_end().min(deadline);
            let may_retry = pause_until(end, &failure, &mut backoff).await;
            if !may_retry || clock::now() >= hold.resend_end() {
                let is_refused = !failure.is_retryable();
                let action = hold.apply(Event::ReleaseFailed { target, is_refused });
                return self.finish(hold, action, Some(failure));
            }
        }
    }

    /// Sends one release request. Returns what its reply means.
    async fn send_release(&self, hold: &Arc<Hold>, target: u32) -> Result<Action, Failure> {
        let yields =
            target == 0 && hold.name.kind().allows_hand_over() && self.wait_queues.begin_yielding(&hold.name);
        let claim = Claim { unsure: hold.is_remembered(), ..hold.claim(target) };
        let reply = match self.store.release(claim, self.release_limit(hold)).await {
            Ok(reply) => reply,
            Err(failure) => {
                if let Some(sent) = failure.in_doubt {
                    hold.apply(Event::ReleaseInDoubt { target, sent: sent.at });
                }
                let in_doubt = failure.in_doubt.is_some();
                tracing::warn!(name = %hold.name, %failure, in_doubt, "release failed");
                return Err(failure);
            }
        };
        if let Some(listeners) = reply.notified.filter(|_| yields) {
            self.wait_queues.set_listeners(&hold.name, listeners);
        }
        self.forget_settled_release(hold, target);
        if reply.value != Released::NotHeld {
            tracing::debug!(name = %hold.name, owner = %hold.owner, count = target, "released");
            if target == 0 {
                self.recent_releases.push(hold);
            }
            return Ok(hold.confirm_release(target, reply.sent));
        }
        let reason = self.loss_reason(hold);
        let action = hold.apply_loss(Event::ReleaseNotHeld { target }, reason);
        if matches!(action, Action::ReportLoss | Action::Finish { report: Report::Gone, .. }) {
            tracing::warn!(name = %hold.name, owner = %hold.owner, "lost, noticed at release");
        }
        Ok(action)
    }

    /// Undoes what is in doubt, and returns the result for the caller of a step on the hold.
    pub(super) fn finish(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        action: Action,
        failure: Option<Failure>,
    ) -> Result<(), Error> {
        let name = || hold.name.to_string();
        let report = match action {
            Action::Finish { report, undo } => {
                if let Some(doubt) = undo {
                    self.undo_request(hold.claim(0), self.release_limit(hold), doubt);
                }
                report
            }
            Action::ReportLoss => {
                self.report_loss(hold, hold.lost().unwrap_or(LostReason::Taken));
                Report::Lost
            }
            Action::None | Action::Allow | Action::Refuse | Action::StopRenewal | Action::Send { .. } => {
                Report::Done
            }
        };
        let reason = match report {
            Report::Done => return Ok(()),
            Report::NotHeld => return Err(Error::NotHeld { name: name(), owner: hold.owner.to_string() }),
            Report::InDoubt | Report::Refused => {
                let what = || format!("the release of lock {:?}", hold.name.as_str());
                return Err(match failure {
                    Some(failure) if report == Report::Refused => failure.into_error(what),
                    failure => Error::InDoubt { name: name(), source: failure.and_then(Failure::into_cause) },
                });
            }
            Report::Lost => hold.lost().unwrap_or_else(|| self.loss_reason(hold)),
            Report::Expired => hold.lost().unwrap_or(LostReason::Expired),
            Report::Gone => self.loss_reason(hold),
        };
        Err(Error::Lost { name: name(), reason })
    }

    /// Removes the request id of released permits without owners from the store, if no request is in doubt.
    fn forget_settled_release(&self, hold: &Hold, target: u32) {
        if hold.name.kind() != Kind::Semaphore || target > 0 {
            return;
        }
        let state = hold.inner().state;
        if state.doubt.is_none() && !matches!(state.phase, Phase::InDoubt { .. }) {
            self.forget_request(&hold.name, &hold.owner);
        }
    }

    /// The response time-out of a release: less than usual when the lease is nearly over.
    pub(super) fn release_limit(&self, hold: &Hold) -> Duration {
        let rest = hold.may_last_until().since(clock::now());
        coarse_limit(rest.max(Duration::from_millis(100)), self.settings.usual_limit())
    }

    /// Undoes a request in doubt, in the background, until it can have no effect.
    pub(super) fn undo_request(self: &Arc<Self>, claim: Claim, limit: Duration, doubt: Doubt) {
        tracing::warn!(name = %claim.name, owner = %claim.owner, "request in doubt, undoing it");
        drop(self.undo(claim, limit, doubt));
    }

    /// Removes a refused waiter from the queue on the store, or the mark of a waiting writer.
    ///
    /// Retries for a while if the store does not reply. The receiver is as that of [`Self::undo`].
    pub(super) fn leave_queue(self: &Arc<Self>, claim: Claim, limit: Duration) -> oneshot::Receiver<()> {
        self.undo(claim, limit, Doubt::of_existing_hold(clock::now() + Doubt::DELIVERY))
    }

    /// Undoes what is in doubt, in the background, until that is confirmed or the doubt is moot.
    ///
    /// The receiver resolves when that is done. Dropping it does not stop the undo.
    pub(super) fn undo(
        self: &Arc<Self>,
        claim: Claim,
        limit: Duration,
        doubt: Doubt,
    ) -> oneshot::Receiver<()> {
        let engine = Arc::clone(self);
        let (done_sender, done) = oneshot::channel();
        let claim = Claim { target: 0, under: None, unsure: true, ..claim };
        self.background.spawn(async move {
            let mut backoff = Backoff::default();
            let is_settled = loop {
                let sent = clock::now();
                let reply = engine.store.release(claim.clone(), limit).await;
                let is_settled = reply.is_ok_and(|reply| reply.sent.unsettled(Some(doubt)).is_none());
                if is_settled || doubt.has_expired_by(sent) {
                    break is_settled;
                }
                tokio::time::sleep(backoff.pause(fastrand::f64())).await;
            };
            let Claim { name, owner, permits, .. } = claim;
            if !is_settled && !name.kind().is_leased() {
                tracing::warn!(%name, %owner, permits, "undo failed, permits may be lost");
            }
            drop(done_sender);
        });
        done
    }

    /// Sends the recent releases again: another server has taken over, or the same one has restarted.
    pub(super) fn replay_recent_releases(self: &Arc<Self>) {
        let releases = self.recent_releases.unexpired(clock::now());
        if !releases.is_empty() {
            tracing::debug!(holds = releases.len(), "server changed, replaying recent releases");
        }
        for (claim, lease_end) in releases {
            drop(self.undo(claim, self.settings.usual_limit(), Doubt::of_existing_hold(lease_end)));
        }
    }
}
