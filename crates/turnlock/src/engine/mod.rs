//! The engine of one client: one acquire loop, one watchdog and one place for work that must be finished, for every
//! kind of lock. It lives on the runtime on which the client was made.

mod acquire;
mod attempt;
mod attendance;
mod deadline;
mod errand;
mod farewells;
mod force;
mod hand_over;
mod hold;
mod introduction;
mod on_runtime;
mod permits;
mod question;
mod read_under;
mod reenter;
mod release;
mod renewal_under_way;
mod rooms;
mod shorten;
mod stay;
mod tokens;
mod troubles;
mod until_zero;
mod watchdog;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use turnlock_core::model::Wish;
use turnlock_core::{ClientId, Kind, Lease, LockName, Moment, OwnerId};

pub(crate) use acquire::{Ask, Patience, acquire, behind_own_task};
use attendance::Attendance;
pub(crate) use errand::{Errand, Errands};
use farewells::Farewells;
pub(crate) use hold::{Hold, Term};
use introduction::Introduction;
use on_runtime::OnRuntime;
pub(crate) use permits::{acquire_permits, checked_number};
pub(crate) use question::{Resend, describe};
pub(crate) use read_under::read_under;
pub(crate) use reenter::{Deepening, reenter};
use rooms::Rooms;
pub(crate) use rooms::{Join, Seat};
use tokens::Tokens;
pub(crate) use until_zero::until_zero;
use watchdog::Watchdog;

use crate::backend::{Backend, Signals};
use crate::clock;
use crate::error::Error;
use crate::settings::Settings;

/// The engine as its users hold it. When the last of them is gone, it finishes what is under way and ends.
pub(crate) struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// What the engine's users and its tasks have in common.
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) settings: Settings,
    pub(crate) client: ClientId,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) watchdog: Watchdog,
    attendance: Arc<Attendance>,
    farewells: Farewells,
    tokens: Tokens,
    introduction: Introduction,
    pub(crate) errands: Errands,
    /// Questions of groups that were not answered in time, and are not yet.
    pub(crate) owed: Arc<AtomicUsize>,
    runtime: Handle,
    /// Itself, for work that outlasts a call.
    this: Weak<Self>,
    next_owner: AtomicU64,
    /// When another server may have begun to answer, the last time, in microseconds of our clock.
    server_changed_at: AtomicU64,
    /// No new locks.
    closing: AtomicBool,
    /// No renewals either: what is still held runs out.
    stopped: AtomicBool,
}

impl Engine {
    /// Starts the engine. Must be called on the runtime that it is to live on.
    pub(crate) fn start(backend: Arc<dyn Backend>, client: ClientId, settings: Settings) -> Arc<Self> {
        let (errands, runner) = Errands::new();
        let shared = Arc::new_cyclic(|this| Shared {
            rooms: Arc::new(Rooms::new(Arc::clone(&backend))),
            backend,
            client,
            watchdog: Watchdog::new(settings.watchdog),
            attendance: Arc::default(),
            farewells: Farewells::default(),
            this: Weak::clone(this),
            tokens: Tokens::default(),
            introduction: Introduction::new(client, settings.label.as_deref()),
            errands,
            owed: Arc::default(),
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
        tokio::spawn(attendance::run(Arc::downgrade(&shared), Arc::clone(&shared.attendance)));
        Arc::new(Self { shared })
    }

    /// Takes no new locks, and waits until those that are held were given back and all is done, or `limit` is over.
    /// How many holds and how much work are left then.
    pub(crate) async fn shutdown(&self, limit: Duration) -> (usize, usize) {
        let shared = &self.shared;
        shared.closing.store(true, Ordering::Release);
        shared.rooms.ring_everybody();
        let end = clock::now() + limit;
        loop {
            let (held, wanted) = shared.rooms.census();
            let left = (held, wanted + shared.errands.pending());
            let rest = end.since(clock::now());
            // Without its runtime, nothing will change any more.
            if left == (0, 0) || rest.is_zero() || shared.errands.are_closed() {
                shared.stopped.store(true, Ordering::Release);
                return left;
            }
            // Most ends are an errand's; the short sleep is for those that are not.
            let _ =
                tokio::time::timeout(rest.min(Duration::from_millis(20)), shared.errands.progress()).await;
        }
    }
}

impl Shared {
    /// A new owner on the wire, for one outermost hold.
    pub(crate) fn new_owner(&self) -> OwnerId {
        self.client.owner(self.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether new locks can be had: not when the client is closing, or when its runtime is gone.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        let is_closed = self.closing.load(Ordering::Acquire) || self.errands.are_closed();
        if is_closed { Err(Error::ShuttingDown) } else { Ok(()) }
    }

    /// What an acquire says beside its claim.
    fn wish(&self, name: &LockName, lease: Lease, waits: bool) -> Wish {
        let highest_token = if name.kind() == Kind::Fenced { self.tokens.highest(name) } else { 0 };
        Wish { lease, waits, highest_token }
    }

    fn server_changed_at(&self) -> Moment {
        Moment::from_micros(self.server_changed_at.load(Ordering::Acquire))
    }

    fn has_stopped_renewing(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Runs a future of this crate with the engine's runtime for its timers, whatever polls it.
    pub(crate) fn on_runtime<F: Future>(&self, future: F) -> OnRuntime<'_, F> {
        OnRuntime::new(&self.runtime, future)
    }
}

impl Signals for Shared {
    fn freed(&self, name: &LockName) {
        self.rooms.ring(name);
    }

    fn connection_changed(&self) {
        self.watchdog.look_at_all_now();
        self.rooms.ring_all_fronts();
    }

    fn server_changed(&self) {
        self.server_changed_at.fetch_max(clock::now().as_micros(), Ordering::AcqRel);
        self.introduction.is_due_again();
        if let Some(shared) = self.this.upgrade() {
            shared.repeat_farewells();
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
