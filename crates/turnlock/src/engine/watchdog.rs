use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use turnlock_core::Moment;
use turnlock_core::model::Renewed;
use turnlock_core::renewal::RenewalSchedule;

use super::Shared;
use super::hold::{Hold, Standing};
use crate::backend::{Answer, Renewal};
use crate::clock;
use crate::error::LostReason;

/// How many holds are renewed by one request.
const BATCH: usize = 256;

/// How long the watchdog sleeps at the most: a machine that slept longer finds out on waking, and not later.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Every hold of this client, in the order in which they must be looked at: to be renewed or to be declared lost.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    schedule: Mutex<RenewalSchedule<Arc<Hold>>>,
    look: Notify,
    look_at_all: AtomicBool,
}

impl Watchdog {
    fn schedule(&self) -> MutexGuard<'_, RenewalSchedule<Arc<Hold>>> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks after a hold from now on. Also to be called when its term has changed.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        let renewal = hold.state().renewal;
        self.plan(hold, renewal.map_or(Moment::NEVER, |lease| lease.next_renewal(clock::now())));
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

/// The watchdog's task. Ends with the engine.
pub(super) async fn run(engine: Weak<Shared>) {
    let mut batches = FuturesUnordered::new();
    loop {
        let Some(shared) = engine.upgrade() else { return };
        let now = clock::now();
        let mut lines = Vec::new();
        for hold in shared.watchdog.take_due(now) {
            if now >= hold.believed_until() {
                shared.lose(&hold, LostReason::Expired);
                continue;
            }
            // Until an answer comes, the only thing left to watch for is the end.
            shared.watchdog.plan(&hold, Moment::NEVER);
            let renewal = hold.state().renewal.filter(|_| !shared.has_stopped_renewing());
            lines
                .push((Renewal { name: hold.name.clone(), owner: hold.owner.clone(), lease: renewal }, hold));
        }
        while !lines.is_empty() {
            let rest = lines.split_off(lines.len().min(BATCH));
            batches.push(renew(Arc::clone(&shared), std::mem::replace(&mut lines, rest)));
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

/// Renews, or looks at, a batch of holds.
async fn renew(shared: Arc<Shared>, lines: Vec<(Renewal, Arc<Hold>)>) {
    let (renewals, holds): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
    let shortest = renewals.iter().filter_map(|line| line.lease).min().unwrap_or(shared.settings.watchdog);
    let limit = shared.settings.patience(shortest).unwrap_or_else(|_| shared.settings.usual_patience());
    let asked = clock::now();
    let (outcomes, sent) = match shared.backend.renew(&renewals, limit).await {
        Ok(Answer { value, sent }) => (value, sent.at),
        Err(failure) => {
            let holds = holds.len();
            tracing::warn!(%failure, holds, "renewal in doubt: it is tried again until the leases end");
            (Vec::new(), asked)
        }
    };
    let outcomes = outcomes.into_iter().chain(std::iter::repeat(None));
    for ((hold, line), outcome) in holds.iter().zip(&renewals).zip(outcomes) {
        match (outcome, line.lease) {
            (Some(Renewed::Renewed), Some(lease)) => {
                tracing::trace!(name = %hold.name, owner = %hold.owner, "renewed");
                hold.confirmed_for(lease, sent);
                shared.watchdog.plan(hold, lease.next_renewal(sent));
            }
            // Only looked at, and found or not answered for: its end is planned.
            (Some(Renewed::Renewed) | None, None) => {}
            (Some(Renewed::NotHeld), _) => shared.lose(hold, LostReason::Taken),
            // Unknown is not lost: asked again until the end of the lease.
            (None, Some(lease)) => {
                hold.may_last_for(lease);
                shared.watchdog.plan(hold, clock::now() + lease.renewal_period() / 10);
            }
        }
    }
}
