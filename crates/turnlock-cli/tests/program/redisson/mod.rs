//! The program and Redisson on one server.

mod commands;
mod fenced;
mod fixture;
mod java;
mod lock_pair;
mod permits;
mod read_write;
mod run;

use std::cell::LazyCell;

use libtest_mimic::{Arguments, Trial};
use turnlock_testkit::{Redisson, Shared};

use crate::store::Store;
use crate::{CaseFuture, trial_of};
use fixture::RedissonFixture;
use lock_pair::LockPair;

/// A case with Redisson: its name and its function.
type JavaCase = (&'static str, fn(RedissonFixture) -> CaseFuture);

/// One Java process per version for all cases: a start takes a second of CPU time.
static JAVAS: [Shared<Redisson>; Redisson::VERSIONS.len()] =
    [const { Shared::new() }; Redisson::VERSIONS.len()];

/// All cases, with their area and lock pair.
fn cases() -> Vec<(String, LockPair, JavaCase)> {
    let mut all = Vec::new();
    for pair in LockPair::ALL {
        all.extend(run::CASES.iter().map(|case| (format!("run::{}", pair.title), pair, *case)));
    }
    for pair in LockPair::ONE_PER_JAVA_KIND {
        all.extend(commands::CASES.iter().map(|case| (format!("commands::{}", pair.java), pair, *case)));
    }
    for (area, cases) in [
        ("run::read_write", read_write::CASES),
        ("run::fenced", fenced::CASES),
        ("run::permits", permits::CASES),
        ("commands::fair", commands::FAIR_CASES),
        ("commands::permits", commands::PERMIT_CASES),
    ] {
        // These cases choose their locks themselves, and ignore the pair.
        all.extend(cases.iter().map(|case| (area.to_owned(), LockPair::LOCK, *case)));
    }
    all
}

/// All trials that match `arguments`.
///
/// Redisson is built or downloaded only if there is a match.
pub(crate) fn trials(arguments: &Arguments) -> Vec<Trial> {
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let mut trials = Vec::new();
    for (version, java) in Redisson::VERSIONS.into_iter().zip(&JAVAS) {
        let missing = LazyCell::new(|| Store::Redis.missing().or_else(|| Redisson::missing(version)));
        for (area, pair, (name, case)) in cases() {
            let title = format!("redisson-{version}::{area}::{name}");
            if title.contains(filter) {
                let run = move || async move { case(RedissonFixture::new(version, java, pair).await).await };
                trials.push(trial_of(&title, missing.clone(), run));
            }
        }
    }
    trials
}

/// Stops the Java processes.
pub(crate) fn close_all() {
    for java in &JAVAS {
        java.close();
    }
}
