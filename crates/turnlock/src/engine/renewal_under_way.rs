use std::ops::Deref;
use std::sync::Arc;

use super::hold::{Hold, HoldStatus};

/// A hold with a renewal that is being sent or waits for its reply, until this is dropped.
///
/// A renewal that arrives after the release of its hold finds no hold and does no harm. But a hold with a
/// [delayed unlock](super::unlock_after::DelayedUnlock) is still on the store, and a late renewal would
/// extend it. So the request that sets its end is sent after the last renewal.
pub(super) struct RenewalUnderWay(Arc<Hold>);

impl RenewalUnderWay {
    /// Returns `None` if the hold has ended or is lost.
    pub(super) fn begin(hold: Arc<Hold>) -> Option<Self> {
        {
            let mut state = hold.state();
            if state.status != HoldStatus::Held {
                return None;
            }
            state.renewals_under_way += 1;
        }
        Some(Self(hold))
    }

    /// Waits until no renewal of `hold` is under way. If the hold has ended before the call, no other renewal
    /// starts.
    pub(super) async fn wait_for_none(hold: &Hold) {
        loop {
            let renewals_done = hold.renewals_done.notified();
            tokio::pin!(renewals_done);
            renewals_done.as_mut().enable();
            if hold.state().renewals_under_way == 0 {
                return;
            }
            renewals_done.await;
        }
    }
}

impl Deref for RenewalUnderWay {
    type Target = Arc<Hold>;

    fn deref(&self) -> &Arc<Hold> {
        &self.0
    }
}

impl Drop for RenewalUnderWay {
    fn drop(&mut self) {
        let renewals_under_way = {
            let mut state = self.0.state();
            state.renewals_under_way -= 1;
            state.renewals_under_way
        };
        if renewals_under_way == 0 {
            self.0.renewals_done.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use turnlock_core::model::Claim;
    use turnlock_core::{Lease, LockName, OwnerId};

    use super::super::hold::LeaseMode;
    use super::*;
    use crate::clock;

    #[tokio::test]
    async fn the_end_of_a_hold_can_wait_for_its_last_renewal() {
        let (name, owner) = (LockName::parse("n").expect("a good name"), OwnerId::from_wire("a:1"));
        let lease_mode = LeaseMode::Renewed(Lease::WATCHDOG);
        let hold = Arc::new(Hold::granted(Claim::new(&name, &owner, 1), lease_mode, clock::now(), None));
        let renewals = [(); 2].map(|()| RenewalUnderWay::begin(Arc::clone(&hold)).expect("held"));
        hold.state().remove_guard(lease_mode);
        assert!(RenewalUnderWay::begin(Arc::clone(&hold)).is_none(), "a renewal of an ended hold");
        let mut none = Box::pin(RenewalUnderWay::wait_for_none(&hold));
        for renewal in renewals {
            assert!(none.as_mut().now_or_never().is_none(), "a renewal is under way");
            drop(renewal);
        }
        none.await;
    }
}
