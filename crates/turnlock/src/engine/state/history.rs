use std::collections::{HashMap, VecDeque};

use tokio::sync::watch;
use turnlock_core::model::Claim;
use turnlock_core::{LockName, Moment};

use super::hold::Hold;
use crate::clock;
use crate::sync::Mutex;

/// The highest fencing token of each lock that this client has seen.
///
/// It is sent with the next acquire, so that tokens keep rising if the store has lost the last one. The store
/// issues no token below its clock in microseconds, so a token far behind the clock need not be remembered.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HighestTokens>);

#[derive(Debug, Default)]
struct HighestTokens {
    highest: HashMap<LockName, u64>,
    /// The size when tokens far behind the clock were last removed.
    pruned_to: usize,
}

/// The smallest size at which tokens are removed.
const MIN_PRUNE_AT: usize = 1024;

/// How old a token must be to be removed: an hour, by which the store's clock may step back without a falling
/// token.
const PRUNE_AGE: u64 = 3_600_000_000;

impl Tokens {
    pub(crate) fn highest(&self, name: &LockName) -> u64 {
        self.0.lock().highest.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn observe(&self, name: &LockName, token: u64) {
        let mut tokens = self.0.lock();
        // Not searched again before the size has doubled.
        if tokens.highest.len() >= MIN_PRUNE_AT.max(tokens.pruned_to * 2) {
            let recent = clock::wall_micros().saturating_sub(PRUNE_AGE);
            tokens.highest.retain(|_, token| *token >= recent);
            tokens.pruned_to = tokens.highest.len();
        }
        let known = tokens.highest.entry(name.clone()).or_default();
        *known = token.max(*known);
    }
}

/// The capacity: what a busy client releases during the lag of a replica.
const CAPACITY: usize = 1024;

/// The latest releases that the store has confirmed.
///
/// A promoted replica may not have them. Then it still has a hold without a holder, which blocks the lock
/// until the lease ends. So they are replayed whenever another server takes over. The replay is idempotent:
/// an owner has one hold and is never reused.
#[derive(Debug, Default)]
pub(crate) struct RecentReleases {
    latest: Mutex<VecDeque<RecentRelease>>,
    /// Changes with each replay.
    replay: watch::Sender<()>,
}

/// What was released, and when its lease ends on any server.
type RecentRelease = (Claim, Moment);

impl RecentReleases {
    /// Records a release that the store has confirmed.
    pub(crate) fn push(&self, hold: &Hold) {
        // Permits without a lease have no owner, so a replay would release them twice.
        if !hold.name.kind().is_leased() {
            return;
        }
        let release = (hold.claim(0), hold.may_last_until());
        let mut latest = self.latest.lock();
        if latest.len() == CAPACITY {
            latest.pop_front();
        }
        latest.push_back(release);
    }

    /// Returns the releases whose leases have not ended. The receiver changes when the next replay begins.
    pub(crate) fn begin_replay(&self, now: Moment) -> (Vec<RecentRelease>, watch::Receiver<()>) {
        let mut latest = self.latest.lock();
        self.replay.send_replace(());
        latest.retain(|(_, lease_end)| *lease_end > now);
        (latest.iter().cloned().collect(), self.replay.subscribe())
    }
}
