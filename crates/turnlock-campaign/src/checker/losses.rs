use std::collections::HashMap;

use super::holds::Holds;
use crate::history::{Event, LONGEST_EFFECT, LockInfo, LockKind, What};

/// The time without a fault after which a holder must know that the server has forgotten its hold.
const TOLD_AFTER: u64 = 4_000_000;

/// The time in which a fault takes effect after it was recorded.
const TAKES_EFFECT: u64 = 1_000_000;

/// The fault after which a simulated server has nothing of what it had.
pub(crate) const FORGETTING: &str = "data_loss";

/// The faults at whose end a single real server, or a file, has nothing. With replicas, another server may have it.
const FORGETTING_AT_END: [(&str, &str); 2] = [("single", "restart_empty"), ("file", "remove_database")];

/// Finds holders that are not told in time that the server has lost their holds.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The fault at whose end nothing is left.
    restart: Option<&'static str>,
    /// The holds that the server has forgotten: since when, and their leases.
    forgotten: HashMap<u64, (u64, u64)>,
    /// The number of faults under way.
    active: u32,
    /// When such a fault began.
    restart_began: Option<u64>,
    /// Since when no fault has been active. Not before a request that is late may have arrived.
    calm_since: u64,
}

impl Losses {
    /// Of a run on stores of this shape.
    pub(super) fn new(shape: &str) -> Self {
        let restart = FORGETTING_AT_END.iter().find(|(name, _)| shape.starts_with(name));
        Self { restart: restart.map(|(_, fault)| *fault), ..Self::default() }
    }

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
                self.active += 1;
                if fault == "late" {
                    self.calm_since = event.t + LONGEST_EFFECT;
                }
                if fault == FORGETTING {
                    self.forget(event.t, event.t, holds, locks, watchdog_ms);
                }
                if self.restart == Some(fault) {
                    self.restart_began = Some(event.t);
                }
                return late;
            }
            What::Fault { fault, ends: true, .. } => {
                self.active = self.active.saturating_sub(1);
                self.calm_since = self.calm_since.max(event.t);
                if let Some(began) = self.restart_began.take_if(|_| self.restart == Some(fault)) {
                    self.forget(began, event.t, holds, locks, watchdog_ms);
                }
            }
            What::Healed => {
                self.active = 0;
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

    /// The server has forgotten at `t` what was granted before `before`.
    fn forget(&mut self, before: u64, t: u64, holds: &Holds, locks: &[LockInfo], watchdog_ms: u64) {
        for (op, hold) in &holds.open {
            let Some(acquire) = holds.acquires.get(op) else { continue };
            // A majority of servers may remember it. The guards of an explicit owner share a lease.
            let is_plain = locks[acquire.lock].kind != LockKind::RedLock && !acquire.has_owner();
            if is_plain && hold.from < before {
                let lease = acquire.lease_ms.unwrap_or(watchdog_ms) * 1_000;
                self.forgotten.entry(*op).or_insert((t, lease));
            }
        }
    }

    /// Returns a violation if a holder should have been told before `t`.
    fn is_late(&self, op: u64, t: u64) -> Option<String> {
        let (since, _) = self.forgotten.get(&op)?;
        let is_late = self.active == 0 && t > self.calm_since.max(*since) + TOLD_AFTER;
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
