use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::Released;
use turnlock_core::verdict::{self, NotHeld};
use turnlock_core::{Backoff, Doubt, LockName, Moment, OwnerId};

use super::Shared;
use super::errand::Errand;
use super::hold::{Hold, Standing, Term};
use crate::backend::{Answer, Claim, Failure};
use crate::clock;
use crate::error::{Error, LostReason};

impl Shared {
    /// Gives back what one guard holds, and waits for it, but not for longer than failures are borne: then the engine
    /// goes on alone.
    pub(crate) async fn give_back(self: &Arc<Self>, hold: Arc<Hold>, term: Term) -> Result<(), Error> {
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
        let is_last = hold.state().remove_guard(term);
        if is_last {
            self.watchdog.forget(&hold);
        }
        let shared = Arc::clone(self);
        async move {
            let outcome = shared.bring_down(&hold, give_up).await;
            if matches!(outcome, Err(Error::InDoubt { .. })) && clock::now() < hold.may_last_until() {
                shared.bring_down_later(&hold);
            }
            if is_last {
                shared.rooms.vacate(&hold);
            }
            outcome
        }
    }

    /// Lowers the count on the store to the number of guards, in the background. Who wanted to know has been told already.
    pub(super) fn bring_down_later(self: &Arc<Self>, hold: &Arc<Hold>) {
        let (shared, hold) = (Arc::clone(self), Arc::clone(hold));
        self.errands.adopt(async move { drop(shared.bring_down(&hold, Moment::NEVER).await) });
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
                Ok(Err(Error::Lost { name: name(), reason: LostReason::Taken }))
            } else {
                Ok(Ok(()))
            };
            let failure = match outcome {
                Ok(outcome) => {
                    if target == 0 {
                        self.sweep_after(hold);
                    } else if matches!(outcome, Err(Error::Lost { .. })) {
                        self.lose(hold, LostReason::Taken);
                    }
                    return outcome;
                }
                Err(failure) => failure,
            };
            drop(turn);
            let in_doubt = failure.in_doubt.is_some();
            tracing::warn!(name = %hold.name, %failure, in_doubt, "release was not answered");
            let rest = hold.may_last_until().min(give_up).since(clock::now());
            if !failure.is_worth_a_retry() || rest.is_zero() {
                if target == 0 {
                    self.sweep_after(hold);
                }
                if failure.is_worth_a_retry() {
                    return Err(Error::InDoubt { name: name(), source: failure.into_cause() });
                }
                return Err(failure.into_error(|| format!("the release of lock {:?}", hold.name.as_str())));
            }
            tokio::time::sleep(backoff.pause(fastrand::f64()).min(rest)).await;
        }
    }

    /// Sends the release once.
    async fn lower(&self, hold: &Hold, target: u32) -> Result<Result<(), Error>, Failure> {
        let name = || hold.name.to_string();
        let answer = self.backend.release(hold.claim(target), self.release_limit(hold)).await;
        match answer {
            Err(failure) => {
                hold.state().end_sent |= target == 0 && failure.in_doubt.is_some();
                Err(failure)
            }
            Ok(Answer { value: Released::Freed | Released::Lowered, sent }) => {
                tracing::debug!(name = %hold.name, owner = %hold.owner, count = target, "released");
                let mut state = hold.state();
                state.confirmed = target;
                state.doubt = sent.leaves_of(state.doubt);
                Ok(Ok(()))
            }
            Ok(Answer { value: Released::NotHeld, .. }) => {
                let mut state = hold.state();
                // Only a release to zero leaves no hold behind, so only after one can this be its success.
                let verdict = verdict::not_held(state.end_sent, clock::now(), hold.believed_until());
                state.confirmed = 0;
                state.found_gone = verdict == NotHeld::Lost;
                drop(state);
                Ok(match verdict {
                    NotHeld::Released => Ok(()),
                    NotHeld::InDoubt => Err(Error::InDoubt { name: name(), source: None }),
                    NotHeld::Lost => {
                        tracing::warn!(name = %hold.name, owner = %hold.owner, "lost: found gone at release");
                        Err(Error::Lost { name: name(), reason: LostReason::Taken })
                    }
                })
            }
        }
    }

    /// How long to wait for the answer to a release: as for any step, less when the lease is nearly over.
    fn release_limit(&self, hold: &Hold) -> Duration {
        let rest = hold.may_last_until().since(clock::now());
        self.settings.usual_patience().min(rest.max(Duration::from_millis(100)))
    }

    /// After the end of a hold: if a request of it is still unaccounted for, sees to it that it finds nobody.
    fn sweep_after(self: &Arc<Self>, hold: &Hold) {
        let doubt = hold.state().doubt.take();
        if let Some(doubt) = doubt {
            self.sweep(hold.name.clone(), hold.owner.clone(), self.release_limit(hold), doubt);
        }
    }

    /// After the end of a hold that was lost: where the store itself said so, nothing is left there but what is in doubt.
    /// Where only the lease ran out here, the hold may still stand there.
    fn sweep_lost(self: &Arc<Self>, hold: &Hold, reason: LostReason) {
        if reason == LostReason::Expired {
            let end = hold.may_last_until();
            let mut state = hold.state();
            let doubt =
                state.doubt.map_or_else(|| Doubt::of_standing_hold(end), |doubt| doubt.lasting_until(end));
            state.doubt = Some(doubt);
        }
        self.sweep_after(hold);
    }

    /// Ends, again and again, what a lost request of `owner` may have begun or may still begin, until it cannot.
    pub(super) fn sweep(self: &Arc<Self>, name: LockName, owner: OwnerId, limit: Duration, doubt: Doubt) {
        let shared = Arc::clone(self);
        self.errands.adopt(async move {
            tracing::warn!(%name, %owner, "in doubt: a request got no answer, its effect is being undone");
            let mut backoff = Backoff::default();
            loop {
                let asked = clock::now();
                let answer =
                    shared.backend.release(Claim { name: &name, owner: &owner, target: 0 }, limit).await;
                let settled = answer.is_ok_and(|answer| answer.sent.leaves_of(Some(doubt)).is_none());
                if settled || doubt.is_moot(asked) {
                    return;
                }
                tokio::time::sleep(backoff.pause(fastrand::f64())).await;
            }
        });
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
