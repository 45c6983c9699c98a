//! Tests of `turnlock dashboard`: the real program on real stores, by plain HTTP and in a real browser (Chromium).

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod access;
mod browser;
mod dashboard;
mod deadlocks;
mod feed;
mod fixture;
mod hostile;
mod http;
mod limits;
mod list_page;
mod lock_page;
mod many_locks;
mod outages;
mod page_messages;
mod page_model;
mod pictures;
mod unlock;

use std::pin::Pin;
use std::time::Duration;

use browser::Browser;
use fixture::{Fixture, Store};
use libtest_mimic::{Arguments, Trial};

/// Time limit of one case.
const LIMIT: Duration = Duration::from_secs(180);
/// Time limit of something that is awaited, with room for a busy machine.
const AWHILE: Duration = Duration::from_secs(30);

/// A case: its name and its function.
type Case = (&'static str, fn(Fixture) -> CaseFuture);
type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes cases of `async fn(Fixture)`.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), |fixture| Box::pin($case(fixture)))),*] };
}
pub(crate) use cases;

fn main() {
    if deadlocks::is_child() {
        return deadlocks::run_child();
    }
    let mut trials = Vec::new();
    let mut add = |stores: &[Store], cases: &[&[Case]], missing: Option<String>| {
        for &store in stores {
            let cases = cases.concat();
            trials.extend(cases.into_iter().map(|case| trial(store, case, missing.clone())));
        }
    };
    add(&[Store::File], &[access::CASES, limits::CASES], None);
    add(
        &[Store::Redis],
        &[access::REDIS_CASES, feed::REDIS_CASES, outages::REDIS_CASES, unlock::REDIS_CASES],
        None,
    );
    add(&[Store::Redis, Store::File], &[feed::CASES, unlock::CASES], None);
    add(&[Store::Redis, Store::Cluster, Store::File], &[deadlocks::CASES], None);
    let missing = Browser::missing();
    add(
        &[Store::Redis, Store::File],
        &[list_page::CASES, hostile::CASES, unlock::BROWSER_CASES],
        missing.clone(),
    );
    add(&[Store::Cluster], &[list_page::CLUSTER_CASES], missing.clone());
    add(
        &[Store::File],
        &[
            list_page::FILE_CASES,
            lock_page::CASES,
            page_messages::CASES,
            page_model::CASES,
            outages::FILE_BROWSER_CASES,
            deadlocks::BROWSER_CASES,
        ],
        missing.clone(),
    );
    let redis_only = [many_locks::CASES, hostile::REDIS_CASES, outages::REDIS_BROWSER_CASES];
    add(&[Store::Redis], &redis_only, missing.clone());
    if let Some(case) = pictures::case() {
        add(&[Store::Redis], &[&[case]], missing);
    }
    let mut arguments = Arguments::from_args();
    // A browser uses more than one core while it starts.
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    arguments.test_threads.get_or_insert(cores + 1);
    turnlock_testkit::run(&arguments, trials).exit();
}

fn trial(store: Store, (name, case): Case, missing: Option<String>) -> Trial {
    let title = format!("{}::{name}", store.name());
    turnlock_testkit::trial(&title, store.missing().or(missing), LIMIT, move || async move {
        case(Fixture::new(store).await).await;
    })
}
