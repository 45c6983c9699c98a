//! Tests of `turnlock run` and `turnlock hold` on real stores, of the recipes, and of the program next to Redisson.
//!
//! Every case is a named trial. A case whose tools are missing is reported as *ignored* with the reason; with `CI` set, it fails.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod fixture;
mod hold;
mod program;
mod recipes;
mod redisson;
mod run;
mod store;
mod terminal;
mod users;

use std::time::Duration;

use fixture::Fixture;
use libtest_mimic::{Arguments, Trial};
use store::Store;

/// Time limit of one case.
const LIMIT: Duration = Duration::from_secs(180);

/// Default number of concurrent cases per core: most of them wait most of the time.
const CASES_PER_CORE: usize = 8;

/// The stores that common cases run on.
const STORES: [Store; 2] = [Store::Redis, Store::File];

/// A case: its name and its function.
pub(crate) type Case = (&'static str, fn(Fixture) -> CaseFuture);
pub(crate) type CaseFuture = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes cases of `async fn(Fixture)`.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), |fixture| Box::pin($case(fixture)))),*] };
}
pub(crate) use cases;

fn main() {
    let mut trials = Vec::new();
    for store in STORES {
        trials.extend(run::cases(store).map(|case| trial(store, "run", case, store.missing())));
        for (cases, missing_tool) in run::cases_with_tools() {
            let missing = store.missing().or(missing_tool);
            trials.extend(cases.iter().map(|case| trial(store, "run", *case, missing.clone())));
        }
        trials.extend(hold::cases(store).map(|case| trial(store, "hold", case, store.missing())));
        for (cases, missing_tool) in hold::cases_with_tools() {
            let missing = store.missing().or(missing_tool);
            trials.extend(cases.iter().map(|case| trial(store, "hold", *case, missing.clone())));
        }
        for (case, missing_tool) in recipes::cases() {
            trials.push(trial(store, "recipes", case, store.missing().or(missing_tool)));
        }
    }
    trials.extend(users::trials());
    let mut arguments = Arguments::from_args();
    trials.extend(redisson::trials(&arguments));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    arguments.test_threads.get_or_insert(CASES_PER_CORE * cores);
    let conclusion = turnlock_testkit::run(&arguments, trials);
    redisson::close_all();
    Store::close_all();
    conclusion.exit();
}

/// The trial of a case on a store; `missing` is why it cannot run.
fn trial(store: Store, area: &str, (name, case): Case, missing: Option<String>) -> Trial {
    let title = format!("{}::{area}::{name}", store.name());
    trial_of(&title, missing, move || async move { case(Fixture::new(store).await).await })
}

/// The trial of a case by its title; `missing` is why it cannot run.
pub(crate) fn trial_of<F>(
    title: &str,
    missing: Option<String>,
    case: impl Fn() -> F + Send + 'static,
) -> Trial
where
    F: Future<Output = ()> + Send + 'static,
{
    turnlock_testkit::trial(title, missing, LIMIT, case)
}
