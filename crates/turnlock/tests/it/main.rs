//! The tests of turnlock against real stores: every case is a trial by name, so that one that cannot run here says
//! *ignored* and why. With `CI` set, what cannot run has failed instead.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing to unwrap has failed")]

mod cancellation;
mod child;
mod conformance;
mod faults;
mod network_faults;
mod rig;
mod server_clock;
mod told;
mod wire;

use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use rig::{Rig, Store};
use turnlock_testkit::RedisServer;

/// How long one case may take: a hang is a failure, not a wait.
const LIMIT: Duration = Duration::from_secs(120);

/// A case, on whatever store it is given.
pub(crate) type Case = (&'static str, fn(Rig) -> CaseFuture);
pub(crate) type CaseFuture = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Names an `async fn(Rig)` as a case.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), |rig| Box::pin($case(rig)))),*] };
}
pub(crate) use cases;

fn main() {
    if child::is_child() {
        return child::main();
    }
    let mut trials = Vec::new();
    // A new store is one line here.
    for store in [Store::Memory, Store::Redis] {
        for case in conformance::cases().chain(cancellation::CASES.iter().copied()) {
            trials.push(trial(store, case, store.missing()));
        }
    }
    for case in [wire::CASES, faults::CASES, network_faults::CASES, child::CASES, told::CASES].concat() {
        trials.push(trial(Store::Redis, case, Store::Redis.missing()));
    }
    for case in server_clock::CASES {
        let missing = Store::Redis.missing().or_else(RedisServer::clock_shift_missing);
        trials.push(trial(Store::Redis, *case, missing));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A case on a store, or why it cannot be.
fn trial(store: Store, (name, case): Case, missing: Option<String>) -> Trial {
    let ignored = missing.is_some() && std::env::var_os("CI").is_none();
    let title = match &missing {
        Some(reason) => format!("{}::{name} ({reason})", store.name()),
        None => format!("{}::{name}", store.name()),
    };
    let run = move || {
        if let Some(reason) = missing {
            return Err(reason.into());
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let outcome = runtime.block_on(async {
            let rig = Rig::new(store).await;
            // A task of its own, so that it runs on a worker as users' code does.
            tokio::time::timeout(LIMIT, tokio::spawn(case(rig))).await
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        match outcome {
            Err(_) => Err(format!("not done within {LIMIT:?}").into()),
            Ok(Err(panic)) => Err(panic.to_string().into()),
            Ok(Ok(())) => Ok(()),
        }
    };
    Trial::test(title, run).with_ignored_flag(ignored)
}
