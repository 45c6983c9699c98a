use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use turnlock_core::renewal::RenewalSchedule;
use turnlock_core::{Lease, Moment};

use super::deadline::LONGEST_SLEEP;
use super::hold::Hold;
use crate::clock;

/// The holds of this client, ordered by when each must be renewed, checked or marked as lost.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// The lease of renewed holds. A longer fixed lease is checked as often as this one.
    lease: Lease,
    schedule: Mutex<RenewalSchedule<Arc<Hold>>>,
    pub(crate) wake: Notify,
    check_all: AtomicBool,
}

impl Watchdog {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, schedule: Mutex::default(), wake: Notify::new(), check_all: AtomicBool::new(false) }
    }

    /// Starts to watch a hold. Also called when its lease mode has changed.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.plan_after(hold, clock::now());
    }

    /// The lease that sets the period of renewals and checks, which is a third of it.
    ///
    /// A fixed lease is not renewed, but checked: the store can lose its data, and a lock can be unlocked by
    /// force, while the connection stays.
    pub(crate) fn pace(&self, hold: &Hold) -> Lease {
        let inner = hold.inner();
        let leases = &inner.leases;
        let fixed = || leases.longest_fixed().unwrap_or(self.lease).min(self.lease);
        let lease = leases.renewal.unwrap_or_else(fixed);
        leases.shortened_to.map_or(lease, |shorter| lease.min(shorter))
    }

    /// Plans the next renewal or check of a hold that was confirmed by a request sent at `sent`.
    pub(crate) fn plan_after(&self, hold: &Arc<Hold>, sent: Moment) {
        let is_leased = hold.name.kind().is_leased();
        let due = if is_leased { self.pace(hold).next_renewal(sent) } else { Moment::NEVER };
        self.plan(hold, due);
    }

    /// Plans the next try for a hold whose renewal or check has failed.
    pub(crate) fn plan_retry(&self, hold: &Arc<Hold>) {
        self.plan(hold, clock::now() + self.pace(hold).renewal_period() / 10);
    }

    /// Plans the next renewal or check for `due`, or for the local end of the lease if that is earlier.
    pub(crate) fn plan(&self, hold: &Arc<Hold>, due: Moment) {
        let due = due.min(hold.valid_until());
        let mut schedule = self.schedule.lock();
        let mut inner = hold.inner();
        if let Some(appointment) = inner.appointment.take() {
            schedule.cancel(appointment);
        }
        if !inner.state.is_held() {
            return;
        }
        inner.appointment = Some(schedule.insert(due, Arc::clone(hold)));
        drop((inner, schedule));
        if due < clock::now() + LONGEST_SLEEP {
            self.wake.notify_one();
        }
    }

    /// Watches `to` in place of `from`, which is handed over. Returns `false` if the hand-over is no longer
    /// possible.
    pub(crate) fn transfer(&self, from: &Hold, to: &Arc<Hold>) -> bool {
        let mut schedule = self.schedule.lock();
        let Some(appointment) = from.transfer() else { return false };
        to.inner().appointment = Some(appointment);
        schedule.replace(appointment, Arc::clone(to))
    }

    /// When the next hold is due.
    pub(crate) fn next_due(&self) -> Moment {
        self.schedule.lock().next_due().unwrap_or(Moment::NEVER)
    }

    /// Stops watching a hold.
    pub(crate) fn unwatch(&self, hold: &Hold) {
        let mut schedule = self.schedule.lock();
        if let Some(appointment) = hold.inner().appointment.take() {
            schedule.cancel(appointment);
        }
    }

    /// Checks all holds at once: an event may have cost them.
    pub(crate) fn check_all_now(&self) {
        self.check_all.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn take_due(&self, now: Moment) -> Vec<Arc<Hold>> {
        let mut schedule = self.schedule.lock();
        let due = if self.check_all.swap(false, Ordering::AcqRel) {
            schedule.take_all()
        } else {
            schedule.take_due(now)
        };
        for hold in &due {
            hold.inner().appointment = None;
        }
        due
    }
}

/// A hold with a renewal that is being sent or waits for its reply, until this is dropped.
///
/// A renewal that arrives after the release of its hold finds no hold and does no harm. But a hold with a
/// delayed unlock is still on the store, and a late renewal would extend it. So the request that sets its end
/// is sent after the last renewal.
pub(crate) struct RenewalUnderWay(pub(crate) Arc<Hold>);

impl RenewalUnderWay {
    /// Returns `None` if the hold has ended or is lost.
    pub(crate) fn begin(hold: Arc<Hold>) -> Option<Self> {
        let mut inner = hold.inner();
        if !inner.state.is_held() {
            return None;
        }
        inner.renewals_under_way += 1;
        drop(inner);
        Some(Self(hold))
    }

    /// Waits until no renewal of `hold` is under way. If the hold has ended before the call, no other renewal
    /// starts.
    pub(crate) async fn wait_for_none(hold: &Hold) {
        loop {
            let renewals_done = hold.renewals_done.notified();
            tokio::pin!(renewals_done);
            renewals_done.as_mut().enable();
            if hold.inner().renewals_under_way == 0 {
                return;
            }
            renewals_done.await;
        }
    }
}

impl Drop for RenewalUnderWay {
    fn drop(&mut self) {
        let mut inner = self.0.inner();
        inner.renewals_under_way -= 1;
        let is_last = inner.renewals_under_way == 0;
        drop(inner);
        if is_last {
            self.0.renewals_done.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use turnlock_core::hold_state::Event;
    use turnlock_core::model::Claim;
    use turnlock_core::{LockName, OwnerId};

    use super::*;
    use crate::engine::state::LeaseMode;

    #[tokio::test]
    async fn the_end_of_a_hold_can_wait_for_its_last_renewal() {
        let (name, owner) = (LockName::parse("n").expect("a good name"), OwnerId::from_wire("a:1"));
        let lease_mode = LeaseMode::Renewed(Lease::WATCHDOG);
        let hold = Arc::new(Hold::granted(Claim::new(&name, &owner, 1), lease_mode, clock::now(), None));
        let renewals = [(); 2].map(|()| RenewalUnderWay::begin(Arc::clone(&hold)).expect("held"));
        hold.end_guard(lease_mode, Event::GuardEnded);
        assert!(RenewalUnderWay::begin(Arc::clone(&hold)).is_none(), "a renewal of an ended hold");
        let mut none = Box::pin(RenewalUnderWay::wait_for_none(&hold));
        for renewal in renewals {
            assert!(none.as_mut().now_or_never().is_none(), "a renewal is under way");
            drop(renewal);
        }
        none.await;
    }
}
