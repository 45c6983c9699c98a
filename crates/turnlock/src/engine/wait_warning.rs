use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;
use turnlock_core::{Kind, LockName, Moment};

use super::engine::Engine;
use super::request::AcquireRequest;
use super::state::{CallLocation, CallSite, Waiter};

/// How long a waiter in front waits before it is checked, and the time between two checks.
pub(super) const CHECK_AFTER: Duration = Duration::from_secs(1);

/// Checks a waiter in front for waits that will not end by themselves. Returns when to check it again.
///
/// Logs a warning for each pair of call sites where a task waits for a lock that it holds itself, and for each call
/// site that waits for a semaphore whose number was never set.
///
/// A task that runs several futures at the same time, or has moved the guard to another task, does not wait for
/// itself; it cannot be told apart.
pub(super) fn check(
    now: Moment,
    engine: &Engine,
    waiter: &Waiter,
    AcquireRequest { name, call_site, .. }: &AcquireRequest,
) -> Moment {
    if matches!(name.kind(), Kind::Semaphore | Kind::Permits) {
        // A task may hold several permits, so only their number is checked, and once.
        warn_if_unset(engine, name.clone(), *call_site);
        return Moment::NEVER;
    }
    for (held, waiting) in engine.wait_queues.self_waits(waiter, name, now - CHECK_AFTER) {
        if is_new((waiting.location, Some(held.location))) {
            tracing::warn!(
                %name, held_at = %held, waiting_at = %waiting,
                "a task waits for a lock that it acquired before; if it still holds the guard, the wait will not end: \
                 use Guard::reenter or an Owner, or drop the guard first"
            );
        }
    }
    now + CHECK_AFTER
}

fn warn_if_unset(engine: &Engine, name: LockName, call_site: CallSite) {
    let Some(this) = engine.weak_self.upgrade() else { return };
    engine.background.spawn(async move {
        let inspection = tokio::time::timeout(CHECK_AFTER, this.inspect(&name)).await;
        let is_unset = matches!(inspection, Ok(Ok(snapshot)) if snapshot.number.is_none());
        if is_unset && is_new((call_site.location, None)) {
            tracing::warn!(
                %name, waiting_at = %call_site,
                "waiting for a semaphore whose number of permits was never set; call try_set_permits"
            );
        }
    });
}

/// Returns `true` the first time that a call site, or a pair of them, is logged in this process.
fn is_new(call_sites: CallSites) -> bool {
    static LOGGED: LazyLock<Mutex<HashSet<CallSites>>> = LazyLock::new(Mutex::default);
    LOGGED.lock().insert(call_sites)
}

/// Where a waiter waits and, for a wait for itself, where its hold was acquired.
type CallSites = (CallLocation, Option<CallLocation>);
