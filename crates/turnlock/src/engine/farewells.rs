use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use turnlock_core::model::Claim;
use turnlock_core::{Doubt, LockName, Moment, OwnerId};

use super::Shared;
use super::hold::Hold;
use crate::clock;

/// How many are remembered: what a busy client gives back in the time that a replica lags behind.
const MOST: usize = 1024;

/// The latest ends of holds that the store has confirmed.
///
/// A replica that is promoted may not have heard of them: then a hold stands there that nobody has, and keeps everybody
/// out until its lease ends. So whenever another server answers, they are said again. That does no harm where it is no
/// news: an owner has one hold, and is never used again.
#[derive(Debug, Default)]
pub(super) struct Farewells(Mutex<VecDeque<Farewell>>);

#[derive(Clone, Debug)]
struct Farewell {
    name: LockName,
    owner: OwnerId,
    permits: u32,
    /// When the hold ends by itself, wherever it stands.
    over: Moment,
}

impl Farewells {
    fn latest(&self) -> MutexGuard<'_, VecDeque<Farewell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has confirmed the end of a hold.
    pub(super) fn note(&self, hold: &Hold) {
        // What has no lease has no owner either, and would be given back twice.
        if !hold.name.kind().is_leased() {
            return;
        }
        let farewell = Farewell {
            name: hold.name.clone(),
            owner: hold.owner.clone(),
            permits: hold.permits,
            over: hold.may_last_until(),
        };
        let mut latest = self.latest();
        if latest.len() == MOST {
            latest.pop_front();
        }
        latest.push_back(farewell);
    }
}

impl Shared {
    /// Ends again what was ended lately: another server answers now, or the same one after a restart.
    pub(super) fn repeat_farewells(self: &Arc<Self>) {
        let now = clock::now();
        let mut latest = self.farewells.latest();
        latest.retain(|farewell| farewell.over > now);
        let again: Vec<_> = latest.iter().cloned().collect();
        drop(latest);
        if !again.is_empty() {
            tracing::debug!(
                holds = again.len(),
                "another server: what was given back lately is given back again"
            );
        }
        for Farewell { name, owner, permits, over } in again {
            let claim = Claim { permits, ..Claim::new(&name, &owner, 0) };
            drop(self.undo(claim, self.settings.usual_patience(), Doubt::of_standing_hold(over)));
        }
    }
}
