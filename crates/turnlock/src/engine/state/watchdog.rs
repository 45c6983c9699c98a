use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use turnlock_core::renewal::{RenewalSchedule, Sweep};
use turnlock_core::{Lease, Moment};

use super::deadline::LONGEST_SLEEP;
use super::hold::Hold;
use crate::clock;
use crate::sync::Mutex;

/// The number of holds that are taken or examined while the schedule is locked.
const MOST_AT_ONCE: usize = 1024;

/// The holds of this client, ordered by when each must be renewed, checked or marked as lost.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// The lease of renewed holds. A longer fixed lease is checked as often as this one.
    lease: Lease,
    schedule: Mutex<Schedule>,
    pub(crate) wake: Notify,
}

#[derive(Debug, Default)]
struct Schedule {
    holds: RenewalSchedule<Arc<Hold>>,
    /// When all holds were last to be checked. A hold whose last confirmation is older is due at once.
    checks_from: Moment,
    /// The holds that are still to be checked for that.
    check_all: Option<Sweep>,
}

impl Watchdog {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, schedule: Mutex::default(), wake: Notify::new() }
    }

    /// Starts to watch a hold from `now` on. Also called when its lease mode has changed.
    pub(crate) fn watch(&self, hold: &Arc<Hold>, now: Moment) {
        self.plan_after(hold, now, now);
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
    pub(crate) fn plan_after(&self, hold: &Arc<Hold>, sent: Moment, now: Moment) {
        if !hold.name.kind().is_leased() {
            return self.plan_end(hold, now);
        }
        let due = self.pace(hold).next_renewal(sent);
        self.plan_at(hold, now, |checks_from, last_confirmed| {
            // The last confirmation may be that of a server which has been replaced since.
            if last_confirmed < checks_from { now } else { due }
        });
    }

    /// Plans the next try for a hold whose renewal or check has failed.
    pub(crate) fn plan_retry(&self, hold: &Arc<Hold>, now: Moment) {
        let due = now + retry_after(self.pace(hold).renewal_period());
        self.plan_at(hold, now, |_, _| due);
    }

    /// Plans a renewal or check for now.
    pub(crate) fn plan_now(&self, hold: &Arc<Hold>) {
        let now = clock::now();
        self.plan_at(hold, now, |_, _| now);
    }

    /// Plans only the local end of the lease.
    pub(crate) fn plan_end(&self, hold: &Arc<Hold>, now: Moment) {
        self.plan_at(hold, now, |_, _| Moment::NEVER);
    }

    /// Plans the next renewal or check for `due`, or for the local end of the lease if that is earlier.
    ///
    /// `due` gets the time of the last check of all holds, and that of the last confirmation of this one.
    fn plan_at(&self, hold: &Arc<Hold>, now: Moment, due: impl FnOnce(Moment, Moment) -> Moment) {
        let mut schedule = self.schedule.lock();
        let mut inner = hold.inner();
        if let Some(appointment) = inner.appointment.take() {
            schedule.holds.cancel(appointment);
        }
        if !inner.state.is_held() {
            return;
        }
        let due = due(schedule.checks_from, inner.last_confirmed).min(inner.valid_until);
        inner.appointment = Some(schedule.holds.insert(due, Arc::clone(hold)));
        drop((inner, schedule));
        if due < now + LONGEST_SLEEP {
            self.wake.notify_one();
        }
    }

    /// Watches `to` in place of `from`, which is handed over. Returns `false` if the hand-over is no longer
    /// possible.
    pub(crate) fn transfer(&self, from: &Hold, to: &Arc<Hold>) -> bool {
        let mut schedule = self.schedule.lock();
        let Some(appointment) = from.transfer() else { return false };
        to.inner().appointment = Some(appointment);
        schedule.holds.replace(appointment, Arc::clone(to))
    }

    /// When the next hold is due.
    pub(crate) fn next_due(&self) -> Moment {
        let schedule = self.schedule.lock();
        match schedule.check_all {
            Some(_) => Moment::from_micros(0),
            None => schedule.holds.next_due().unwrap_or(Moment::NEVER),
        }
    }

    /// Stops watching a hold.
    pub(crate) fn unwatch(&self, hold: &Hold) {
        let mut schedule = self.schedule.lock();
        if let Some(appointment) = hold.inner().appointment.take() {
            schedule.holds.cancel(appointment);
        }
    }

    /// Checks all holds at once: an event may have cost them.
    pub(crate) fn check_all_now(&self) {
        let mut schedule = self.schedule.lock();
        schedule.checks_from = clock::now();
        schedule.check_all = Some(schedule.holds.sweep());
        drop(schedule);
        self.wake.notify_one();
    }

    /// Takes holds that are due, or that are to be checked with all others.
    ///
    /// Some of them at a time, so that the schedule is not locked for long.
    pub(crate) fn take_due(&self, now: Moment) -> Vec<Arc<Hold>> {
        let mut schedule = self.schedule.lock();
        let Schedule { holds, check_all, .. } = &mut *schedule;
        let mut due = holds.take_due(now, MOST_AT_ONCE);
        if due.is_empty() {
            due = holds.take_swept(check_all, MOST_AT_ONCE);
        }
        for hold in &due {
            hold.inner().appointment = None;
        }
        due
    }
}

/// A hold with a renewal that is sent and waits for its reply, until this is dropped.
///
/// A renewal that arrives after the release of its hold finds no hold and does no harm. But a hold with a
/// delayed unlock is still on the store, and a late renewal would extend it. So the request that sets its end
/// is sent after the last renewal.
pub(crate) struct RenewalUnderWay(pub(crate) Arc<Hold>);

impl RenewalUnderWay {
    /// Marks a renewal of `hold` as queued. Returns `false` if one is queued already, or the hold has ended.
    pub(crate) fn queue(hold: &Hold) -> bool {
        let mut inner = hold.inner();
        inner.state.is_held() && !std::mem::replace(&mut inner.is_renewal_queued, true)
    }

    /// Begins a renewal at `now`, which may have been queued. Returns `None` if the hold has ended or is lost.
    pub(crate) fn begin(hold: Arc<Hold>, now: Moment) -> Option<Self> {
        let mut inner = hold.inner();
        inner.is_renewal_queued = false;
        if !inner.state.is_held() || now >= inner.valid_until {
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
            let mut changed = pin!(hold.changed.notified());
            changed.as_mut().enable();
            {
                let mut inner = hold.inner();
                inner.awaits_renewals = inner.renewals_under_way > 0;
                if !inner.awaits_renewals {
                    return;
                }
            }
            changed.await;
        }
    }
}

impl Drop for RenewalUnderWay {
    fn drop(&mut self) {
        let mut inner = self.0.inner();
        inner.renewals_under_way -= 1;
        let is_awaited = inner.awaits_renewals && inner.renewals_under_way == 0;
        drop(inner);
        if is_awaited {
            self.0.changed.notify_waiters();
        }
    }
}

/// The pause before a renewal that failed is tried again.
pub(crate) fn retry_after(renewal_period: Duration) -> Duration {
    renewal_period / 10
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
        let now = clock::now();
        let hold = Arc::new(Hold::granted(Claim::new(&name, &owner, 1), lease_mode, (now, now), None));
        let renewals = [(); 2].map(|()| RenewalUnderWay::begin(Arc::clone(&hold), now).expect("held"));
        hold.end_guard(lease_mode, Event::GuardEnded, now);
        assert!(RenewalUnderWay::begin(Arc::clone(&hold), now).is_none(), "a renewal of an ended hold");
        let mut none = Box::pin(RenewalUnderWay::wait_for_none(&hold));
        for renewal in renewals {
            assert!(none.as_mut().now_or_never().is_none(), "a renewal is under way");
            drop(renewal);
        }
        none.await;
    }

    #[test]
    fn a_hold_that_was_confirmed_before_a_check_of_all_is_due_at_once() {
        let (watchdog, sent) = (Watchdog::new(Lease::WATCHDOG), clock::now());
        let owner = OwnerId::from_wire("a:1");
        let holds = ["checked", "confirmed during the check"].map(|name| {
            let claim = Claim::new(&LockName::parse(name).expect("a good name"), &owner, 1);
            Arc::new(Hold::granted(claim, LeaseMode::Renewed(Lease::WATCHDOG), (sent, sent), None))
        });
        watchdog.watch(&holds[0], sent);
        assert!(watchdog.take_due(clock::now()).is_empty());
        while clock::now() == sent {}
        watchdog.check_all_now();
        // The reply to an earlier request arrives late.
        watchdog.plan_after(&holds[1], sent, clock::now());
        for _ in 0..2 {
            assert_eq!(watchdog.take_due(clock::now()).len(), 1);
        }
        // Confirmed since.
        for hold in &holds {
            hold.confirm_held(clock::now());
            watchdog.plan_after(hold, clock::now(), clock::now());
        }
        assert!(watchdog.take_due(clock::now()).is_empty());
        assert!(watchdog.next_due() > clock::now());
    }
}
