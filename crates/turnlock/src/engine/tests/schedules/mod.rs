//! The engine under many schedules of its threads, with a memory store whose requests and replies take time.
//!
//! Time is simulated, and passes slowly: a waiter whose wake-up is lost would be rescued by its next poll, and before that
//! the test fails.

mod background;
mod hand_over;
mod hold;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use shuttle::future::{JoinHandle, block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use tokio::runtime::Runtime;
use turnlock_core::model::{Reply, Step};
use turnlock_core::{ClientId, Kind, Lease, LockName, Moment};
use turnlock_store::simulation::Simulation;
use turnlock_store::{Memory, MemoryStore, ReplyFuture, Signals, StepOptions, Store};
use turnlock_testkit::schedules;

use super::{
    AcquireRequest, BackgroundTasks, CallSite, Engine, Grant, LeaseMode, WaitLimit, acquire, renewal,
};
use crate::clock;
use crate::config::Settings;
use crate::error::Error;

/// How much time passes at once. Five times in a hand-over window.
const TICK: Duration = Duration::from_millis(2);

/// How long a test takes at most. A waiter polls after a second.
const TIME_LIMIT: Duration = Duration::from_millis(700);

const RENEWED: LeaseMode = LeaseMode::Renewed(Lease::WATCHDOG);

/// Runs `test` under so many schedules, on simulated time.
pub(super) fn explore(number: usize, test: impl Fn(&'static Runtime) + Send + Sync + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    // Never dropped: after a failure, its timers would wake tasks that are gone.
    let runtime: &'static Runtime = Box::leak(Box::new(runtime.expect("a runtime")));
    let _inside = runtime.enter();
    let _simulation = Simulation::start();
    schedules::explore(number, move || test(runtime));
}

/// Waits for a message to arrive: others run meanwhile.
pub(super) async fn message() {
    let mut has_arrived = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_arrived, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns a random number below `limit`, which belongs to the schedule.
pub(super) fn choose(limit: usize) -> usize {
    thread_rng().gen_range(0..limit)
}

/// Awaits `future`, but drops it a while after so many polls. `None` if it was dropped.
async fn given_up_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    let outcome = poll_fn(|context| match left.checked_sub(1) {
        None => Poll::Ready(None),
        Some(less) => {
            left = less;
            match future.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        }
    })
    .await;
    if outcome.is_none() {
        for _ in 0..choose(10) {
            message().await;
        }
    }
    outcome
}

/// A memory store whose requests and replies take time.
#[derive(Debug)]
struct Slow(Memory);

impl Store for Slow {
    fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<Reply> {
        let call = self.0.call(step, options);
        Box::pin(async move {
            message().await;
            let reply = call.await;
            message().await;
            reply
        })
    }

    fn subscribe(&self, _: &LockName) -> BoxFuture<'static, ()> {
        Box::pin(message())
    }

    fn shares_fair_subscriptions(&self) -> bool {
        true
    }

    fn unsubscribe(&self, name: &LockName) {
        self.0.unsubscribe(name);
    }

    fn attach(&self, signals: std::sync::Weak<dyn Signals>) {
        self.0.attach(signals);
    }
}

/// An engine with its watchdog, and a lock.
struct Fixture {
    engine: Arc<Engine>,
    name: LockName,
    /// The tasks that use the lock now.
    users: AtomicU32,
    runtime: &'static Runtime,
    start: Moment,
    is_over: AtomicBool,
}

/// The tasks beside those of a test.
struct Tasks {
    background: JoinHandle<()>,
    watchdog: JoinHandle<()>,
    time: JoinHandle<()>,
}

impl Fixture {
    fn start(runtime: &'static Runtime, kind: Kind) -> (Arc<Self>, Tasks) {
        let client = ClientId::from_random([7; 16]);
        let store = Arc::new(Slow(Memory::new(MemoryStore::new(), client)));
        let settings = Settings::default().check("a test", false).expect("good settings");
        let (background, runner) = BackgroundTasks::new();
        let engine = Engine::new(store, client, settings, background);
        engine.store.attach(Arc::downgrade(&engine) as _);
        let (background, watchdog) = (spawn(runner), spawn(renewal::run(Arc::downgrade(&engine))));
        let fixture = Arc::new(Self {
            engine,
            name: LockName::of(kind, "", "n").expect("a good name"),
            users: AtomicU32::new(0),
            runtime,
            start: clock::now(),
            is_over: AtomicBool::new(false),
        });
        let time = spawn(Arc::clone(&fixture).let_time_pass());
        (fixture, Tasks { background, watchdog, time })
    }

    async fn let_time_pass(self: Arc<Self>) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.runtime.block_on(tokio::time::advance(TICK));
            let passed = clock::now().since(self.start);
            assert!(
                passed < TIME_LIMIT,
                "a wake-up is lost, or a hold is not released: {:?}",
                self.engine.wait_queues
            );
            for _ in 0..3 {
                yield_now().await;
            }
        }
    }

    async fn acquire(&self) -> Result<Grant, Error> {
        let request = AcquireRequest {
            name: self.name.clone(),
            lease_mode: RENEWED,
            wait_limit: WaitLimit::Endless,
            permits: 1,
            replicas: 0,
            accepts_hand_over: true,
            under: None,
            call_site: CallSite::current(std::panic::Location::caller()).await,
        };
        acquire(&self.engine, request).await.map(|grant| grant.expect("an endless wait"))
    }

    /// Uses the lock for a moment. No other task may use it meanwhile.
    async fn use_alone(&self) {
        assert_eq!(self.users.fetch_add(1, Ordering::Relaxed), 0, "two holders");
        message().await;
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// As if the hold were deleted, and the watchdog found it.
    async fn force_unlock(&self) {
        let limit = self.engine.settings.usual_limit();
        self.engine.store.force_unlock(&self.name, limit).await.expect("a reply");
        self.engine.connection_changed();
    }

    /// Waits for the tasks of the test and those in the background. Then nothing must be left.
    fn finish(self: Arc<Self>, users: Vec<JoinHandle<()>>, tasks: Tasks) {
        block_on(async {
            for user in users {
                user.await.expect("no panic");
            }
            // A check of all holds is due at once.
            let is_checking = || self.engine.watchdog.next_due() == Moment::from_micros(0);
            while self.engine.background.pending() > 0 || is_checking() {
                yield_now().await;
            }
            self.is_over.store(true, Ordering::Relaxed);
            tasks.time.await.expect("no panic");
            tasks.watchdog.abort();
            assert!(tasks.watchdog.await.is_err(), "the watchdog has ended");
            let engine = &self.engine;
            assert_eq!(engine.wait_queues.counts(), (0, 0), "a hold or a waiter is left");
            assert_eq!(engine.watchdog.next_due(), Moment::NEVER, "a hold is still watched");
            let left =
                engine.store.inspect(&self.name, engine.settings.usual_limit()).await.expect("a reply");
            assert!(left.value.holders.is_empty() && left.value.queue.is_empty(), "left: {left:?}");
            // Nothing keeps the engine.
            drop(self);
            tasks.background.await.expect("no panic");
        });
    }
}

/// Releases a grant as [`Grant::release`], which enters the runtime: here, tasks are inside anyway, on one thread.
async fn release(mut grant: Grant) -> Result<(), Error> {
    grant.set_released();
    grant.engine.release(Arc::clone(&grant.hold), grant.lease_mode).await
}

/// Ends a grant in one of the possible ways.
async fn end(grant: Grant) {
    match choose(3) {
        0 => drop(grant),
        1 => drop(release(grant).await),
        // Given up before or after the request is sent.
        _ => drop(given_up_after(choose(3), release(grant)).await),
    }
}
