//! `turnlock hold`.

mod caller;
mod ending;
mod holding;
mod services;

use std::time::{Duration, Instant};

use crate::Case;
use crate::fixture::{Fixture, ms};
use crate::program::Program;
use crate::store::Store;
use crate::terminal;
pub(crate) use caller::bash_missing;

/// The cases of every store that need a tool, and why it is missing, if it is.
pub(crate) fn cases_with_tools() -> [(&'static [Case], Option<String>); 2] {
    [(ending::TERMINAL_CASES, terminal::missing()), (caller::BASH_CASES, caller::bash_missing())]
}

/// The cases of a store that need no tool.
pub(crate) fn cases(store: Store) -> impl Iterator<Item = Case> {
    let common = [caller::CASES, ending::CASES, holding::CASES, services::CASES];
    let specific = match store {
        Store::Redis => ending::REDIS_CASES,
        Store::File => &[],
    };
    common.concat().into_iter().chain(specific.iter().copied())
}

/// Checks that a held lock stays held for longer than its lease.
async fn is_renewed_past(fixture: &Fixture, lease: Duration) {
    let lock = fixture.client().await.lock(&fixture.name);
    let start = Instant::now();
    while start.elapsed() < lease + ms(1_000) {
        assert!(lock.is_locked().await.unwrap(), "free after {:?}", start.elapsed());
        tokio::time::sleep(ms(100)).await;
    }
}

/// Starts a hold, and waits until it has the lock. Returns the words of its line after `held`.
async fn start_hold(fixture: &Fixture, flags: &[&str]) -> (Program, Vec<String>) {
    let mut program = Program::start(fixture.hold_command(flags));
    let line = program.line().await;
    let mut words = line.split(' ').map(str::to_owned);
    assert_eq!(words.next().as_deref(), Some("held"), "{line}");
    (program, words.collect())
}
