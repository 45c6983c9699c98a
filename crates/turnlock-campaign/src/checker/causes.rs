use std::collections::HashMap;

use super::processes::Processes;
use crate::history::{Event, What};

/// The faults under which no request fails and no lock is lost, by their names in the history.
///
/// A fault of one process (`process N` in its detail) is harmless to the others.
const HARMLESS: [&str; 8] = [
    "duplicate",
    "lost_messages",
    "clock_back",
    "kill_pubsub",
    "script_flush",
    "long_reader",
    "checkpoint",
    "remove_pipe",
];

/// The fault after which requests of a client are under way for a while: at most [`LATEST`].
const LATE: &str = "late";

/// The longest time that requests are under way, as the simulation delays them.
const LATEST: u64 = 80_000_000;

/// The time for a request without a reply (a second), and for the next try or poll (a second).
const RETRY: u64 = 2_000_000;

/// Finds out whether a fault can be the cause of a loss or a failure.
///
/// That is a fault under way, or one that ended less than a lease and [`RETRY`] ago: a lock that was not renewed during the
/// fault is lost at the end of its lease, and a request that was sent during the fault is repeated by then.
#[derive(Debug)]
pub(super) struct Causes {
    /// The names and the processes of the faults under way.
    active: Vec<(String, Option<u32>)>,
    /// Until when ended faults are causes: those of all processes under `None`.
    until: HashMap<Option<u32>, u64>,
    window: u64,
}

impl Causes {
    pub(super) fn new(watchdog_ms: u64) -> Self {
        Self { active: Vec::new(), until: HashMap::new(), window: watchdog_ms * 1_000 + RETRY }
    }

    pub(super) fn add(&mut self, event: &Event) {
        match &event.what {
            What::Fault { fault, detail, ends: false } if !HARMLESS.contains(&fault.as_str()) => {
                self.active.push((fault.clone(), process_of(detail)));
            }
            What::Fault { fault, detail, ends: true } => {
                let process = process_of(detail);
                let is_it = |(active, of): &(String, Option<u32>)| {
                    active == fault && (process.is_none() || *of == process)
                };
                if let Some(index) = self.active.iter().position(is_it) {
                    self.end(index, event.t);
                }
            }
            // All faults end, and clients connect again.
            What::Healed => {
                self.active.push((String::new(), None));
                (0..self.active.len()).rev().for_each(|index| self.end(index, event.t));
            }
            _ => {}
        }
    }

    fn end(&mut self, index: usize, t: u64) {
        let (fault, process) = self.active.swap_remove(index);
        let late = if fault == LATE { LATEST } else { 0 };
        let until = self.until.entry(process).or_default();
        *until = t.saturating_add(late + self.window).max(*until);
    }

    /// How long an ended fault is a cause.
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Returns `true` if a fault can be the cause of what a process noticed at `t`.
    pub(super) fn explain(&self, process: u32, t: u64, processes: &Processes) -> bool {
        let concerns = |of: Option<u32>| of.is_none_or(|of| of == process);
        let is_over = |of: Option<u32>| self.until.get(&of).is_none_or(|until| *until < t);
        self.active.iter().any(|(_, of)| concerns(*of))
            || !is_over(None)
            || !is_over(Some(process))
            || processes.runs_since(process, t).is_some_and(|since| since.saturating_add(self.window) >= t)
    }
}

/// The process that a fault concerns, if it is one.
fn process_of(detail: &str) -> Option<u32> {
    detail.strip_prefix("process ")?.split(' ').next()?.parse().ok()
}
