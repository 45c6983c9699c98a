use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use turnlock_core::model::{Claim, Renewed, Reply, Step};
use turnlock_core::{LockName, Moment, OwnerId};
use turnlock_store::{Activity, ActivityScope, StepOptions, StepReply, Store};

use super::engine::Engine;
use crate::activity::{Deadlock, HeldRecord, Reader, Situation, WaitCycle, WaitRecord, kind_of};
use crate::clock;
use crate::error::Error;

/// The least time between two searches for each record that the store has looked through in the last one: all clients with waiters
/// that hold something search. The number of their requests does not rise with the number of clients.
const PERIOD_PER_RECORD: Duration = Duration::from_millis(5);

/// How many records a search counts for that got no reply, at least and at most.
const UNKNOWN_RECORDS: (usize, usize) = (200, 2_000);

/// The number of deadlocks that are remembered, so that each is logged once.
const MAX_LOGGED: usize = 256;

/// The longest time between two searches. Other users of the store could write any number of records.
const LONGEST_PERIOD: Duration = Duration::from_secs(60);

/// The number of holds that are checked. Records of other users must not cost more than that.
const MAX_CHECKED: usize = 256;

/// The search of a client for certain deadlocks with waits of its own.
#[derive(Default)]
pub(super) struct DeadlockSearch {
    /// The number of records that the store looked through in the last one.
    scanned: usize,
    /// When to search again.
    due: Moment,
    /// The owners in each deadlock that was logged.
    logged: HashSet<Vec<String>>,
}

/// A certain deadlock with a wait of this client.
pub(super) struct OwnDeadlock {
    /// Who waits for whom.
    text: String,
    /// The owners that wait, sorted.
    owners: Vec<String>,
    /// The owner whose wait ends the deadlock by an error, if this client has it.
    ended: Option<String>,
}

impl DeadlockSearch {
    /// A timer may fire a moment too early.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        now + Duration::from_millis(5) >= self.due
    }

    /// Returns the least time between two searches.
    pub(super) fn period(&self) -> Duration {
        PERIOD_PER_RECORD.saturating_mul(u32::try_from(self.scanned).unwrap_or(u32::MAX)).min(LONGEST_PERIOD)
    }

    /// Searches, and logs what was not logged before. Returns the deadlocks, and how long this process was busy.
    pub(super) async fn run(
        &mut self,
        store: &dyn Store,
        limit: Duration,
        reader: &Reader<'_>,
        now: Moment,
    ) -> (Vec<OwnDeadlock>, Duration) {
        let activity = linked(store, limit).await;
        // Without a reply, the store is slow, or has very much to read.
        let more =
            self.scanned.saturating_mul(2).clamp(UNKNOWN_RECORDS.0, UNKNOWN_RECORDS.1).max(self.scanned);
        self.scanned = activity.as_ref().map_or(more, |activity| activity.scanned);
        self.due = now + self.period();
        let read = clock::now();
        let situation = activity.as_ref().map(Situation::new).unwrap_or_default();
        let mut cycles = situation.cycles();
        // One that is known lasts until someone ends it.
        let is_to_confirm = |cycle: &WaitCycle<'_>| {
            let own = OwnDeadlock::new(cycle, reader);
            own.ended.is_some() || !self.logged.contains(&own.owners)
        };
        let is_mine = |cycle: &WaitCycle<'_>| cycle.waits.iter().any(|(of, _)| of.client == reader.client);
        cycles.retain(|cycle| cycle.is_certain && is_mine(cycle) && is_to_confirm(cycle));
        let busy = clock::now().since(read);
        let mut cycles = confirm(store, limit, cycles).await;
        cycles.retain(|cycle| cycle.is_certain);
        let found: Vec<_> = cycles.iter().map(|cycle| OwnDeadlock::new(cycle, reader)).collect();
        for OwnDeadlock { text, owners, .. } in &found {
            if self.logged.len() >= MAX_LOGGED {
                self.logged.clear();
            }
            if self.logged.insert(owners.clone()) {
                tracing::warn!(
                    deadlock = %text,
                    "deadlock: each of these waits for a lock that the next one holds; acquire locks in one order, or \
                     use a MultiLock"
                );
            }
        }
        (found, busy)
    }
}

impl OwnDeadlock {
    fn new(cycle: &WaitCycle<'_>, reader: &Reader<'_>) -> Self {
        let mut owners: Vec<_> = cycle.waits.iter().map(|(_, wait)| wait.owner.clone()).collect();
        owners.sort_unstable();
        let may_fail = cycle.waits.iter().filter(|(client, _)| client.record.fails);
        let age = |wait: &WaitRecord| (wait.proven.map(|(first, _)| first), Reverse(wait.waited_ms));
        let youngest = may_fail.max_by_key(|(_, wait)| (age(wait), &wait.owner));
        let ended = youngest.filter(|(client, _)| client.client == reader.client);
        Self {
            text: cycle.to_deadlock(reader).to_string(),
            owners,
            ended: ended.map(|(_, wait)| wait.owner.clone()),
        }
    }

    /// Returns the owner whose wait ends it by an error, if this client has it, and who waits for whom.
    pub(super) fn ended_wait(&self) -> Option<(&str, &str)> {
        Some((self.ended.as_deref()?, &self.text))
    }
}

/// Reads the records that can be part of a deadlock.
async fn linked(store: &dyn Store, limit: Duration) -> Option<Activity> {
    match store.directory().activity(ActivityScope::Linked, limit).await {
        Ok(StepReply { value, .. }) => Some(value),
        Err(failure) => {
            tracing::debug!(%failure, "announced waits not read");
            None
        }
    }
}

impl Engine {
    /// Returns the deadlocks among announced waits, the certain ones first, and whether all announced waits were read.
    pub(crate) async fn search_deadlocks(&self) -> Result<(Vec<Deadlock>, bool), Error> {
        let situation = self.situation().await?;
        let cycles = confirm(&*self.store, self.settings.usual_limit(), situation.cycles()).await;
        let deadlocks = cycles.iter().map(|cycle| cycle.to_deadlock(&self.reader()));
        Ok((deadlocks.collect(), situation.is_complete()))
    }
}

/// Checks the holds of certain cycles on the store. Where it does not have one, or does not tell, the cycle is only possible.
///
/// A client does not learn at once that its lock was released by force, or that the store has lost it, and announces it meanwhile.
/// The number of an owner is used for one hold only: what the store has now, it had when the waits were proven.
async fn confirm<'a>(
    store: &dyn Store,
    limit: Duration,
    mut cycles: Vec<WaitCycle<'a>>,
) -> Vec<WaitCycle<'a>> {
    let mut left = MAX_CHECKED;
    let checks = cycles.iter_mut().filter(|cycle| cycle.is_certain).map(|cycle| {
        let awaited = cycle.awaited_holds();
        let rest = left.checked_sub(awaited.iter().map(Vec::len).sum());
        left = rest.unwrap_or(left);
        async move {
            let checks = awaited.into_iter().map(async |holds| {
                let held = join_all(holds.into_iter().map(|held| is_held(store, limit, held))).await;
                held.contains(&true)
            });
            cycle.is_certain = rest.is_some() && !join_all(checks).await.contains(&false);
        }
    });
    join_all(checks).await;
    cycles.sort_by_key(|cycle| !cycle.is_certain);
    cycles
}

/// Returns `true` if the store has this hold. It reads no more than that, whatever else is at the key.
async fn is_held(store: &dyn Store, limit: Duration, held: &HeldRecord) -> bool {
    let Some(Ok(name)) = kind_of(&held.kind).map(|kind| LockName::of(kind, "", &held.key)) else {
        return false;
    };
    let check = Step::Renew(Claim::new(&name, &OwnerId::from_wire(&held.owner), 1), None);
    match store.call(check, StepOptions::of_engine(limit, 0)).await {
        Ok(StepReply { value, .. }) => {
            matches!(value, Reply::Renewed(Renewed::Renewed | Renewed::Longer))
        }
        Err(failure) => {
            tracing::debug!(%name, %failure, "hold in a deadlock not checked");
            false
        }
    }
}
