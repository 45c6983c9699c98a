//! Checks a history: what was promised, and what happened.
//!
//! A hold lasts from the moment its holder learned of the grant to the earliest of: its release was called, the holder was
//! told of the loss, the end of its lease as the holder knew it, the end of its process.

use std::collections::{BTreeMap, HashMap};

use crate::history::{Event, LONGEST_EFFECT_MS, LockInfo, LockKind, Mode, ProcessState, Wait, What};

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
    /// The faults by kind.
    pub(crate) faults: BTreeMap<String, usize>,
}

impl Verdict {
    /// Adds the figures of another one.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { violations, overlaps, acquired, lost, cancelled, failed, faults } = other;
        self.violations.extend(violations);
        self.overlaps += overlaps;
        self.acquired += acquired;
        self.lost += lost;
        self.cancelled += cancelled;
        self.failed += failed;
        for (fault, count) in faults {
            *self.faults.entry(fault).or_default() += count;
        }
    }
}

/// A hold, as its holder believed it.
#[derive(Clone)]
struct Hold {
    op: u64,
    process: u32,
    token: Option<u64>,
    mode: Mode,
    permits: u32,
    /// When its acquire began.
    began: u64,
    from: u64,
    until: u64,
    /// The holder was told of the loss, or released it.
    has_ended: bool,
}

/// The acquire of a hold.
struct Acquire {
    lock: usize,
    mode: Mode,
    permits: u32,
    is_fixed: bool,
    /// It waits longer than any fault can have an effect.
    is_last: bool,
    began: u64,
}

/// Checks all rules.
pub(crate) fn check(events: &[Event]) -> Verdict {
    let mut verdict = Verdict::default();
    let Some(What::Run { promises_exclusion, promises_rising_tokens, locks, .. }) =
        events.first().map(|event| &event.what)
    else {
        verdict.violations.push("the history does not begin with a run".to_owned());
        return verdict;
    };
    let holds = vec![Vec::new(); locks.len()];
    let mut check = Check { acquires: HashMap::new(), holds, open: HashMap::new(), stopped: HashMap::new() };
    let mut faults = Vec::new();
    let mut is_healed = false;
    for event in events {
        match &event.what {
            What::Fault { fault, ends: false, .. } => {
                *verdict.faults.entry(fault.clone()).or_default() += 1;
                faults.push(event.t);
            }
            What::Process { is: ProcessState::Stopped | ProcessState::Killed } => faults.push(event.t),
            What::Healed => is_healed = true,
            What::Granted { .. } => verdict.acquired += 1,
            What::Busy { op } if is_healed && check.is_last(*op) => {
                verdict.violations.push(format!("op {op} did not get the free lock after all faults"));
            }
            What::Cancelled { .. } => verdict.cancelled += 1,
            What::Failed { op, error } => {
                verdict.failed += 1;
                let began = check.acquires.get(op).map_or(0, |acquire| acquire.began);
                if check.is_last(*op) || !faults.iter().any(|fault| *fault + RECOVERY >= began) {
                    verdict.violations.push(format!("op {op} failed without a fault: {error}"));
                }
            }
            What::Lost { op, reason, .. } => {
                verdict.lost += 1;
                let acquire = check.acquires.get(op);
                let is_expected = acquire.is_some_and(|acquire| {
                    acquire.is_fixed || faults.iter().any(|fault| *fault + RECOVERY >= acquire.began)
                });
                if !is_expected {
                    verdict.violations.push(format!("op {op} was lost without a fault: {reason}"));
                }
            }
            What::End { left } if !left.is_empty() => {
                verdict.violations.push(format!("left on the store at the end: {left:?}"));
            }
            _ => {}
        }
        check.add(event);
    }
    if !is_healed {
        verdict.violations.push("the run did not come to its end".to_owned());
    }
    check.end_all(events.last().map_or(0, |event| event.t));
    for (info, holds) in locks.iter().zip(&mut check.holds) {
        holds.sort_by_key(|hold| (hold.from, hold.op));
        let overlaps = overlaps(info, holds);
        if *promises_exclusion {
            verdict.violations.extend(overlaps.iter().map(|overlap| format!("{}: {overlap}", info.name)));
        } else {
            verdict.overlaps += overlaps.len();
        }
        if *promises_rising_tokens {
            verdict.violations.extend(tokens(info, holds));
        }
        let silent = holds.iter().filter(|hold| !hold.has_ended);
        verdict.violations.extend(silent.map(|hold| format!("the hold of op {} never ended", hold.op)));
    }
    verdict
}

/// How long the effects of a fault may last, in microseconds.
const RECOVERY: u64 = LONGEST_EFFECT_MS * 1_000;

struct Check {
    acquires: HashMap<u64, Acquire>,
    /// The ended holds of each lock.
    holds: Vec<Vec<Hold>>,
    /// The holds that last, by the number of their acquire.
    open: HashMap<u64, Hold>,
    /// Since when processes are stopped.
    stopped: HashMap<u32, u64>,
}

impl Check {
    fn add(&mut self, event: &Event) {
        match &event.what {
            What::Acquire { op, lock, mode, permits, lease_ms, wait } => {
                let is_last = matches!(wait, Wait::For { ms } if *ms >= LONGEST_EFFECT_MS);
                let (lock, mode, permits, is_fixed) = (*lock, *mode, *permits, lease_ms.is_some());
                self.acquires.insert(*op, Acquire { lock, mode, permits, is_fixed, is_last, began: event.t });
            }
            What::Granted { op, token, .. } => {
                let Some(acquire) = self.acquires.get(op) else { return };
                let (mode, permits, began) = (acquire.mode, acquire.permits, acquire.began);
                let hold = Hold {
                    op: *op,
                    process: event.process,
                    token: *token,
                    mode,
                    permits,
                    began,
                    from: event.t,
                    until: u64::MAX,
                    has_ended: false,
                };
                self.open.insert(*op, hold);
            }
            What::Lost { op, valid_until, .. } | What::Release { op, valid_until, .. } => {
                self.end(*op, event.t.min(*valid_until));
            }
            What::Process { is: ProcessState::Stopped } => _ = self.stopped.insert(event.process, event.t),
            What::Process { is: ProcessState::Continued } => _ = self.stopped.remove(&event.process),
            What::Process { is: ProcessState::Killed } => {
                // One that was stopped did nothing since.
                let end = self.stopped.get(&event.process).map_or(event.t, |stopped| *stopped);
                let of_process = |hold: &&Hold| hold.process == event.process;
                let ops: Vec<_> = self.open.values().filter(of_process).map(|hold| hold.op).collect();
                for op in ops {
                    self.end(op, end);
                }
            }
            _ => {}
        }
    }

    fn is_last(&self, op: u64) -> bool {
        self.acquires.get(&op).is_some_and(|acquire| acquire.is_last)
    }

    fn end(&mut self, op: u64, until: u64) {
        if let Some(mut hold) = self.open.remove(&op)
            && let Some(acquire) = self.acquires.get(&op)
        {
            hold.until = until.max(hold.from);
            hold.has_ended = true;
            self.holds[acquire.lock].push(hold);
        }
    }

    fn end_all(&mut self, end: u64) {
        for (op, mut hold) in std::mem::take(&mut self.open) {
            hold.until = end;
            if let Some(acquire) = self.acquires.get(&op) {
                self.holds[acquire.lock].push(hold);
            }
        }
    }
}

/// Returns the holds that exclude each other and overlap, of holds in the order of their start.
fn overlaps(info: &LockInfo, holds: &[Hold]) -> Vec<String> {
    let mut found = Vec::new();
    let mut current: Vec<&Hold> = Vec::new();
    for hold in holds {
        current.retain(|other| other.until > hold.from);
        if hold.until > hold.from {
            let is_conflict = match info.kind {
                LockKind::Semaphore | LockKind::Permits => {
                    let taken = current.iter().map(|other| other.permits).sum::<u32>() + hold.permits;
                    taken > info.permits
                }
                _ => {
                    current.iter().any(|other| other.mode == Mode::Exclusive || hold.mode == Mode::Exclusive)
                }
            };
            if is_conflict {
                let others: Vec<_> =
                    current.iter().map(|other| (other.op, other.from, other.until)).collect();
                found.push(format!(
                    "op {} held it from {} to {} with others (op, from, to): {others:?}",
                    hold.op, hold.from, hold.until
                ));
            }
        }
        current.push(hold);
    }
    found
}

/// Returns the tokens that do not rise: a request that begins after a grant gets a higher token.
///
/// A process that was stopped may learn of a grant that has expired, and knows that.
fn tokens(info: &LockInfo, holds: &[Hold]) -> Vec<String> {
    let mut found = Vec::new();
    for (index, hold) in holds.iter().enumerate() {
        let Some(token) = hold.token else { continue };
        let before = holds[..index].iter().filter(|other| other.from <= hold.began);
        let highest = before.filter_map(|other| Some((other.token?, other.op))).max();
        if let Some((highest, op)) = highest.filter(|(highest, _)| token <= *highest) {
            found.push(format!("{}: op {} got token {token} after {highest} of op {op}", info.name, hold.op));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ReleaseBy;

    fn event(t: u64, what: What) -> Event {
        Event { t, process: 1, what }
    }

    /// A history of holds of one lock: mode, permits, token, start, release and end of belief.
    #[expect(clippy::type_complexity, reason = "one line for each hold is easy to read")]
    fn history(kind: LockKind, holds: &[(Mode, u32, Option<u64>, u64, u64, u64)]) -> Vec<Event> {
        let locks = vec![LockInfo { name: "x".to_owned(), kind, permits: 2 }];
        let shape = "test".to_owned();
        let (promises_exclusion, promises_rising_tokens) = (true, true);
        let run = What::Run { seed: 1, shape, promises_exclusion, promises_rising_tokens, locks };
        let mut events = vec![event(0, run)];
        for (op, &(mode, permits, token, from, to, valid_until)) in (1..).zip(holds) {
            let acquire = What::Acquire { op, lock: 0, mode, permits, wait: Wait::Endless, lease_ms: None };
            events.push(event(from, acquire));
            events.push(event(from, What::Granted { op, owner: op.to_string(), token, valid_until }));
            events.push(event(to, What::Release { op, by: ReleaseBy::Unlock, valid_until }));
        }
        events.sort_by_key(|event| event.t);
        events.push(event(1_000, What::Healed));
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
        assert_eq!(violations(&[event(99, What::End { left: vec!["x".to_owned()] })]), 1);
    }
}
