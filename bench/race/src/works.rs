//! All that is measured.

use contract::{Order, Work as Task};

use crate::work::{What, Work};

/// The works by their ids, with a heading for the table of each.
pub(crate) const HEADINGS: [(&str, &str); 9] = [
    ("W1", "W1: a free lock, one task"),
    ("W2", "W2: free locks, 64 tasks with one each"),
    ("W3", "W3: one lock, 16 tasks of one process"),
    ("W4", "W4: one lock, 4 processes with 4 tasks each"),
    ("W5", "W5: a herd of 1,000 waiters, from the release until the last was done"),
    ("W6", "W6: from a release in one process to the grant in another"),
    ("W7", "W7: many locks held by automatic renewal"),
    ("waiters", "Growth: tasks of one process that take turns with one lock"),
    ("locks", "Growth: held locks of one process"),
];

/// The lease of locks that are kept: short, so that a measurement sees several renewals.
const KEPT_LEASE_MS: u64 = 9_000;
const QUICK_LEASE_MS: u64 = 3_000;

/// Everything, in the order in which it is measured.
pub(crate) fn all(quick: bool) -> Vec<Work> {
    let mut works = vec![
        w1(quick),
        w2(quick),
        w3(quick),
        w4(quick),
        w4_mixed(quick),
        w5(quick),
        w6(quick),
        keep("W7", None, if quick { 1_000 } else { 10_000 }, if quick { 3.0 } else { 30.0 }, quick),
    ];
    let sizes: &[u64] = if quick { &[10, 1_000] } else { &[10, 100, 1_000, 10_000] };
    works.extend(sizes.iter().map(|size| waiters(*size, quick)));
    let sizes: &[u64] = if quick { &[10, 1_000] } else { &[10, 100, 1_000, 10_000, 100_000] };
    works.extend(sizes.iter().map(|size| {
        let seconds = if quick { 2.0 } else { 12.0 };
        Work { only: &["turnlock", "floor", "redisson"], ..keep("locks", Some(*size), *size, seconds, quick) }
    }));
    works
}

fn work(id: &'static str, what: What) -> Work {
    Work { id, size: None, what, rounds: 1, rounds_of_others: 1, only: &[] }
}

fn w1(quick: bool) -> Work {
    let order = Order { turns: if quick { 2_000 } else { 3_000 }, warm_up: 500, ..Order::new(Task::Pairs) };
    repeated(work("W1", What::Alone { order, processes: 1 }), 7, 7, quick)
}

fn w2(quick: bool) -> Work {
    let turns = if quick { 20_000 } else { 100_000 };
    let order = Order { tasks: 64, turns, warm_up: 500, ..Order::new(Task::Pairs) };
    repeated(work("W2", What::Alone { order, processes: 1 }), 5, 5, quick)
}

fn w3(quick: bool) -> Work {
    let order = Order { tasks: 16, seconds: if quick { 1.0 } else { 5.0 }, ..Order::new(Task::Contend) };
    repeated(work("W3", What::Alone { order, processes: 1 }), 3, 3, quick)
}

fn w4_order(quick: bool) -> Order {
    Order { tasks: 4, seconds: if quick { 1.0 } else { 10.0 }, ..Order::new(Task::Contend) }
}

fn w4(quick: bool) -> Work {
    let what = What::Alone { order: w4_order(quick), processes: 4 };
    repeated(work("W4", what), 3, 1, quick)
}

fn w4_mixed(quick: bool) -> Work {
    let crew: &[(&str, usize)] = &[("turnlock", 3), ("redisson", 1)];
    repeated(work("W4", What::Mixed { order: w4_order(quick), crew }), 3, 3, quick)
}

fn w5(quick: bool) -> Work {
    let (hold_ms, seconds) = if quick { (500, 3.0) } else { (1_000, 60.0) };
    let order = Order { tasks: 1_000, hold_ms, seconds, ..Order::new(Task::Herd) };
    repeated(work("W5", What::Alone { order, processes: 1 }), 5, 5, quick)
}

fn w6(quick: bool) -> Work {
    repeated(work("W6", What::Hand { rounds: if quick { 20 } else { 300 } }), 3, 3, quick)
}

fn keep(id: &'static str, size: Option<u64>, locks: u64, seconds: f64, quick: bool) -> Work {
    let order = Order {
        locks: usize::try_from(locks).unwrap_or(usize::MAX),
        seconds,
        lease_ms: if quick { QUICK_LEASE_MS } else { KEPT_LEASE_MS },
        ..Order::new(Task::Keep)
    };
    Work { size, ..work(id, What::Alone { order, processes: 1 }) }
}

fn waiters(size: u64, quick: bool) -> Work {
    let order = Order {
        tasks: usize::try_from(size).unwrap_or(usize::MAX),
        seconds: if quick { 1.0 } else { 3.0 },
        ..Order::new(Task::Contend)
    };
    let waiters = Work { size: Some(size), ..work("waiters", What::Alone { order, processes: 1 }) };
    // Those who poll are busy with nothing else when there are more.
    let only: &[&str] = if size > 1_000 || quick { &["turnlock", "floor"] } else { &[] };
    Work { only, ..repeated(waiters, 3, 1, quick) }
}

fn repeated(work: Work, rounds: usize, rounds_of_others: usize, quick: bool) -> Work {
    if quick { work } else { Work { rounds, rounds_of_others, ..work } }
}
