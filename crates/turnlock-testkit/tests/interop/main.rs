//! Tests of the programs that run other lock libraries.
//!
//! A case that cannot run on this machine is ignored, with the reason in its title. With `CI` set, it fails
//! instead.

mod java_types;
mod migration_page;
mod redisson;
mod value_locks;

use std::pin::Pin;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use turnlock_testkit::{NodeRedlock, PyLock, RedisServer, Redisson};

/// The limit for one case.
const LIMIT: Duration = Duration::from_secs(120);

type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

fn main() {
    let mut trials = Vec::new();
    for version in Redisson::VERSIONS {
        let missing = || RedisServer::missing().or_else(|| Redisson::missing(version));
        for (name, case) in redisson::CASES {
            trials.push(trial(&format!("redisson-{version}::{name}"), missing(), move || case(version)));
        }
        let (name, case) = redisson::CLOCK_CASE;
        let missing = missing().or_else(RedisServer::clock_shift_missing);
        trials.push(trial(&format!("redisson-{version}::{name}"), missing, move || case(version)));
    }
    let version = migration_page::VERSION;
    let missing = Redisson::missing(version).or_else(java_types::missing);
    trials.push(trial(&format!("redisson-{version}::migration_page_is_complete"), missing, || {
        Box::pin(async { migration_page::is_complete() })
    }));
    let missing = RedisServer::missing().or_else(PyLock::missing);
    trials.push(trial("redis_py", missing, || Box::pin(value_locks::redis_py())));
    let missing = RedisServer::missing().or_else(NodeRedlock::missing);
    trials.push(trial("redlock", missing, || Box::pin(value_locks::redlock())));
    turnlock_testkit::run(&Arguments::from_args(), trials).exit();
}

/// Makes a case a trial.
fn trial(name: &str, missing: Option<String>, case: impl Fn() -> CaseFuture + Send + 'static) -> Trial {
    turnlock_testkit::trial(name, missing, LIMIT, case)
}
