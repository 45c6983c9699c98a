//! Tests of all commands except `run`: the real program on real stores, with and without a terminal.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench;
mod closed_stdout;
mod completions;
mod deployments;
mod errors;
mod fixture;
mod force_unlock;
mod json_schema;
mod kept_locks;
mod ls_and_show;
mod pictures;
mod program;
mod schema;
mod status;
mod store;
mod terminal;
mod terminal_output;
mod untrusted_names;
mod watch;
mod watch_keys;
mod watch_terminal;
mod without_store;

use std::pin::Pin;
use std::time::Duration;

use fixture::Fixture;
use libtest_mimic::{Arguments, Trial};
use store::Store;

/// Time limit of one case.
const LIMIT: Duration = Duration::from_secs(180);

/// Default number of concurrent cases per core: most of them wait most of the time.
const CASES_PER_CORE: usize = 3;

/// The stores that common cases run on.
const STORES: &[Store] = &[Store::Redis, Store::File];

/// A case: its name and its function.
type Case = (&'static str, fn(Fixture) -> CaseFuture);
type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes cases of `async fn(Fixture)`.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), |fixture| Box::pin($case(fixture)))),*] };
}
pub(crate) use cases;

fn main() {
    let common = [
        ls_and_show::CASES,
        untrusted_names::CASES,
        json_schema::CASES,
        kept_locks::CASES,
        watch::CASES,
        watch_keys::CASES,
        watch_terminal::CASES,
        force_unlock::CASES,
        terminal_output::CASES,
        closed_stdout::CASES,
        completions::CASES,
        bench::CASES,
        status::CASES,
    ];
    // First, since it mostly waits.
    let mut trials: Vec<_> = watch::FILE_CASES.iter().map(|case| trial(Store::File, *case)).collect();
    for store in STORES {
        trials.extend(common.concat().into_iter().map(|case| trial(*store, case)));
    }
    for cases in [
        errors::CASES,
        bench::CASES_ON_REDIS,
        status::CASES_ON_REDIS,
        watch_terminal::REDIS_CASES,
        completions::REDIS_CASES,
    ] {
        trials.extend(cases.iter().map(|case| trial(Store::Redis, *case)));
    }
    // Each starts servers of its own.
    trials.extend(deployments::CASES.iter().map(|(name, case)| {
        let title = format!("deployments::{name}");
        turnlock_testkit::trial(&title, Store::Redis.missing(), LIMIT, case)
    }));
    trials.extend(completions::trials());
    trials.extend(json_schema::DOCUMENT_CASES.iter().map(|case| trial(Store::Memory, *case)));
    trials.extend(without_store::CASES.iter().map(|case| trial(Store::Memory, *case)));
    trials.extend(pictures::trials());
    let mut arguments = Arguments::from_args();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    arguments.test_threads.get_or_insert(CASES_PER_CORE * cores);
    turnlock_testkit::run(&arguments, trials).exit();
}

fn trial(store: Store, case: Case) -> Trial {
    trial_with(store, case, None)
}

/// A trial that is ignored if something is missing.
fn trial_with(store: Store, (name, case): Case, missing: Option<String>) -> Trial {
    let title = format!("{}::{name}", store.name());
    turnlock_testkit::trial(&title, store.missing().or(missing), LIMIT, move || async move {
        case(Fixture::new(store).await).await;
    })
}
