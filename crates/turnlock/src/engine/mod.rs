//! The engine of one client: the acquire loop, the watchdog and the background tasks, for all kinds of locks.
//!
//! It runs on the runtime on which the client was created. Its modules form layers; each uses those above it in this
//! table, and none below.
//!
//! | layer | module | what it does |
//! |---|---|---|
//! | state | [`state`] | holds, wait queues, the schedule of the watchdog, what the client remembers |
//! | | [`request`] | the parameters of an acquire or a reentry, and wait limits |
//! | | [`run_to_completion`] | finishes futures whose callers have gone, on the runtime of the client |
//! | | [`retry`] | the pauses between retries, and the rules for how long |
//! | | [`engine`](self::engine) | the engine itself: all of this state, as the modules below use it |
//! | steps | [`query`] | requests that concern no local hold: inspect, counters, forced unlock, waiting for a latch |
//! | | [`deadlock_search`] | finds deadlocks among announced waits, and confirms them on the store |
//! | | [`renewal`] | the task of the watchdog: renews, checks and shortens leases |
//! | | [`pass_on`] | has the store pass a fair lock on to the next local waiter |
//! | | [`release`] | releases holds, and undoes requests in doubt |
//! | | [`unlock_after`] | leaves a hold to the store until a given time |
//! | | [`hand_over`] | passes a hold to the next local waiter |
//! | | [`grant`] | what an acquire returns: releases its share of the hold when it is dropped |
//! | | [`attempt`] | one attempt to acquire: its request, and what must be undone if it is dropped |
//! | | [`observed`] | an acquire that is counted with its outcome |
//! | loops | [`wait_warning`] | finds waits that will not end by themselves |
//! | | [`waiting`] | a caller that waits, and what its task holds |
//! | | [`announcement`] | announces waits and holds on the store, and looks for deadlocks |
//! | | [`acquire`] | the acquire loop |
//! | | [`reenter`] | acquires of an owner that holds the lock already |
//!
//! What happens to a hold is decided in [`turnlock_core::hold_state`], what a waiter does next in
//! [`turnlock_core::wait_step`].

mod acquire;
mod announcement;
mod attempt;
mod deadlock_search;
#[expect(clippy::module_inception, reason = "a file has the name of its main type")]
mod engine;
mod grant;
mod hand_over;
mod observed;
mod pass_on;
mod query;
mod reenter;
mod release;
mod renewal;
mod request;
mod retry;
mod run_to_completion;
#[cfg(test)]
#[path = "tests/schedules/mod.rs"]
mod schedules;
mod settings;
mod state;
mod unlock_after;
mod wait_warning;
mod waiting;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use turnlock_core::planted::Bug;
use turnlock_core::{ClientId, Kind, LockName};

pub(crate) use acquire::{acquire, acquire_loop};
pub(crate) use engine::Engine;
pub(crate) use grant::Grant;
pub(crate) use observed::{Observation, Observed};
pub(crate) use query::{Resend, until_zero};
pub(crate) use reenter::{read_under, reenter, try_owner_turn};
pub(crate) use request::{AcquireRequest, ReenterRequest, WaitLimit, checked_number, time_out};
pub(crate) use run_to_completion::{BackgroundTasks, RunToCompletion};
pub(crate) use settings::CheckedSettings;
pub(crate) use state::{CallLocation, CallSite, Hold, Join, LeaseMode, Wakeup};

use crate::clock;
use turnlock_store::{Signals, Store, simulation};

impl Engine {
    /// Starts the engine on the current runtime.
    pub(crate) fn start(store: Arc<dyn Store>, client: ClientId, settings: CheckedSettings) -> Arc<Self> {
        let (background, runner) = BackgroundTasks::new();
        let engine = Self::new(store, client, settings, background);
        engine.store.attach(Arc::downgrade(&engine) as Weak<dyn Signals>);
        simulation::spawn(&engine.runtime, runner);
        simulation::spawn(&engine.runtime, renewal::run(Arc::downgrade(&engine)));
        let (heartbeats, store) = (Arc::downgrade(&engine.heartbeats), Arc::downgrade(&engine.store));
        let weak = Arc::downgrade(&engine);
        let on_ignored = move |name: &LockName, waiter, ignored, lease| {
            if let Some(engine) = weak.upgrade() {
                engine.take_back(name, waiter, ignored, lease);
            }
        };
        let outage_log = Arc::clone(&engine.outage_log);
        let heartbeats =
            state::heartbeat::run(heartbeats, store, engine.settings.clone(), outage_log, on_ignored);
        simulation::spawn(&engine.runtime, heartbeats);
        simulation::spawn(&engine.runtime, announcement::run(Arc::downgrade(&engine)));
        engine
    }

    /// Refuses new acquires, and waits until all holds are released and all work is done, or `limit` has
    /// passed.
    ///
    /// Returns the number of holds and the number of pending tasks that are left.
    pub(crate) async fn shutdown(&self, limit: Duration) -> (usize, usize) {
        self.closing.store(true, Ordering::SeqCst);
        self.wait_queues.wake_all();
        let end = clock::now() + limit;
        loop {
            let (held, waiting) = self.wait_queues.counts();
            let remaining = (held, waiting + self.background.pending());
            let time_left = end.since(clock::now());
            // Without the engine's runtime, nothing makes progress.
            let is_closed = self.background.is_closed();
            if remaining == (0, 0) || time_left.is_zero() || is_closed {
                self.stopped.store(true, Ordering::Release);
                if !is_closed {
                    let _ = tokio::time::timeout(time_left, self.remove_announcement()).await;
                }
                return remaining;
            }
            // Not every hold ends with a background task, so progress is also checked periodically.
            let check_at_latest = time_left.min(Duration::from_millis(20));
            let _ = tokio::time::timeout(check_at_latest, self.background.progress()).await;
        }
    }
}

impl Signals for Engine {
    fn freed(&self, name: &LockName) -> bool {
        let is_used = self.wake(name);
        self.metrics.count_message(is_used);
        is_used
    }

    fn connection_changed(&self) {
        if !Bug::ReconnectIgnored.is_planted() {
            self.watchdog.check_all_now();
        }
        self.wait_queues.wake_all_fronts();
    }

    fn server_changed(&self) {
        self.metrics.count_reconnect();
        self.server_changed_at.fetch_max(clock::now().as_micros(), Ordering::AcqRel);
        self.client_record.set_due_now();
        if let Some(engine) = self.weak_self.upgrade() {
            engine.replay_recent_releases();
        }
        self.connection_changed();
    }

    fn call_shared(&self, steps: usize) {
        self.metrics.count_call_batch(steps);
    }
}

impl Engine {
    /// Wakes the waiters of `name`. Returns `false` if the client does not use this name.
    fn wake(&self, name: &LockName) -> bool {
        let is_used = self.wait_queues.wake(name);
        if is_used || name.kind() != Kind::Fair {
            return is_used;
        }
        // The waiters of a client share a subscription. If it was interrupted, a message may be lost.
        match name.waiter() {
            Some(client) if client.as_str() == self.client.to_string() => {
                self.heartbeats.check(name);
                true
            }
            Some(waiter) => self.wait_queues.wake(&name.for_client_of(&waiter)),
            None => false,
        }
    }
}
