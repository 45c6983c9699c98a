//! The scenarios.

use contract::{Settings, Workload};

use crate::scenario::{Scenario, Setup};

/// The ids of the scenarios, with the heading of the table of each.
pub(crate) const HEADINGS: [(&str, &str); 11] = [
    ("W1", "W1: a free lock, one task"),
    ("W2", "W2: free locks, 64 tasks with one each"),
    ("W3", "W3: one lock, 16 tasks of one process"),
    ("W4", "W4: one lock, 4 processes with 4 tasks each"),
    ("W5", "W5: a herd of 1,000 waiters, from the release until the last was done"),
    ("W6", "W6: from a release in one process to the grant in another"),
    ("W7", "W7: many locks held by automatic renewal"),
    ("waiters", "Growth: tasks of one process that take turns with one lock"),
    ("herds", "Growth: a herd for each primitive, from the release until the last was done"),
    ("locks", "Growth: held locks of one process"),
    ("cluster", "Cluster: free locks on three masters, 64 tasks with one each"),
];

/// The lease of held locks: short, so that a measurement covers several renewals.
const HELD_LEASE_MS: u64 = 9_000;
const QUICK_LEASE_MS: u64 = 3_000;

/// All scenarios, in the order in which they are measured.
pub(crate) fn all(quick: bool, million: bool) -> Vec<Scenario> {
    let mut scenarios = vec![
        w1(quick),
        w2(quick),
        w3(quick),
        w4(quick),
        w4_mixed(quick),
        w5(quick),
        w6(quick),
        hold("W7", None, if quick { 1_000 } else { 10_000 }, if quick { 3.0 } else { 30.0 }, quick),
    ];
    let sizes: &[u64] = if quick { &[10, 1_000] } else { &[10, 100, 1_000, 10_000] };
    scenarios.extend(sizes.iter().map(|size| waiters(*size, quick)));
    let sizes: &[u64] = if quick { &[10, 1_000] } else { &[10, 100, 1_000, 3_000] };
    scenarios.extend(sizes.iter().map(|size| herds(*size, quick)));
    let sizes: &[u64] = if quick { &[10, 1_000] } else { &[10, 100, 1_000, 10_000, 100_000] };
    scenarios.extend(sizes.iter().map(|size| {
        let seconds = if quick { 2.0 } else { 12.0 };
        Scenario {
            only: &["turnlock", "bare", "redisson"],
            ..hold("locks", Some(*size), *size, seconds, quick)
        }
    }));
    scenarios.extend(million.then(held_million));
    // Last, since its servers remain.
    let only: &[&str] = &["turnlock", "redisson", "rslock"];
    scenarios.push(Scenario { id: "cluster", only, on_cluster: true, ..w2(quick) });
    scenarios
}

fn scenario(id: &'static str, setup: Setup) -> Scenario {
    Scenario { id, size: None, setup, rounds: 1, rounds_of_others: 1, only: &[], on_cluster: false }
}

fn w1(quick: bool) -> Scenario {
    let settings =
        Settings { turns: if quick { 2_000 } else { 3_000 }, warm_up: 500, ..Settings::new(Workload::Pairs) };
    repeated(scenario("W1", Setup::Processes { settings, processes: 1 }), 7, 7, quick)
}

fn w2(quick: bool) -> Scenario {
    let turns = if quick { 20_000 } else { 100_000 };
    let settings = Settings { tasks: 64, turns, warm_up: 500, ..Settings::new(Workload::Pairs) };
    repeated(scenario("W2", Setup::Processes { settings, processes: 1 }), 5, 5, quick)
}

fn w3(quick: bool) -> Scenario {
    let settings =
        Settings { tasks: 16, seconds: if quick { 1.0 } else { 5.0 }, ..Settings::new(Workload::Contend) };
    repeated(scenario("W3", Setup::Processes { settings, processes: 1 }), 3, 3, quick)
}

fn w4_settings(quick: bool) -> Settings {
    Settings { tasks: 4, seconds: if quick { 1.0 } else { 10.0 }, ..Settings::new(Workload::Contend) }
}

fn w4(quick: bool) -> Scenario {
    let setup = Setup::Processes { settings: w4_settings(quick), processes: 4 };
    repeated(scenario("W4", setup), 3, 1, quick)
}

fn w4_mixed(quick: bool) -> Scenario {
    let variants: &[(&str, usize)] = &[("turnlock", 3), ("redisson", 1)];
    repeated(scenario("W4", Setup::Mixed { settings: w4_settings(quick), variants }), 3, 3, quick)
}

fn w5(quick: bool) -> Scenario {
    repeated(herd("W5", 1_000, quick), 5, 5, quick)
}

/// With each primitive. Redisson is measured with as many waiters as in W5.
fn herds(size: u64, quick: bool) -> Scenario {
    let only: &[&str] = if size == 1_000 { &["turnlock", "redisson"] } else { &["turnlock"] };
    Scenario { size: Some(size), only, ..repeated(herd("herds", size, quick), 3, 1, quick) }
}

fn herd(id: &'static str, tasks: u64, quick: bool) -> Scenario {
    let (hold_ms, seconds) = if quick { (500, 5.0) } else { (1_000, 60.0) };
    let tasks = usize::try_from(tasks).unwrap_or(usize::MAX);
    let settings = Settings { tasks, hold_ms, seconds, ..Settings::new(Workload::Herd) };
    scenario(id, Setup::Processes { settings, processes: 1 })
}

fn w6(quick: bool) -> Scenario {
    repeated(scenario("W6", Setup::WakeUp { rounds: if quick { 20 } else { 300 } }), 3, 3, quick)
}

fn hold(id: &'static str, size: Option<u64>, locks: u64, seconds: f64, quick: bool) -> Scenario {
    let settings = Settings {
        locks: usize::try_from(locks).unwrap_or(usize::MAX),
        seconds,
        lease_ms: if quick { QUICK_LEASE_MS } else { HELD_LEASE_MS },
        ..Settings::new(Workload::Hold)
    };
    Scenario { size, ..scenario(id, Setup::Processes { settings, processes: 1 }) }
}

/// With the default lease: a shorter one would be more renewals than one server executes.
fn held_million() -> Scenario {
    let mut million = hold("locks", Some(1_000_000), 1_000_000, 60.0, false);
    if let Setup::Processes { settings, .. } = &mut million.setup {
        settings.lease_ms = 30_000;
    }
    Scenario { only: &["turnlock"], ..million }
}

fn waiters(size: u64, quick: bool) -> Scenario {
    let settings = Settings {
        tasks: usize::try_from(size).unwrap_or(usize::MAX),
        seconds: if quick { 1.0 } else { 3.0 },
        ..Settings::new(Workload::Contend)
    };
    let waiters =
        Scenario { size: Some(size), ..scenario("waiters", Setup::Processes { settings, processes: 1 }) };
    // Polling libraries do nothing but poll when there are more.
    let only: &[&str] = if size > 1_000 || quick { &["turnlock", "bare"] } else { &[] };
    Scenario { only, ..repeated(waiters, 3, 1, quick) }
}

fn repeated(scenario: Scenario, rounds: usize, rounds_of_others: usize, quick: bool) -> Scenario {
    if quick { scenario } else { Scenario { rounds, rounds_of_others, ..scenario } }
}
