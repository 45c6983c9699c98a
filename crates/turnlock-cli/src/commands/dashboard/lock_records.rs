use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use serde::Serialize;
use turnlock::Deadlock;

use super::history::{HoldRecord, LockHistory, Query, Seen};
use super::observation::{DeadlockSearch, Observation};
use crate::commands::lock_view::{HolderView, LockView};
use crate::commands::wait_view::DeadlockView;

/// The most holds of one lock that are kept.
const MAX_HOLDS: usize = 100;
/// The fewest, if there are many locks.
const MIN_HOLDS: usize = 8;
/// The most holds of all locks, roughly.
const MAX_ALL_HOLDS: usize = 100_000;
/// The most locks that are free now and whose history is kept.
const MAX_FREE: usize = 2_000;
/// The most points of the plot of grants.
const MAX_RATES: usize = 300;
/// How long a lock stays in the list, if its lease is not shorter, while queries do not find it and are not complete.
const MAX_MISSING: Duration = Duration::from_secs(60);
/// How far the end of a lease may be from what viewers compute, before they are told, and how much later the begin of a hold or a wait
/// is that of another one. The time of a query is added.
const TOLERANCE: Duration = Duration::from_millis(1_500);

/// The locks of the last query, and what happened to them.
#[derive(Debug, Default)]
pub(super) struct LockRecords {
    records: HashMap<String, LockRecord>,
    next_id: u64,
    is_complete: bool,
    deadlocks: Vec<Deadlock>,
    deadlock_search: DeadlockSearch,
    /// The time of each query, and how many holds it found that were not there before.
    rates: VecDeque<(u64, u64)>,
    updated: u64,
    /// How long the last query took.
    took: Duration,
}

#[derive(Debug)]
struct LockRecord {
    /// Stands for the name in messages.
    id: u64,
    view: LockView,
    /// The longest remaining lease that was seen of these holders.
    lease: Option<Duration>,
    /// When the leases of the lock and of its holders end, as viewers know it.
    ends: Vec<Option<u64>>,
    history: LockHistory,
    /// When it was last found.
    found: u64,
    /// When it was first not found. `None` while it is held.
    free_since: Option<u64>,
}

/// A lock in a message.
#[derive(Serialize)]
struct Row<'a> {
    id: u64,
    lease_ms: Option<u64>,
    /// Since when it is seen to be held.
    seen_ms: Option<u64>,
    /// When the hold of each holder was first seen: which of its holds it is.
    hold_seen_ms: Vec<u64>,
    #[serde(flatten)]
    view: &'a LockView,
}

/// All that a new viewer needs.
#[derive(Serialize)]
pub(super) struct Snapshot<'a> {
    /// The time of the last query that succeeded.
    at: u64,
    /// The time of the message.
    now: u64,
    /// Why the last query failed, if it did.
    outage: Option<&'a str>,
    complete: bool,
    locks: Vec<Row<'a>>,
    rates: &'a VecDeque<(u64, u64)>,
    deadlocks: Vec<DeadlockView>,
    deadlock_search: DeadlockSearch,
}

type LeaseChange = (u64, Option<u64>, Option<u64>);

/// What is different since the query before.
#[derive(Serialize)]
pub(super) struct Change<'a> {
    at: u64,
    complete: bool,
    grants: u64,
    set: Vec<Row<'a>>,
    /// The ids of locks that are free now.
    gone: Vec<u64>,
    /// The id, the remaining lease and the whole one, where they differ from what viewers compute.
    leases: Vec<LeaseChange>,
    /// All deadlocks, if they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadlocks: Option<Vec<DeadlockView>>,
    deadlock_search: DeadlockSearch,
}

impl LockRecords {
    /// Records the result of a query and returns what is different. After a gap, the query before was long ago, or failed.
    pub(super) fn update(&mut self, observation: Observation, now: u64, after_gap: bool) -> Change<'_> {
        let Observation { locks, deadlocks, deadlock_search, is_complete, took } = observation;
        let tolerance = TOLERANCE + took.max(self.took);
        self.took = took;
        let limit = (MAX_ALL_HOLDS / locks.len().max(1)).clamp(MIN_HOLDS, MAX_HOLDS);
        let query = Query { now, after_gap, tolerance, limit };
        let found: HashSet<_> = locks.iter().map(|lock| lock.name.clone()).collect();
        let (mut set, mut gone, mut leases, mut grants) = (HashSet::new(), Vec::new(), Vec::new(), 0);
        for (name, record) in &mut self.records {
            // A lock that a query did not reach is not free.
            let is_missing = !is_complete && now < record.expires();
            if record.free_since.is_none() && !found.contains(name) && !is_missing {
                record.free_since = Some(now);
                record.history.observe(None, Query { after_gap: after_gap || !is_complete, ..query });
                gone.push(record.id);
            }
        }
        for lock in locks {
            let record = self.records.entry(lock.name.clone());
            let record = record.or_insert_with(|| {
                self.next_id += 1;
                LockRecord::new(self.next_id, &lock.name)
            });
            let seen = record.history.observe(Some(&lock), query);
            grants += seen.grants;
            match record.set(lock, now, tolerance, seen) {
                Difference::State => drop(set.insert(record.id)),
                Difference::Lease => {
                    leases.push((record.id, record.view.ttl.map(millis), record.lease.map(millis)));
                }
                Difference::None => {}
            }
        }
        self.forget_old();
        let has_other_deadlocks = !self.deadlocks.iter().map(members).eq(deadlocks.iter().map(members));
        (self.deadlocks, self.deadlock_search) = (deadlocks, deadlock_search);
        (self.is_complete, self.updated) = (is_complete, now);
        self.rates.push_back((now, grants));
        self.rates.drain(..self.rates.len().saturating_sub(MAX_RATES));
        let set =
            self.records.values().filter(|record| set.contains(&record.id)).map(LockRecord::row).collect();
        let deadlocks = has_other_deadlocks.then(|| self.deadlocks.iter().map(DeadlockView::new).collect());
        Change { at: now, complete: is_complete, grants, set, gone, leases, deadlocks, deadlock_search }
    }

    /// Returns `true` if a query has succeeded.
    pub(super) fn is_known(&self) -> bool {
        self.updated > 0
    }

    /// Returns all locks that are held, sorted by name: the page draws them faster.
    pub(super) fn snapshot<'a>(&'a self, now: u64, outage: Option<&'a str>) -> Snapshot<'a> {
        let held = self.records.values().filter(|record| record.free_since.is_none());
        let mut locks: Vec<_> = held.map(LockRecord::row).collect();
        locks.sort_unstable_by(|one, other| one.view.name.cmp(&other.view.name));
        let deadlocks = self.deadlocks.iter().map(DeadlockView::new).collect();
        let (at, complete, rates) = (self.updated, self.is_complete, &self.rates);
        Snapshot { at, now, outage, complete, locks, rates, deadlocks, deadlock_search: self.deadlock_search }
    }

    /// Returns the recent holds of a lock, which can be free. Empty if it is not known.
    pub(super) fn holds(&self, name: &str) -> impl Iterator<Item = &HoldRecord> {
        self.records.get(name).into_iter().flat_map(|record| record.history.holds())
    }

    /// Returns `true` if a holder, as it was read just now, has the hold that was first seen at `seen`. After a gap, that must be known.
    pub(super) fn has_hold(&self, lock: &LockView, holder: &HolderView, seen: u64, after_gap: bool) -> bool {
        let tolerance = TOLERANCE + self.took;
        let query = Query { now: self.updated, after_gap, tolerance, limit: MAX_HOLDS };
        let record = self.records.get(&lock.name);
        record.is_some_and(|record| record.history.has_hold(seen, holder, lock.token, query))
    }

    /// Forgets the locks that are free for longest, if there are many.
    fn forget_old(&mut self) {
        // Many locks can become free at the same time.
        let free_since = |record: &LockRecord| record.free_since.map(|since| (since, record.id));
        let mut free: Vec<_> = self.records.values().filter_map(free_since).collect();
        if free.len() > MAX_FREE {
            free.sort_unstable();
            let oldest = free[free.len() - MAX_FREE];
            self.records.retain(|_, record| free_since(record).is_none_or(|since| since >= oldest));
        }
    }
}

/// How a lock differs from the query before.
enum Difference {
    None,
    Lease,
    State,
}

impl LockRecord {
    /// A lock that was not held before.
    fn new(id: u64, name: &str) -> Self {
        let (view, history) = (LockView::absent(name), LockHistory::default());
        Self { id, view, lease: None, ends: Vec::new(), history, found: 0, free_since: Some(0) }
    }

    fn set(&mut self, lock: LockView, now: u64, tolerance: Duration, seen: Seen) -> Difference {
        let is_other = self.free_since.take().is_some() || seen.has_other_hold;
        let holders =
            |lock: &LockView| lock.holders.iter().map(|holder| holder.owner.clone()).collect::<Vec<_>>();
        if is_other || holders(&self.view) != holders(&lock) {
            self.lease = None;
        }
        self.lease = self.lease.max(lock.ttl);
        let ttls = std::iter::once(lock.ttl).chain(lock.holders.iter().map(|holder| holder.ttl));
        let ends: Vec<_> = ttls.map(|ttl| ttl.map(|ttl| now.saturating_add(millis(ttl)))).collect();
        let is_as_computed = |(known, ends): (&Option<u64>, &Option<u64>)| match (known, ends) {
            (Some(known), Some(ends)) => known.abs_diff(*ends) < millis(tolerance),
            (known, ends) => known == ends,
        };
        // Announced later than the hold, and not a line of `watch`.
        let announced = |lock: &LockView| -> Vec<_> {
            let details =
                |holder: &HolderView| (holder.since.is_some(), holder.task.clone(), holder.call_site.clone());
            lock.holders.iter().map(details).collect()
        };
        let is_different = is_other
            || seen.has_other_wait
            || lock.differs_from(&self.view)
            || announced(&lock) != announced(&self.view)
            || !self.ends.iter().zip(&ends).skip(1).all(is_as_computed);
        let difference = match self.ends.first().zip(ends.first()) {
            _ if is_different => Difference::State,
            Some(pair) if is_as_computed(pair) => Difference::None,
            _ => Difference::Lease,
        };
        if !matches!(difference, Difference::None) {
            self.ends = ends;
        }
        (self.view, self.found) = (lock, now);
        difference
    }

    /// Until when the lock is shown if it is not found.
    fn expires(&self) -> u64 {
        self.found.saturating_add(millis(self.view.ttl.map_or(MAX_MISSING, |ttl| ttl.min(MAX_MISSING))))
    }

    fn row(&self) -> Row<'_> {
        let (lease_ms, seen_ms) = (self.lease.map(millis), self.history.held_since());
        let hold_seen_ms = self.history.first_seen(&self.view.holders);
        Row { id: self.id, lease_ms, seen_ms, hold_seen_ms, view: &self.view }
    }
}

/// The waiters of a deadlock and what they wait for. Their times are computed anew by each query, and are a little different.
fn members(deadlock: &Deadlock) -> (bool, Vec<(&turnlock::OwnerId, &str)>) {
    let waits = deadlock.waiters.iter().map(|waiter| (&waiter.owner, waiter.key.as_str()));
    (deadlock.is_certain, waits.collect())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lock_view::tests::held;
    use crate::commands::wait_view::tests::wait;

    fn lock(name: &str, ttl: u64) -> LockView {
        LockView { ttl: Some(Duration::from_millis(ttl)), ..held(name) }
    }

    fn found(locks: Vec<LockView>) -> Observation {
        Observation { locks, is_complete: true, ..Observation::default() }
    }

    /// The ids that are set, those that are gone, and other leases.
    type Summary = (Vec<u64>, Vec<u64>, Vec<LeaseChange>);

    fn summary(change: &Change<'_>) -> Summary {
        (change.set.iter().map(|row| row.id).collect(), change.gone.clone(), change.leases.clone())
    }

    #[test]
    fn only_what_viewers_cannot_compute_is_sent() {
        let mut records = LockRecords::default();
        let change = records.update(found(vec![lock("a", 30_000), lock("b", 30_000)]), 0, false);
        assert_eq!((change.set.len(), change.grants), (2, 2));
        let change = records.update(found(vec![lock("a", 29_000), lock("b", 29_000)]), 1_000, false);
        assert_eq!(summary(&change), (vec![], vec![], vec![]), "leases run down as expected");
        let change = records.update(found(vec![lock("a", 30_000), lock("b", 26_000)]), 4_000, false);
        assert_eq!(
            summary(&change),
            (vec![], vec![], vec![(1, Some(30_000), Some(30_000))]),
            "one was renewed"
        );
        // Leases were read at some moment of a query.
        let slow = |locks| Observation { took: Duration::from_secs(3), ..found(locks) };
        let change = records.update(slow(vec![lock("a", 32_000), lock("b", 28_000)]), 4_500, false);
        assert_eq!(summary(&change), (vec![], vec![], vec![]), "a slow query");
        records.update(found(vec![lock("a", 29_500), lock("b", 25_500)]), 4_600, false);
        let change = records.update(found(vec![lock("a", 29_000)]), 5_000, false);
        assert_eq!(summary(&change), (vec![], vec![2], vec![]), "one was released");
        let change = records.update(found(vec![lock("a", 28_000), lock("b", 30_000)]), 6_000, false);
        assert_eq!(
            (summary(&change), change.complete),
            ((vec![2], vec![], vec![]), true),
            "and locked again"
        );
        let snapshot = records.snapshot(7_000, None);
        assert_eq!((snapshot.locks.len(), snapshot.at, snapshot.rates.len()), (2, 6_000, 7));
        assert_eq!(records.holds("b").count(), 2);
    }

    #[test]
    fn a_lock_that_a_query_did_not_reach_is_not_free() {
        let partial = |locks| Observation { locks, ..Observation::default() };
        let mut records = LockRecords::default();
        records.update(found(vec![lock("a", 30_000), lock("b", 30_000)]), 0, false);
        let change = records.update(partial(vec![lock("a", 29_000)]), 1_000, false);
        assert_eq!((summary(&change), change.complete), ((vec![], vec![], vec![]), false));
        let change = records.update(found(vec![lock("a", 28_000), lock("b", 28_000)]), 2_000, false);
        assert_eq!(
            (summary(&change), change.grants),
            ((vec![], vec![], vec![]), 0),
            "it was held all the time"
        );
        // Not for longer than its lease: the limit of locks can be reached by each query.
        let change = records.update(partial(vec![lock("a", 28_000)]), 29_000, false);
        assert!(change.gone.is_empty());
        let change = records.update(partial(vec![lock("a", 27_000)]), 30_000, false);
        assert_eq!(change.gone, [2]);
        let change = records.update(found(Vec::new()), 31_000, false);
        assert_eq!(change.gone, [1]);
    }

    #[test]
    fn what_becomes_known_of_a_holder_is_sent() {
        let with = |change: &dyn Fn(&mut HolderView)| {
            let mut lock = lock("a", 30_000);
            lock.holders.push(lock.holders[0].clone());
            change(&mut lock.holders[1]);
            found(vec![lock])
        };
        for change in [
            (&|holder: &mut HolderView| holder.since = None) as &dyn Fn(&mut HolderView),
            &|holder| holder.task = Some("task 7".to_owned()),
            &|holder| holder.call_site = Some("src/main.rs:7".to_owned()),
            &|holder| holder.ttl = Some(Duration::from_secs(9)),
        ] {
            let mut records = LockRecords::default();
            records.update(with(&|_| {}), 0, false);
            assert_eq!(records.update(with(&|_| {}), 1, false).set.len(), 0);
            assert_eq!(records.update(with(change), 2, false).set.len(), 1);
            assert_eq!(records.update(with(change), 3, false).set.len(), 0);
        }
        let mut records = LockRecords::default();
        let ttl = |millis| move |holder: &mut HolderView| holder.ttl = Some(Duration::from_millis(millis));
        records.update(with(&ttl(9_000)), 0, false);
        assert_eq!(records.update(with(&ttl(8_000)), 1_000, false).set.len(), 0);
        assert_eq!(records.update(with(&ttl(9_000)), 3_000, false).set.len(), 1, "it was renewed");
    }

    #[test]
    fn an_owner_that_acquires_or_waits_again_is_sent() {
        let since = |seconds| std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let held_since = |seconds: Option<u64>, ttl| {
            let mut lock = lock("a", ttl);
            lock.holders[0].since = seconds.map(since);
            found(vec![lock])
        };
        let mut records = LockRecords::default();
        records.update(held_since(Some(1), 600_000), 2_000, false);
        assert_eq!(records.update(held_since(Some(2), 599_000), 3_000, false).set.len(), 0);
        let change = records.update(held_since(Some(5), 30_000), 6_000, false);
        assert_eq!((change.set.len(), change.grants), (1, 1));
        assert_eq!((change.set[0].lease_ms, change.set[0].seen_ms), (Some(30_000), Some(5_000)));
        // After a gap, viewers see since when it is known to be held.
        let mut records = LockRecords::default();
        records.update(held_since(None, 30_000), 2_000, false);
        let change = records.update(held_since(None, 30_000), 900_000, true);
        assert_eq!((change.set[0].seen_ms, change.grants), (Some(900_000), 0));
        let awaited_since = |seconds| {
            let mut waiter = wait("a");
            waiter.since = since(seconds);
            found(vec![LockView { waiters: vec![waiter], ..lock("a", 600_000) }])
        };
        let mut records = LockRecords::default();
        records.update(awaited_since(5), 6_000, false);
        assert_eq!(records.update(awaited_since(6), 6_100, false).set.len(), 0);
        assert_eq!(records.update(awaited_since(9), 9_000, false).set.len(), 1);
    }

    #[test]
    fn a_hold_is_told_from_a_later_one_of_the_same_owner() {
        let mut lock = lock("a", 30_000);
        lock.holders[0].since = None;
        let mut records = LockRecords::default();
        assert_eq!(records.update(found(vec![lock.clone()]), 1_000, false).set[0].hold_seen_ms, [1_000]);
        records.update(found(vec![lock.clone()]), 2_000, false);
        let has_hold =
            |records: &LockRecords, seen, gap| records.has_hold(&lock, &lock.holders[0], seen, gap);
        assert!(has_hold(&records, 1_000, false));
        assert!(!has_hold(&records, 1_000, true), "it can have ended while no query was made");
        records.update(found(Vec::new()), 3_000, false);
        assert!(!has_hold(&records, 1_000, false));
        let change = records.update(found(vec![lock.clone()]), 4_000, false);
        assert_eq!(change.set[0].hold_seen_ms, [4_000]);
        assert!(has_hold(&records, 4_000, false) && !has_hold(&records, 1_000, false));
    }

    #[test]
    fn the_history_of_free_locks_is_bounded() {
        let mut records = LockRecords::default();
        for round in 0..3_u64 {
            let locks = (0..1_500).map(|index| lock(&format!("{round}:{index}"), 1_000)).collect();
            records.update(found(locks), round, false);
        }
        records.update(found(Vec::new()), 9, false);
        assert_eq!(records.records.len(), MAX_FREE);
        assert!(records.snapshot(9, None).locks.is_empty());
    }
}
