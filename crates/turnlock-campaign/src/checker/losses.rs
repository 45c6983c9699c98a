use std::collections::{HashMap, HashSet};

use super::holds::Holds;
use crate::history::{Event, LONGEST_EFFECT, LockInfo, LockKind, What};

/// The time without a fault after which a holder must know that the server has forgotten its hold.
const TOLD_AFTER: u64 = 4_000_000;

/// The time in which a fault takes effect after it was recorded.
const TAKES_EFFECT: u64 = 1_000_000;

/// Faults after which the server has nothing of what it had.
pub(crate) const FORGETTING: [&str; 1] = ["data_loss"];

/// Finds holders that are not told in time that the server has lost their holds.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The holds that the server has forgotten: since when, and their leases.
    forgotten: HashMap<u64, (u64, u64)>,
    active: HashSet<String>,
    /// Since when no fault has been active. Not before a request that is late may have arrived.
    calm_since: u64,
}

impl Losses {
    /// Adds an event, before it changes the holds. Returns violations.
    pub(super) fn add(
        &mut self,
        event: &Event,
        holds: &Holds,
        locks: &[LockInfo],
        watchdog_ms: u64,
    ) -> Vec<String> {
        match &event.what {
            What::Fault { fault, ends: false, .. } => {
                let late = self.find_late(event.t, holds);
                self.active.insert(fault.clone());
                if fault == "late" {
                    self.calm_since = event.t + LONGEST_EFFECT;
                }
                if FORGETTING.contains(&fault.as_str()) {
                    for (op, hold) in &holds.open {
                        let Some(acquire) = holds.acquires.get(op) else { continue };
                        // A majority of servers may remember it. The guards of an explicit owner share a lease.
                        let is_plain = locks[acquire.lock].kind != LockKind::RedLock && !acquire.has_owner();
                        if is_plain && hold.from < event.t {
                            let lease = acquire.lease_ms.unwrap_or(watchdog_ms) * 1_000;
                            self.forgotten.entry(*op).or_insert((event.t, lease));
                        }
                    }
                }
                return late;
            }
            What::Fault { fault, ends: true, .. } => {
                self.active.remove(fault);
                self.calm_since = self.calm_since.max(event.t);
            }
            What::Lost { op, valid_until, .. } | What::Release { op, valid_until, .. } => {
                let Some((since, lease)) = self.forgotten.get(op).copied() else { return Vec::new() };
                let mut found = Vec::new();
                let end = event.t.min(*valid_until);
                if end > since + lease + TAKES_EFFECT {
                    found.push(format!("op {op} believed in its hold until {end}, forgotten at {since}"));
                }
                let is_running = !holds.is_stopped(event.process);
                found.extend(self.is_late(*op, end).filter(|_| is_running));
                self.forgotten.remove(op);
                return found;
            }
            _ => {}
        }
        Vec::new()
    }

    /// Returns a violation if a holder should have been told before `t`.
    fn is_late(&self, op: u64, t: u64) -> Option<String> {
        let (since, _) = self.forgotten.get(&op)?;
        let is_late = self.active.is_empty() && t > self.calm_since.max(*since) + TOLD_AFTER;
        is_late.then(|| format!("op {op} was not told at {t} that its hold was forgotten at {since}"))
    }

    /// Returns the holders that were not told before the calm ends.
    fn find_late(&mut self, t: u64, holds: &Holds) -> Vec<String> {
        let open = self
            .forgotten
            .keys()
            .filter(|op| holds.open.get(op).is_some_and(|hold| !holds.is_stopped(hold.process)));
        let mut late: Vec<_> = open.filter_map(|op| self.is_late(*op, t)).collect();
        late.sort();
        self.forgotten.retain(|op, _| holds.open.contains_key(op));
        late
    }
}
