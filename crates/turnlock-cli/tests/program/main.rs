//! The tests of the program itself, on real stores: every case is a trial by name, so that one that cannot run here says
//! *ignored* and why. With `CI` set, what cannot run has failed instead.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing to unwrap has failed")]

mod program;
mod redisson;
mod rig;
mod run;
mod store;
mod terminal;

use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use rig::Rig;
use store::Store;

/// How long one case may take: a hang is a failure, not a wait.
const LIMIT: Duration = Duration::from_secs(180);

/// How many cases run at a time, unless the command line says so: most of them wait most of the time.
const CASES_A_CORE: usize = 2;

/// What the cases for every store run on.
const STORES: [Store; 2] = [
    Store::Redis,
    // A new store is one line here.
    Store::File,
];

/// A case, on whatever store it is given.
pub(crate) type Case = (&'static str, fn(Rig) -> CaseFuture);
pub(crate) type CaseFuture = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Names an `async fn(Rig)` as a case.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), |rig| Box::pin($case(rig)))),*] };
}
pub(crate) use cases;

fn main() {
    let mut trials = Vec::new();
    for store in STORES {
        trials.extend(run::cases(store).map(|case| trial(store, "run", case, store.missing())));
        let missing = store.missing().or_else(terminal::missing);
        trials.extend(run::TERMINAL_CASES.iter().map(|case| trial(store, "run", *case, missing.clone())));
    }
    let mut arguments = Arguments::from_args();
    trials.extend(redisson::trials(&arguments));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    arguments.test_threads.get_or_insert(CASES_A_CORE * cores);
    let conclusion = turnlock_testkit::run(&arguments, trials);
    redisson::close_all();
    Store::close_all();
    conclusion.exit();
}

/// A case on a store, or why it cannot be.
fn trial(store: Store, area: &str, (name, case): Case, missing: Option<String>) -> Trial {
    let title = format!("{}::{area}::{name}", store.name());
    trial_of(&title, missing, move || async move { case(Rig::new(store).await).await })
}

/// A case by its title, or why it cannot be.
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
