use std::sync::Arc;

use turnlock_core::model::Renewed;

use super::Shared;
use super::hold::{Hold, HoldStatus};
use super::renewal_under_way::RenewalUnderWay;
use crate::backend::{StepOptions, StepReply};
use crate::clock;

impl Shared {
    /// Shortens the lease on the store to what the guards need, in the background.
    ///
    /// A lease is too long when a guard with a longer lease was released, or the clock of the server was set
    /// back. The request is sent once: if it fails, the next renewal finds the lease still too long. Renewals
    /// never shorten a lease themselves, because a late one could take time from a newer guard. This is a
    /// step of the hold, so no reentry is under way meanwhile, and the validity of the hold is limited for as
    /// long as the request may take effect.
    pub(super) fn shorten_in_background(self: &Arc<Self>, hold: &Arc<Hold>) {
        let (shared, hold) = (Arc::clone(self), Arc::clone(hold));
        self.background.spawn(async move { shared.shorten(&hold).await });
    }

    /// Returns `true` if the hold is valid for longer than its guards need.
    pub(super) fn is_too_long(hold: &Hold) -> bool {
        let now = clock::now();
        let needed_lease = hold.state().needed_lease(now, true);
        needed_lease.is_some_and(|needed_lease| hold.valid_until() > needed_lease.local_end(now))
    }

    async fn shorten(self: Arc<Self>, hold: &Arc<Hold>) {
        let _step = hold.step_lock.lock().await;
        let need = loop {
            let now = clock::now();
            let need = {
                let state = hold.state();
                let is_active = state.status == HoldStatus::Held && !self.has_stopped_renewing();
                state.needed_lease(now, true).filter(|_| is_active)
            };
            let Some(need) = need else { return };
            if hold.begin_shortening(need, now) {
                break need;
            }
            RenewalUnderWay::wait_for_none(hold).await;
        };
        let limit = self.settings.response_limit(need).unwrap_or_else(|_| self.settings.usual_limit());
        let step_options = StepOptions::of_engine(limit, hold.replicas_wanted());
        let (is_failed, is_in_doubt) = match self.backend.set_lease(hold.claim(1), need, step_options).await {
            Ok(StepReply { value: Renewed::NotHeld, .. }) => {
                self.mark_lost(hold, self.loss_reason(hold));
                (false, false)
            }
            Ok(_) => {
                tracing::debug!(name = %hold.name, owner = %hold.owner, lease = ?need, "lease shortened");
                (false, false)
            }
            Err(failure) => {
                tracing::warn!(name = %hold.name, %failure, "shortening the lease failed, will retry");
                let mut state = hold.state();
                state.doubt = failure.merge_doubt(state.doubt, need.as_duration());
                (true, failure.in_doubt.is_some())
            }
        };
        hold.state().shortening_failed = is_failed;
        hold.end_shortening(is_in_doubt);
        self.watchdog.watch(hold);
    }
}
