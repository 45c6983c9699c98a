use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use turnlock_core::model::Claim;
use turnlock_core::{Doubt, LockName, Moment, OwnerId};

use super::Shared;
use super::hold::Hold;
use crate::clock;

/// The capacity: what a busy client releases during the lag of a replica.
const CAPACITY: usize = 1024;

/// The latest releases that the store has confirmed.
///
/// A promoted replica may not have them. Then it still has a hold without a holder, which blocks the lock
/// until the lease ends. So they are replayed whenever another server takes over. The replay is idempotent:
/// an owner has one hold and is never reused.
#[derive(Debug, Default)]
pub(super) struct RecentReleases(Mutex<VecDeque<RecentRelease>>);

#[derive(Clone, Debug)]
struct RecentRelease {
    name: LockName,
    owner: OwnerId,
    permits: u32,
    /// When the lease ends on any server.
    lease_end: Moment,
}

impl RecentReleases {
    fn lock(&self) -> MutexGuard<'_, VecDeque<RecentRelease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a release that the store has confirmed.
    pub(super) fn push(&self, hold: &Hold) {
        // Permits without a lease have no owner, so a replay would release them twice.
        if !hold.name.kind().is_leased() {
            return;
        }
        let release = RecentRelease {
            name: hold.name.clone(),
            owner: hold.owner.clone(),
            permits: hold.permits,
            lease_end: hold.may_last_until(),
        };
        let mut latest = self.lock();
        if latest.len() == CAPACITY {
            latest.pop_front();
        }
        latest.push_back(release);
    }
}

impl Shared {
    /// Sends the recent releases again: another server has taken over, or the same one has restarted.
    pub(super) fn replay_recent_releases(self: &Arc<Self>) {
        let now = clock::now();
        let mut latest = self.recent_releases.lock();
        latest.retain(|release| release.lease_end > now);
        let releases: Vec<_> = latest.iter().cloned().collect();
        drop(latest);
        if !releases.is_empty() {
            tracing::debug!(holds = releases.len(), "server changed, replaying recent releases");
        }
        for RecentRelease { name, owner, permits, lease_end } in releases {
            let claim = Claim { permits, ..Claim::new(&name, &owner, 0) };
            drop(self.undo(claim, self.settings.usual_limit(), Doubt::of_existing_hold(lease_end)));
        }
    }
}
