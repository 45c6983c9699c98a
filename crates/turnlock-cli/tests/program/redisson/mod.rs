//! The program beside the real Redisson, on one server.

mod fenced;
mod java;
mod permits;
mod read_write;
mod rivals;
mod run;
mod scene;
mod see;

use std::cell::LazyCell;

use libtest_mimic::{Arguments, Trial};
use turnlock_testkit::{Redisson, Shared};

use crate::store::Store;
use crate::{CaseFuture, trial_of};
use rivals::Rivals;
use scene::Scene;

/// A case beside Redisson.
type JavaCase = (&'static str, fn(Scene) -> CaseFuture);

/// A Java process of each version, for all cases: starting one costs a second of a processor.
static JAVAS: [Shared<Redisson>; Redisson::VERSIONS.len()] =
    [const { Shared::new() }; Redisson::VERSIONS.len()];

/// All cases, by what they are about.
fn cases() -> Vec<(String, Rivals, JavaCase)> {
    let mut all = Vec::new();
    for rivals in Rivals::ALL {
        all.extend(run::CASES.iter().map(|case| (format!("run::{}", rivals.title), rivals, *case)));
    }
    for rivals in Rivals::OF_EACH_OBJECT {
        all.extend(see::CASES.iter().map(|case| (format!("see::{}", rivals.java), rivals, *case)));
    }
    for (area, cases) in [
        ("run::read_write", read_write::CASES),
        ("run::fenced", fenced::CASES),
        ("run::permits", permits::CASES),
        ("see::fair", see::FAIR_CASES),
        ("see::permits", see::PERMIT_CASES),
    ] {
        // These say themselves what they ask for.
        all.extend(cases.iter().map(|case| (area.to_owned(), Rivals::LOCK, *case)));
    }
    all
}

/// All trials that `arguments` may ask for. What they need is built or downloaded only if one of them is asked for.
pub(crate) fn trials(arguments: &Arguments) -> Vec<Trial> {
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let mut trials = Vec::new();
    for (version, java) in Redisson::VERSIONS.into_iter().zip(&JAVAS) {
        let missing = LazyCell::new(|| Store::Redis.missing().or_else(|| Redisson::missing(version)));
        for (area, rivals, (name, case)) in cases() {
            let title = format!("redisson-{version}::{area}::{name}");
            if title.contains(filter) {
                let run = move || async move { case(Scene::new(version, java, rivals).await).await };
                trials.push(trial_of(&title, missing.clone(), run));
            }
        }
    }
    trials
}

/// Ends the Java processes.
pub(crate) fn close_all() {
    for java in &JAVAS {
        java.close();
    }
}
