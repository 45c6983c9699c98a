//! The commands that look, as a user runs them: the real program on real stores, with and without a terminal.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing to unwrap has failed")]

mod bench;
mod documented;
mod ground;
mod hostile;
mod listing;
mod on_terminal;
mod output;
mod papers;
mod program;
mod store;
mod taking_away;
mod terminal;
mod troubles;
mod watching;

use std::pin::Pin;
use std::time::Duration;

use ground::Ground;
use libtest_mimic::{Arguments, Trial};
use store::Store;

/// How long one case may take: a hang is a failure, not a wait.
const LIMIT: Duration = Duration::from_secs(180);

/// What the cases for every store run on.
const STORES: &[Store] = &[Store::Redis, Store::File];

/// A case, on whatever store it is given.
type Case = (&'static str, fn(Ground) -> CaseFuture);
type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Names an `async fn(Ground)` as a case.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), |ground| Box::pin($case(ground)))),*] };
}
pub(crate) use cases;

fn main() {
    let everywhere = [
        listing::CASES,
        hostile::CASES,
        documented::CASES,
        watching::CASES,
        taking_away::CASES,
        on_terminal::CASES,
        output::CASES,
        bench::CASES,
    ];
    let mut trials = Vec::new();
    for store in STORES {
        trials.extend(everywhere.concat().into_iter().map(|case| trial(*store, case)));
    }
    trials.extend(troubles::CASES.iter().map(|case| trial(Store::Redis, *case)));
    trials.extend(papers::CASES.iter().map(|case| trial(Store::Nowhere, *case)));
    turnlock_testkit::run(&Arguments::from_args(), trials).exit();
}

fn trial(store: Store, (name, case): Case) -> Trial {
    let title = format!("{}::{name}", store.name());
    turnlock_testkit::trial(&title, store.missing(), LIMIT, move || async move {
        case(Ground::new(store).await).await;
    })
}
