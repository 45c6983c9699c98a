//! Interoperability: Java's Redisson, redis-py and node-redlock on the same servers as turnlock.
//!
//! Cases that show a wake-up by message use turnlock waiters that do not poll, and leases of a minute: only a message can wake
//! a waiter within the limit of the case.

mod any_mutex;
mod contention;
mod deployment;
mod environment;
mod exclusive;
mod fail_over;
mod fair;
mod fair_faults;
mod fenced;
mod finding;
mod java;
mod java_mutex;
mod latch;
mod multi;
mod multi_server;
mod permits;
mod plain;
mod read_write;
mod semaphore;
mod watchdogs;

use std::cell::LazyCell;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use tokio::sync::Mutex;
use turnlock_testkit::{NodeRedlock, PyLock, RedisServer, Redisson};

use crate::fixture::{Fixture, Kind};
use crate::store_kind::StoreKind;
use crate::{CaseFuture, trial_of};
pub(crate) use contention::take_turns;
use deployment::Topology;
pub(crate) use environment::Context;
use environment::Environment;
use java::Java;

/// A case beside Redisson.
pub(crate) type JavaCase = (&'static str, fn(Context) -> CaseFuture);

/// A lease so long that only a message can wake a waiter during a case.
const LONG_LEASE: Duration = Duration::from_secs(60);

/// The limit for a wake-up by message, with Java on a busy machine.
const WAKE_UP_LIMIT: Duration = Duration::from_secs(20);

/// Held by a case on several servers. More than one at a time, with Java, would delay wake-ups for want of a processor.
static MULTI_SERVER_CASE: Mutex<()> = Mutex::const_new(());

/// The limit for the preparations of a case.
const SETUP_LIMIT: Duration = Duration::from_secs(30);

/// The exclusive kinds of locks that Redisson has too.
const EXCLUSIVE: [Kind; 5] = [Kind::Lock, Kind::Fair, Kind::Fenced, Kind::Spin, Kind::Write];

/// All cases with Redisson on a single server, with the subject of their titles.
fn java_cases() -> Vec<(&'static str, Kind, JavaCase)> {
    let mut all = Vec::new();
    for kind in EXCLUSIVE {
        all.extend(exclusive::CASES.iter().map(|case| (kind.name(), kind, *case)));
        all.extend(finding::CASES.iter().map(|case| (kind.name(), kind, *case)));
        all.extend(contention::cases(kind).iter().map(|case| (kind.name(), kind, *case)));
    }
    for (about, kind, cases) in [
        ("fair", Kind::Fair, fair::CASES),
        ("fair", Kind::Fair, fair_faults::CASES),
        ("fenced", Kind::Fenced, fenced::CASES),
        ("read_write", Kind::Write, read_write::CASES),
        ("semaphore", Kind::Lock, semaphore::CASES),
        ("semaphore", Kind::Lock, contention::SEMAPHORE_CASES),
        ("permits", Kind::Lock, permits::CASES),
        ("latch", Kind::Lock, latch::CASES),
        ("multi", Kind::Lock, multi::CASES),
        ("watchdogs", Kind::Lock, watchdogs::CASES),
    ] {
        all.extend(cases.iter().map(|case| (about, kind, *case)));
    }
    all
}

/// All trials that `arguments` may select. What they need is built or downloaded only if one of them is selected.
pub(crate) fn trials(arguments: &Arguments) -> Vec<Trial> {
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let is_selected = |title: &str| title.contains(filter);
    let mut trials = Vec::new();
    for version in Redisson::VERSIONS {
        let java_missing = LazyCell::new(|| RedisServer::missing().or_else(|| Redisson::missing(version)));
        for (about, kind, (name, case)) in java_cases() {
            let title = format!("redisson-{version}::{about}::{name}");
            if is_selected(&title) {
                let mut missing = java_missing.clone();
                if fair_faults::CLOCK_CASES.contains(&name) {
                    missing = missing.or_else(RedisServer::clock_shift_missing);
                }
                trials
                    .push(trial_of(&title, missing, move || run_case(version, Topology::Single, kind, case)));
            }
        }
        for topology in [Topology::Sentinel, Topology::Cluster] {
            for (about, kind, (name, case)) in multi_server::cases() {
                let title = format!("redisson-{version}::{}::{about}::{name}", topology.name());
                if is_selected(&title) {
                    let run = move || run_case(version, topology, kind, case);
                    trials.push(trial_of(&title, java_missing.clone(), run));
                }
            }
            let title = format!("redisson-{version}::{}::lock::{}", topology.name(), fail_over::NAME);
            if is_selected(&title) {
                let run = move || async move {
                    let _permit = MULTI_SERVER_CASE.lock().await;
                    fail_over::both_follow_a_fail_over(version, topology).await;
                };
                trials.push(trial_of(&title, java_missing.clone(), run));
            }
        }
    }
    for (about, cases) in [("redis-py", plain::PYTHON), ("node-redlock", plain::NODE)] {
        for (name, case) in cases.iter().copied() {
            let title = format!("{about}::plain::{name}");
            if is_selected(&title) {
                let peer = if about == "redis-py" { PyLock::missing } else { NodeRedlock::missing };
                let missing = RedisServer::missing().or_else(peer);
                let run =
                    move || async move { case(Fixture::new(StoreKind::Redis, Kind::Plain).await).await };
                trials.push(trial_of(&title, missing, run));
            }
        }
    }
    trials
}

/// Runs a case in an environment, which returns to the pool only if the case succeeds.
async fn run_case(version: &'static str, topology: Topology, kind: Kind, case: fn(Context) -> CaseFuture) {
    let _permit = match topology {
        Topology::Single => None,
        Topology::Sentinel | Topology::Cluster => Some(MULTI_SERVER_CASE.lock().await),
    };
    let environment = Environment::get(version, topology).await;
    case(Context::new(&environment, kind)).await;
    environment.put_back().await;
}

/// Ends all pooled processes.
pub(crate) fn close() {
    Environment::close_all();
}
