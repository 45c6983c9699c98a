use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use turnlock_core::lease::coarse_limit;
use turnlock_core::model::{Claim, Released};
use turnlock_core::not_held::{self, NotHeld};
use turnlock_core::request::REPEATED_FOR;
use turnlock_core::{Backoff, Doubt, Kind, Moment};

use super::Shared;
use super::hold::{Hold, HoldStatus, LeaseMode};
use super::run_to_completion::RunToCompletion;
use crate::backend::{Failure, StepReply};
use crate::clock;
use crate::error::{Error, LostReason};

/// Until when the store remembers an unanswered release of permits without owners. A later copy would count
/// again.
fn remembered_until(hold: &Hold) -> Moment {
    let unanswered_release = hold.state().unanswered_release.filter(|_| !hold.name.kind().is_leased());
    unanswered_release.map_or(Moment::NEVER, |sent| sent + REPEATED_FOR)
}

impl Shared {
    /// Releases what one guard holds, and waits for the confirmation.
    ///
    /// When failures have lasted for `retry_for`, returns an error, and the engine goes on in the background.
    pub(crate) async fn release(
        self: &Arc<Self>,
        hold: Arc<Hold>,
        lease_mode: LeaseMode,
    ) -> Result<(), Error> {
        if self.hand_over(&hold, lease_mode) {
            return Ok(());
        }
        let deadline = clock::now() + self.settings.retry_for;
        let work = self.begin_release(Arc::clone(&hold), lease_mode, deadline);
        if self.background.is_closed() {
            // The runtime of the client is gone, and its connections with it.
            if hold.state().guards == 0 {
                self.wait_queues.remove_hold(&hold);
            }
            return Err(Error::InDoubt { name: hold.name.to_string(), source: None });
        }
        RunToCompletion::new(&self.background, work).await
    }

    /// Releases what a dropped guard held, in the background.
    pub(crate) fn release_in_background(self: &Arc<Self>, hold: Arc<Hold>, lease_mode: LeaseMode) {
        if self.hand_over(&hold, lease_mode) {
            return;
        }
        let name = hold.name.clone();
        let work = self.begin_release(hold, lease_mode, Moment::NEVER);
        self.background.spawn(async move {
            if let Err(error) = work.await {
                tracing::warn!(%name, error = %error.with_causes(), "release of a dropped guard failed");
            }
        });
    }

    /// Ends one guard locally, and returns the future that releases it on the store.
    ///
    /// Renewal stops before the release is sent.
    fn begin_release(
        self: &Arc<Self>,
        hold: Arc<Hold>,
        lease_mode: LeaseMode,
        deadline: Moment,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        // The lease may have ended before the watchdog noticed it.
        if let Some(reason) = hold.lost() {
            self.mark_lost(&hold, reason);
        }
        let is_last = hold.state().remove_guard(lease_mode);
        if is_last {
            self.watchdog.unwatch(&hold);
        }
        Arc::clone(self).finish_release(hold, is_last, deadline)
    }

    /// Releases on the store what ended guards held: the whole hold, if `is_last`.
    pub(super) async fn finish_release(
        self: Arc<Self>,
        hold: Arc<Hold>,
        is_last: bool,
        deadline: Moment,
    ) -> Result<(), Error> {
        let outcome = self.send_releases(&hold, deadline).await;
        let end = hold.may_last_until().min(remembered_until(&hold));
        if matches!(outcome, Err(Error::InDoubt { .. })) && clock::now() < end {
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
        let (shared, hold) = (Arc::clone(self), Arc::clone(hold));
        self.background.spawn(async move {
            let outcome = shared.send_releases(&hold, Moment::NEVER).await;
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
        let name = || hold.name.to_string();
        let mut backoff = Backoff::default();
        loop {
            // Unlocked between two tries. Each try reads the current target.
            let step = hold.step_lock.lock().await;
            let (target, confirmed_count, found_gone, status) = {
                let state = hold.state();
                (state.guards, state.confirmed_count, state.found_gone, state.status)
            };
            if let HoldStatus::Lost(reason) = status {
                if target == 0 {
                    self.undo_lost_hold(hold, reason);
                }
                return Err(Error::Lost { name: name(), reason });
            }
            let outcome = if confirmed_count > target {
                self.send_release(hold, target).await
            } else if found_gone {
                Ok(Err(Error::Lost { name: name(), reason: self.loss_reason(hold) }))
            } else {
                Ok(Ok(()))
            };
            let failure = match outcome {
                Ok(outcome) => {
                    if target == 0 {
                        self.undo_doubt_of(hold);
                    } else if let Err(Error::Lost { reason, .. }) = outcome {
                        self.mark_lost(hold, reason);
                    }
                    return outcome;
                }
                Err(failure) => failure,
            };
            drop(step);
            let in_doubt = failure.in_doubt.is_some();
            tracing::warn!(name = %hold.name, %failure, in_doubt, "release failed");
            let rest = hold.may_last_until().min(deadline).min(remembered_until(hold)).since(clock::now());
            if failure.is_retryable() && !rest.is_zero() {
                tokio::time::sleep(backoff.pause(fastrand::f64()).min(rest)).await;
                if clock::now() < remembered_until(hold) {
                    continue;
                }
            }
            if target == 0 {
                self.undo_doubt_of(hold);
            }
            if failure.is_retryable() {
                return Err(Error::InDoubt { name: name(), source: failure.into_cause() });
            }
            return Err(failure.into_error(|| format!("the release of lock {:?}", hold.name.as_str())));
        }
    }

    /// Sends one release request.
    async fn send_release(&self, hold: &Hold, target: u32) -> Result<Result<(), Error>, Failure> {
        let name = || hold.name.to_string();
        let yields =
            target == 0 && hold.name.kind().allows_hand_over() && self.wait_queues.begin_yielding(&hold.name);
        let claim = Claim { unsure: hold.is_remembered(), ..hold.claim(target) };
        let reply = self.backend.release(claim, self.release_limit(hold)).await;
        if let Ok(StepReply { notified: Some(listeners), .. }) = reply
            && yields
        {
            self.wait_queues.set_listeners(&hold.name, listeners);
        }
        self.forget_settled_release(hold, target, &reply);
        match reply {
            Err(failure) => {
                if let Some(sent) = failure.in_doubt.filter(|_| target == 0) {
                    hold.state().unanswered_release.get_or_insert(sent.at);
                }
                Err(failure)
            }
            Ok(StepReply { value: Released::Freed | Released::StillHeld, sent, .. }) => {
                tracing::debug!(name = %hold.name, owner = %hold.owner, count = target, "released");
                if target == 0 {
                    self.recent_releases.push(hold);
                }
                let mut state = hold.state();
                state.confirmed_count = target;
                state.doubt = sent.unsettled(state.doubt);
                Ok(Ok(()))
            }
            Ok(StepReply { value: Released::NotHeld, .. }) => {
                let mut state = hold.state();
                // Only a release to zero removes the hold, so only then can "not held" mean its success.
                let verdict =
                    not_held::classify(state.unanswered_release.is_some(), clock::now(), hold.valid_until());
                state.confirmed_count = 0;
                state.found_gone = verdict == NotHeld::Lost;
                drop(state);
                Ok(match verdict {
                    NotHeld::Released => Ok(()),
                    NotHeld::InDoubt => Err(Error::InDoubt { name: name(), source: None }),
                    NotHeld::Lost => {
                        tracing::warn!(name = %hold.name, owner = %hold.owner, "lost, noticed at release");
                        Err(Error::Lost { name: name(), reason: self.loss_reason(hold) })
                    }
                })
            }
        }
    }

    /// Removes the request id of released permits without owners from the store, if no request is in doubt.
    fn forget_settled_release(&self, hold: &Hold, target: u32, reply: &Result<StepReply<Released>, Failure>) {
        if hold.name.kind() != Kind::Semaphore || reply.is_err() || target > 0 {
            return;
        }
        let is_settled = {
            let state = hold.state();
            state.doubt.is_none() && state.unanswered_release.is_none()
        };
        if is_settled {
            self.forget_request(&hold.name, &hold.owner);
        }
    }

    /// The response time-out of a release: less than usual when the lease is nearly over.
    pub(super) fn release_limit(&self, hold: &Hold) -> Duration {
        let rest = hold.may_last_until().since(clock::now());
        coarse_limit(rest.max(Duration::from_millis(100)), self.settings.usual_limit())
    }

    /// Undoes the requests in doubt of a hold that has ended.
    pub(super) fn undo_doubt_of(self: &Arc<Self>, hold: &Hold) {
        let doubt = hold.state().doubt.take();
        // The store may have forgotten the acquire of permits without owners. An undo would then void a
        // granted request.
        let is_known = |doubt: &Doubt| hold.name.kind().is_leased() || !doubt.has_expired_by(clock::now());
        if let Some(doubt) = doubt.filter(is_known) {
            self.undo_request(hold.claim(0), self.release_limit(hold), doubt);
        }
    }

    /// Undoes what a lost hold may have left on the store.
    ///
    /// If the store reported the loss, only requests in doubt are left. If the lease ended by the local
    /// clock, the store may still have the hold.
    pub(super) fn undo_lost_hold(self: &Arc<Self>, hold: &Hold, reason: LostReason) {
        if reason.is_local_end() {
            let end = hold.may_last_until();
            let mut state = hold.state();
            let doubt =
                state.doubt.map_or_else(|| Doubt::of_existing_hold(end), |doubt| doubt.lasting_until(end));
            state.doubt = Some(doubt);
        }
        self.undo_doubt_of(hold);
    }

    /// Undoes a request in doubt, in the background, until it can have no effect.
    pub(super) fn undo_request(self: &Arc<Self>, claim: Claim<'_>, limit: Duration, doubt: Doubt) {
        tracing::warn!(
            name = %claim.name, owner = %claim.owner,
            "request in doubt, undoing it"
        );
        drop(self.undo(claim, limit, doubt));
    }

    /// Removes a refused waiter from the queue on the store, or the mark of a waiting writer.
    ///
    /// Retries for a while if the store does not reply. The removal completes even if the returned future is
    /// dropped.
    pub(super) fn leave_queue(
        self: &Arc<Self>,
        claim: Claim<'_>,
        limit: Duration,
    ) -> impl Future<Output = ()> + use<> {
        let done = self.undo(claim, limit, Doubt::of_existing_hold(clock::now() + Doubt::DELIVERY));
        async move { drop(done.await) }
    }

    /// Undoes what is in doubt, in the background, until that is confirmed or the doubt is moot.
    ///
    /// The receiver resolves when that is done. Dropping it does not stop the undo.
    pub(super) fn undo(
        self: &Arc<Self>,
        claim: Claim<'_>,
        limit: Duration,
        doubt: Doubt,
    ) -> oneshot::Receiver<()> {
        let shared = Arc::clone(self);
        let (done_sender, done) = oneshot::channel();
        let (name, owner, permits) = (claim.name.clone(), claim.owner.clone(), claim.permits);
        self.background.spawn(async move {
            let mut backoff = Backoff::default();
            loop {
                let sent = clock::now();
                let claim = Claim { permits, unsure: true, ..Claim::new(&name, &owner, 0) };
                let reply = shared.backend.release(claim, limit).await;
                let settled = reply.is_ok_and(|reply| reply.sent.unsettled(Some(doubt)).is_none());
                if settled || doubt.has_expired_by(sent) {
                    if !settled && !name.kind().is_leased() {
                        tracing::warn!(%name, %owner, permits, "undo failed, permits may be lost");
                    }
                    return drop(done_sender);
                }
                tokio::time::sleep(backoff.pause(fastrand::f64())).await;
            }
        });
        done
    }

    /// Ends one guard locally, and leaves the hold on the store as it is.
    pub(crate) fn detach(self: &Arc<Self>, hold: &Arc<Hold>, lease_mode: LeaseMode) {
        if hold.state().remove_guard(lease_mode) {
            self.watchdog.unwatch(hold);
            self.wait_queues.remove_hold(hold);
            // The permits have no holder from now on, and must not return to the semaphore when this client
            // ends.
            if hold.name.kind() == Kind::Semaphore && hold.state().doubt.is_none() {
                self.forget_request(&hold.name, &hold.owner);
            }
        }
    }

    /// Why the store does not have a hold that it had granted.
    pub(super) fn loss_reason(&self, hold: &Hold) -> LostReason {
        if hold.last_confirmed() < self.server_changed_at() {
            LostReason::GoneAfterReconnect
        } else {
            LostReason::Taken
        }
    }

    /// Marks a hold as lost, and wakes the next waiter.
    pub(super) fn mark_lost(&self, hold: &Arc<Hold>, reason: LostReason) {
        if hold.mark_lost(reason) {
            tracing::warn!(name = %hold.name, owner = %hold.owner, %reason, "lost");
            self.watchdog.unwatch(hold);
            self.wait_queues.remove_hold(hold);
        }
    }
}
