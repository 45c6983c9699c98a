//! What a lock costs in memory: allocations of a pair, bytes of a held lock and of a waiter, sizes of futures.
//!
//! The allocator counts for the whole process, so the cases run one after the other.

use std::alloc::System;
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use libtest_mimic::Arguments;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use tokio::task::JoinSet;
use turnlock::{Client, Guard, Lock, MemoryStore};
use turnlock_core::LockName;
use turnlock_core::model::{Acquired, Released, Renewed, Reply, Step};
use turnlock_store::{ReplyFuture, Sent, Signals, StepOptions, StepReply, Store, clock};
use turnlock_testkit::{RedisServer, eventually, trial};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What the feature `metrics` adds to a pair: one allocation for each of its calls of the store.
const METERED_PAIR: usize = if cfg!(feature = "metrics") { 2 } else { 0 };

/// What the feature `metrics` adds to a hold, in bytes.
const METERED_HOLD: usize = if cfg!(feature = "metrics") { 16 } else { 0 };

/// The allocations of a pair in the engine and the handles, with one for each reply of the store.
const ENGINE_PAIR: usize = 4 + METERED_PAIR;

/// The allocations of a pair on Redis, with those of the connection.
const REDIS_PAIR: usize = 6 + METERED_PAIR;

/// The allocations of a pair in memory, with those of the store.
const MEMORY_PAIR: usize = 14 + METERED_PAIR;

/// The bytes of a held lock after renewals, with its guard.
const HELD_LOCK: usize = 925 + METERED_HOLD;

/// The bytes of a task that waits for a lock.
const WAITER: usize = 1_700;

/// The bytes of the future of an acquire.
const ACQUIRE_FUTURE: usize = 1_100;

/// The bytes of the future of a release.
const RELEASE_FUTURE: usize = 450;

const LIMIT: Duration = Duration::from_secs(120);

fn main() {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let trials = vec![
        trial("a_pair_has_few_allocations", None, LIMIT, a_pair_has_few_allocations),
        trial("a_pair_in_memory_has_few_allocations", None, LIMIT, a_pair_in_memory_has_few_allocations),
        trial(
            "a_pair_on_redis_has_few_allocations",
            RedisServer::missing(),
            LIMIT,
            a_pair_on_redis_has_few_allocations,
        ),
        trial("a_held_lock_is_small", None, LIMIT, a_held_lock_is_small),
        trial("a_waiter_is_small", None, LIMIT, a_waiter_is_small),
        trial("futures_are_small", None, LIMIT, futures_are_small),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// A store that grants and releases everything, and allocates one future for each reply.
#[derive(Debug, Default)]
struct Free {
    renewals: AtomicUsize,
}

impl Store for Free {
    fn call(&self, step: Step, _: StepOptions) -> ReplyFuture<Reply> {
        let reply = match step {
            Step::Acquire(..) => Reply::Acquired(Acquired::Granted),
            Step::Release(_) => Reply::Released(Released::Freed),
            _ => {
                self.renewals.fetch_add(1, Ordering::Relaxed);
                Reply::Renewed(Renewed::Renewed)
            }
        };
        Box::pin(ready(Ok(StepReply::new(reply, Sent { connection: 1, at: clock::now() }))))
    }

    fn subscribe(&self, _: &LockName) -> BoxFuture<'static, ()> {
        Box::pin(ready(()))
    }

    fn unsubscribe(&self, _: &LockName) {}

    fn attach(&self, _: Weak<dyn Signals>) {}
}

async fn pair(lock: &Lock) {
    let guard = lock.lock().await.expect("free");
    guard.unlock().await.expect("held");
}

/// Returns the allocations of one pair: the fewest of several rounds, since other threads may allocate meanwhile.
async fn allocations_of_a_pair(lock: &Lock) -> usize {
    const PAIRS: usize = 200;
    // Connections, tables and lists have grown to their size after this.
    for _ in 0..1_200 {
        pair(lock).await;
    }
    let mut fewest = usize::MAX;
    for _ in 0..5 {
        let region = Region::new(ALLOCATOR);
        for _ in 0..PAIRS {
            pair(lock).await;
        }
        let Stats { allocations, reallocations, .. } = region.change();
        // Rounded: other tasks of the process allocate now and then.
        fewest = fewest.min((allocations + reallocations + PAIRS / 2) / PAIRS);
    }
    fewest
}

async fn assert_allocations(client: Client, most: usize) {
    let allocations = allocations_of_a_pair(&client.lock("orders")).await;
    println!("{allocations} allocations of a pair");
    assert!(allocations <= most, "{allocations} allocations, at most {most} are expected");
}

async fn a_pair_has_few_allocations() {
    let client = Client::builder().store(|_| Arc::<Free>::default()).expect("a store");
    assert_allocations(client, ENGINE_PAIR).await;
}

async fn a_pair_in_memory_has_few_allocations() {
    assert_allocations(Client::connect("memory://").await.expect("a store"), MEMORY_PAIR).await;
}

async fn a_pair_on_redis_has_few_allocations() {
    let server = RedisServer::start().await;
    assert_allocations(Client::connect(&server.url()).await.expect("a server"), REDIS_PAIR).await;
}

/// Returns the bytes that are allocated now.
fn live_bytes() -> usize {
    let Stats { bytes_allocated, bytes_deallocated, .. } = ALLOCATOR.stats();
    bytes_allocated - bytes_deallocated
}

async fn a_held_lock_is_small() {
    const LOCKS: usize = 5_000;
    let store = Arc::new(Free::default());
    // What is announced of the oldest holds is allocated for a moment, at any time.
    let builder = Client::builder().watchdog_timeout(Duration::from_secs(3)).announce_waits(false);
    let client = builder.store(|_| Arc::clone(&store) as _).expect("a store");
    pair(&client.lock("first")).await;
    let before = live_bytes();
    let mut guards: Vec<Guard> = Vec::with_capacity(LOCKS);
    for number in 0..LOCKS {
        guards.push(client.lock(&format!("lock:{number}")).lock().await.expect("free"));
    }
    let new = (live_bytes() - before) / LOCKS;
    eventually("each lock is renewed several times", LIMIT, async || {
        store.renewals.load(Ordering::Relaxed) > LOCKS * 3
    })
    .await;
    // A renewal under way has a batch of its own for a moment.
    let renewed = || (live_bytes() - before) / LOCKS;
    let what = format!("a held lock has at most {HELD_LOCK} bytes between renewals");
    eventually(&what, LIMIT / 4, async || renewed() <= HELD_LOCK).await;
    println!("{new} bytes of a held lock, {} after renewals", renewed());
    assert!(guards.iter().all(Guard::is_valid));
}

async fn a_waiter_is_small() {
    const WAITERS: usize = 2_000;
    let client = Client::builder().memory(&MemoryStore::new()).expect("a store");
    let lock = client.lock("orders");
    let guard = lock.lock().await.expect("free");
    let before = live_bytes();
    let mut tasks = JoinSet::new();
    for _ in 0..WAITERS {
        let lock = lock.clone();
        tasks.spawn(async move { pair(&lock).await });
    }
    eventually("all tasks wait", LIMIT, async || {
        lock.inspect().await.expect("a reply").waiting_here == WAITERS
    })
    .await;
    let bytes = (live_bytes() - before) / WAITERS;
    println!("{bytes} bytes of a waiter");
    assert!(bytes <= WAITER, "{bytes} bytes, at most {WAITER} are expected");
    guard.unlock().await.expect("held");
    tasks.join_all().await;
}

async fn futures_are_small() {
    let client = Client::builder().memory(&MemoryStore::new()).expect("a store");
    let lock = client.lock("orders");
    let acquire = lock.lock();
    let acquire_size = size_of_val(&acquire);
    let guard = acquire.await.expect("free");
    let guard_size = size_of_val(&guard);
    let release = guard.unlock();
    let release_size = size_of_val(&release);
    release.await.expect("held");
    println!("bytes: acquire {acquire_size}, guard {guard_size}, release {release_size}");
    assert!(acquire_size <= ACQUIRE_FUTURE, "{acquire_size} bytes, at most {ACQUIRE_FUTURE} are expected");
    assert!(release_size <= RELEASE_FUTURE, "{release_size} bytes, at most {RELEASE_FUTURE} are expected");
    assert!(guard_size <= 64, "{guard_size} bytes, at most 64 are expected");
}
