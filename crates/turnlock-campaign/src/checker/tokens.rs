use std::collections::HashMap;

use super::holds::Hold;
use crate::history::{Event, LockInfo, What};

/// Returns the tokens that do not rise: a request that begins after a grant gets a higher token.
///
/// A process that was stopped may learn of a grant that has expired, and knows that.
pub(super) fn tokens(info: &LockInfo, holds: &[Hold]) -> Vec<String> {
    let mut found = Vec::new();
    // The highest token among the first holds, for each number of them.
    let mut highest: Vec<Option<(u64, u64)>> = vec![None];
    for hold in holds {
        if let Some(token) = hold.token {
            let before = holds.partition_point(|other| other.from <= hold.began).min(highest.len() - 1);
            if let Some((highest, op)) = highest[before].filter(|(highest, _)| token <= *highest) {
                found.push(format!(
                    "a token that does not rise: {}: op {} got token {token} after {highest} of op {op}",
                    info.name, hold.op
                ));
            }
        }
        let last = highest.last().copied().flatten();
        highest.push(last.max(hold.token.map(|token| (token, hold.op))));
    }
    found
}

/// Writes to a register that rejects tokens below the highest one.
#[derive(Debug, Default)]
pub(super) struct Register {
    pub(super) rejected: usize,
    /// Writes of valid holders that were rejected.
    pub(super) violations: Vec<String>,
}

impl Register {
    /// Performs the writes of a history, with a register for each lock.
    pub(super) fn replay(events: &[Event], holds: &[Vec<Hold>]) -> Self {
        let by_op: HashMap<_, _> = (0..)
            .zip(holds)
            .flat_map(|(lock, holds)| holds.iter().map(move |hold| (hold.op, (lock, hold))))
            .collect();
        let mut highest: HashMap<usize, u64> = HashMap::new();
        let mut register = Self::default();
        for event in events {
            let What::Write { op, token } = event.what else { continue };
            let Some((lock, hold)) = by_op.get(&op) else { continue };
            let highest = highest.entry(*lock).or_default();
            if token >= *highest {
                *highest = token;
                continue;
            }
            register.rejected += 1;
            if (hold.from..hold.until).contains(&event.t) {
                register.violations.push(format!(
                    "a valid write that is rejected: op {op} held the lock, and its token {token} is below {highest}"
                ));
            }
        }
        register
    }
}
