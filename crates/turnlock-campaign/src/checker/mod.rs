//! Checks a history: what was promised, and what happened.
//!
//! A hold lasts from the moment its holder learned of the grant to the earliest of: its release was called, the holder was
//! told of the loss, the end of its lease as the holder knew it, the end of its process.
//!
//! A violation begins with the name of its rule.

mod causes;
mod hand_overs;
mod holds;
mod latches;
mod losses;
mod processes;
mod reports;
mod tokens;
mod wake_ups;

use std::collections::BTreeMap;

use crate::history::{Event, LockInfo, LockKind, ProcessState, Promises, SIMULATION, What};
use causes::Causes;
use hand_overs::HandOvers;
use holds::{Holds, overlaps, partitions, untold};
use latches::Latches;
use losses::Losses;
use processes::Processes;
use reports::{SLACK, late_reports};
use tokens::{Register, tokens};
use wake_ups::WakeUps;

/// The most memory that a client with a few tasks may have.
const MOST_MEMORY_KIB: u64 = 48 << 10;

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// What must not happen, and did.
    pub(crate) violations: Vec<String>,
    /// Overlapping holds where none are promised to be excluded.
    pub(crate) overlaps: usize,
    pub(crate) acquired: usize,
    pub(crate) lost: usize,
    pub(crate) cancelled: usize,
    pub(crate) failed: usize,
    /// Writes with an old token that a fenced register rejected.
    pub(crate) rejected: usize,
    /// The most memory that a process had, in KiB.
    pub(crate) memory_kib: u64,
    /// How much of the time of the processes has a cause of losses and failures since the machine stalled, in percent.
    pub(crate) stalled_percent: u64,
    /// The faults by kind.
    pub(crate) faults: BTreeMap<String, usize>,
}

impl Verdict {
    /// Adds the figures of another one.
    pub(crate) fn add(&mut self, other: Self) {
        let Self {
            violations,
            overlaps,
            acquired,
            lost,
            cancelled,
            failed,
            rejected,
            memory_kib,
            stalled_percent,
            faults,
        } = other;
        self.violations.extend(violations);
        self.overlaps += overlaps;
        self.acquired += acquired;
        self.lost += lost;
        self.cancelled += cancelled;
        self.failed += failed;
        self.rejected += rejected;
        self.memory_kib = self.memory_kib.max(memory_kib);
        self.stalled_percent = self.stalled_percent.max(stalled_percent);
        for (fault, count) in faults {
            *self.faults.entry(fault).or_default() += count;
        }
    }
}

/// Checks all rules.
pub(crate) fn check(events: &[Event]) -> Verdict {
    check_rules(events, true)
}

/// Checks the rules that do not depend on the end of the run, of a run whose servers do not recover.
///
/// The servers are one more fault then, which has no end.
pub(crate) fn check_unfinished(events: &[Event]) -> Verdict {
    let mut is_healed = false;
    let mut rest = Vec::new();
    for event in events {
        is_healed |= event.what == What::Healed;
        match event.what {
            What::Healed => {
                rest.push(Event { what: What::fault("no_recovery", "", false), ..event.clone() });
            }
            What::End { .. } | What::Process { is: ProcessState::Stuck | ProcessState::Failed } => {}
            // Those at the end, which take as long as any fault has an effect.
            What::LatchDone { .. } | What::Failed { .. } if is_healed => {}
            _ => rest.push(event.clone()),
        }
    }
    check_rules(&rest, false)
}

fn check_rules(events: &[Event], is_finished: bool) -> Verdict {
    let run = events.first().map(|event| &event.what);
    let Some(What::Run { promises, watchdog_ms, locks, shape, .. }) = run else {
        let violations = vec!["the history does not begin with a run".to_owned()];
        return Verdict { violations, ..Verdict::default() };
    };
    let mut check = Check {
        promises: *promises,
        is_simulation: shape == SIMULATION,
        locks,
        holds: Holds::new(locks.len(), promises.data),
        latches: Latches::default(),
        causes: Causes::new(*watchdog_ms),
        processes: Processes::new(events),
        is_healed: false,
        verdict: Verdict::default(),
    };
    let mut losses = Losses::new(shape);
    let (mut hand_overs, mut wake_ups) = (HandOvers::default(), WakeUps::new(locks, *watchdog_ms));
    for event in events {
        // On real servers, a task may run a while after it got its lock.
        if check.is_simulation {
            check.verdict.violations.extend(hand_overs.add(event, &check.holds));
            check.verdict.violations.extend(wake_ups.add(event));
        }
        check.verdict.violations.extend(losses.add(event, &check.holds, locks, *watchdog_ms));
        check.add(event);
        check.holds.add(event);
        let early = check.latches.add(event, promises.data);
        check.verdict.violations.extend(early);
    }
    check.verdict.stalled_percent = check.processes.stalled_percent(check.causes.window());
    let late = late_reports(events, locks, &check.processes, check.is_simulation);
    check.verdict.violations.extend(late);
    check.finish(events, is_finished)
}

struct Check<'a> {
    promises: Promises,
    is_simulation: bool,
    locks: &'a [LockInfo],
    holds: Holds,
    latches: Latches,
    causes: Causes,
    processes: Processes,
    is_healed: bool,
    verdict: Verdict,
}

impl Check<'_> {
    fn add(&mut self, event: &Event) {
        self.causes.add(event);
        match &event.what {
            What::Fault { fault, ends: false, .. } => {
                *self.verdict.faults.entry(fault.clone()).or_default() += 1;
            }
            What::Process { is: ProcessState::Stuck } => {
                self.violation(format!("tasks that do not end: those of process {}", event.process));
            }
            What::Process { is: ProcessState::Failed } => {
                self.violation(format!("a failed process: process {} ended with an error", event.process));
            }
            What::Process { is: ProcessState::Panicked } => {
                self.violation(format!("a panic: process {} panicked", event.process));
            }
            What::Healed => self.is_healed = true,
            // Those at the end are not under faults.
            What::Granted { op, .. } if !self.holds.is_last(*op) => self.verdict.acquired += 1,
            What::Busy { op } if self.is_healed && self.holds.is_last(*op) => {
                self.violation(format!("a free lock that a process does not get: op {op}, after all faults"));
            }
            What::Cancelled { .. } => self.verdict.cancelled += 1,
            What::Failed { op, error } | What::LatchDone { op, error: Some(error), .. } => {
                self.verdict.failed += 1;
                let is_last = self.holds.is_last(*op) || self.latches.is_last(*op);
                if is_last || (self.needs_cause(*op, event) && !self.is_explained(event)) {
                    self.failure(&format!("op {op}"), event.t, error);
                }
            }
            What::Released { op, error: Some(error) } => self.check_step(*op, 0, event, "release", error),
            What::ReentryFailed { op, error, valid_until } => {
                self.check_step(*op, *valid_until, event, "reentry, or its release,", error);
            }
            What::CallFailed { call, error } if !self.is_explained(event) => {
                self.failure(&format!("{call} of process {}", event.process), event.t, error);
            }
            What::Lost { op, reason, valid_until } => {
                self.verdict.lost += 1;
                let is_over = self.holds.is_fixed_lease_over(*op, *valid_until, event.t + SLACK);
                if !is_over && !self.is_explained(event) {
                    self.violation(format!(
                        "a loss without a fault: op {op} was lost at {}: {reason}",
                        event.t
                    ));
                }
            }
            What::Count { op, count, stored: Some(stored), in_doubt }
                if self.promises.data
                    && self.promises.delivery
                    && !(u64::from(*count)..=u64::from(*count) + u64::from(*in_doubt)).contains(stored) =>
            {
                self.violation(format!(
                    "the count on the store: op {op} holds the lock {count} times, and {stored} times on the store"
                ));
            }
            What::Purged { owner } if self.promises.order => {
                self.violation(format!("a waiter that lost its position: {owner}, and its client is alive"));
            }
            What::Deadlock { text } => {
                self.violation(format!(
                    "a deadlock where there is none: process {} found {text}",
                    event.process
                ));
            }
            What::Memory { kib } => {
                self.verdict.memory_kib = self.verdict.memory_kib.max(*kib);
                if *kib > MOST_MEMORY_KIB {
                    self.violation(format!("too much memory: process {} has {kib} KiB", event.process));
                }
            }
            What::End { left, available } => {
                if !left.is_empty() {
                    self.violation(format!("left on the store: {left:?}, at the end"));
                }
                for free in available {
                    let info = &self.locks[free.lock];
                    if free.permits != i64::from(info.permits) {
                        self.violation(format!(
                            "free permits at the end: {} of {} of {}",
                            free.permits, info.permits, info.name
                        ));
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks a step on a hold that failed. After a loss it has to, and at the end of a fixed lease.
    fn check_step(&mut self, op: u64, valid_until: u64, event: &Event, step: &str, error: &str) {
        let has_ended =
            self.holds.is_lost(op) || self.holds.is_fixed_lease_over(op, valid_until, event.t + SLACK);
        if !has_ended && self.needs_cause(op, event) && !self.is_explained(event) {
            self.failure(&format!("the {step} of op {op}"), event.t, error);
        }
    }

    /// Returns `false` if a request may fail without a fault.
    fn needs_cause(&self, op: u64, event: &Event) -> bool {
        // On a busy machine, a server may not reply in the 50 ms that a majority waits for each.
        let lock = self.holds.acquires.get(&op).map(|acquire| self.locks[acquire.lock].kind);
        let is_hasty = !self.is_simulation && lock == Some(LockKind::RedLock);
        !is_hasty && !self.processes.is_other(event.process)
    }

    fn failure(&mut self, what: &str, t: u64, error: &str) {
        self.violation(format!("a failure without a fault: {what} failed at {t}: {error}"));
    }

    fn violation(&mut self, text: String) {
        self.verdict.violations.push(text);
    }

    /// Returns `true` if a fault can be the cause of this loss or failure.
    fn is_explained(&self, event: &Event) -> bool {
        self.causes.explain(event.process, event.t, &self.processes)
    }

    fn finish(mut self, events: &[Event], is_finished: bool) -> Verdict {
        let Self { promises, locks, ref mut holds, is_healed, ref mut verdict, .. } = self;
        if !is_finished {
            // Until when a hold without an end was believed in is unknown.
            holds.open.clear();
        } else if !is_healed || !events.iter().any(|event| matches!(event.what, What::End { .. })) {
            verdict.violations.push("no end: the run did not come to its end".to_owned());
        }
        holds.finish(events.last().map_or(0, |event| event.t));
        let partitions = partitions(events);
        for (info, holds) in locks.iter().zip(&holds.ended) {
            let overlaps = overlaps(info, holds);
            if promises.exclusion {
                verdict.violations.extend(overlaps);
            } else {
                verdict.overlaps += overlaps.len();
                verdict.violations.extend(untold(info, holds, &partitions));
            }
            if promises.rising_tokens {
                verdict.violations.extend(tokens(info, holds));
            }
            let silent = holds.iter().filter(|hold| !hold.has_ended);
            verdict.violations.extend(silent.map(|hold| format!("a hold without an end: op {}", hold.op)));
        }
        let register = Register::replay(events, &holds.ended);
        verdict.rejected = register.rejected;
        if promises.exclusion && promises.rising_tokens {
            verdict.violations.extend(register.violations);
        }
        self.verdict
    }
}

#[cfg(test)]
mod tests;
