use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::Renewed;
use turnlock_core::{Backoff, Lease, Moment};

use super::hold::{Hold, HoldStatus, LeaseMode};
use super::renewal_under_way::RenewalUnderWay;
use super::run_to_completion::RunToCompletion;
use super::{Shared, describe};
use crate::backend::{Failure, StepOptions, StepReply};
use crate::clock;
use crate::error::{Error, LostReason};

/// A hold without a guard that remains on the store until `until`.
///
/// Each request carries the time left when it is sent, so a repeated request does not extend the hold, except
/// by the delay of its delivery.
#[derive(Clone, Debug)]
pub(crate) struct DelayedUnlock {
    hold: Arc<Hold>,
    until: Moment,
}

/// The outcome of one request.
enum SendOutcome {
    /// Confirmed. Not settled if an older request of the hold may still arrive and change the lease.
    Confirmed {
        is_settled: bool,
    },
    /// Nothing more is to be sent.
    Ended(Error),
    Failed(Failure),
}

impl Shared {
    /// Ends the only guard of a hold locally, and its renewal. On an error, nothing has changed.
    pub(crate) fn begin_unlock_after(
        &self,
        hold: &Arc<Hold>,
        lease_mode: LeaseMode,
        time: Duration,
    ) -> Result<DelayedUnlock, Error> {
        let lease = Lease::new(time)?;
        if !hold.name.kind().is_leased() {
            let reason = format!("delayed unlock of {}: it has no lease; use `unlock`", describe(&hold.name));
            return Err(Error::Unsupported(reason));
        }
        if let Some(reason) = hold.lost() {
            self.mark_lost(hold, reason);
        }
        {
            let mut state = hold.state();
            if state.guards > 1 {
                let (what, guards) = (describe(&hold.name), state.guards);
                let reason =
                    format!("delayed unlock of {what}: it has {guards} guards; release the others first");
                return Err(Error::Unsupported(reason));
            }
            state.remove_guard(lease_mode);
        }
        self.watchdog.unwatch(hold);
        Ok(DelayedUnlock { hold: Arc::clone(hold), until: clock::now() + lease.as_duration() })
    }

    /// Sets the end of a hold on the store, and waits for the confirmation.
    ///
    /// When failures have lasted for `retry_for`, returns an error, and the engine goes on in the background.
    pub(crate) async fn finish_unlock_after(self: &Arc<Self>, delayed: DelayedUnlock) -> Result<(), Error> {
        if self.background.is_closed() {
            // The runtime of the client is gone, and its connections with it.
            self.wait_queues.remove_hold(&delayed.hold);
            return Err(Error::InDoubt { name: delayed.hold.name.to_string(), source: None });
        }
        let shared = Arc::clone(self);
        let work = async move {
            RenewalUnderWay::wait_for_none(&delayed.hold).await;
            let outcome = shared.send_with_retry(&delayed).await;
            shared.wait_queues.remove_hold(&delayed.hold);
            outcome
        };
        RunToCompletion::new(&self.background, work).await
    }

    async fn send_with_retry(self: &Arc<Self>, delayed: &DelayedUnlock) -> Result<(), Error> {
        let hold = &delayed.hold;
        let deadline = clock::now() + self.settings.retry_for;
        let mut backoff = Backoff::default();
        loop {
            let failure = match self.send_once(delayed).await {
                SendOutcome::Confirmed { is_settled } => {
                    if !is_settled {
                        self.send_in_background(delayed.clone());
                    }
                    return Ok(());
                }
                SendOutcome::Ended(error) => return Err(error),
                SendOutcome::Failed(failure) => failure,
            };
            tracing::warn!(name = %hold.name, %failure, "delayed unlock failed");
            if !failure.is_retryable() {
                self.send_releases_in_background(hold);
                return Err(
                    failure.into_error(|| format!("the delayed unlock of lock {:?}", hold.name.as_str()))
                );
            }
            if clock::now() >= deadline.min(delayed.until) {
                self.send_in_background(delayed.clone());
                return Err(Error::InDoubt { name: hold.name.to_string(), source: failure.into_cause() });
            }
            tokio::time::sleep(backoff.pause(fastrand::f64())).await;
        }
    }

    /// Sends the request in the background until it is settled or its time has passed.
    ///
    /// The caller has its result already.
    fn send_in_background(self: &Arc<Self>, delayed: DelayedUnlock) {
        let shared = Arc::clone(self);
        self.background.spawn(async move {
            let mut backoff = Backoff::default();
            loop {
                tokio::time::sleep(backoff.pause(fastrand::f64())).await;
                match shared.send_once(&delayed).await {
                    SendOutcome::Confirmed { is_settled: true } | SendOutcome::Ended(_) => return,
                    SendOutcome::Failed(failure) if !failure.is_retryable() => {
                        return shared.send_releases_in_background(&delayed.hold);
                    }
                    SendOutcome::Confirmed { .. } | SendOutcome::Failed(_) => {}
                }
            }
        });
    }

    /// Sends the request once.
    async fn send_once(self: &Arc<Self>, DelayedUnlock { hold, until }: &DelayedUnlock) -> SendOutcome {
        let name = || hold.name.to_string();
        // Waits for a reentry that is under way.
        let _step = hold.step_lock.lock().await;
        let status = hold.state().status;
        if let HoldStatus::Lost(reason) = status {
            self.undo_lost_hold(hold, reason);
            return SendOutcome::Ended(Error::Lost { name: name(), reason });
        }
        let now = clock::now();
        let time_left = until.since(now);
        let Some(time_left) = Lease::new(time_left.max(Lease::MIN)).ok().filter(|_| !time_left.is_zero())
        else {
            // Not confirmed in time, so the hold may last longer than requested. It is released now.
            self.undo_lost_hold(hold, LostReason::Expired);
            return SendOutcome::Ended(Error::InDoubt { name: name(), source: None });
        };
        if now >= hold.may_last_until() {
            self.undo_doubt_of(hold);
            return SendOutcome::Ended(Error::Lost { name: name(), reason: LostReason::Expired });
        }
        let step_options = StepOptions::of_engine(self.release_limit(hold), hold.replicas_wanted());
        match self.backend.unlock_after(hold.claim(1), time_left, step_options).await {
            Ok(StepReply { value: Renewed::Renewed | Renewed::Longer, sent, .. }) => {
                tracing::debug!(name = %hold.name, owner = %hold.owner, ?time_left, "delayed unlock set");
                hold.extend_may_last(time_left);
                let mut state = hold.state();
                state.doubt = sent.unsettled(state.doubt);
                SendOutcome::Confirmed { is_settled: state.doubt.is_none() }
            }
            Ok(StepReply { value: Renewed::NotHeld, .. }) => {
                tracing::warn!(name = %hold.name, owner = %hold.owner, "lost, noticed at the delayed unlock");
                self.undo_doubt_of(hold);
                SendOutcome::Ended(Error::Lost { name: name(), reason: self.loss_reason(hold) })
            }
            Err(failure) => {
                if failure.in_doubt.is_some() {
                    hold.extend_may_last(time_left);
                }
                SendOutcome::Failed(failure)
            }
        }
    }
}
