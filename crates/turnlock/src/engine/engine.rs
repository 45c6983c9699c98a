use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use turnlock_core::hold_state::{Action, Event, Loss};
use turnlock_core::model::AcquireOptions;
use turnlock_core::planted::Bug;
use turnlock_core::{ClientId, Kind, Lease, LockName, OwnerId};

use super::CheckedSettings;
use super::run_to_completion::{BackgroundTasks, OnRuntime};
use super::state::{
    ClientRecord, Heartbeats, Hold, HoldEnd, OutageLog, RecentReleases, Tokens, WaitQueues, Watchdog,
};
use crate::clock;
use crate::error::{Error, LostReason};
use crate::metrics::ClientMetrics;
use turnlock_store::Store;

/// The engine: the state that its users and its tasks share.
///
/// When the last user drops it, it completes the pending work and ends.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: CheckedSettings,
    pub(crate) client: ClientId,
    pub(crate) wait_queues: Arc<WaitQueues>,
    pub(crate) watchdog: Watchdog,
    pub(super) heartbeats: Arc<Heartbeats>,
    pub(super) recent_releases: RecentReleases,
    pub(super) tokens: Tokens,
    pub(crate) client_record: Arc<ClientRecord>,
    pub(crate) background: BackgroundTasks,
    pub(super) metrics: ClientMetrics,
    pub(super) outage_log: Arc<OutageLog>,
    /// The number of group requests whose time-out has passed and whose reply has not arrived.
    pub(crate) overdue_requests: Arc<()>,
    /// The store may have an announcement of this client.
    pub(super) is_announced: AtomicBool,
    pub(super) runtime: Handle,
    /// A reference to itself, for work that outlasts a call.
    pub(super) weak_self: Weak<Self>,
    next_owner: AtomicU64,
    /// When another server may last have taken over, in microseconds of the local clock.
    pub(super) server_changed_at: AtomicU64,
    /// Set when no new lock may be acquired.
    pub(super) closing: AtomicBool,
    /// Set when renewals have stopped too. The remaining holds expire.
    pub(super) stopped: AtomicBool,
}

impl Engine {
    /// Creates the state of a client on the current runtime.
    pub(super) fn new(
        store: Arc<dyn Store>,
        client: ClientId,
        settings: CheckedSettings,
        background: BackgroundTasks,
    ) -> Arc<Self> {
        let store = ClientMetrics::meter(&settings.metrics, store);
        let client_record = ClientRecord::new(Arc::clone(&store), client, &settings);
        Arc::new_cyclic(|weak_self| Self {
            wait_queues: Arc::new(WaitQueues::new(Arc::clone(&store))),
            client_record: Arc::new(client_record),
            store,
            client,
            watchdog: Watchdog::new(settings.watchdog_timeout),
            heartbeats: Arc::new(Heartbeats::new(client)),
            recent_releases: RecentReleases::default(),
            weak_self: Weak::clone(weak_self),
            tokens: Tokens::default(),
            background,
            outage_log: Arc::default(),
            metrics: ClientMetrics::new(&settings.metrics),
            overdue_requests: Arc::default(),
            is_announced: AtomicBool::new(false),
            runtime: Handle::current(),
            next_owner: AtomicU64::new(1),
            server_changed_at: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            settings,
        })
    }

    /// Creates a wire owner for one outermost hold.
    pub(crate) fn new_owner(&self) -> OwnerId {
        self.client.owner(self.new_owner_number())
    }

    /// Creates the number of a wire owner for one outermost hold.
    pub(super) fn new_owner_number(&self) -> u64 {
        let number = self.next_owner.fetch_add(1, Ordering::Relaxed);
        if Bug::ReusedOwner.is_planted() { 1 } else { number }
    }

    /// Fails if the client is shutting down or its runtime is gone.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        let is_closed = self.closing.load(Ordering::SeqCst) || self.background.is_closed();
        if is_closed { Err(Error::ShuttingDown) } else { Ok(()) }
    }

    pub(super) fn has_stopped_renewing(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The options of an acquire request, beside its claim.
    pub(super) fn options(&self, name: &LockName, lease: Lease, waits: bool) -> AcquireOptions {
        let highest_token = if name.kind() == Kind::Fenced { self.tokens.highest(name) } else { 0 };
        AcquireOptions { lease, waits, highest_token }
    }

    /// Runs `future` with the timers of the engine's runtime, on any executor.
    pub(crate) fn on_runtime<F: Future>(&self, future: F) -> OnRuntime<'_, F> {
        OnRuntime { runtime: &self.runtime, future }
    }

    /// Why the store does not have a hold that it had granted.
    pub(super) fn loss_reason(&self, hold: &Hold) -> LostReason {
        if hold.last_confirmed().as_micros() < self.server_changed_at.load(Ordering::Acquire) {
            LostReason::GoneAfterReconnect
        } else {
            LostReason::Taken
        }
    }

    /// Marks a hold as lost and wakes the next waiter, unless it was lost or had ended before.
    pub(super) fn mark_lost(&self, hold: &Arc<Hold>, reason: LostReason) {
        let loss = if reason.is_local_end() { Loss::LocalEnd } else { Loss::Reported };
        if hold.apply_loss(Event::LossFound(loss), reason) == Action::ReportLoss {
            self.report_loss(hold, reason);
        }
    }

    /// Logs the loss of a hold, stops to watch it, and wakes the next waiter.
    pub(super) fn report_loss(&self, hold: &Arc<Hold>, reason: LostReason) {
        tracing::warn!(name = %hold.name, owner = %hold.owner, %reason, "lost");
        hold.metrics.count_loss(reason);
        hold.note_end(HoldEnd::Lost, clock::now());
        self.watchdog.unwatch(hold);
        self.wait_queues.remove_hold(hold);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("client", &self.client)
            .field("store", &self.store)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
