use std::collections::HashMap;

use super::holds::Holds;
use crate::history::{Event, LONGEST_EFFECT, LockInfo, LockKind, What};

/// The time without a fault after which a holder must know that the server has forgotten its hold.
const TOLD_AFTER: u64 = 4_000_000;

/// The name of the rule.
const NOT_TOLD: &str = "a holder that was not told";

/// The time in which a fault takes effect after it was recorded.
const TAKES_EFFECT: u64 = 1_000_000;

/// The fault after which a simulated server has nothing of what it had.
const FORGETTING: &str = "data_loss";

/// The faults at whose end a single real server, or a file, has nothing. With replicas, another server may have it.
const FORGETTING_AT_END: [(&str, &str); 2] = [("single", "restart_empty"), ("file", "remove_database")];

/// Finds holders that are not told in time that the server has lost their holds.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The fault at whose end nothing is left, and when it began.
    forgetting_fault: Option<&'static str>,
    began: Option<u64>,
    /// The holds that the server has forgotten: since when, and their leases.
    forgotten: HashMap<u64, (u64, u64)>,
    /// The number of faults under way.
    active: u32,
    /// Since when no fault has been active. Not before a request that is late may have arrived.
    calm_since: u64,
}

impl Losses {
    /// Of a run on stores of this shape.
    pub(super) fn new(shape: &str) -> Self {
        let found = FORGETTING_AT_END.iter().find(|(name, _)| shape.starts_with(name));
        Self { forgetting_fault: found.map(|(_, fault)| *fault), ..Self::default() }
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
                if self.forgetting_fault == Some(fault) {
                    self.began = Some(event.t);
                }
                return late;
            }
            What::Fault { fault, ends: true, .. } => {
                self.active = self.active.saturating_sub(1);
                self.calm_since = self.calm_since.max(event.t);
                if let Some(began) = self.began.take_if(|_| self.forgetting_fault == Some(fault)) {
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
                    found.push(format!(
                        "{NOT_TOLD}: op {op} believed in its hold until {end}, forgotten at {since}"
                    ));
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
            let kind = locks[acquire.lock].kind;
            let is_plain = kind != LockKind::RedLock && !kind.is_unleased() && !acquire.has_owner();
            if is_plain && hold.from < before {
                let lease = acquire.lease_ms.unwrap_or(watchdog_ms) * 1_000;
                self.forgotten.entry(*op).or_insert((t, lease));
            }
        }
    }

    /// Returns a violation if a holder should have been told before `t`.
    fn is_late(&self, op: u64, t: u64) -> Option<String> {
        // Leases on real servers are shorter than this time: there, the end of the lease is the limit.
        if self.forgetting_fault.is_some() {
            return None;
        }
        let (since, _) = self.forgotten.get(&op)?;
        let is_late = self.active == 0 && t > self.calm_since.max(*since) + TOLD_AFTER;
        is_late.then(|| {
            format!("{NOT_TOLD}: op {op} does not know at {t} that its hold was forgotten at {since}")
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Mode, ReleaseBy, Wait};

    /// A hold that is believed in until `until`, on a server that has lost its data at 10 s.
    fn violations(shape: &str, fault: &str, kind: LockKind, until: u64) -> usize {
        let locks = [LockInfo { name: "x".to_owned(), kind, permits: 2 }];
        let (op, mode, wait) = (1, Mode::Exclusive, Wait::Endless);
        let acquire =
            What::Acquire { op, lock: 0, mode, permits: 1, wait, lease_ms: None, owner_number: None };
        let events = [
            (1, acquire),
            (2, What::Granted { op, owner: "x:1".to_owned(), token: None, valid_until: until }),
            (9_000_000, What::fault(fault, "", false)),
            (10_000_000, What::fault(fault, "", true)),
            (until, What::Release { op, by: ReleaseBy::Unlock, valid_until: until }),
        ];
        let (mut holds, mut losses) = (Holds::new(1, false), Losses::new(shape));
        let mut found = 0;
        for (t, what) in events {
            let event = Event { t, process: 1, what };
            found += losses.add(&event, &holds, &locks, 3_000).len();
            holds.add(&event);
        }
        found
    }

    #[test]
    fn a_holder_that_believes_in_forgotten_data_is_found() {
        let (lock, last) = (LockKind::Lock, 10_000_000 + 3_000_000 + TAKES_EFFECT);
        assert_eq!(violations("single, faults all", "restart_empty", lock, last), 0);
        assert_eq!(violations("single, faults all", "restart_empty", lock, last + 1), 1);
        assert_eq!(violations("file, faults all", "remove_database", lock, last + 1), 1);
        assert_eq!(violations("sentinel, faults all", "restart_empty", lock, last + 1), 0);
        assert_eq!(violations("single, faults all", "restart_aof", lock, last + 1), 0);
        assert_eq!(violations("single, faults all", "restart_empty", LockKind::Semaphore, last + 1), 0);
        // On simulated time, also earlier than the lease.
        let told = 10_000_000 + TOLD_AFTER;
        assert_eq!(violations("simulation", "data_loss", lock, told + 1), 2);
    }
}
