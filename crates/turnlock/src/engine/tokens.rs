use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use turnlock_core::LockName;

use crate::clock;

/// The highest fencing token that this client has seen of each lock.
///
/// It is sent along with the next request, so that a token does not fall when the store has lost the last one. Tokens
/// are not below the store's clock in microseconds, so one that the clock has left far behind need not be remembered.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    highest: HashMap<LockName, u64>,
    /// How many it may be before those are let go that the clock has left behind.
    many: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Self { highest: HashMap::new(), many: MANY }
    }
}

/// How many to remember at the least.
const MANY: usize = 1024;

/// How far the clock of a store may step back without a token falling, for a lock whose last token was let go: an hour.
const FAR_BEHIND: u64 = 3_600_000_000;

impl Tokens {
    pub(super) fn highest(&self, name: &LockName) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).highest.get(name).copied().unwrap_or_default()
    }

    pub(super) fn saw(&self, name: &LockName, token: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.highest.len() >= seen.many {
            let recent = clock::wall_micros().saturating_sub(FAR_BEHIND);
            seen.highest.retain(|_, token| *token >= recent);
            // Not looked through again before it has doubled.
            seen.many = (seen.highest.len() * 2).max(MANY);
        }
        let known = seen.highest.entry(name.clone()).or_default();
        *known = token.max(*known);
    }
}
