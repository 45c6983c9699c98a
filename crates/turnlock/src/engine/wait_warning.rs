use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use turnlock_core::{Kind, LockName, Moment};

use super::Shared;
use super::call_site::{CallSite, Place};
use super::wait_queues::Waiter;
use crate::clock;

/// How long a waiter waits before it is checked, and the time between two checks.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// Checks a waiter in front, about once a second, for waits that will not end by themselves.
pub(super) struct WaitWarning {
    next_check: Moment,
}

impl WaitWarning {
    pub(super) fn new(began: Moment) -> Self {
        Self { next_check: began + CHECK_AFTER }
    }

    /// Logs a warning for each pair of places in the code where a task waits for a lock that it holds itself, and for
    /// each place that waits for a semaphore whose number was never set.
    pub(super) fn check(&mut self, shared: &Shared, waiter: &Waiter, name: &LockName, call_site: &CallSite) {
        let now = clock::now();
        if now < self.next_check {
            return;
        }
        self.next_check = now + CHECK_AFTER;
        let is_semaphore = matches!(name.kind(), Kind::Semaphore | Kind::Permits);
        if is_semaphore && is_new((call_site.place(), None)) {
            warn_if_unset(shared, name.clone(), *call_site);
        }
        if is_semaphore {
            // A task may hold several permits.
            return;
        }
        for (held, waiting) in shared.wait_queues.self_waits(waiter, name, CHECK_AFTER) {
            if is_new((waiting.place(), Some(held.place()))) {
                tracing::warn!(
                    %name, held_at = %held, waiting_at = %waiting,
                    "a task waits for a lock that it holds itself; use Guard::reenter or an Owner, or drop the guard first"
                );
            }
        }
    }
}

fn warn_if_unset(shared: &Shared, name: LockName, call_site: CallSite) {
    let Some(this) = shared.weak_self.upgrade() else { return };
    shared.background.spawn(async move {
        if this.inspect(&name).await.is_ok_and(|snapshot| snapshot.number.is_none()) {
            tracing::warn!(
                %name, waiting_at = %call_site,
                "waiting for a semaphore whose number of permits was never set; call try_set_permits"
            );
        }
    });
}

/// Returns `true` the first time that a place, or a pair of places, is checked in this process.
fn is_new(places: Places) -> bool {
    static CHECKED: LazyLock<Mutex<HashSet<Places>>> = LazyLock::new(Mutex::default);
    CHECKED.lock().unwrap_or_else(PoisonError::into_inner).insert(places)
}

/// Where a waiter waits and, for a wait for itself, where its hold was acquired.
type Places = (Place, Option<Place>);
