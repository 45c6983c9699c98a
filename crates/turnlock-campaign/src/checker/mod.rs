//! Checks a history: what was promised, and what happened.
//!
//! A hold lasts from the moment its holder learned of the grant to the earliest of: its release was called, the holder was
//! told of the loss, the end of its lease as the holder knew it, the end of its process.

mod hand_overs;
mod holds;
mod latches;
mod losses;
mod tokens;

use std::collections::BTreeMap;

use crate::history::{Event, LONGEST_EFFECT, LockInfo, ProcessState, Promises, SIMULATION, What};
use hand_overs::HandOvers;
use holds::{Holds, overlaps, partitions, untold};
use latches::Latches;
use losses::Losses;
use tokens::{Register, tokens};

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
    /// The faults by kind.
    pub(crate) faults: BTreeMap<String, usize>,
}

impl Verdict {
    /// Adds the figures of another one.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { violations, overlaps, acquired, lost, cancelled, failed, rejected, memory_kib, faults } =
            other;
        self.violations.extend(violations);
        self.overlaps += overlaps;
        self.acquired += acquired;
        self.lost += lost;
        self.cancelled += cancelled;
        self.failed += failed;
        self.rejected += rejected;
        self.memory_kib = self.memory_kib.max(memory_kib);
        for (fault, count) in faults {
            *self.faults.entry(fault).or_default() += count;
        }
    }
}

/// Checks all rules.
pub(crate) fn check(events: &[Event]) -> Verdict {
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
        last_fault: None,
        is_healed: false,
        verdict: Verdict::default(),
    };
    let (mut latches, mut losses) = (Latches::default(), Losses::new(shape));
    let mut hand_overs = HandOvers::default();
    for event in events {
        // On real servers, a task may run a while after it got its lock.
        if check.is_simulation {
            check.verdict.violations.extend(hand_overs.add(event, &check.holds));
        }
        check.verdict.violations.extend(losses.add(event, &check.holds, locks, *watchdog_ms));
        check.verdict.violations.extend(latches.add(event, promises.data));
        check.add(event);
        check.holds.add(event);
    }
    check.finish(events)
}

/// Returns the holds that exclude each other and overlap, also if the run did not come to its end.
pub(crate) fn find_overlaps(events: &[Event]) -> Vec<String> {
    let Some(What::Run { promises, locks, .. }) = events.first().map(|event| &event.what) else {
        return Vec::new();
    };
    let mut holds = Holds::new(locks.len(), promises.data);
    for event in events {
        holds.add(event);
    }
    // Until when a hold without an end was believed in is unknown.
    holds.open.clear();
    holds.finish(0);
    locks.iter().zip(&holds.ended).flat_map(|(info, holds)| overlaps(info, holds)).collect()
}

struct Check<'a> {
    promises: Promises,
    is_simulation: bool,
    locks: &'a [LockInfo],
    holds: Holds,
    last_fault: Option<u64>,
    is_healed: bool,
    verdict: Verdict,
}

impl Check<'_> {
    fn add(&mut self, event: &Event) {
        match &event.what {
            What::Fault { fault, ends: false, .. } => {
                *self.verdict.faults.entry(fault.clone()).or_default() += 1;
                self.last_fault = Some(event.t);
            }
            What::Process { is: ProcessState::Stopped | ProcessState::Killed } => {
                self.last_fault = Some(event.t);
            }
            // A real process that starts can make others slow.
            What::Process { is: ProcessState::Started } if !self.is_simulation => {
                self.last_fault = Some(event.t);
            }
            What::Process { is: ProcessState::Stuck } => {
                self.violation(format!("tasks of process {} do not end", event.process));
            }
            What::Healed => self.is_healed = true,
            // Those at the end are not under faults.
            What::Granted { op, .. } if !self.holds.is_last(*op) => self.verdict.acquired += 1,
            What::Busy { op } if self.is_healed && self.holds.is_last(*op) => {
                self.violation(format!("op {op} did not get the free lock after all faults"));
            }
            What::Cancelled { .. } => self.verdict.cancelled += 1,
            What::Failed { op, error } => {
                self.verdict.failed += 1;
                if self.holds.is_last(*op) || !self.is_explained(*op) {
                    self.violation(format!("op {op} failed without a fault: {error}"));
                }
            }
            What::Lost { op, reason, .. } => {
                self.verdict.lost += 1;
                let is_fixed = self.holds.acquires.get(op).is_some_and(|acquire| acquire.lease_ms.is_some());
                if !is_fixed && !self.is_explained(*op) {
                    self.violation(format!("op {op} was lost without a fault: {reason}"));
                }
            }
            What::Count { op, count, stored: Some(stored) }
                if self.promises.data && self.promises.delivery && *stored != u64::from(*count) =>
            {
                self.violation(format!(
                    "op {op} holds the lock {count} times, and {stored} times on the store"
                ));
            }
            What::Purged { owner } if self.promises.order => {
                self.violation(format!("the waiter {owner} lost its position, and its client is alive"));
            }
            What::Memory { kib } => {
                self.verdict.memory_kib = self.verdict.memory_kib.max(*kib);
                if *kib > MOST_MEMORY_KIB {
                    self.violation(format!("process {} has {kib} KiB of memory", event.process));
                }
            }
            What::End { left, available } => {
                if !left.is_empty() {
                    self.violation(format!("left on the store at the end: {left:?}"));
                }
                for free in available {
                    let info = &self.locks[free.lock];
                    if free.permits != i64::from(info.permits) {
                        self.violation(format!(
                            "{} of {} permits of {} are free at the end",
                            free.permits, info.permits, info.name
                        ));
                    }
                }
            }
            _ => {}
        }
    }

    fn violation(&mut self, text: String) {
        self.verdict.violations.push(text);
    }

    /// Returns `true` if a fault may have an effect on this request.
    fn is_explained(&self, op: u64) -> bool {
        let began = self.holds.acquires.get(&op).map_or(0, |acquire| acquire.began);
        self.last_fault.is_some_and(|fault| fault + LONGEST_EFFECT >= began)
    }

    fn finish(mut self, events: &[Event]) -> Verdict {
        let Self { promises, locks, ref mut holds, is_healed, ref mut verdict, .. } = self;
        if !is_healed || !events.iter().any(|event| matches!(event.what, What::End { .. })) {
            verdict.violations.push("the run did not come to its end".to_owned());
        }
        holds.finish(events.last().map_or(0, |event| event.t));
        let partitions = partitions(events);
        for (info, holds) in locks.iter().zip(&holds.ended) {
            let overlaps = overlaps(info, holds);
            if promises.exclusion {
                verdict.violations.extend(overlaps.iter().map(|overlap| format!("{}: {overlap}", info.name)));
            } else {
                verdict.overlaps += overlaps.len();
                verdict.violations.extend(untold(info, holds, &partitions));
            }
            if promises.rising_tokens {
                verdict.violations.extend(tokens(info, holds));
            }
            let silent = holds.iter().filter(|hold| !hold.has_ended);
            verdict.violations.extend(silent.map(|hold| format!("the hold of op {} never ended", hold.op)));
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
mod tests {
    use super::*;
    use crate::history::{Available, LONGEST_EFFECT_MS, LatchAction, LockKind, Mode, ReleaseBy, Wait};

    fn event(t: u64, what: What) -> Event {
        Event { t, process: 1, what }
    }

    /// A history of holds of one lock: mode, permits, token, start, release and end of belief.
    #[expect(clippy::type_complexity, reason = "one line for each hold is easy to read")]
    fn history(kind: LockKind, holds: &[(Mode, u32, Option<u64>, u64, u64, u64)]) -> Vec<Event> {
        let locks = vec![LockInfo { name: "x".to_owned(), kind, permits: 2 }];
        let shape = "test".to_owned();
        let promises =
            Promises { exclusion: true, rising_tokens: true, data: true, order: true, delivery: true };
        let run = What::Run { seed: 1, shape, promises, watchdog_ms: 3_000, locks };
        let mut events = vec![event(0, run)];
        for (op, &(mode, permits, token, from, to, valid_until)) in (1..).zip(holds) {
            let acquire = What::Acquire {
                op,
                lock: 0,
                mode,
                permits,
                wait: Wait::Endless,
                lease_ms: None,
                owner_number: None,
            };
            events.push(event(from, acquire));
            events.push(event(from, What::Granted { op, owner: op.to_string(), token, valid_until }));
            events.push(event(to, What::Release { op, by: ReleaseBy::Unlock, valid_until }));
        }
        events.sort_by_key(|event| event.t);
        events.push(event(1_000, What::Healed));
        events.push(event(1_000, What::End { left: Vec::new(), available: Vec::new() }));
        events
    }

    const X: Mode = Mode::Exclusive;
    const S: Mode = Mode::Shared;

    #[test]
    fn overlapping_holds_are_found() {
        let is_good = |kind, holds: &[_]| check(&history(kind, holds)).violations.is_empty();
        let lock = LockKind::Lock;
        assert!(is_good(lock, &[(X, 1, None, 10, 20, 90), (X, 1, None, 20, 30, 90)]));
        assert!(!is_good(lock, &[(X, 1, None, 10, 21, 90), (X, 1, None, 20, 30, 90)]));
        // The first one knew that its lease was over.
        assert!(is_good(lock, &[(X, 1, None, 10, 50, 20), (X, 1, None, 20, 30, 90)]));
        let read_write = LockKind::ReadWrite;
        assert!(is_good(read_write, &[(S, 1, None, 10, 50, 90), (S, 1, None, 20, 30, 90)]));
        assert!(!is_good(read_write, &[(S, 1, None, 10, 50, 90), (X, 1, None, 20, 30, 90)]));
        assert!(!is_good(read_write, &[(X, 1, None, 10, 50, 90), (S, 1, None, 20, 30, 90)]));
        let semaphore = LockKind::Semaphore;
        assert!(is_good(semaphore, &[(X, 1, None, 10, 50, 90), (X, 1, None, 20, 30, 90)]));
        assert!(!is_good(semaphore, &[(X, 1, None, 10, 50, 90), (X, 2, None, 20, 30, 90)]));
    }

    #[test]
    fn a_holder_that_is_not_told_is_found() {
        let violations = |until: u64| {
            let holds = [(X, 1, None, 10, until, until), (X, 1, None, 20, 30, 90)];
            let mut events = history(LockKind::Lock, &holds);
            if let What::Run { promises, .. } = &mut events[0].what {
                promises.exclusion = false;
            }
            for event in &mut events {
                if let What::Granted { op: 1, valid_until, .. } = &mut event.what {
                    *valid_until = 110;
                }
            }
            let verdict = check(&events);
            assert_eq!(verdict.overlaps, 1);
            verdict.violations.len()
        };
        assert_eq!(violations(20 + 100 + holds::NOTICE), 0);
        assert_eq!(violations(20 + 100 + holds::NOTICE + 1), 1);
    }

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let is_good = |first, second| {
            let holds = [(X, 1, Some(first), 10, 20, 90), (X, 1, Some(second), 30, 40, 90)];
            check(&history(LockKind::Fenced, &holds)).violations.is_empty()
        };
        assert!(is_good(1, 2) && !is_good(2, 2) && !is_good(3, 2));
    }

    #[test]
    fn a_loss_or_failure_without_a_fault_is_found() {
        let violations = |more: &[Event]| {
            let mut events = history(LockKind::Lock, &[(X, 1, None, 10, 90, 90)]);
            events.extend_from_slice(more);
            events.sort_by_key(|event| event.t);
            check(&events).violations.len()
        };
        let fault = |t| event(t, What::Fault { fault: "reset".into(), detail: String::new(), ends: false });
        let lost = event(50, What::Lost { op: 1, reason: "taken".into(), valid_until: 90 });
        let failed = event(50, What::Failed { op: 1, error: "down".into() });
        assert_eq!(violations(std::slice::from_ref(&lost)), 1);
        assert_eq!(violations(&[fault(5), lost]), 0);
        assert_eq!(violations(std::slice::from_ref(&failed)), 1);
        assert_eq!(violations(&[fault(5), failed]), 0);
        assert_eq!(
            violations(&[event(99, What::End { left: vec!["x".to_owned()], available: Vec::new() })]),
            1
        );
    }

    #[test]
    fn holds_of_one_explicit_owner_may_overlap() {
        let violations = |owners: [Option<usize>; 2]| {
            let mut events = history(LockKind::Lock, &[(X, 1, None, 10, 50, 90), (X, 1, None, 20, 30, 90)]);
            let acquires = events.iter_mut().filter_map(|event| match &mut event.what {
                What::Acquire { owner_number, .. } => Some(owner_number),
                _ => None,
            });
            acquires.zip(owners).for_each(|(number, owner)| *number = owner);
            check(&events).violations.len()
        };
        assert_eq!((violations([Some(1), Some(1)]), violations([Some(1), Some(2)])), (0, 1));
        assert_eq!((violations([Some(1), None]), violations([None, None])), (1, 1));
    }

    #[test]
    fn a_delayed_release_excludes_others_until_its_time() {
        let violations = |second: u64| {
            let holds = [(X, 1, None, 10, 20, 90), (X, 1, None, second, second + 1, second + 9)];
            let mut events = history(LockKind::Lock, &holds);
            let release = events.iter_mut().find_map(|event| match &mut event.what {
                What::Release { op: 1, by, .. } => Some(by),
                _ => None,
            });
            *release.expect("it is released") = ReleaseBy::UnlockAfter { ms: 1 };
            events.push(event(21, What::Released { op: 1, error: None }));
            events.sort_by_key(|event| event.t);
            check(&events).violations.len()
        };
        assert_eq!((violations(1_000), violations(1_010)), (1, 0));
    }

    #[test]
    fn a_latch_that_opens_too_early_is_found() {
        let violations = |count_downs: u64, last: LatchAction, outcome: bool| {
            let mut events = history(LockKind::Latch, &[]);
            let mut t = 10;
            let mut act = |op: u64, action, outcome| {
                events.push(event(t, What::Latch { op, lock: 0, action }));
                events.push(event(t + 1, What::LatchDone { op, outcome }));
                t += 2;
            };
            act(1, LatchAction::CountDown, Some(true));
            act(2, LatchAction::Set { count: 2 }, Some(true));
            (0..count_downs).for_each(|number| act(3 + number, LatchAction::CountDown, Some(true)));
            act(10, last, Some(outcome));
            events.sort_by_key(|event| event.t);
            check(&events).violations.len()
        };
        let wait = LatchAction::Wait { ms: 5 };
        assert_eq!((violations(1, wait, true), violations(2, wait, true)), (1, 0));
        let last = LatchAction::Wait { ms: LONGEST_EFFECT_MS };
        assert_eq!((violations(1, wait, false), violations(2, last, false)), (0, 1));
    }

    #[test]
    fn a_holder_that_is_not_told_of_a_loss_is_found() {
        // Lost after so many seconds; the data was lost after one.
        let violations = |lost: u64, ends: u64| {
            let second = 1_000_000;
            let mut events =
                history(LockKind::Lock, &[(X, 1, None, 10, lost * second + 1, (lost + 9) * second)]);
            if let What::Run { watchdog_ms, .. } = &mut events[0].what {
                *watchdog_ms = 30_000;
            }
            let fault = |ends| What::fault("data_loss", "", ends);
            events.extend([event(second, fault(false)), event(ends * second, fault(true))]);
            let reason = "gone".to_owned();
            events.push(event(lost * second, What::Lost { op: 1, reason, valid_until: (lost + 9) * second }));
            events.sort_by_key(|event| event.t);
            check(&events).violations.len()
        };
        assert_eq!((violations(5, 2), violations(7, 2)), (0, 1), "four seconds after the fault");
        assert_eq!((violations(7, 6), violations(34, 31)), (0, 1), "the lease");
    }

    #[test]
    fn counts_permits_positions_and_stale_writes_are_checked() {
        let violations = |what: What| {
            let holds = [(X, 1, Some(5), 10, 60, 90), (X, 1, Some(6), 70, 80, 90)];
            let mut events = history(LockKind::Fenced, &holds);
            events.push(event(75, what));
            events.push(event(76, What::Write { op: 2, token: 6 }));
            events.sort_by_key(|event| event.t);
            let verdict = check(&events);
            (verdict.violations.len(), verdict.rejected)
        };
        assert_eq!(violations(What::Count { op: 2, count: 2, stored: Some(2) }), (0, 0));
        assert_eq!(violations(What::Count { op: 2, count: 2, stored: Some(1) }), (1, 0));
        let end = |permits| What::End { left: Vec::new(), available: vec![Available { lock: 0, permits }] };
        assert_eq!((violations(end(2)), violations(end(1))), ((0, 0), (1, 0)));
        assert_eq!(violations(What::Purged { owner: "x".to_owned() }), (1, 0));
        assert_eq!(violations(What::Memory { kib: MOST_MEMORY_KIB }), (0, 0));
        assert_eq!(violations(What::Memory { kib: MOST_MEMORY_KIB + 1 }), (1, 0));
        assert_eq!(violations(What::Process { is: ProcessState::Stuck }), (1, 0));
        // The first holder is gone, and writes all the same: before the second one, and after it.
        assert_eq!(violations(What::Write { op: 1, token: 5 }), (0, 0));
        assert_eq!(violations(What::Write { op: 2, token: 7 }), (1, 1), "its own second write is rejected");
    }
}
