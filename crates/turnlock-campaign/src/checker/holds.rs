use std::collections::HashMap;

use crate::history::{Event, LONGEST_EFFECT, LockInfo, LockKind, Mode, ProcessState, ReleaseBy, Wait, What};

/// A hold, as its holder believed it.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) op: u64,
    pub(super) process: u32,
    pub(super) token: Option<u64>,
    mode: Mode,
    permits: u32,
    owner_number: Option<usize>,
    /// When its acquire began.
    pub(super) began: u64,
    pub(super) from: u64,
    pub(super) until: u64,
    /// How long the holder believed in the grant that it got.
    lease: u64,
    /// The holder was told of the loss, or released it.
    pub(super) has_ended: bool,
}

/// The request of a hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acquire {
    pub(super) lock: usize,
    mode: Mode,
    permits: u32,
    owner_number: Option<usize>,
    pub(super) lease_ms: Option<u64>,
    /// It waits longer than any fault can have an effect.
    pub(super) is_last: bool,
    pub(super) began: u64,
    /// Until when its hold was believed in, by its grant or its release.
    valid_until: u64,
    /// The holder was told of the loss.
    is_lost: bool,
}

impl Acquire {
    /// Returns `true` if it is for an explicit owner.
    pub(super) fn has_owner(&self) -> bool {
        self.owner_number.is_some()
    }
}

/// The requests and the holds of a history.
#[derive(Debug)]
pub(super) struct Holds {
    pub(super) acquires: HashMap<u64, Acquire>,
    /// The ended holds of each lock.
    pub(super) ended: Vec<Vec<Hold>>,
    /// The holds that last, by the number of their acquire.
    pub(super) open: HashMap<u64, Hold>,
    /// Holds that the store is to release: since when, and until when if it confirms it.
    delayed: HashMap<u64, (u64, u64)>,
    /// Since when processes are stopped.
    stopped: HashMap<u32, u64>,
    /// A delayed release lasts on the store, whatever happens to its client.
    keeps_data: bool,
}

impl Holds {
    pub(super) fn new(locks: usize, keeps_data: bool) -> Self {
        Self {
            acquires: HashMap::new(),
            ended: vec![Vec::new(); locks],
            open: HashMap::new(),
            delayed: HashMap::new(),
            stopped: HashMap::new(),
            keeps_data,
        }
    }

    pub(super) fn add(&mut self, event: &Event) {
        if let What::Lost { op, .. } | What::Release { op, .. } = &event.what
            && let Some(acquire) = self.acquires.get_mut(op)
        {
            acquire.is_lost |= matches!(event.what, What::Lost { .. });
            if let What::Release { valid_until, .. } = event.what {
                acquire.valid_until = acquire.valid_until.max(valid_until);
            }
        }
        match &event.what {
            What::Acquire { op, lock, mode, permits, lease_ms, wait, owner_number } => {
                let is_last = matches!(wait, Wait::For { ms } if *ms * 1_000 >= LONGEST_EFFECT);
                let acquire = Acquire {
                    lock: *lock,
                    mode: *mode,
                    permits: *permits,
                    owner_number: *owner_number,
                    lease_ms: *lease_ms,
                    is_last,
                    began: event.t,
                    valid_until: 0,
                    is_lost: false,
                };
                self.acquires.insert(*op, acquire);
            }
            What::Granted { op, token, valid_until, .. } => {
                let Some(acquire) = self.acquires.get_mut(op) else { return };
                // The guards of an explicit owner share a lease, which gets shorter when one of them ends.
                if !acquire.has_owner() {
                    acquire.valid_until = (*valid_until).max(event.t);
                }
                let hold = Hold {
                    op: *op,
                    process: event.process,
                    token: *token,
                    mode: acquire.mode,
                    permits: acquire.permits,
                    owner_number: acquire.owner_number,
                    began: acquire.began,
                    from: event.t,
                    until: u64::MAX,
                    lease: valid_until.saturating_sub(event.t),
                    has_ended: false,
                };
                self.open.insert(*op, hold);
            }
            What::Release { op, by: ReleaseBy::UnlockAfter { ms }, valid_until }
                if event.t < *valid_until =>
            {
                // The clock of the store may be faster by nearly a hundredth.
                self.delayed.insert(*op, (event.t, event.t + ms * 985));
            }
            What::Released { op, error } => {
                if let Some((from, until)) = self.delayed.remove(op) {
                    self.end(*op, if error.is_none() && self.keeps_data { until } else { from });
                }
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
                    let delayed = self.delayed.remove(&op).map(|(from, _)| from);
                    self.end(op, delayed.unwrap_or(end));
                }
            }
            _ => {}
        }
    }

    pub(super) fn is_last(&self, op: u64) -> bool {
        self.acquires.get(&op).is_some_and(|acquire| acquire.is_last)
    }

    /// Returns `true` if a hold with a fixed lease ends as it should: at `t`, or before.
    ///
    /// The belief of a group ends when it loses a member, and the lease not before the end that it got with the grant.
    pub(super) fn is_fixed_lease_over(&self, op: u64, valid_until: u64, t: u64) -> bool {
        self.acquires
            .get(&op)
            .is_some_and(|acquire| acquire.lease_ms.is_some() && t >= valid_until.max(acquire.valid_until))
    }

    /// Returns `true` if the holder was told that it is lost.
    pub(super) fn is_lost(&self, op: u64) -> bool {
        self.acquires.get(&op).is_some_and(|acquire| acquire.is_lost)
    }

    pub(super) fn is_stopped(&self, process: u32) -> bool {
        self.stopped.contains_key(&process)
    }

    fn end(&mut self, op: u64, until: u64) {
        if let Some(mut hold) = self.open.remove(&op)
            && let Some(acquire) = self.acquires.get(&op)
        {
            hold.until = until.max(hold.from);
            hold.has_ended = true;
            self.ended[acquire.lock].push(hold);
        }
    }

    /// Ends what still lasts, and sorts the holds of each lock by their beginnings.
    pub(super) fn finish(&mut self, end: u64) {
        for (op, mut hold) in std::mem::take(&mut self.open) {
            hold.until = end;
            if let Some(acquire) = self.acquires.get(&op) {
                self.ended[acquire.lock].push(hold);
            }
        }
        for holds in &mut self.ended {
            holds.sort_by_key(|hold| (hold.from, hold.op));
        }
    }
}

impl Hold {
    /// Returns `true` if both are of one explicit owner, which may hold a lock several times.
    fn has_owner_of(&self, other: &Self) -> bool {
        self.owner_number.is_some()
            && (self.process, self.owner_number) == (other.process, other.owner_number)
    }

    fn excludes(&self, other: &Self) -> bool {
        let is_exclusive = self.mode == Mode::Exclusive || other.mode == Mode::Exclusive;
        is_exclusive && !self.has_owner_of(other)
    }
}

/// Returns the holds that exclude each other and overlap, of holds in the order of their start.
pub(super) fn overlaps(info: &LockInfo, holds: &[Hold]) -> Vec<String> {
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
                _ => current.iter().any(|other| hold.excludes(other)),
            };
            if is_conflict {
                let others: Vec<_> =
                    current.iter().map(|other| (other.op, other.from, other.until)).collect();
                found.push(format!(
                    "overlapping holds: {}: op {} held it from {} to {} with others (op, from, to): {others:?}",
                    info.name, hold.op, hold.from, hold.until
                ));
            }
        }
        current.push(hold);
    }
    found
}

/// How long after the end of a lease, or of a partition, a holder may learn that the store forgot it.
pub(super) const NOTICE: u64 = 2_000_000;

/// The faults that cut holders off together with an old primary.
const PARTITIONS: [&str; 3] = ["partition", "partition_clients_last", "split_brain"];

/// Returns when holders were cut off together with an old primary, which goes on renewing their locks.
pub(super) fn partitions(events: &[Event]) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for event in events {
        match &event.what {
            What::Fault { fault, ends, .. } if PARTITIONS.contains(&fault.as_str()) => {
                if !*ends {
                    found.push((event.t, u64::MAX));
                } else if let Some(open) = found.iter_mut().find(|(_, end)| *end == u64::MAX) {
                    open.1 = event.t;
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the holders that the store forgot and that were not told within a lease.
pub(super) fn untold(info: &LockInfo, holds: &[Hold], partitions: &[(u64, u64)]) -> Vec<String> {
    // A majority of servers may remember a hold that another majority excludes for a while.
    if info.kind.is_semaphore() || info.kind == LockKind::RedLock {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut current: Vec<&Hold> = Vec::new();
    for hold in holds {
        current.retain(|other| other.until > hold.from);
        for other in current.iter().filter(|_| hold.until > hold.from) {
            let partition = partitions.iter().find(|(from, to)| (*from..=*to).contains(&hold.from));
            // In a partition, either of them may be the one that the store has forgotten.
            let (forgotten, until) = match partition {
                Some((_, end)) => (*end, other.until.min(hold.until)),
                None => (hold.from, other.until),
            };
            // The guards of an explicit owner share a lease.
            let is_plain = other.owner_number.is_none();
            if is_plain && hold.excludes(other) && until > forgotten.saturating_add(other.lease + NOTICE) {
                found.push(format!(
                    "a holder that was not told: {}: op {} was granted at {}, and op {} believed in its hold until {}",
                    info.name, hold.op, hold.from, other.op, other.until
                ));
            }
        }
        current.push(hold);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_is_found() {
        let fault = |t, name: &str, ends| Event { t, process: 0, what: What::fault(name, "", ends) };
        for name in ["partition", "partition_clients_last", "split_brain"] {
            let events =
                [fault(1, name, false), fault(2, "reset", true), fault(3, name, true), fault(9, name, false)];
            assert_eq!(partitions(&events), [(1, 3), (9, u64::MAX)], "{name}");
        }
    }
}
