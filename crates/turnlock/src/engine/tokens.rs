use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use turnlock_core::LockName;

use crate::clock;

/// The highest fencing token of each lock that this client has seen.
///
/// It is sent with the next acquire, so that tokens keep rising if the store has lost the last one. The store
/// issues no token below its clock in microseconds, so a token far behind the clock need not be remembered.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<HighestTokens>);

#[derive(Debug)]
struct HighestTokens {
    highest: HashMap<LockName, u64>,
    /// The size at which tokens far behind the clock are removed.
    prune_at: usize,
}

impl Default for HighestTokens {
    fn default() -> Self {
        Self { highest: HashMap::new(), prune_at: MIN_PRUNE_AT }
    }
}

/// The smallest size at which tokens are removed.
const MIN_PRUNE_AT: usize = 1024;

/// How old a token must be to be removed: an hour, by which the store's clock may step back without a falling
/// token.
const PRUNE_AGE: u64 = 3_600_000_000;

impl Tokens {
    pub(super) fn highest(&self, name: &LockName) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).highest.get(name).copied().unwrap_or_default()
    }

    pub(super) fn observe(&self, name: &LockName, token: u64) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.highest.len() >= tokens.prune_at {
            let recent = clock::wall_micros().saturating_sub(PRUNE_AGE);
            tokens.highest.retain(|_, token| *token >= recent);
            // Not searched again before the size has doubled.
            tokens.prune_at = (tokens.highest.len() * 2).max(MIN_PRUNE_AT);
        }
        let known = tokens.highest.entry(name.clone()).or_default();
        *known = token.max(*known);
    }
}
