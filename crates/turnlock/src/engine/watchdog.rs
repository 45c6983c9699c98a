use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use turnlock_core::model::Renewed;
use turnlock_core::renewal::RenewalSchedule;
use turnlock_core::{Lease, Moment};

use super::Shared;
use super::hold::{Hold, HoldStatus};
use super::renewal_under_way::RenewalUnderWay;
use crate::backend::{Renewal, StepOptions, StepReply};
use crate::clock;

/// The number of holds per renewal request. Permits count one by one.
const BATCH: usize = 256;

/// The longest sleep. After a suspend of the machine the watchdog reads the clock within this time.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The holds of this client, ordered by when each must be renewed, checked or marked as lost.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// The lease of renewed holds. A longer fixed lease is checked as often as this one.
    lease: Lease,
    schedule: Mutex<RenewalSchedule<Arc<Hold>>>,
    wake: Notify,
    check_all: AtomicBool,
}

impl Watchdog {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, schedule: Mutex::default(), wake: Notify::new(), check_all: AtomicBool::new(false) }
    }

    fn schedule(&self) -> MutexGuard<'_, RenewalSchedule<Arc<Hold>>> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to watch a hold. Also called when its lease mode has changed.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.plan_after(hold, clock::now());
    }

    /// The lease that sets the period of renewals and checks, which is a third of it.
    ///
    /// A fixed lease is not renewed, but checked: the store can lose its data, and a lock can be unlocked by
    /// force, while the connection stays.
    fn pace(&self, hold: &Hold) -> Lease {
        let state = hold.state();
        let fixed = || state.longest_fixed_lease().unwrap_or(self.lease).min(self.lease);
        let lease = state.renewal.unwrap_or_else(fixed);
        state.shortened_to().map_or(lease, |shorter| lease.min(shorter))
    }

    /// Plans the next renewal or check of a hold that was confirmed by a request sent at `sent`.
    fn plan_after(&self, hold: &Arc<Hold>, sent: Moment) {
        let is_leased = hold.name.kind().is_leased();
        let due = if is_leased { self.pace(hold).next_renewal(sent) } else { Moment::NEVER };
        self.plan(hold, due);
    }

    /// Plans the next try for a hold whose renewal or check has failed.
    fn plan_retry(&self, hold: &Arc<Hold>) {
        self.plan(hold, clock::now() + self.pace(hold).renewal_period() / 10);
    }

    /// Plans the next renewal or check for `due`, or for the local end of the lease if that is earlier.
    fn plan(&self, hold: &Arc<Hold>, due: Moment) {
        let due = due.min(hold.valid_until());
        let mut schedule = self.schedule();
        let mut state = hold.state();
        if let Some(appointment) = state.appointment.take() {
            schedule.cancel(appointment);
        }
        if state.status != HoldStatus::Held {
            return;
        }
        state.appointment = Some(schedule.insert(due, Arc::clone(hold)));
        drop((state, schedule));
        if due < clock::now() + LONGEST_SLEEP {
            self.wake.notify_one();
        }
    }

    /// Watches `to` in place of `from`, which is handed over. Returns `false` if the hand-over is no longer
    /// possible.
    pub(super) fn transfer(&self, from: &Hold, to: &Arc<Hold>) -> bool {
        let mut schedule = self.schedule();
        let Some(appointment) = from.transfer() else { return false };
        to.state().appointment = Some(appointment);
        schedule.replace(appointment, Arc::clone(to))
    }

    /// Stops watching a hold.
    pub(crate) fn unwatch(&self, hold: &Hold) {
        let mut schedule = self.schedule();
        if let Some(appointment) = hold.state().appointment.take() {
            schedule.cancel(appointment);
        }
    }

    /// Checks one hold at once.
    pub(crate) fn check_now(&self, hold: &Arc<Hold>) {
        self.plan(hold, clock::now());
    }

    /// Checks all holds at once: an event may have cost them.
    pub(crate) fn check_all_now(&self) {
        self.check_all.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn take_due(&self, now: Moment) -> Vec<Arc<Hold>> {
        let mut schedule = self.schedule();
        let due = if self.check_all.swap(false, Ordering::AcqRel) {
            schedule.take_all()
        } else {
            schedule.take_due(now)
        };
        for hold in &due {
            hold.state().appointment = None;
        }
        due
    }
}

/// The renewal of a hold, and the hold.
type DueRenewal = (Renewal, RenewalUnderWay);

/// The watchdog's task. Ends with the engine.
pub(super) async fn run(engine: Weak<Shared>) {
    let mut batches = FuturesUnordered::new();
    loop {
        let Some(shared) = engine.upgrade() else { return };
        let now = clock::now();
        let mut due = Vec::new();
        for hold in shared.watchdog.take_due(now) {
            if let Some(reason) = hold.lost() {
                shared.mark_lost(&hold, reason);
                continue;
            }
            // Before `plan`, so that the hold is not handed over with a plan that skips the next renewal.
            let renewal = RenewalUnderWay::begin(Arc::clone(&hold));
            // Until the reply, only the end of the lease is to be watched.
            shared.watchdog.plan(&hold, Moment::NEVER);
            if let Some(hold) = renewal.filter(|hold| hold.name.kind().is_leased()) {
                due.push((renewal_of(&shared, &hold, now), hold));
            }
        }
        // Requests of limited size, each with one batch key.
        let key = |renewal: &DueRenewal| batch_key(&shared, renewal);
        due.sort_by_cached_key(key);
        let mut due = due.into_iter();
        while let Some(first) = due.as_slice().first().map(key) {
            let mut size = 0;
            let fits = |renewal: &&DueRenewal| {
                let permits = renewal.0.permits as usize;
                size += permits;
                key(renewal) == first && size <= BATCH.max(permits)
            };
            let count = due.as_slice().iter().take_while(fits).count().max(1);
            batches.push(renew(Arc::clone(&shared), first, due.by_ref().take(count).collect()));
        }
        let next = shared.watchdog.schedule().next_due().unwrap_or(Moment::NEVER);
        let sleep_for = next.since(clock::now()).min(LONGEST_SLEEP);
        tokio::select! {
            () = tokio::time::sleep(sleep_for) => {}
            () = shared.watchdog.wake.notified() => {}
            Some(()) = batches.next(), if !batches.is_empty() => {}
        }
    }
}

/// What the renewals of one request share: the renewal command, the number of replicas, and the response
/// time-out.
///
/// A request has one time-out, so a short lease must not share a request with longer ones.
type BatchKey = (u8, u32, Duration);

fn batch_key(shared: &Shared, (renewal, hold): &DueRenewal) -> BatchKey {
    // A check changes nothing, so there is nothing to acknowledge.
    let replicas = if renewal.lease.is_some() { hold.replicas_wanted() } else { 0 };
    let limit = shared.settings.response_limit(shared.watchdog.pace(hold));
    let limit = limit.unwrap_or_else(|_| shared.settings.usual_limit());
    (renewal.name.kind().renewal_group() as u8, replicas, limit)
}

/// Builds the renewal of a hold.
///
/// Its lease is what the guards need, if one of them is renewed or the lease may have been shortened; or the
/// rest of a lease that other clients may have shortened; or `None`, for a check only.
fn renewal_of(shared: &Shared, hold: &Hold, now: Moment) -> Renewal {
    let rest = || {
        let rest = Lease::new(hold.valid_until().since(now)).ok();
        rest.filter(|_| hold.name.kind().lease_may_be_shortened())
    };
    let renews = !shared.has_stopped_renewing();
    let needed_lease = {
        let state = hold.state();
        let is_renewed = renews && state.renewal.is_some();
        let sends_lease = is_renewed
            || state.shortened_to().is_some()
            || state.shortening_failed
            || hold.name.kind().lease_may_be_shortened();
        state.needed_lease(now, renews).filter(|_| sends_lease)
    };
    let lease = needed_lease.or_else(rest);
    Renewal { name: hold.name.clone(), owner: hold.owner.clone(), permits: hold.permits, lease }
}

/// Renews or checks a batch of holds.
async fn renew(shared: Arc<Shared>, (_, wanted, limit): BatchKey, due: Vec<DueRenewal>) {
    let (renewals, holds): (Vec<_>, Vec<_>) = due.into_iter().unzip();
    let started = clock::now();
    let (outcomes, sent, reached) =
        match shared.backend.renew(&renewals, StepOptions::of_engine(limit, wanted)).await {
            Ok(StepReply { value, sent, replicas, .. }) => {
                if replicas < wanted && value.contains(&None) {
                    let holds = holds.len();
                    tracing::warn!(replicas, wanted, holds, "renewal reached too few replicas, will retry");
                }
                if let Some(Renewal { name, .. }) = renewals.first() {
                    shared.write_client_record_if_due(name, sent.at);
                }
                (value, sent.at, replicas)
            }
            Err(failure) => {
                let holds = holds.len();
                tracing::warn!(%failure, holds, "renewal failed, will retry");
                (Vec::new(), started, 0)
            }
        };
    let outcomes = outcomes.into_iter().chain(std::iter::repeat(None));
    for ((hold, renewal), outcome) in holds.iter().zip(&renewals).zip(outcomes) {
        match outcome {
            Some(Renewed::Renewed | Renewed::Longer) => {
                hold.confirm_held(sent);
                if let Some(lease) = renewal.lease {
                    tracing::trace!(name = %hold.name, owner = %hold.owner, "renewed");
                    hold.confirm_for(lease, sent);
                    // With several servers, `reached` is the lowest number of any server. Each renewed hold
                    // reached `wanted`.
                    hold.note_replicas(wanted, reached.max(wanted));
                }
                shared.watchdog.plan_after(hold, sent);
                if outcome == Some(Renewed::Longer) {
                    shared.shorten_in_background(hold);
                }
            }
            Some(Renewed::NotHeld) => {
                // If the process was paused past the end of its lease, that is the reason.
                let reason = hold.lost().unwrap_or_else(|| shared.loss_reason(hold));
                shared.mark_lost(hold, reason);
            }
            // Unknown is not lost: retried until the end of the lease.
            None => {
                if let Some(lease) = renewal.lease {
                    hold.extend_may_last(lease);
                }
                shared.watchdog.plan_retry(hold);
            }
        }
    }
}
