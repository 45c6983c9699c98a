//! The engine of one client: the acquire loop, the watchdog and the background tasks, for all kinds of locks.
//!
//! It runs on the runtime on which the client was created.

mod acquire;
mod attempt;
mod call_site;
mod client_record;
mod deadline;
mod force;
mod hand_over;
mod heartbeat;
mod hold;
mod on_runtime;
mod permits;
mod query;
mod read_under;
mod recent_releases;
mod reenter;
mod release;
mod renewal_under_way;
mod retry;
mod run_to_completion;
mod shorten;
mod tokens;
mod unlock_after;
mod until_zero;
mod wait_queues;
mod wait_warning;
mod wakeup;
mod watchdog;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use turnlock_core::model::AcquireOptions;
use turnlock_core::{ClientId, Kind, Lease, LockName, Moment, OwnerId};

pub(crate) use acquire::{AcquireRequest, WaitLimit, acquire, try_owner_turn};
pub(crate) use call_site::CallSite;
use client_record::ClientRecord;
use heartbeat::Heartbeats;
pub(crate) use hold::{Hold, LeaseMode};
use on_runtime::OnRuntime;
pub(crate) use permits::{acquire_permits, checked_number};
pub(crate) use query::{Resend, describe};
pub(crate) use read_under::read_under;
use recent_releases::RecentReleases;
pub(crate) use reenter::{ReenterRequest, reenter};
pub(crate) use run_to_completion::{BackgroundTasks, RunToCompletion};
use tokens::Tokens;
pub(crate) use until_zero::until_zero;
use wait_queues::WaitQueues;
pub(crate) use wait_queues::{Join, Waiter};
use watchdog::Watchdog;

use crate::backend::{Backend, Signals};
use crate::clock;
use crate::error::Error;
use crate::settings::Settings;

/// The engine, as its users hold it. When the last user drops it, it completes the pending work and ends.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// The state that the engine's users and its tasks share.
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) settings: Settings,
    pub(crate) client: ClientId,
    pub(crate) wait_queues: Arc<WaitQueues>,
    pub(crate) watchdog: Watchdog,
    heartbeats: Arc<Heartbeats>,
    recent_releases: RecentReleases,
    tokens: Tokens,
    client_record: ClientRecord,
    pub(crate) background: BackgroundTasks,
    /// The number of group requests whose time-out has passed and whose reply has not arrived.
    pub(crate) overdue_requests: Arc<AtomicUsize>,
    runtime: Handle,
    /// A reference to itself, for work that outlasts a call.
    weak_self: Weak<Self>,
    next_owner: AtomicU64,
    /// When another server may last have taken over, in microseconds of the local clock.
    server_changed_at: AtomicU64,
    /// Set when no new lock may be acquired.
    closing: AtomicBool,
    /// Set when renewals have stopped too. The remaining holds expire.
    stopped: AtomicBool,
}

impl Engine {
    /// Starts the engine on the current runtime.
    pub(crate) fn start(backend: Arc<dyn Backend>, client: ClientId, settings: Settings) -> Arc<Self> {
        let (background, runner) = BackgroundTasks::new();
        let shared = Arc::new_cyclic(|weak_self| Shared {
            wait_queues: Arc::new(WaitQueues::new(Arc::clone(&backend))),
            backend,
            client,
            watchdog: Watchdog::new(settings.watchdog_timeout),
            heartbeats: Arc::default(),
            recent_releases: RecentReleases::default(),
            weak_self: Weak::clone(weak_self),
            tokens: Tokens::default(),
            client_record: ClientRecord::new(client, settings.label.as_deref()),
            background,
            overdue_requests: Arc::default(),
            runtime: Handle::current(),
            next_owner: AtomicU64::new(1),
            server_changed_at: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            settings,
        });
        let signals: Arc<dyn Signals> = Arc::clone(&shared) as _;
        shared.backend.attach(Arc::downgrade(&signals));
        tokio::spawn(runner);
        tokio::spawn(watchdog::run(Arc::downgrade(&shared)));
        tokio::spawn(heartbeat::run(Arc::downgrade(&shared), Arc::clone(&shared.heartbeats)));
        Arc::new(Self { shared })
    }

    /// Refuses new acquires, and waits until all holds are released and all work is done, or `limit` has
    /// passed.
    ///
    /// Returns the number of holds and the number of pending tasks that are left.
    pub(crate) async fn shutdown(&self, limit: Duration) -> (usize, usize) {
        let shared = &self.shared;
        shared.closing.store(true, Ordering::Release);
        shared.wait_queues.wake_all();
        let end = clock::now() + limit;
        loop {
            let (held, waiting) = shared.wait_queues.counts();
            let remaining = (held, waiting + shared.background.pending());
            let time_left = end.since(clock::now());
            // Without the engine's runtime, nothing makes progress.
            if remaining == (0, 0) || time_left.is_zero() || shared.background.is_closed() {
                shared.stopped.store(true, Ordering::Release);
                return remaining;
            }
            // Not every hold ends with a background task, so progress is also checked periodically.
            let _ =
                tokio::time::timeout(time_left.min(Duration::from_millis(20)), shared.background.progress())
                    .await;
        }
    }
}

impl Shared {
    /// Creates a wire owner for one outermost hold.
    pub(crate) fn new_owner(&self) -> OwnerId {
        self.client.owner(self.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// Fails if the client is shutting down or its runtime is gone.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        let is_closed = self.closing.load(Ordering::Acquire) || self.background.is_closed();
        if is_closed { Err(Error::ShuttingDown) } else { Ok(()) }
    }

    /// The options of an acquire request, beside its claim.
    fn options(&self, name: &LockName, lease: Lease, waits: bool) -> AcquireOptions {
        let highest_token = if name.kind() == Kind::Fenced { self.tokens.highest(name) } else { 0 };
        AcquireOptions { lease, waits, highest_token }
    }

    fn server_changed_at(&self) -> Moment {
        Moment::from_micros(self.server_changed_at.load(Ordering::Acquire))
    }

    fn has_stopped_renewing(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Runs `future` with the timers of the engine's runtime, on any executor.
    pub(crate) fn on_runtime<F: Future>(&self, future: F) -> OnRuntime<'_, F> {
        OnRuntime::new(&self.runtime, future)
    }
}

impl Signals for Shared {
    fn freed(&self, name: &LockName) {
        self.wait_queues.wake(name);
    }

    fn connection_changed(&self) {
        self.watchdog.check_all_now();
        self.wait_queues.wake_all_fronts();
    }

    fn server_changed(&self) {
        self.server_changed_at.fetch_max(clock::now().as_micros(), Ordering::AcqRel);
        self.client_record.set_due_now();
        if let Some(shared) = self.weak_self.upgrade() {
            shared.replay_recent_releases();
        }
        self.connection_changed();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        f.debug_struct("Engine")
            .field("client", &shared.client)
            .field("backend", &shared.backend)
            .field("settings", &shared.settings)
            .finish_non_exhaustive()
    }
}
