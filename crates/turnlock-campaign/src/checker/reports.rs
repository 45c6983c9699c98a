use std::collections::HashMap;

use super::processes::Processes;
use crate::history::{Event, LockInfo, LockKind, What};

/// How much later than the end of its lease a holder may be told on simulated time, whose timers have milliseconds.
pub(super) const SLACK: u64 = 2_000;

/// The same on real servers, for a process that runs.
const SLACK_ON_SERVERS: u64 = 2_000_000;

/// Returns the holders that were told of the end of their lease too late: they had neither been told nor released it.
///
/// Tasks await the loss for as long as they hold a lock. A process that was stopped is told when it continues.
pub(super) fn late_reports(
    events: &[Event],
    locks: &[LockInfo],
    processes: &Processes,
    is_simulation: bool,
) -> Vec<String> {
    let slack = if is_simulation { SLACK } else { SLACK_ON_SERVERS };
    // Since when each holder can be told: a process may be stopped between a grant and its arrival.
    let mut granted = HashMap::new();
    let mut found = Vec::new();
    for Event { t, process, what } in events {
        match what {
            // What remains of a majority of locks does not tell until when it was one.
            What::Acquire { op, lock, .. }
                if locks[*lock].kind != LockKind::RedLock && !processes.is_other(*process) =>
            {
                granted.insert(*op, *t);
            }
            What::Granted { op, .. } => {
                granted.entry(*op).and_modify(|granted| *granted = *t);
            }
            What::Lost { op, valid_until, .. } | What::Release { op, valid_until, .. } => {
                let Some(granted) = granted.remove(op) else { continue };
                let due = processes.runs_since(*process, *t).unwrap_or(0).max(*valid_until).max(granted);
                if *t > due.saturating_add(slack) {
                    found.push(format!(
                        "a loss that is reported late: op {op} was valid until {valid_until}, and not told before {t}"
                    ));
                }
            }
            _ => {}
        }
    }
    found
}
