use std::ops::Deref;
use std::sync::Arc;

use super::hold::{Hold, Standing};

/// A hold of which a renewal is being sent, or waits for its answer, until this is dropped.
///
/// A renewal that follows the release of its hold finds nothing and does no harm. To one that follows the step which sets
/// the end of a hold that is to be [kept](super::stay::Stay), the hold is still there: so that step comes after this.
pub(super) struct RenewalUnderWay(Arc<Hold>);

impl RenewalUnderWay {
    /// `None` when the hold has ended or is lost: then there is nothing to renew.
    pub(super) fn begin(hold: Arc<Hold>) -> Option<Self> {
        {
            let mut state = hold.state();
            if state.standing != Standing::Held {
                return None;
            }
            state.renewals += 1;
        }
        Some(Self(hold))
    }

    /// Waits until no renewal of a hold is under way. When it had ended before, none follows.
    pub(super) async fn none_of(hold: &Hold) {
        loop {
            let renewed = hold.renewed.notified();
            tokio::pin!(renewed);
            renewed.as_mut().enable();
            if hold.state().renewals == 0 {
                return;
            }
            renewed.await;
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
        let renewals = {
            let mut state = self.0.state();
            state.renewals -= 1;
            state.renewals
        };
        if renewals == 0 {
            self.0.renewed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use turnlock_core::model::Claim;
    use turnlock_core::{Lease, LockName, OwnerId};

    use super::super::hold::Term;
    use super::*;
    use crate::clock;

    #[tokio::test]
    async fn who_ends_a_hold_can_wait_for_its_last_renewal() {
        let (name, owner) = (LockName::parse("n").expect("a good name"), OwnerId::from_wire("a:1"));
        let term = Term::Renewed(Lease::WATCHDOG);
        let hold = Arc::new(Hold::granted(Claim::new(&name, &owner, 1), term, clock::now(), None));
        let renewals = [(); 2].map(|()| RenewalUnderWay::begin(Arc::clone(&hold)).expect("held"));
        hold.state().remove_guard(term);
        assert!(RenewalUnderWay::begin(Arc::clone(&hold)).is_none(), "none follows");
        let mut none = Box::pin(RenewalUnderWay::none_of(&hold));
        for renewal in renewals {
            assert!(none.as_mut().now_or_never().is_none(), "one is under way");
            drop(renewal);
        }
        none.await;
    }
}
