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
use super::hold::{Hold, Standing};
use super::renewal_under_way::RenewalUnderWay;
use crate::backend::{Answer, Care, Renewal};
use crate::clock;

/// How many holds are renewed by one request; of several permits together, each counts.
const BATCH: usize = 256;

/// How long the watchdog sleeps at the most: a machine that slept longer finds out on waking, and not later.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Every hold of this client, in the order in which they must be looked at: to be renewed or to be declared lost.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// The lease of renewed holds: a fixed lease is looked at as if it were this long, if it is longer.
    lease: Lease,
    schedule: Mutex<RenewalSchedule<Arc<Hold>>>,
    look: Notify,
    look_at_all: AtomicBool,
}

impl Watchdog {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, schedule: Mutex::default(), look: Notify::new(), look_at_all: AtomicBool::new(false) }
    }

    fn schedule(&self) -> MutexGuard<'_, RenewalSchedule<Arc<Hold>>> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks after a hold from now on. Also to be called when its term has changed.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.plan_after(hold, clock::now());
    }

    /// The lease that decides how often a hold is renewed or looked at. Both happen once in a third of it.
    ///
    /// A fixed lease needs no renewal. It is looked at all the same: data can be lost, and a lock can be unlocked by force,
    /// without a change of a connection.
    fn pace(&self, hold: &Hold) -> Lease {
        let state = hold.state();
        let fixed = || state.longest_fixed().unwrap_or(self.lease).min(self.lease);
        let lease = state.renewal.unwrap_or_else(fixed);
        state.shortened_to().map_or(lease, |shorter| lease.min(shorter))
    }

    /// Plans the next look at a hold that was confirmed by a request sent at `sent`.
    fn plan_after(&self, hold: &Arc<Hold>, sent: Moment) {
        let is_leased = hold.name.kind().is_leased();
        let due = if is_leased { self.pace(hold).next_renewal(sent) } else { Moment::NEVER };
        self.plan(hold, due);
    }

    /// Plans the next look at a hold whose renewal or look has failed.
    fn plan_retry(&self, hold: &Arc<Hold>) {
        self.plan(hold, clock::now() + self.pace(hold).renewal_period() / 10);
    }

    /// Plans the next look for `due`, or for the end of the lease if that comes first.
    fn plan(&self, hold: &Arc<Hold>, due: Moment) {
        let due = due.min(hold.believed_until());
        let mut schedule = self.schedule();
        let mut state = hold.state();
        if let Some(appointment) = state.appointment.take() {
            schedule.cancel(appointment);
        }
        if state.standing != Standing::Held {
            return;
        }
        state.appointment = Some(schedule.plan(due, Arc::clone(hold)));
        drop((state, schedule));
        if due < clock::now() + LONGEST_SLEEP {
            self.look.notify_one();
        }
    }

    /// Looks after a hold that was handed over in place of the one that it was, if that one passes on.
    pub(super) fn hand_over(&self, from: &Hold, to: &Arc<Hold>) -> bool {
        let mut schedule = self.schedule();
        let Some(appointment) = from.pass_on() else { return false };
        to.state().appointment = Some(appointment);
        schedule.replace(appointment, Arc::clone(to))
    }

    /// Stops looking after a hold.
    pub(crate) fn forget(&self, hold: &Hold) {
        let mut schedule = self.schedule();
        if let Some(appointment) = hold.state().appointment.take() {
            schedule.cancel(appointment);
        }
    }

    /// Confirms one hold at once.
    pub(crate) fn look_now(&self, hold: &Arc<Hold>) {
        self.plan(hold, clock::now());
    }

    /// Confirms every hold at once: something happened that may have cost them.
    pub(crate) fn look_at_all_now(&self) {
        self.look_at_all.store(true, Ordering::Release);
        self.look.notify_one();
    }

    fn take_due(&self, now: Moment) -> Vec<Arc<Hold>> {
        let mut schedule = self.schedule();
        let due = if self.look_at_all.swap(false, Ordering::AcqRel) {
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

/// What to say of a hold, and the hold.
type Line = (Renewal, RenewalUnderWay);

/// The watchdog's task. Ends with the engine.
pub(super) async fn run(engine: Weak<Shared>) {
    let mut batches = FuturesUnordered::new();
    loop {
        let Some(shared) = engine.upgrade() else { return };
        let now = clock::now();
        let mut lines = Vec::new();
        for hold in shared.watchdog.take_due(now) {
            if let Some(reason) = hold.lost() {
                shared.lose(&hold, reason);
                continue;
            }
            // First of all, so that it is not handed over with a plan that leaves out the next renewal.
            let renewal = RenewalUnderWay::begin(Arc::clone(&hold));
            // Until an answer comes, the only thing left to watch for is the end.
            shared.watchdog.plan(&hold, Moment::NEVER);
            if let Some(hold) = renewal.filter(|hold| hold.name.kind().is_leased()) {
                lines.push((line(&shared, &hold, now), hold));
            }
        }
        // One request for each manner, and not too long a one.
        let manner = |line: &Line| manner(&shared, line);
        lines.sort_by_cached_key(manner);
        let mut lines = lines.into_iter();
        while let Some(first) = lines.as_slice().first().map(manner) {
            let mut size = 0;
            let fits = |line: &&Line| {
                let permits = line.0.permits as usize;
                size += permits;
                manner(line) == first && size <= BATCH.max(permits)
            };
            let count = lines.as_slice().iter().take_while(fits).count().max(1);
            batches.push(renew(Arc::clone(&shared), first, lines.by_ref().take(count).collect()));
        }
        let next = shared.watchdog.schedule().next_due().unwrap_or(Moment::NEVER);
        let nap = next.since(clock::now()).min(LONGEST_SLEEP);
        tokio::select! {
            () = tokio::time::sleep(nap) => {}
            () = shared.watchdog.look.notified() => {}
            Some(()) = batches.next(), if !batches.is_empty() => {}
        }
    }
}

/// What the lines of one request have in common: the way to renew, how many replicas must acknowledge it, and how long to wait
/// for the answer: a short lease must not take time from the renewal of longer ones.
type Manner = (u8, u32, Duration);

fn manner(shared: &Shared, (line, hold): &Line) -> Manner {
    // A look changes nothing, so there is nothing to acknowledge.
    let replicas = if line.lease.is_some() { hold.replicas_wanted() } else { 0 };
    let limit = shared.settings.patience(shared.watchdog.pace(hold));
    let limit = limit.unwrap_or_else(|_| shared.settings.usual_patience());
    (line.name.kind().renewed_as() as u8, replicas, limit)
}

/// What to say of a hold: what its guards need, where one of them is renewed or the lease may have been shortened; the rest of
/// a lease that others may have shortened; or nothing.
fn line(shared: &Shared, hold: &Hold, now: Moment) -> Renewal {
    let rest = || {
        let rest = Lease::new(hold.believed_until().since(now)).ok();
        rest.filter(|_| hold.name.kind().is_shortened_by_others())
    };
    let renews = !shared.has_stopped_renewing();
    let need = {
        let state = hold.state();
        let is_renewed = renews && state.renewal.is_some();
        let is_said = is_renewed
            || state.shortened_to().is_some()
            || state.is_to_be_shortened
            || hold.name.kind().is_shortened_by_others();
        state.need(now, renews).filter(|_| is_said)
    };
    let lease = need.or_else(rest);
    Renewal { name: hold.name.clone(), owner: hold.owner.clone(), permits: hold.permits, lease }
}

/// Renews, or looks at, a batch of holds.
async fn renew(shared: Arc<Shared>, (_, wanted, limit): Manner, lines: Vec<Line>) {
    let (renewals, holds): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
    let asked = clock::now();
    let (outcomes, sent, reached) =
        match shared.backend.renew(&renewals, Care::of_engine(limit, wanted)).await {
            Ok(Answer { value, sent, replicas, .. }) => {
                if replicas < wanted && value.contains(&None) {
                    let holds = holds.len();
                    tracing::warn!(
                        replicas,
                        wanted,
                        holds,
                        "renewal reached too few replicas: it is tried again until the leases end"
                    );
                }
                if let Some(Renewal { name, .. }) = renewals.first() {
                    shared.introduce_if_due(name, sent.at);
                }
                (value, sent.at, replicas)
            }
            Err(failure) => {
                let holds = holds.len();
                tracing::warn!(%failure, holds, "renewal in doubt: it is tried again until the leases end");
                (Vec::new(), asked, 0)
            }
        };
    let outcomes = outcomes.into_iter().chain(std::iter::repeat(None));
    for ((hold, line), outcome) in holds.iter().zip(&renewals).zip(outcomes) {
        match outcome {
            Some(Renewed::Renewed | Renewed::Longer) => {
                hold.was_seen(sent);
                if let Some(lease) = line.lease {
                    tracing::trace!(name = %hold.name, owner = %hold.owner, "renewed");
                    hold.confirmed_for(lease, sent);
                    // Where several servers were asked, by the fewest that any of them reached, and no fewer than it had to be.
                    hold.was_acknowledged_by(wanted, reached.max(wanted));
                }
                shared.watchdog.plan_after(hold, sent);
                if outcome == Some(Renewed::Longer) {
                    shared.shorten_later(hold);
                }
            }
            Some(Renewed::NotHeld) => {
                // A process that stood still past the end of its lease hears that first.
                let reason = hold.lost().unwrap_or_else(|| shared.reason_of_absence(hold));
                shared.lose(hold, reason);
            }
            // Unknown is not lost: asked again until the end of the lease.
            None => {
                if let Some(lease) = line.lease {
                    hold.may_last_for(lease);
                }
                shared.watchdog.plan_retry(hold);
            }
        }
    }
}
