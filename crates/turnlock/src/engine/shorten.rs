use std::sync::Arc;

use turnlock_core::model::Renewed;

use super::Shared;
use super::hold::{Hold, Standing};
use super::renewal_under_way::RenewalUnderWay;
use crate::backend::{Answer, Care};
use crate::clock;

impl Shared {
    /// Sets the lease of a hold that the store has for longer than its guards need to just that, in the background. So it is
    /// when a guard with a longer lease was given back, or the clock of the server was set back.
    ///
    /// Sent once: if it fails, the next renewal finds the lease as long as before. No renewal does it by itself: it may arrive
    /// late, when a guard has come that needs more. This is a step of the hold, so no reentry is under way meanwhile; and what
    /// is believed in is limited for as long as it may take effect.
    pub(super) fn shorten_later(self: &Arc<Self>, hold: &Arc<Hold>) {
        let (shared, hold) = (Arc::clone(self), Arc::clone(hold));
        self.errands.adopt(async move { shared.shorten(&hold).await });
    }

    /// Whether a hold is believed in for longer than its guards need.
    pub(super) fn is_too_long(hold: &Hold) -> bool {
        let now = clock::now();
        let need = hold.state().need(now, true);
        need.is_some_and(|need| hold.believed_until() > need.local_end(now))
    }

    async fn shorten(self: Arc<Self>, hold: &Arc<Hold>) {
        let _turn = hold.lane.lock().await;
        let need = loop {
            let now = clock::now();
            let need = {
                let state = hold.state();
                let goes_on = state.standing == Standing::Held && !self.has_stopped_renewing();
                state.need(now, true).filter(|_| goes_on)
            };
            let Some(need) = need else { return };
            if hold.begin_shortening(need, now) {
                break need;
            }
            RenewalUnderWay::none_of(hold).await;
        };
        let limit = self.settings.patience(need).unwrap_or_else(|_| self.settings.usual_patience());
        let care = Care::of_engine(limit, hold.replicas_wanted());
        let (has_failed, is_in_doubt) = match self.backend.set_lease(hold.claim(1), need, care).await {
            Ok(Answer { value: Renewed::NotHeld, .. }) => {
                self.lose(hold, self.reason_of_absence(hold));
                (false, false)
            }
            Ok(_) => {
                tracing::debug!(name = %hold.name, owner = %hold.owner, lease = ?need, "lease shortened");
                (false, false)
            }
            Err(failure) => {
                tracing::warn!(name = %hold.name, %failure, "a lease that is longer than needed was not shortened");
                let mut state = hold.state();
                state.doubt = failure.adds_doubt_to(state.doubt, need.as_duration());
                (true, failure.in_doubt.is_some())
            }
        };
        hold.state().is_to_be_shortened = has_failed;
        hold.end_shortening(is_in_doubt);
        self.watchdog.watch(hold);
    }
}
