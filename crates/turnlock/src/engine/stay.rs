use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::Renewed;
use turnlock_core::{Backoff, Lease, Moment};

use super::errand::Errand;
use super::hold::{Hold, Standing, Term};
use super::renewal_under_way::RenewalUnderWay;
use super::{Shared, describe};
use crate::backend::{Answer, Care, Failure};
use crate::clock;
use crate::error::{Error, LostReason};

/// A hold that has no guard any more and is to stand on the store until a certain moment.
///
/// Each request says how long that is from when it is sent, so a repeated one does not make it longer; it may be by the time
/// that a request is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Stay {
    hold: Arc<Hold>,
    until: Moment,
}

/// What came of one request.
enum Said {
    /// The store has it. Not settled when an older request of the hold may still arrive and change that.
    Kept {
        is_settled: bool,
    },
    /// There is nothing more to say.
    Over(Error),
    Unanswered(Failure),
}

impl Shared {
    /// Ends what the only guard of a hold stands for, here and now, and with it its renewal. An error leaves all as it was.
    pub(crate) fn begin_stay(&self, hold: &Arc<Hold>, term: Term, time: Duration) -> Result<Stay, Error> {
        let lease = Lease::new(time)?;
        if !hold.name.kind().is_leased() {
            let reason = format!("{} has no lease, so it cannot be kept for a time", describe(&hold.name));
            return Err(Error::Unsupported(reason));
        }
        if let Some(reason) = hold.lost() {
            self.lose(hold, reason);
        }
        {
            let mut state = hold.state();
            if state.guards > 1 {
                let (what, guards) = (describe(&hold.name), state.guards);
                let reason =
                    format!("{what} is held by {guards} guards: only the last one can be kept for a time");
                return Err(Error::Unsupported(reason));
            }
            state.remove_guard(term);
        }
        self.watchdog.forget(hold);
        Ok(Stay { hold: Arc::clone(hold), until: clock::now() + lease.as_duration() })
    }

    /// Says to the store until when a hold is to stand, and waits for that, but not for longer than failures are borne:
    /// then the engine goes on alone.
    pub(crate) async fn finish_stay(self: &Arc<Self>, stay: Stay) -> Result<(), Error> {
        if self.errands.are_closed() {
            // The runtime of the client is gone, and with it the connections.
            self.rooms.vacate(&stay.hold);
            return Err(Error::InDoubt { name: stay.hold.name.to_string(), source: None });
        }
        let shared = Arc::clone(self);
        let work = async move {
            RenewalUnderWay::none_of(&stay.hold).await;
            let outcome = shared.say_patiently(&stay).await;
            shared.rooms.vacate(&stay.hold);
            outcome
        };
        Errand::new(&self.errands, work).await
    }

    async fn say_patiently(self: &Arc<Self>, stay: &Stay) -> Result<(), Error> {
        let hold = &stay.hold;
        let give_up = clock::now() + self.settings.retry_for;
        let mut backoff = Backoff::default();
        loop {
            let failure = match self.say(stay).await {
                Said::Kept { is_settled } => {
                    if !is_settled {
                        self.say_later(stay.clone());
                    }
                    return Ok(());
                }
                Said::Over(error) => return Err(error),
                Said::Unanswered(failure) => failure,
            };
            tracing::warn!(name = %hold.name, %failure, "not confirmed that a lock is kept");
            if !failure.is_worth_a_retry() {
                self.bring_down_later(hold);
                return Err(failure.into_error(|| format!("keeping lock {:?}", hold.name.as_str())));
            }
            if clock::now() >= give_up.min(stay.until) {
                self.say_later(stay.clone());
                return Err(Error::InDoubt { name: hold.name.to_string(), source: failure.into_cause() });
            }
            tokio::time::sleep(backoff.pause(fastrand::f64())).await;
        }
    }

    /// Says it in the background until that is settled, or the time is over. Who wanted to know has been told already.
    fn say_later(self: &Arc<Self>, stay: Stay) {
        let shared = Arc::clone(self);
        self.errands.adopt(async move {
            let mut backoff = Backoff::default();
            loop {
                tokio::time::sleep(backoff.pause(fastrand::f64())).await;
                match shared.say(&stay).await {
                    Said::Kept { is_settled: true } | Said::Over(_) => return,
                    Said::Unanswered(failure) if !failure.is_worth_a_retry() => {
                        return shared.bring_down_later(&stay.hold);
                    }
                    Said::Kept { .. } | Said::Unanswered(_) => {}
                }
            }
        });
    }

    /// Says it once.
    async fn say(self: &Arc<Self>, Stay { hold, until }: &Stay) -> Said {
        let name = || hold.name.to_string();
        // After a reentry that is under way.
        let _turn = hold.lane.lock().await;
        let standing = hold.state().standing;
        if let Standing::Lost(reason) = standing {
            self.sweep_lost(hold, reason);
            return Said::Over(Error::Lost { name: name(), reason });
        }
        let now = clock::now();
        let rest = until.since(now);
        let Some(rest) = Lease::new(rest.max(Lease::MIN)).ok().filter(|_| !rest.is_zero()) else {
            // Never confirmed, so it may stand for longer than it was to: now it is to be free.
            self.sweep_lost(hold, LostReason::Expired);
            return Said::Over(Error::InDoubt { name: name(), source: None });
        };
        if now >= hold.may_last_until() {
            self.sweep_after(hold);
            return Said::Over(Error::Lost { name: name(), reason: LostReason::Expired });
        }
        let care = Care::of_engine(self.release_limit(hold), hold.replicas_wanted());
        match self.backend.keep(hold.claim(1), rest, care).await {
            Ok(Answer { value: Renewed::Renewed | Renewed::Longer, sent, .. }) => {
                tracing::debug!(name = %hold.name, owner = %hold.owner, ?rest, "kept");
                hold.may_last_for(rest);
                let mut state = hold.state();
                state.doubt = sent.leaves_of(state.doubt);
                Said::Kept { is_settled: state.doubt.is_none() }
            }
            Ok(Answer { value: Renewed::NotHeld, .. }) => {
                tracing::warn!(name = %hold.name, owner = %hold.owner, "lost: found gone when it was to be kept");
                self.sweep_after(hold);
                Said::Over(Error::Lost { name: name(), reason: self.reason_of_absence(hold) })
            }
            Err(failure) => {
                if failure.in_doubt.is_some() {
                    hold.may_last_for(rest);
                }
                Said::Unanswered(failure)
            }
        }
    }
}
