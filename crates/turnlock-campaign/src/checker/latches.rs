use std::collections::HashMap;

use super::LONGEST_EFFECT;
use crate::history::{Event, LatchAction, What};

/// Finds waits that end too early: a latch that was set opens after as many count-downs.
#[derive(Debug, Default)]
pub(super) struct Latches {
    by_lock: HashMap<usize, Latch>,
    /// The operations that have not ended, with their latches.
    pending: HashMap<u64, (usize, Operation)>,
}

#[derive(Debug, Default)]
struct Latch {
    /// Count-downs that have begun.
    begun: u64,
    /// Count-downs that have ended. Those without a reply never do: they may take effect at any time.
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

#[derive(Debug)]
enum Operation {
    Set(Set),
    CountDown,
    /// The last operation that set the latch before it began.
    Wait {
        ms: u64,
        last_set: Option<Set>,
    },
}

impl Latches {
    /// Adds an event. Returns a violation.
    pub(super) fn add(&mut self, event: &Event, keeps_data: bool) -> Option<String> {
        match event.what {
            What::Latch { op, lock, action } => {
                let latch = self.by_lock.entry(lock).or_default();
                let operation = match action {
                    LatchAction::Set { count } => {
                        Operation::Set(Set { op, count: u64::from(count), ended_before: latch.ended })
                    }
                    LatchAction::CountDown => {
                        latch.begun += 1;
                        Operation::CountDown
                    }
                    LatchAction::Wait { ms } => Operation::Wait { ms, last_set: latch.last_set },
                };
                self.pending.insert(op, (lock, operation));
                None
            }
            What::LatchDone { op, outcome: Some(outcome) } => {
                let (lock, operation) = self.pending.remove(&op)?;
                let latch = self.by_lock.entry(lock).or_default();
                latch.end(op, &operation, outcome, keeps_data)
            }
            _ => None,
        }
    }
}

impl Latch {
    fn end(&mut self, op: u64, operation: &Operation, outcome: bool, keeps_data: bool) -> Option<String> {
        match operation {
            Operation::Set(set) if outcome => self.last_set = Some(*set),
            Operation::Set(_) => {}
            Operation::CountDown => self.ended += 1,
            Operation::Wait { ms, .. } if !outcome => {
                let is_last = ms * 1_000 >= LONGEST_EFFECT;
                return is_last.then(|| format!("op {op} waited in vain for a latch that was counted down"));
            }
            Operation::Wait { last_set, .. } => {
                let set = last_set.filter(|_| keeps_data)?;
                let counted = self.begun - set.ended_before;
                return (counted < set.count).then(|| {
                    format!(
                        "op {op} passed a latch of {} (op {}) after {counted} count-downs",
                        set.count, set.op
                    )
                });
            }
        }
        None
    }
}
