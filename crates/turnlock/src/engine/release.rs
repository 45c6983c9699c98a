//! Releases on the store, and undoes of requests in doubt.
//!
//! What a reply or a failure means is decided by [`turnlock_core::hold_state`]; this module sends the requests and
//! executes the actions.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use tokio::sync::oneshot;
use turnlock_core::hold_state::{Action, Event, Phase, Report};
use turnlock_core::lease::coarse_limit;
use turnlock_core::model::{Claim, Released};
use turnlock_core::{Backoff, Doubt, Kind, Moment};

use super::engine::Engine;
use super::retry::pause_until;
use super::state::{Hold, ReleaseSpan, StepTurn};
use crate::clock;
use crate::error::{Error, IntoError, LostReason};
use turnlock_store::{Failure, StepReply, TypedCall};

/// Releases on the store what ended guards held.
///
/// The first request needs no allocation beside that of the store. What rarely follows is boxed.
pub(super) struct Release {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    /// The whole hold is released.
    is_last: bool,
    /// When the guard ended.
    began: Moment,
    deadline: Moment,
    state: ReleaseState,
    span: ReleaseSpan,
}

enum ReleaseState {
    Begun,
    /// The first request.
    Sent(ReleaseRequest),
    /// The retries, or the wait for another step of the hold.
    Retrying(BoxFuture<'static, Result<(), Error>>),
}

/// A release request under way.
struct ReleaseRequest {
    call: ReleaseCall,
    target: u32,
    yields: bool,
    /// Until the reply, no other step of the hold is sent.
    _turn: StepTurn,
}

/// How a release is sent.
enum ReleaseCall {
    Store(TypedCall<Released>),
    /// It names the next waiter of a fair lock.
    PassOn(BoxFuture<'static, Result<StepReply<Released>, Failure>>),
}

impl Future for ReleaseCall {
    type Output = Result<StepReply<Released>, Failure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Store(call) => Pin::new(call).poll(context),
            Self::PassOn(call) => call.as_mut().poll(context),
        }
    }
}

impl Release {
    pub(super) fn new(
        engine: &Arc<Engine>,
        hold: Arc<Hold>,
        is_last: bool,
        began: Moment,
        deadline: Moment,
    ) -> Self {
        let (engine, state) = (Arc::clone(engine), ReleaseState::Begun);
        Self { engine, hold, is_last, began, deadline, state, span: ReleaseSpan::default() }
    }

    /// Observes it by the span of its caller.
    pub(super) fn with_span(self, span: ReleaseSpan) -> Self {
        Self { span, ..self }
    }

    /// Returns the first request, or the outcome if there is nothing to send.
    fn begin(&self) -> Result<ReleaseState, Result<(), Error>> {
        let Self { engine, hold, .. } = self;
        let Some(turn) = StepTurn::try_of(hold) else { return Ok(self.retry(None)) };
        match hold.apply(Event::ReleaseDue, self.began) {
            Action::Send { target } => {
                let (call, yields) = engine.release_call(hold, target, self.began);
                Ok(ReleaseState::Sent(ReleaseRequest { call, target, yields, _turn: turn }))
            }
            action => Err(engine.finish(hold, action, None)),
        }
    }

    /// Returns the retries after a failed request for this count.
    fn retry(&self, failed: Option<(u32, Failure)>) -> ReleaseState {
        let (engine, hold, deadline) = (Arc::clone(&self.engine), Arc::clone(&self.hold), self.deadline);
        ReleaseState::Retrying(Box::pin(async move { engine.send_releases(&hold, deadline, failed).await }))
    }

    /// Returns the outcome to the caller, after what follows from it.
    fn finish(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        self.span.end(match &outcome {
            Ok(()) => "released",
            Err(Error::Lost { .. }) => "lost",
            Err(Error::InDoubt { .. }) => "in_doubt",
            Err(_) => "failed",
        });
        let Self { engine, hold, .. } = self;
        if matches!(outcome, Err(Error::InDoubt { .. })) && clock::now() < hold.release_end() {
            engine.send_releases_in_background(hold);
        }
        if self.is_last {
            engine.wait_queues.remove_hold(hold);
        } else if outcome.is_ok() && Engine::is_too_long(hold) {
            engine.shorten_in_background(hold);
        }
        outcome
    }
}

impl Future for Release {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match &mut self.state {
                ReleaseState::Begun => self.begin(),
                ReleaseState::Sent(ReleaseRequest { call, target, yields, .. }) => {
                    let (reply, target, yields) = (ready!(Pin::new(call).poll(context)), *target, *yields);
                    match self.engine.note_release(&self.hold, target, yields, reply) {
                        Ok(action) => Err(self.engine.finish(&self.hold, action, None)),
                        Err(failure) => Ok(self.retry(Some((target, failure)))),
                    }
                }
                ReleaseState::Retrying(retries) => Err(ready!(retries.as_mut().poll(context))),
            };
            match next {
                Ok(state) => self.state = state,
                Err(outcome) => return Poll::Ready(self.finish(outcome)),
            }
        }
    }
}

impl Engine {
    /// Lowers the count on the store to the number of guards, in the background.
    ///
    /// The caller has its result already.
    pub(super) fn send_releases_in_background(self: &Arc<Self>, hold: &Arc<Hold>) {
        let (engine, hold) = (Arc::clone(self), Arc::clone(hold));
        self.background.spawn(async move {
            let outcome = engine.send_releases(&hold, Moment::NEVER, None).await;
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
    /// `failed` is a request that has failed, with its count.
    pub(super) async fn send_releases(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        deadline: Moment,
        mut failed: Option<(u32, Failure)>,
    ) -> Result<(), Error> {
        let mut backoff = Backoff::default();
        loop {
            let (target, failure) = match failed.take() {
                Some(failed) => failed,
                None => match self.send_release(hold).await {
                    Ok(action) => return self.finish(hold, action, None),
                    Err(failed) => failed,
                },
            };
            let end = hold.release_end().min(deadline);
            let may_retry = pause_until(end, &failure, &mut backoff).await;
            if !may_retry || clock::now() >= hold.resend_end() {
                let is_refused = !failure.is_retryable();
                let action = hold.apply(Event::ReleaseFailed { target, is_refused }, clock::now());
                return self.finish(hold, action, Some(failure));
            }
        }
    }

    /// Sends one release request, if one is due. Returns what its reply means, or its count and the failure.
    async fn send_release(&self, hold: &Arc<Hold>) -> Result<Action, (u32, Failure)> {
        // Until the reply. Each try reads the current target.
        let _turn = StepTurn::of(hold).await;
        let now = clock::now();
        let action = hold.apply(Event::ReleaseDue, now);
        let Action::Send { target } = action else { return Ok(action) };
        let (call, yields) = self.release_call(hold, target, now);
        self.note_release(hold, target, yields, call.await).map_err(|failure| (target, failure))
    }

    /// Makes a release request. Returns also whether this client yields to others after it.
    fn release_call(&self, hold: &Hold, target: u32, now: Moment) -> (ReleaseCall, bool) {
        let yields = target == 0
            && hold.name.kind().yields_to_others()
            && self.wait_queues.begin_yielding(&hold.name, now);
        let claim = Claim { unsure: hold.is_remembered(), ..hold.claim(target) };
        let limit = self.release_limit(hold, now);
        let may_pass_on = target == 0 && hold.name.kind() == Kind::Fair;
        let next = if may_pass_on { self.heartbeats.name_next(&hold.name) } else { None };
        let call = match next {
            Some(next) => ReleaseCall::PassOn(self.pass_on(claim, next, limit)),
            None => ReleaseCall::Store(self.store.release(claim, limit)),
        };
        (call, yields)
    }

    /// Returns what the reply to a release request means.
    fn note_release(
        &self,
        hold: &Arc<Hold>,
        target: u32,
        yields: bool,
        reply: Result<StepReply<Released>, Failure>,
    ) -> Result<Action, Failure> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => {
                if let Some(sent) = failure.in_doubt {
                    hold.apply(Event::ReleaseInDoubt { target, sent: sent.at }, clock::now());
                }
                let in_doubt = failure.in_doubt.is_some();
                if !self.outage_log.note_failure("release", &failure, clock::now()) {
                    tracing::warn!(name = %hold.name, %failure, in_doubt, "release failed");
                }
                return Err(failure);
            }
        };
        self.outage_log.note_reply();
        if let Some(listeners) = reply.notified.filter(|&listeners| yields || listeners > 0) {
            self.wait_queues.set_listeners(&hold.name, listeners, yields);
        }
        self.forget_settled_release(hold, target);
        if reply.value != Released::NotHeld {
            tracing::debug!(name = %hold.name, owner = %hold.owner, count = target, "released");
            if target == 0 {
                self.recent_releases.push(hold);
            }
            return Ok(hold.confirm_release(target, reply.sent, clock::now()));
        }
        let reason = self.loss_reason(hold);
        let was_lost = hold.lost().is_some();
        let action = hold.apply_loss(Event::ReleaseNotHeld { target }, reason);
        if !was_lost && matches!(action, Action::Finish { report: Report::Gone, .. }) {
            tracing::warn!(name = %hold.name, owner = %hold.owner, "lost, noticed at release");
            hold.metrics.count_loss(reason);
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
                    self.undo_request(hold.claim(0), self.release_limit(hold, clock::now()), doubt);
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
    pub(super) fn release_limit(&self, hold: &Hold, now: Moment) -> Duration {
        let rest = hold.may_last_until().since(now);
        coarse_limit(rest.max(Duration::from_millis(100)), self.settings.usual_limit())
    }

    /// Undoes a request in doubt, in the background, until it can have no effect.
    ///
    /// The failure that left it in doubt has been logged.
    pub(super) fn undo_request(self: &Arc<Self>, claim: Claim, limit: Duration, doubt: Doubt) {
        tracing::debug!(name = %claim.name, owner = %claim.owner, "request in doubt, undoing it");
        drop(self.undo(claim, limit, doubt));
    }

    /// Removes a refused waiter from the queue on the store, or the mark of a waiting writer.
    ///
    /// Retries for a while if the store does not reply. The receiver is as that of [`Self::undo`].
    pub(super) fn leave_queue(self: &Arc<Self>, claim: Claim, limit: Duration) -> oneshot::Receiver<()> {
        self.undo(claim, limit, Doubt::of_existing_hold(clock::now() + Doubt::DELIVERY))
    }

    /// Undoes what is in doubt, in the background. The receiver resolves when that is done, and may be dropped.
    pub(super) fn undo(
        self: &Arc<Self>,
        claim: Claim,
        limit: Duration,
        doubt: Doubt,
    ) -> oneshot::Receiver<()> {
        let engine = Arc::clone(self);
        let (done_sender, done) = oneshot::channel();
        self.background.spawn(async move {
            engine.undo_until_settled(claim, limit, doubt).await;
            drop(done_sender);
        });
        done
    }

    /// Undoes what is in doubt, until that is confirmed or the doubt is moot.
    async fn undo_until_settled(&self, claim: Claim, limit: Duration, doubt: Doubt) {
        let claim = Claim { target: 0, under: None, unsure: true, ..claim };
        let mut backoff = Backoff::default();
        let is_settled = loop {
            let sent = clock::now();
            let reply = self.store.release(claim.clone(), limit).await;
            let is_settled = reply.is_ok_and(|reply| {
                self.outage_log.note_reply();
                reply.sent.unsettled(Some(doubt)).is_none()
            });
            if is_settled || doubt.has_expired_by(sent) {
                break is_settled;
            }
            tokio::time::sleep(backoff.pause(fastrand::f64())).await;
        };
        let Claim { name, owner, permits, .. } = claim;
        if !is_settled && !name.kind().is_leased() {
            tracing::warn!(%name, %owner, permits, "undo failed, permits may be lost");
        }
    }

    /// Sends the recent releases again: another server has taken over, or the same one has restarted.
    ///
    /// The next replay ends this one, so that a server that changes often causes no pile of replays. It repeats what is among
    /// the latest releases then; a hold that is not ends with its lease.
    pub(super) fn replay_recent_releases(self: &Arc<Self>) {
        let (releases, mut next_replay) = self.recent_releases.begin_replay(clock::now());
        if releases.is_empty() {
            return;
        }
        tracing::debug!(holds = releases.len(), "server changed, replaying recent releases");
        let engine = Arc::clone(self);
        self.background.spawn(async move {
            let limit = engine.settings.usual_limit();
            let replay = stream::iter(releases).for_each_concurrent(None, |(claim, lease_end)| {
                engine.undo_until_settled(claim, limit, Doubt::of_existing_hold(lease_end))
            });
            tokio::select! {
                biased;
                () = replay => {}
                _ = next_replay.changed() => {}
            }
        });
    }
}
