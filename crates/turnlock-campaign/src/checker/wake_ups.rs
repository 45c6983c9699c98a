use std::collections::{BTreeMap, HashMap, HashSet};

use crate::history::{Event, LONGEST_EFFECT, LockInfo, LockKind, ProcessState, ReleaseBy, What};

/// How long a lock may be free while tasks wait for it: the poll interval of a second, and time for messages.
const LONGEST_IDLE: u64 = 1_500_000;

/// The time after a fault, besides a lease, in which the store may have what no client uses: a waiter of a fair lock that is
/// gone (4 s), a waiting writer that is gone (3 s), a lock that is released later (3 s).
const REMAINS: u64 = 5_000_000;

/// The faults after which requests arrive, or leases end, much later.
const LONG_FAULTS: [&str; 4] = ["late", "duplicate", "clock_back", "clock_forward"];

/// Finds locks that are free, and that no waiter gets. On simulated time, and only in times without a fault.
#[derive(Debug)]
pub(super) struct WakeUps {
    locks: Vec<Option<Lock>>,
    /// The lock of each request that has not ended.
    by_op: HashMap<u64, (usize, u32)>,
    /// Holds that the store releases later by so many milliseconds.
    delayed: HashMap<u64, u64>,
    /// The request before this event, if it was one, and when it began.
    last_acquire: Option<(u64, u64)>,
    /// The number of faults under way.
    active: u32,
    /// When the effects of all faults so far are over.
    calm_from: u64,
    lease: u64,
}

/// What is known of a lock.
#[derive(Clone, Debug, Default)]
struct Lock {
    /// One, or those of a semaphore.
    permits: u32,
    /// How many permits each hold has.
    holders: HashMap<u64, u32>,
    /// Requests without an outcome, with their starts and the permits that they ask for.
    waiters: BTreeMap<u64, (u64, u32)>,
    /// Requests for several locks. They may have this one for a moment, or wait for another one.
    of_groups: HashSet<u64>,
    /// Not before the store has released the last hold.
    free_from: u64,
}

impl WakeUps {
    pub(super) fn new(locks: &[LockInfo], watchdog_ms: u64) -> Self {
        // A majority of servers is not one lock.
        let permits = |info: &LockInfo| if info.kind.is_semaphore() { info.permits } else { 1 };
        let lock = |info: &LockInfo| Lock { permits: permits(info), ..Lock::default() };
        let lock = |info: &LockInfo| (info.kind != LockKind::RedLock).then(|| lock(info));
        Self {
            locks: locks.iter().map(lock).collect(),
            by_op: HashMap::new(),
            delayed: HashMap::new(),
            last_acquire: None,
            active: 0,
            calm_from: 0,
            lease: watchdog_ms * 1_000,
        }
    }

    /// Adds an event. Returns violations.
    pub(super) fn add(&mut self, event: &Event) -> Vec<String> {
        let t = event.t;
        let last_acquire = self.last_acquire.take();
        match &event.what {
            What::Acquire { op, lock, permits, .. } => {
                let Some(known) = &mut self.locks[*lock] else { return Vec::new() };
                known.waiters.insert(*op, (t, *permits));
                self.by_op.insert(*op, (*lock, event.process));
                self.last_acquire = Some((*op, t));
                // Both are recorded at once.
                if let Some((before, _)) = last_acquire.filter(|last| *last == (*op - 1, t)) {
                    for op in [before, *op] {
                        self.join_group(op);
                    }
                }
            }
            What::Granted { op, .. } => {
                let found = self.find_idle(*op, t);
                if let Some((lock, permits)) = self.end_wait(*op) {
                    lock.holders.insert(*op, permits);
                }
                return found;
            }
            // The store may have granted it, and takes it back: at the latest when the effect of the last fault is over.
            What::Busy { op } | What::Cancelled { op } | What::Failed { op, .. } => {
                let found = self.find_idle(*op, t);
                self.release(*op, t);
                return found;
            }
            What::Release {
                op,
                by: ReleaseBy::UnlockAfter { ms } | ReleaseBy::CancelledUnlockAfter { ms },
                ..
            } => _ = self.delayed.insert(*op, *ms),
            What::Released { op, .. } => {
                let later = self.delayed.remove(op).map_or(0, |ms| ms * 1_020);
                self.release(*op, t + later);
            }
            What::Process { is: ProcessState::Killed } => {
                let of_process =
                    |(op, (_, process)): (&u64, &(usize, u32))| (*process == event.process).then_some(*op);
                let ops: Vec<_> = self.by_op.iter().filter_map(of_process).collect();
                for op in ops {
                    self.release(op, t);
                }
            }
            What::Fault { fault, ends: false, .. } => {
                let found = (0..self.locks.len()).filter_map(|lock| self.idle(lock, t)).collect();
                self.active += 1;
                if LONG_FAULTS.contains(&fault.as_str()) {
                    self.calm_from = self.calm_from.max(t + LONGEST_EFFECT);
                }
                return found;
            }
            What::Fault { .. } | What::Healed => {
                let is_end = event.what == What::Healed;
                self.active = if is_end { 0 } else { self.active.saturating_sub(1) };
                self.calm_from = self.calm_from.max(t + self.lease + REMAINS);
            }
            _ => {}
        }
        Vec::new()
    }

    fn lock_of(&mut self, op: u64) -> Option<&mut Lock> {
        let (lock, _) = self.by_op.get(&op)?;
        self.locks[*lock].as_mut()
    }

    fn join_group(&mut self, op: u64) {
        // Permits are not acquired together.
        if let Some(lock) = self.lock_of(op).filter(|lock| lock.permits == 1) {
            lock.waiters.remove(&op);
            lock.of_groups.insert(op);
        }
    }

    /// Also returns how many permits it asks for.
    fn end_wait(&mut self, op: u64) -> Option<(&mut Lock, u32)> {
        let lock = self.lock_of(op)?;
        let permits = lock.waiters.remove(&op).map_or(1, |(_, permits)| permits);
        lock.of_groups.remove(&op);
        Some((lock, permits))
    }

    /// Ends a request or a hold, which the store may know until `until`.
    fn release(&mut self, op: u64, until: u64) {
        if let Some((lock, _)) = self.end_wait(op) {
            lock.holders.remove(&op);
            lock.free_from = lock.free_from.max(until);
        }
        self.by_op.remove(&op);
    }

    fn find_idle(&mut self, op: u64, t: u64) -> Vec<String> {
        let lock = self.by_op.get(&op).map(|(lock, _)| *lock);
        lock.and_then(|lock| self.idle(lock, t)).into_iter().collect()
    }

    /// Returns a violation if a lock was free for too long before `t`.
    fn idle(&mut self, lock: usize, t: u64) -> Option<String> {
        let (is_calm, calm_from) = (self.active == 0, self.calm_from);
        let lock = self.locks[lock].as_mut()?;
        // They were free since the last release: a grant only takes some.
        let free = lock.permits.saturating_sub(lock.holders.values().sum());
        let process_of = |op: &u64| self.by_op.get(op).map(|(_, process)| *process);
        // The waiters of a process are in one queue, and the first one may ask for more.
        let too_many = lock.waiters.iter().filter(|(_, (_, permits))| *permits > free);
        let behind: HashSet<_> = too_many.map(|(op, _)| process_of(op)).collect();
        let waiters = lock.waiters.iter().filter(|(op, _)| !behind.contains(&process_of(op)));
        let (op, (began, _)) = waiters.min_by_key(|(_, (began, _))| *began)?;
        let since = lock.free_from.max(calm_from).max(*began);
        let is_idle = is_calm && lock.of_groups.is_empty() && t > since + LONGEST_IDLE;
        let violation = is_idle.then(|| {
            format!("a waiter that is not woken: op {op} waits for a lock that is free from {since} to {t}")
        })?;
        // Once.
        lock.free_from = t;
        Some(violation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Mode, Wait};

    fn acquire(op: u64) -> What {
        acquire_permits(op, 1)
    }

    fn acquire_permits(op: u64, permits: u32) -> What {
        let (mode, wait, lease_ms) = (Mode::Exclusive, Wait::Endless, None);
        What::Acquire { op, lock: 0, mode, permits, wait, lease_ms, owner_number: None }
    }

    fn granted(op: u64) -> What {
        What::Granted { op, owner: "x:1".to_owned(), token: None, valid_until: u64::MAX }
    }

    fn released(op: u64) -> What {
        What::Released { op, error: None }
    }

    /// Returns how often a waiter is not woken. The lease is 3 s.
    fn violations(kind: LockKind, events: &[(u64, What)]) -> usize {
        let locks = [LockInfo { name: "x".to_owned(), kind, permits: 2 }];
        let mut wake_ups = WakeUps::new(&locks, 3_000);
        let add = |(ms, what): &(u64, What)| {
            wake_ups.add(&Event { t: ms * 1_000, process: 1, what: what.clone() }).len()
        };
        events.iter().map(add).sum()
    }

    #[test]
    fn a_waiter_that_is_not_woken_is_found() {
        // The first hold ends at 5 s, and the second one begins at `ms`.
        let waits = |ms: u64, more: &[(u64, What)]| {
            let mut events = vec![(1, acquire(1)), (2, granted(1)), (3, acquire(3)), (5_000, released(1))];
            events.push((ms, granted(3)));
            events.extend_from_slice(more);
            events.sort_by_key(|event| event.0);
            violations(LockKind::Lock, &events)
        };
        assert_eq!((waits(6_500, &[]), waits(6_501, &[])), (0, 1));
        assert_eq!(waits(9_000, &[(7_000, What::Busy { op: 3 })]), 1, "given up");
        let failed = |op| What::Failed { op, error: "down".to_owned() };
        assert_eq!(waits(9_000, &[(7_000, failed(3))]), 1);
        assert_eq!(
            waits(9_000, &[(4_000, acquire(5)), (7_000, failed(5))]),
            2,
            "before and after another one"
        );
        let fault = |ms, name: &str, ends| (ms, What::fault(name, "", ends));
        assert_eq!(waits(9_000, &[fault(4_000, "reset", false), fault(4_000, "reset", true)]), 0);
        assert_eq!(waits(13_501, &[fault(4_000, "reset", false), fault(4_000, "reset", true)]), 1);
        assert_eq!(waits(13_501, &[fault(4_000, "late", false), fault(4_000, "late", true)]), 0);
        assert_eq!(waits(9_000, &[fault(6_600, "reset", false)]), 1, "before the fault");
        assert_eq!(waits(9_000, &[(4_000, acquire(5)), (4_000, acquire(6))]), 0, "a group");
        assert_eq!(waits(9_000, &[(4_000, acquire(5)), (4_001, acquire(6))]), 1);
        let by = ReleaseBy::UnlockAfter { ms: 3_000 };
        let later = What::Release { op: 1, by, valid_until: u64::MAX };
        assert_eq!(waits(9_000, &[(4_000, later)]), 0);
    }

    #[test]
    fn a_waiter_for_permits_that_are_free_is_found() {
        // One of two permits is taken, and another request waits until 9 s.
        let waits = |held: u32, asked: u32| {
            violations(
                LockKind::Semaphore,
                &[
                    (1, acquire_permits(1, held)),
                    (2, granted(1)),
                    (3, acquire_permits(2, asked)),
                    (9_000, granted(2)),
                ],
            )
        };
        assert_eq!((waits(1, 1), waits(1, 2), waits(2, 1)), (1, 0, 0));
        // Others begin to wait at once, before it.
        let behind = |first: u32| {
            let request = |op, asked| (3, acquire_permits(op, asked));
            violations(
                LockKind::Semaphore,
                &[
                    (1, acquire_permits(1, 1)),
                    (2, granted(1)),
                    request(2, first),
                    request(3, 1),
                    (9_000, granted(3)),
                ],
            )
        };
        assert_eq!((behind(1), behind(2)), (1, 0), "the first waiter of a process asks for too many");
    }
}
