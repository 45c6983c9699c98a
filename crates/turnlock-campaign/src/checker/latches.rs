use std::collections::HashMap;

use crate::history::{Event, LONGEST_EFFECT, LatchAction, What};

/// Finds latches that open too early: one that was set opens, and can be set again, after as many count-downs.
#[derive(Debug, Default)]
pub(super) struct Latches {
    by_lock: HashMap<usize, Latch>,
    /// The operations that have not ended.
    pending: HashMap<u64, Pending>,
}

#[derive(Debug, Default)]
struct Latch {
    /// Count-downs that have begun.
    begun: u64,
    /// Count-downs that have ended. Those without a reply may take effect for a while.
    ended: u64,
    /// The last operation that set it.
    last_set: Option<Set>,
}

/// A count that was set.
#[derive(Clone, Copy, Debug)]
struct Set {
    op: u64,
    count: u64,
    /// The number of count-downs that cannot have counted, since they had ended before.
    ended_before: u64,
}

/// An operation that has begun.
#[derive(Clone, Copy, Debug)]
struct Pending {
    lock: usize,
    action: LatchAction,
    began: u64,
    /// The last operation that had set the latch.
    last_set: Option<Set>,
    ended_before: u64,
}

impl Latches {
    /// Returns `true` if an operation that has not ended waits longer than any fault can have an effect.
    pub(super) fn is_last(&self, op: u64) -> bool {
        self.pending.get(&op).is_some_and(|pending| pending.action.is_last())
    }

    /// Adds an event. Returns a violation.
    pub(super) fn add(&mut self, event: &Event, keeps_data: bool) -> Option<String> {
        match event.what {
            What::Latch { op, lock, action } => {
                let latch = self.by_lock.entry(lock).or_default();
                latch.begun += u64::from(action == LatchAction::CountDown);
                // A count-down without a reply does not arrive later than this.
                let is_over = |other: &&Pending| {
                    other.lock == lock
                        && other.action == LatchAction::CountDown
                        && other.began + LONGEST_EFFECT < event.t
                };
                let over = self.pending.values().filter(is_over).count() as u64;
                let (last_set, ended_before) = (latch.last_set.filter(|_| keeps_data), latch.ended + over);
                self.pending.insert(op, Pending { lock, action, began: event.t, last_set, ended_before });
                None
            }
            What::LatchDone { op, outcome: Some(outcome), .. } => {
                let pending = self.pending.remove(&op)?;
                self.by_lock.entry(pending.lock).or_default().end(op, pending, outcome)
            }
            _ => None,
        }
    }
}

impl Latch {
    fn end(&mut self, op: u64, pending: Pending, outcome: bool) -> Option<String> {
        match pending.action {
            LatchAction::CountDown => {
                self.ended += 1;
                return None;
            }
            LatchAction::Wait { .. } if !outcome => {
                let is_last = pending.action.is_last();
                return is_last.then(|| format!("a latch that does not open: op {op} waited for it in vain"));
            }
            LatchAction::Wait { .. } => {}
            LatchAction::Set { .. } if !outcome => return None,
            LatchAction::Set { count } => {
                let ended_before = pending.ended_before;
                self.last_set = Some(Set { op, count: u64::from(count), ended_before });
            }
        }
        let set = pending.last_set?;
        let counted = self.begun - set.ended_before;
        (counted < set.count).then(|| {
            let Set { op: setter, count, .. } = set;
            format!(
                "a latch that opens too early: op {op} found it open after {counted} of {count} count-downs since op {setter}"
            )
        })
    }
}
