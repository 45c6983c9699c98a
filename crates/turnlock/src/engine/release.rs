use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use turnlock_core::lease::coarse_limit;
use turnlock_core::model::{Claim, Released};
use turnlock_core::request::REPEATED_FOR;
use turnlock_core::verdict::{self, NotHeld};
use turnlock_core::{Backoff, Doubt, Kind, Moment};

use super::Shared;
use super::errand::Errand;
use super::hold::{Hold, Standing, Term};
use crate::backend::{Answer, Failure};
use crate::clock;
use crate::error::{Error, LostReason};

/// Until when the store will know that it has done a release of permits without owners, whose repetition would otherwise
/// count again.
fn remembered_until(hold: &Hold) -> Moment {
    let end_sent = hold.state().end_sent.filter(|_| !hold.name.kind().is_leased());
    end_sent.map_or(Moment::NEVER, |sent| sent + REPEATED_FOR)
}

impl Shared {
    /// Gives back what one guard holds, and waits for it, but not for longer than failures are borne: then the engine
    /// goes on alone.
    pub(crate) async fn give_back(self: &Arc<Self>, hold: Arc<Hold>, term: Term) -> Result<(), Error> {
        if self.hand_over(&hold, term) {
            return Ok(());
        }
        let give_up = clock::now() + self.settings.retry_for;
        let work = self.begin_release(Arc::clone(&hold), term, give_up);
        if self.errands.are_closed() {
            // The runtime of the client is gone, and with it the connections.
            if hold.state().guards == 0 {
                self.rooms.vacate(&hold);
            }
            return Err(Error::InDoubt { name: hold.name.to_string(), source: None });
        }
        Errand::new(&self.errands, work).await
    }

    /// Gives back what a dropped guard held, in the background.
    pub(crate) fn give_back_later(self: &Arc<Self>, hold: Arc<Hold>, term: Term) {
        if self.hand_over(&hold, term) {
            return;
        }
        let name = hold.name.clone();
        let work = self.begin_release(hold, term, Moment::NEVER);
        self.errands.adopt(async move {
            if let Err(error) = work.await {
                tracing::warn!(%name, %error, "a dropped guard could not be released");
            }
        });
    }

    /// Ends what one guard stands for, here and now, and makes the work that ends it on the store. Renewal stops before
    /// the release is sent.
    fn begin_release(
        self: &Arc<Self>,
        hold: Arc<Hold>,
        term: Term,
        give_up: Moment,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        // `lost()` may have told the end of the lease before the watchdog has seen it.
        if let Some(reason) = hold.lost() {
            self.lose(&hold, reason);
        }
        let is_last = hold.state().remove_guard(term);
        if is_last {
            self.watchdog.forget(&hold);
        }
        Arc::clone(self).finish_release(hold, is_last, give_up)
    }

    /// Ends on the store what guards stood for that are gone; all of it, if the last one is.
    pub(super) async fn finish_release(
        self: Arc<Self>,
        hold: Arc<Hold>,
        is_last: bool,
        give_up: Moment,
    ) -> Result<(), Error> {
        let outcome = self.bring_down(&hold, give_up).await;
        let end = hold.may_last_until().min(remembered_until(&hold));
        if matches!(outcome, Err(Error::InDoubt { .. })) && clock::now() < end {
            self.bring_down_later(&hold);
        }
        if is_last {
            self.rooms.vacate(&hold);
        } else if outcome.is_ok() && Self::is_too_long(&hold) {
            self.shorten_later(&hold);
        }
        outcome
    }

    /// Lowers the count on the store to the number of guards, in the background. Who wanted to know has been told already.
    pub(super) fn bring_down_later(self: &Arc<Self>, hold: &Arc<Hold>) {
        let (shared, hold) = (Arc::clone(self), Arc::clone(hold));
        self.errands.adopt(async move {
            let outcome = shared.bring_down(&hold, Moment::NEVER).await;
            if let Err(error @ Error::InDoubt { .. }) = outcome
                && !hold.name.kind().is_leased()
            {
                tracing::warn!(name = %hold.name, permits = hold.permits, %error, "permits may be out for good");
            }
        });
    }

    /// Lowers the count on the store to the number of guards. While the store does not answer, goes on until the hold
    /// cannot stand there any more, or `give_up` has come.
    pub(super) async fn bring_down(self: &Arc<Self>, hold: &Arc<Hold>, give_up: Moment) -> Result<(), Error> {
        let name = || hold.name.to_string();
        let mut backoff = Backoff::default();
        loop {
            // Given up between two tries: the next one asks for what is right by then.
            let turn = hold.lane.lock().await;
            let (target, confirmed, found_gone, standing) = {
                let state = hold.state();
                (state.guards, state.confirmed, state.found_gone, state.standing)
            };
            if let Standing::Lost(reason) = standing {
                if target == 0 {
                    self.sweep_lost(hold, reason);
                }
                return Err(Error::Lost { name: name(), reason });
            }
            let outcome = if confirmed > target {
                self.lower(hold, target).await
            } else if found_gone {
                Ok(Err(Error::Lost { name: name(), reason: self.reason_of_absence(hold) }))
            } else {
                Ok(Ok(()))
            };
            let failure = match outcome {
                Ok(outcome) => {
                    if target == 0 {
                        self.sweep_after(hold);
                    } else if let Err(Error::Lost { reason, .. }) = outcome {
                        self.lose(hold, reason);
                    }
                    return outcome;
                }
                Err(failure) => failure,
            };
            drop(turn);
            let in_doubt = failure.in_doubt.is_some();
            tracing::warn!(name = %hold.name, %failure, in_doubt, "release was not answered");
            let rest = hold.may_last_until().min(give_up).min(remembered_until(hold)).since(clock::now());
            if failure.is_worth_a_retry() && !rest.is_zero() {
                tokio::time::sleep(backoff.pause(fastrand::f64()).min(rest)).await;
                if clock::now() < remembered_until(hold) {
                    continue;
                }
            }
            if target == 0 {
                self.sweep_after(hold);
            }
            if failure.is_worth_a_retry() {
                return Err(Error::InDoubt { name: name(), source: failure.into_cause() });
            }
            return Err(failure.into_error(|| format!("the release of lock {:?}", hold.name.as_str())));
        }
    }

    /// Sends the release once.
    async fn lower(&self, hold: &Hold, target: u32) -> Result<Result<(), Error>, Failure> {
        let name = || hold.name.to_string();
        let lets_others_go_first =
            target == 0 && hold.name.kind().is_handed_over() && self.rooms.is_giving_back(&hold.name);
        let claim = Claim { unsure: hold.is_remembered(), ..hold.claim(target) };
        let answer = self.backend.release(claim, self.release_limit(hold)).await;
        if let Ok(Answer { told: Some(told), .. }) = answer
            && lets_others_go_first
        {
            self.rooms.has_given_back(&hold.name, told);
        }
        self.forget_after(hold, target, &answer);
        match answer {
            Err(failure) => {
                if let Some(sent) = failure.in_doubt.filter(|_| target == 0) {
                    hold.state().end_sent.get_or_insert(sent.at);
                }
                Err(failure)
            }
            Ok(Answer { value: Released::Freed | Released::Lowered, sent, .. }) => {
                tracing::debug!(name = %hold.name, owner = %hold.owner, count = target, "released");
                if target == 0 {
                    self.farewells.note(hold);
                }
                let mut state = hold.state();
                state.confirmed = target;
                state.doubt = sent.leaves_of(state.doubt);
                Ok(Ok(()))
            }
            Ok(Answer { value: Released::NotHeld, .. }) => {
                let mut state = hold.state();
                // Only a release to zero leaves no hold behind, so only after one can this be its success.
                let verdict =
                    verdict::not_held(state.end_sent.is_some(), clock::now(), hold.believed_until());
                state.confirmed = 0;
                state.found_gone = verdict == NotHeld::Lost;
                drop(state);
                Ok(match verdict {
                    NotHeld::Released => Ok(()),
                    NotHeld::InDoubt => Err(Error::InDoubt { name: name(), source: None }),
                    NotHeld::Lost => {
                        tracing::warn!(name = %hold.name, owner = %hold.owner, "lost: found gone at release");
                        Err(Error::Lost { name: name(), reason: self.reason_of_absence(hold) })
                    }
                })
            }
        }
    }

    /// Lets the store forget a hold of permits without owners when it was given back, and no request of it is in doubt.
    fn forget_after(&self, hold: &Hold, target: u32, answer: &Result<Answer<Released>, Failure>) {
        if hold.name.kind() != Kind::Semaphore || answer.is_err() || target > 0 {
            return;
        }
        let is_settled = {
            let state = hold.state();
            state.doubt.is_none() && state.end_sent.is_none()
        };
        if is_settled {
            self.forget(&hold.name, &hold.owner);
        }
    }

    /// How long to wait for the answer to a release: as for any step, less when the lease is nearly over.
    pub(super) fn release_limit(&self, hold: &Hold) -> Duration {
        let rest = hold.may_last_until().since(clock::now());
        coarse_limit(rest.max(Duration::from_millis(100)), self.settings.usual_patience())
    }

    /// After the end of a hold: if a request of it is still unaccounted for, sees to it that it finds nobody.
    pub(super) fn sweep_after(self: &Arc<Self>, hold: &Hold) {
        let doubt = hold.state().doubt.take();
        // The store may have forgotten how permits without owners were taken: an undo would call off what is held.
        let is_known = |doubt: &Doubt| hold.name.kind().is_leased() || !doubt.is_moot(clock::now());
        if let Some(doubt) = doubt.filter(is_known) {
            self.sweep(hold.claim(0), self.release_limit(hold), doubt);
        }
    }

    /// After the end of a hold that was lost: where the store itself said so, nothing is left there but what is in doubt.
    /// Where only the lease ran out here, the hold may still stand there.
    pub(super) fn sweep_lost(self: &Arc<Self>, hold: &Hold, reason: LostReason) {
        if reason.is_local_end() {
            let end = hold.may_last_until();
            let mut state = hold.state();
            let doubt =
                state.doubt.map_or_else(|| Doubt::of_standing_hold(end), |doubt| doubt.lasting_until(end));
            state.doubt = Some(doubt);
        }
        self.sweep_after(hold);
    }

    /// Ends, again and again, what a lost request of the claim's owner may have begun or may still begin, until it cannot.
    pub(super) fn sweep(self: &Arc<Self>, claim: Claim<'_>, limit: Duration, doubt: Doubt) {
        tracing::warn!(
            name = %claim.name, owner = %claim.owner,
            "in doubt: a request got no answer, its effect is being undone"
        );
        drop(self.undo(claim, limit, doubt));
    }

    /// Takes away what a waiter that was refused has left on the store, for a while if the store does not answer. Ready
    /// when that is done; it is done in any case.
    pub(super) fn withdraw(
        self: &Arc<Self>,
        claim: Claim<'_>,
        limit: Duration,
    ) -> impl Future<Output = ()> + use<> {
        let done = self.undo(claim, limit, Doubt::of_standing_hold(clock::now() + Doubt::DELIVERY));
        async move { drop(done.await) }
    }

    /// Undoes, in any case, what is in doubt. Ready when that is done.
    pub(super) fn undo(
        self: &Arc<Self>,
        claim: Claim<'_>,
        limit: Duration,
        doubt: Doubt,
    ) -> oneshot::Receiver<()> {
        let shared = Arc::clone(self);
        let (tell_done, done) = oneshot::channel();
        let (name, owner, permits) = (claim.name.clone(), claim.owner.clone(), claim.permits);
        self.errands.adopt(async move {
            let mut backoff = Backoff::default();
            loop {
                let asked = clock::now();
                let claim = Claim { permits, unsure: true, ..Claim::new(&name, &owner, 0) };
                let answer = shared.backend.release(claim, limit).await;
                let settled = answer.is_ok_and(|answer| answer.sent.leaves_of(Some(doubt)).is_none());
                if settled || doubt.is_moot(asked) {
                    if !settled && !name.kind().is_leased() {
                        tracing::warn!(%name, %owner, permits, "not undone in time: permits may be out for good");
                    }
                    return drop(tell_done);
                }
                tokio::time::sleep(backoff.pause(fastrand::f64())).await;
            }
        });
        done
    }

    /// Forgets what one guard stands for, and leaves it as it is on the store.
    pub(crate) fn let_go(self: &Arc<Self>, hold: &Arc<Hold>, term: Term) {
        if hold.state().remove_guard(term) {
            self.watchdog.forget(hold);
            self.rooms.vacate(hold);
            // The permits are nobody's now, and must not come back because we end.
            if hold.name.kind() == Kind::Semaphore && hold.state().doubt.is_none() {
                self.forget(&hold.name, &hold.owner);
            }
        }
    }

    /// Why the store does not have a hold that it had.
    pub(super) fn reason_of_absence(&self, hold: &Hold) -> LostReason {
        if hold.seen_at() < self.server_changed_at() {
            LostReason::GoneAfterReconnect
        } else {
            LostReason::Taken
        }
    }

    /// Declares a hold lost, and lets the next one ask.
    pub(super) fn lose(&self, hold: &Arc<Hold>, reason: LostReason) {
        if hold.lose(reason) {
            tracing::warn!(name = %hold.name, owner = %hold.owner, %reason, "lost");
            self.watchdog.forget(hold);
            self.rooms.vacate(hold);
        }
    }
}
