//! Explores every state that two clients and a server can get into, when requests come late, twice, out of order or
//! not at all, callers change their minds, and leases end at any time.
//!
//! The server is the real [`LockState`](turnlock_core::model::LockState), the doubts of the clients are real
//! [`Doubt`](turnlock_core::Doubt)s. That the exploration can find anything is shown by breaking one rule at a time.
//!
//! What may happen is bounded, in several ways that are each explored to the end in seconds. Two turns each and one
//! fault of every kind at once are nine and a half million states; they were explored by hand, and are as sound.

mod client;
mod network;
mod properties;
mod protocol;
mod rules;
mod turn;

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model};

use crate::properties::{BELIEF_UNHARMED, COUNT_IS_RIGHT, FREE_AT_REST, SAFETY};
use crate::protocol::Protocol;
use crate::rules::{Bounds, Faults, Habits, Rules};

/// Wants the lock once, and only holds it.
const PLAIN: Habits = Habits { turns: 1, reentries: 0, renews: false, hurries: false };
const BUSY: Habits = Habits { reentries: 1, renews: true, ..PLAIN };
const ONE_TURN_EACH: [Habits; 2] = [BUSY, PLAIN];
const TWO_TURNS_EACH: [Habits; 2] =
    [Habits { turns: 2, ..BUSY }, Habits { turns: 2, hurries: true, ..PLAIN }];

const NO_FAULTS: Faults = Faults { breaks: 0, timeouts: 0, expiries: 0 };
const BREAK: Faults = Faults { breaks: 1, ..NO_FAULTS };
const TWO_BREAKS: Faults = Faults { breaks: 2, ..NO_FAULTS };
const LOST_ANSWER: Faults = Faults { timeouts: 1, ..NO_FAULTS };
const ENDED_LEASES: Faults = Faults { expiries: 2, ..NO_FAULTS };
const BREAK_AND_ENDED_LEASE: Faults = Faults { breaks: 1, expiries: 1, ..NO_FAULTS };
const EVERY_FAULT: Faults = Faults { breaks: 1, timeouts: 1, expiries: 1 };

/// The properties that have an example, or, if they are about safety, a counterexample.
type Found = BTreeSet<&'static str>;

/// Explores all states, or as many as it takes to find what is wanted. Also tells how many they were.
fn explore(rules: Rules, bounds: Bounds, until: HasDiscoveries) -> (usize, Found) {
    let checker = Protocol::new(rules, bounds)
        .checker()
        .threads(std::thread::available_parallelism().map_or(1, usize::from))
        .finish_when(until)
        .spawn_bfs()
        .join();
    assert!(checker.is_done());
    let discoveries = checker.discoveries();
    for name in SAFETY {
        if let Some(path) = discoveries.get(name) {
            println!("not true that {name}: {:?}", path.clone().into_actions());
        }
    }
    (checker.unique_state_count(), discoveries.into_keys().collect())
}

fn explore_all(clients: [Habits; 2], faults: Faults) -> (usize, Found) {
    // "All" would stop before the end only if every safety property were refuted.
    explore(Rules::CORRECT, Bounds { clients, faults }, HasDiscoveries::All)
}

/// Whether clients that break a rule can be seen to break `property`.
fn refutes(property: &'static str, rules: Rules, clients: [Habits; 2], faults: Faults) -> bool {
    let until = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let (_, found) = explore(rules, Bounds { clients, faults }, until);
    found.contains(property)
}

#[test]
fn correct_rules_hold_in_every_state() {
    let mut happened = Found::new();
    for (clients, faults) in [
        (TWO_TURNS_EACH, BREAK_AND_ENDED_LEASE),
        (TWO_TURNS_EACH, LOST_ANSWER),
        (TWO_TURNS_EACH, ENDED_LEASES),
        (ONE_TURN_EACH, TWO_BREAKS),
        (ONE_TURN_EACH, EVERY_FAULT),
    ] {
        let (states, found) = explore_all(clients, faults);
        println!("{states} states with {faults:?}");
        assert!(states > 10_000, "only {states} states with {faults:?}");
        for property in SAFETY {
            assert!(!found.contains(property), "with {faults:?} it is not true that {property}");
        }
        happened.extend(found);
    }
    for property in properties::all() {
        let name = property.name;
        assert!(happened.contains(name) || SAFETY.contains(&name), "it never happened that {name}");
    }
}

#[test]
fn a_number_that_is_used_again_is_noticed() {
    let rules = Rules { new_number_for_every_hold: false, ..Rules::CORRECT };
    // One turn after the other: that two at once would share an owner needs no exploration.
    let clients = TWO_TURNS_EACH.map(|habits| Habits { hurries: false, ..habits });
    assert!(refutes(BELIEF_UNHARMED, rules, clients, BREAK));
}

#[test]
fn an_undo_that_overtakes_is_noticed() {
    let rules = Rules { undo_after_answer: false, ..Rules::CORRECT };
    assert!(refutes(FREE_AT_REST, rules, ONE_TURN_EACH, NO_FAULTS));
}

#[test]
fn an_undo_that_is_not_repeated_is_noticed() {
    let rules = Rules { undo_repeated: false, ..Rules::CORRECT };
    assert!(refutes(FREE_AT_REST, rules, ONE_TURN_EACH, BREAK));
}

#[test]
fn a_grant_that_hides_a_doubt_is_noticed() {
    let rules = Rules { grant_keeps_doubt: false, ..Rules::CORRECT };
    assert!(refutes(FREE_AT_REST, rules, ONE_TURN_EACH, BREAK));
}

#[test]
fn a_lost_hold_that_is_not_undone_is_noticed() {
    let rules = Rules { undo_when_lost: false, ..Rules::CORRECT };
    assert!(refutes(FREE_AT_REST, rules, ONE_TURN_EACH, BREAK_AND_ENDED_LEASE));
}

#[test]
fn counting_by_one_is_noticed() {
    let rules = Rules { absolute_counts: false, ..Rules::CORRECT };
    assert!(refutes(COUNT_IS_RIGHT, rules, ONE_TURN_EACH, LOST_ANSWER));
    assert!(refutes(FREE_AT_REST, rules, ONE_TURN_EACH, LOST_ANSWER));
}

/// A known limit: an inner release that comes late meets the very hold it belongs to, and can lower a later reentry of
/// it. The hold stays, for the target is not zero, and the last release ends it whatever the count.
#[test]
fn a_late_inner_release_lowers_the_count_and_does_no_harm() {
    let (_, found) = explore_all([Habits { reentries: 2, ..BUSY }, PLAIN], BREAK);
    let refuted: Vec<_> = SAFETY.into_iter().filter(|property| found.contains(property)).collect();
    assert_eq!(refuted, [COUNT_IS_RIGHT]);
}
