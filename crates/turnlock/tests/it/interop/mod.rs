//! Beside the real thing: Java's Redisson, redis-py and node-redlock on the same servers as turnlock.
//!
//! A wake-up by message is shown by waiters of ours that do not poll, and by leases of a minute: who then gets its turn
//! within a second was told.

mod both_ways;
mod exclusive;
mod fail_over;
mod fair;
mod fair_in_trouble;
mod fenced;
mod finding;
mod gate;
mod herd;
mod house;
mod java;
mod java_gate;
mod latch;
mod multi;
mod permits;
mod plain;
mod read_write;
mod semaphore;
mod site;
mod watchdogs;

use std::cell::LazyCell;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use tokio::sync::Mutex;
use turnlock_testkit::{NodeRedlock, PyLock, RedisServer, Redisson};

use crate::rig::{Kind, Rig};
use crate::store::Store;
use crate::{CaseFuture, trial_of};
pub(crate) use herd::take_turns;
use house::House;
pub(crate) use house::Visit;
use java::Java;
use site::Shape;

/// A case beside Redisson.
pub(crate) type JavaCase = (&'static str, fn(Visit) -> CaseFuture);

/// The lease of one who is to be heard of by message, and not by the end of its lease.
const LONG: Duration = Duration::from_secs(60);

/// What a message may take, with Java on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// Held by a case on several servers: with them and Java busy for more than one at a time, wake-ups would be late for want of
/// a processor.
static ALONE: Mutex<()> = Mutex::const_new(());

/// What getting ready for something may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The kinds of locks that Redisson has too, of those that exclude alone.
const EXCLUSIVE: [Kind; 5] = [Kind::Lock, Kind::Fair, Kind::Fenced, Kind::Spin, Kind::Write];

/// All cases with Redisson, by what they are about.
fn java_cases() -> Vec<(&'static str, Kind, JavaCase)> {
    let mut all = Vec::new();
    for kind in EXCLUSIVE {
        all.extend(exclusive::CASES.iter().map(|case| (kind.name(), kind, *case)));
        all.extend(finding::CASES.iter().map(|case| (kind.name(), kind, *case)));
        all.extend(herd::cases(kind).iter().map(|case| (kind.name(), kind, *case)));
    }
    for (about, kind, cases) in [
        ("fair", Kind::Fair, fair::CASES),
        ("fair", Kind::Fair, fair_in_trouble::CASES),
        ("fenced", Kind::Fenced, fenced::CASES),
        ("read_write", Kind::Write, read_write::CASES),
        ("semaphore", Kind::Lock, semaphore::CASES),
        ("semaphore", Kind::Lock, herd::SEMAPHORE),
        ("permits", Kind::Lock, permits::CASES),
        ("latch", Kind::Lock, latch::CASES),
        ("multi", Kind::Lock, multi::CASES),
        ("watchdogs", Kind::Lock, watchdogs::CASES),
    ] {
        all.extend(cases.iter().map(|case| (about, kind, *case)));
    }
    all
}

/// All trials that `arguments` may ask for. What they need is built or downloaded only if one of them is asked for.
pub(crate) fn trials(arguments: &Arguments) -> Vec<Trial> {
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let asked_for = |title: &str| title.contains(filter);
    let mut trials = Vec::new();
    for version in Redisson::VERSIONS {
        let java_missing = LazyCell::new(|| RedisServer::missing().or_else(|| Redisson::missing(version)));
        for (about, kind, (name, case)) in java_cases() {
            let title = format!("redisson-{version}::{about}::{name}");
            if asked_for(&title) {
                let mut missing = java_missing.clone();
                if fair_in_trouble::NEEDS_A_CLOCK.contains(&name) {
                    missing = missing.or_else(RedisServer::clock_shift_missing);
                }
                trials.push(trial_of(&title, missing, move || visit(version, Shape::Single, kind, case)));
            }
        }
        for shape in [Shape::Sentinel, Shape::Cluster] {
            for (about, kind, (name, case)) in both_ways::cases() {
                let title = format!("redisson-{version}::{}::{about}::{name}", shape.name());
                if asked_for(&title) {
                    let run = move || visit(version, shape, kind, case);
                    trials.push(trial_of(&title, java_missing.clone(), run));
                }
            }
            let title = format!("redisson-{version}::{}::lock::{}", shape.name(), fail_over::NAME);
            if asked_for(&title) {
                let run = move || async move {
                    let _turn = ALONE.lock().await;
                    fail_over::a_killed_master_is_followed_by_both(version, shape).await;
                };
                trials.push(trial_of(&title, java_missing.clone(), run));
            }
        }
    }
    for (about, cases) in [("redis-py", plain::PYTHON), ("node-redlock", plain::NODE)] {
        for (name, case) in cases.iter().copied() {
            let title = format!("{about}::plain::{name}");
            if asked_for(&title) {
                let peer = if about == "redis-py" { PyLock::missing } else { NodeRedlock::missing };
                let missing = RedisServer::missing().or_else(peer);
                let run = move || async move { case(Rig::new(Store::Redis, Kind::Plain).await).await };
                trials.push(trial_of(&title, missing, run));
            }
        }
    }
    trials
}

/// Runs a case in a house, which only the next case finds again if this one came to its end.
async fn visit(version: &'static str, shape: Shape, kind: Kind, case: fn(Visit) -> CaseFuture) {
    let _turn = match shape {
        Shape::Single => None,
        Shape::Sentinel | Shape::Cluster => Some(ALONE.lock().await),
    };
    let house = House::enter(version, shape).await;
    case(Visit::new(&house, kind)).await;
    house.leave().await;
}

/// Ends all processes that were kept for the next case.
pub(crate) fn close() {
    House::close_all();
}
