//! Explores every state that two clients and a server can get into, when requests come late, twice, out of order or
//! not at all, clients change their minds, and leases end at any time.
//!
//! The server is the real [`LockState`](turnlock_core::model::LockState), the doubts of the clients are real
//! [`Doubt`](turnlock_core::Doubt)s. That the exploration can find anything is shown by breaking one rule at a time.

mod client;
mod network;
mod properties;
mod protocol;
mod rules;

use stateright::{Checker, HasDiscoveries, Model};

use crate::protocol::Protocol;
use crate::rules::{Bounds, Faults, Rules};

/// Two turns each, and one of the clients reenters.
const BOUNDS: Bounds =
    Bounds { turns: [2, 2], reentries: [1, 0], faults: Faults { breaks: 1, timeouts: 1, expiries: 1 } };

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Explores until a safety property fails, and tells which ones did.
fn failures(rules: Rules, bounds: Bounds) -> Vec<&'static str> {
    let checker = Protocol::new(rules, bounds)
        .checker()
        .threads(threads())
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    for (name, path) in &found {
        if properties::SAFETY.contains(name) {
            println!("\"{name}\" fails after {} actions:", path.clone().into_actions().len());
            for action in path.clone().into_actions() {
                println!("  {action:?}");
            }
        }
    }
    properties::SAFETY.into_iter().filter(|name| found.contains_key(name)).collect()
}

#[test]
fn correct_rules_hold_in_every_state() {
    let checker = Protocol::new(Rules::CORRECT, BOUNDS).checker().threads(threads()).spawn_bfs().join();
    println!(
        "{} states, {} transitions, at most {} actions deep",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    assert!(checker.is_done());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 1_000);
}
