//! Proof that the programs with other people's locks can be driven: every case is a trial by name, so that one that
//! cannot run here says *ignored* and why. With `CI` set, what cannot run has failed instead.

mod others;
mod redisson;

use std::pin::Pin;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use turnlock_testkit::{NodeRedlock, PyLock, RedisServer, Redisson};

/// How long one case may take.
const LIMIT: Duration = Duration::from_secs(120);

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

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
    let missing = RedisServer::missing().or_else(PyLock::missing);
    trials.push(trial("redis_py", missing, || Box::pin(others::redis_py())));
    let missing = RedisServer::missing().or_else(NodeRedlock::missing);
    trials.push(trial("redlock", missing, || Box::pin(others::redlock())));
    turnlock_testkit::run(&Arguments::from_args(), trials).exit();
}

/// A case, or why it cannot be.
fn trial(name: &str, missing: Option<String>, case: impl Fn() -> Running + Send + 'static) -> Trial {
    turnlock_testkit::trial(name, missing, LIMIT, case)
}
