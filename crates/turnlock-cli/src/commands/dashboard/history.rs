use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::commands::lock_view::{HolderView, LockView};

/// What the dashboard saw of one lock: its recent holds.
///
/// It is as exact as the interval of the queries: a hold that began and ended between two of them is missing.
#[derive(Debug, Default)]
pub(super) struct LockHistory {
    /// The oldest first.
    holds: VecDeque<HoldRecord>,
    /// Since when each owner waits, in milliseconds since 1970: the earliest reading, and the last one.
    waiting: HashMap<String, (u64, u64)>,
}

/// A query of the store, as the history of a lock needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    /// In milliseconds since 1970.
    pub(super) now: u64,
    /// The store was not queried before it for a while: it is not known when holds began and ended.
    pub(super) after_gap: bool,
    /// How far apart two readings of the same time may be: the reading machine computes it anew from each reply.
    pub(super) tolerance: Duration,
    /// How many holds that have ended are kept.
    pub(super) limit: usize,
}

/// What a query told about one lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The number of holds that began since the query before.
    pub(super) grants: u64,
    /// A hold is another one than in the query before, also if its owner is the same, or that is not known after a gap.
    pub(super) has_other_hold: bool,
    /// The same for a wait, of an owner that waited before.
    pub(super) has_other_wait: bool,
}

/// A hold, from its grant to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct HoldRecord {
    owner: String,
    host: Option<String>,
    pid: Option<u32>,
    label: Option<String>,
    mode: &'static str,
    token: Option<u64>,
    /// When a query found it first. No other hold of this owner in this mode has the same.
    #[serde(skip)]
    seen_ms: u64,
    /// Until when the last hold of the same owner was. A holder announces a new hold after a while; until then, what it announced of
    /// that one is read.
    #[serde(skip)]
    last_until: u64,
    /// When it began as the holder has announced it, in the last reading.
    #[serde(skip)]
    since: Option<u64>,
    /// When it began, if that is known, else when it was first seen.
    from_ms: u64,
    /// It can have begun long before `from_ms`.
    is_older: bool,
    is_held: bool,
    /// When it was first not seen. `None` while it is held, and if that was long after its end.
    until_ms: Option<u64>,
    /// How long its owner was seen to wait. `None` if it did not wait, or for less than the interval.
    waited_ms: Option<u64>,
}

impl LockHistory {
    /// Records the state of the lock.
    pub(super) fn observe(&mut self, lock: Option<&LockView>, query: Query) -> Seen {
        let Query { now, after_gap, limit, .. } = query;
        let holders = lock.map_or(&[][..], |lock| &lock.holders);
        let token = lock.and_then(|lock| lock.token);
        // A semaphore can have very many holders.
        let holding: HashMap<_, _> = holders.iter().map(|holder| (key(holder), holder)).collect();
        let mut lasting = HashSet::new();
        for record in self.holds.iter_mut().filter(|record| record.is_held) {
            match holding.get(&(record.owner.as_str(), record.mode)).copied() {
                Some(holder) if record.lasts(holder, token, query) => {
                    record.learn(holder, token, now);
                    lasting.insert(key(holder));
                }
                again => {
                    record.is_held = false;
                    let until = again.and_then(|holder| holder.since).map_or(now, epoch_millis);
                    record.until_ms = (!after_gap).then_some(until.min(now));
                }
            }
        }
        if after_gap {
            self.waiting.clear();
        }
        let new: Vec<_> = holders.iter().filter(|holder| !lasting.contains(&key(holder))).collect();
        let grants = new.len() as u64;
        if !new.is_empty() {
            // Of several holds of one owner, the last.
            let ends: HashMap<_, _> =
                self.holds.iter().map(|last| ((&*last.owner, last.mode), last.until_ms)).collect();
            let begun = |holder: &&HolderView| {
                let waited = self.waiting.remove(&holder.owner).map(|(since, _)| now.saturating_sub(since));
                let is_older = after_gap && holder.since.is_none();
                let last_until = ends.get(&key(holder)).copied().flatten().unwrap_or_default();
                let record = HoldRecord::new(holder, token, last_until, now);
                HoldRecord { waited_ms: waited, is_older, ..record }
            };
            let begun: Vec<_> = new.iter().map(begun).collect();
            self.holds.extend(begun);
        }
        let has_other_wait = self.observe_waits(lock, query);
        // A hold that lasts stays: forgotten, it would be taken for a new one by the next query.
        let mut surplus = self.holds.len().saturating_sub(limit);
        self.holds.retain(|record| {
            let is_dropped = surplus > 0 && !record.is_held;
            surplus -= usize::from(is_dropped);
            !is_dropped
        });
        Seen { grants: if after_gap { 0 } else { grants }, has_other_hold: grants > 0, has_other_wait }
    }

    /// Records since when each waiter waits. Returns `true` if one of them waits again, or may do so after a gap.
    fn observe_waits(&mut self, lock: Option<&LockView>, query: Query) -> bool {
        let queue = lock.into_iter().flat_map(|lock| &lock.queue);
        let announced = lock.into_iter().flat_map(|lock| &lock.waiters);
        // Of several waits of one owner, the latest: they are sorted by their time.
        let announced: HashMap<_, _> =
            announced.map(|wait| (&*wait.owner, epoch_millis(wait.since))).collect();
        let waiters: HashSet<_> =
            queue.map(|waiter| &*waiter.owner).chain(announced.keys().copied()).collect();
        self.waiting.retain(|owner, _| waiters.contains(&**owner));
        let mut is_other = query.after_gap && !announced.is_empty();
        for owner in waiters {
            let since = announced.get(owner).copied();
            let seen = since.unwrap_or(query.now);
            let (first, last) = self.waiting.entry(owner.to_owned()).or_insert((seen, seen));
            let Some(since) = since else { continue };
            let is_again = is_later(since, *last, query.tolerance);
            is_other |= is_again;
            (*first, *last) = (if is_again { since } else { since.min(*first) }, since);
        }
        is_other
    }

    /// When the oldest hold that lasts began, or was first seen.
    pub(super) fn held_since(&self) -> Option<u64> {
        self.holds.iter().filter(|record| record.is_held).map(|record| record.from_ms).min()
    }

    /// When the hold of each of these holders was first seen.
    pub(super) fn first_seen(&self, holders: &[HolderView]) -> Vec<u64> {
        let held = self.holds.iter().filter(|record| record.is_held);
        let seen: HashMap<_, _> =
            held.map(|record| ((&*record.owner, record.mode), record.seen_ms)).collect();
        holders.iter().map(|holder| seen.get(&key(holder)).copied().unwrap_or_default()).collect()
    }

    /// Returns `true` if a holder has the hold that was first seen then, as far as it can be told.
    pub(super) fn has_hold(&self, seen: u64, holder: &HolderView, token: Option<u64>, query: Query) -> bool {
        let is_it =
            |record: &HoldRecord| record.seen_ms == seen && (&*record.owner, record.mode) == key(holder);
        self.holds.iter().any(|record| record.is_held && is_it(record) && record.lasts(holder, token, query))
    }

    /// The recent holds, the oldest first.
    pub(super) fn holds(&self) -> &VecDeque<HoldRecord> {
        &self.holds
    }
}

impl HoldRecord {
    /// The last hold of the same owner was until `last_until`.
    fn new(holder: &HolderView, token: Option<u64>, last_until: u64, now: u64) -> Self {
        let since = holder.since.map(epoch_millis).filter(|since| *since >= last_until);
        Self {
            owner: holder.owner.clone(),
            host: holder.host.clone(),
            pid: holder.pid,
            label: holder.label.clone(),
            mode: holder.mode,
            token,
            seen_ms: now,
            last_until,
            since,
            // The clock of the holder may be ahead.
            from_ms: since.map_or(now, |since| since.min(now)),
            is_older: false,
            is_held: true,
            until_ms: None,
            waited_ms: None,
        }
    }

    /// Returns `true` if the hold that its owner has now is still this one. After a gap, that must be known.
    ///
    /// Owner ids repeat: those of Redisson are a client and a thread.
    fn lasts(&self, holder: &HolderView, token: Option<u64>, query: Query) -> bool {
        if let (Some(known), Some(since)) = (self.since, holder.since.map(epoch_millis)) {
            return !is_later(since, known, query.tolerance);
        }
        match (self.token, token) {
            // A re-entry has a token of its own.
            (Some(known), Some(token)) => known == token || (!query.after_gap && holder.count > 1),
            _ => !query.after_gap,
        }
    }

    /// Records what becomes known of a hold that lasts.
    fn learn(&mut self, holder: &HolderView, token: Option<u64>, now: u64) {
        self.token = token.or(self.token);
        let since = holder.since.map(epoch_millis).filter(|since| *since >= self.last_until);
        let Some(since) = since else { return };
        self.since = Some(since);
        self.from_ms = self.from_ms.min(since.min(now));
        self.is_older = false;
    }
}

fn key(holder: &HolderView) -> (&str, &'static str) {
    (&holder.owner, holder.mode)
}

fn is_later(time: u64, known: u64, tolerance: Duration) -> bool {
    u128::from(time) > u128::from(known) + tolerance.as_millis()
}

/// Milliseconds since 1970.
pub(super) fn epoch_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lock_view::WaiterView;
    use crate::commands::lock_view::tests::held;
    use crate::commands::wait_view::tests::wait;

    fn query(now: u64, after_gap: bool, limit: usize) -> Query {
        Query { now, after_gap, tolerance: Duration::from_secs(1), limit }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn held_by(owner: &str, queue: &[&str]) -> LockView {
        let mut lock = held("orders");
        owner.clone_into(&mut lock.holders[0].owner);
        lock.holders[0].since = None;
        let waiter =
            |owner: &&str| WaiterView { owner: (*owner).to_owned(), host: None, pid: None, label: None };
        lock.queue = queue.iter().map(waiter).collect();
        lock
    }

    #[test]
    fn a_hand_over_ends_one_hold_and_begins_another_with_its_wait() {
        let mut history = LockHistory::default();
        assert_eq!(history.observe(Some(&held_by("a", &["b"])), query(1_000, false, 10)).grants, 1);
        assert_eq!(history.observe(Some(&held_by("a", &["b"])), query(2_000, false, 10)).grants, 0);
        assert_eq!(history.held_since(), Some(1_000));
        assert_eq!(history.observe(Some(&held_by("b", &[])), query(3_000, false, 10)).grants, 1);
        assert_eq!(history.held_since(), Some(3_000));
        assert_eq!(history.observe(None, query(4_000, false, 10)).grants, 0);
        let seen: Vec<_> = history
            .holds()
            .iter()
            .map(|hold| (&*hold.owner, hold.from_ms, hold.until_ms, hold.waited_ms))
            .collect();
        assert_eq!(seen, [("a", 1_000, Some(3_000), None), ("b", 3_000, Some(4_000), Some(2_000))]);
    }

    #[test]
    fn only_the_latest_holds_are_kept() {
        let mut history = LockHistory::default();
        for time in 0..10 {
            history.observe(Some(&held_by(&time.to_string(), &[])), query(time, false, 3));
        }
        let owners: Vec<_> = history.holds().iter().map(|hold| &*hold.owner).collect();
        assert_eq!(owners, ["7", "8", "9"]);
    }

    #[test]
    fn more_holders_than_the_limit_are_granted_once() {
        let mut lock = held_by("0", &[]);
        let holder = lock.holders[0].clone();
        lock.holders =
            (0..5).map(|index: usize| HolderView { owner: index.to_string(), ..holder.clone() }).collect();
        let mut history = LockHistory::default();
        assert_eq!(history.observe(Some(&lock), query(1_000, false, 3)).grants, 5);
        assert_eq!(history.observe(Some(&lock), query(2_000, false, 3)).grants, 0);
        history.observe(None, query(3_000, false, 3));
        assert_eq!(history.holds().len(), 3);
    }

    #[test]
    fn after_a_gap_no_time_is_invented() {
        let mut history = LockHistory::default();
        assert_eq!(history.observe(Some(&held_by("a", &["b"])), query(1_000, true, 10)).grants, 0);
        assert_eq!(history.observe(Some(&held_by("b", &[])), query(900_000, true, 10)).grants, 0);
        let seen: Vec<_> = history
            .holds()
            .iter()
            .map(|hold| (&*hold.owner, hold.is_held, hold.is_older, hold.until_ms, hold.waited_ms))
            .collect();
        assert_eq!(seen, [("a", false, true, None, None), ("b", true, true, None, None)]);
        // The holder has announced when it began.
        let mut lock = held_by("c", &[]);
        lock.holders[0].since = Some(SystemTime::UNIX_EPOCH);
        assert_eq!(history.observe(Some(&lock), query(1_800_000, true, 10)).grants, 0);
        assert!(!history.holds()[2].is_older);
    }

    /// What is observed of one owner: its count, the token, and since when it holds.
    fn held_again(count: u64, token: Option<u64>, since: Option<SystemTime>) -> LockView {
        let mut lock = LockView { token, ..held_by("a", &[]) };
        (lock.holders[0].count, lock.holders[0].since) = (count, since);
        lock
    }

    #[test]
    fn an_owner_that_acquires_again_has_another_hold() {
        // Without a time or a token, it cannot be told from a hold that lasts.
        for (count, before, after, is_other) in [
            (1, (None, None), (None, None), false),
            (1, (Some(7), None), (Some(7), None), false),
            (1, (Some(7), None), (Some(8), None), true),
            (2, (Some(7), None), (Some(8), None), false),
            (1, (Some(7), Some(at(5))), (Some(8), Some(at(5))), false),
            (1, (None, Some(at(5))), (None, Some(at(6))), false),
            (1, (None, Some(at(5))), (None, Some(at(7))), true),
            (1, (None, Some(at(5))), (None, None), false),
            (1, (None, None), (None, Some(at(5))), false),
        ] {
            let mut history = LockHistory::default();
            history.observe(Some(&held_again(1, before.0, before.1)), query(6_000, false, 10));
            let seen = history.observe(Some(&held_again(count, after.0, after.1)), query(8_000, false, 10));
            let case = format!("{count} {before:?} {after:?}");
            assert_eq!((seen.grants, seen.has_other_hold), (u64::from(is_other), is_other), "{case}");
            let since = after.1.map_or(8_000, epoch_millis);
            let ends: Vec<_> = history.holds().iter().map(|hold| hold.until_ms).collect();
            assert_eq!(ends, if is_other { vec![Some(since), None] } else { vec![None] }, "{case}");
        }
    }

    #[test]
    fn the_times_of_a_hold_are_those_of_its_earliest_reading() {
        let mut history = LockHistory::default();
        // Not announced yet, and then read with the delay of a reply.
        for (now, since) in [(3_000, None), (4_000, Some(2_800)), (5_000, Some(2_000)), (6_000, Some(2_900))]
        {
            let since = since.map(|millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
            let seen = history.observe(Some(&held_again(1, None, since)), query(now, now == 3_000, 10));
            assert_eq!(seen.grants, 0);
        }
        assert_eq!(history.holds().len(), 1);
        assert_eq!((history.held_since(), history.holds()[0].is_older), (Some(2_000), false));
    }

    #[test]
    fn after_a_gap_a_hold_lasts_only_if_that_is_known() {
        for (before, after, lasts) in [
            ((None, None), (None, None), false),
            ((Some(7), None), (Some(7), None), true),
            ((Some(7), None), (Some(8), None), false),
            ((None, Some(at(5))), (None, Some(at(5))), true),
            ((None, Some(at(5))), (None, Some(at(700))), false),
            ((None, Some(at(5))), (None, None), false),
        ] {
            let mut history = LockHistory::default();
            history.observe(Some(&held_again(1, before.0, before.1)), query(6_000, false, 10));
            let seen = history.observe(Some(&held_again(1, after.0, after.1)), query(900_000, true, 10));
            let case = format!("{before:?} {after:?}");
            assert_eq!((seen.grants, seen.has_other_hold), (0, !lasts), "{case}");
            let holds: Vec<_> = history.holds().iter().map(|hold| (hold.is_held, hold.until_ms)).collect();
            let expected = if lasts { vec![(true, None)] } else { vec![(false, None), (true, None)] };
            assert_eq!(holds, expected, "{case}");
        }
    }

    #[test]
    fn what_was_announced_of_the_last_hold_is_not_taken_for_the_next_one() {
        let mut history = LockHistory::default();
        history.observe(Some(&held_again(1, None, Some(at(5)))), query(6_000, false, 10));
        history.observe(None, query(7_000, false, 10));
        let grants = [(8_000, 5), (9_000, 5), (12_000, 8), (13_000, 8)].map(|(now, since)| {
            history.observe(Some(&held_again(1, None, Some(at(since)))), query(now, false, 10)).grants
        });
        assert_eq!(grants, [1, 0, 0, 0]);
        let times: Vec<_> = history.holds().iter().map(|hold| (hold.from_ms, hold.until_ms)).collect();
        assert_eq!(times, [(5_000, Some(7_000)), (8_000, None)]);
    }

    #[test]
    fn a_clock_that_drifts_splits_no_hold() {
        let mut history = LockHistory::default();
        for number in 0..10 {
            let lock = held_again(1, None, Some(at(5) + Duration::from_millis(500 * number)));
            let seen = history.observe(Some(&lock), query(60_000 * (number + 1), false, 10));
            assert_eq!(seen.has_other_hold, number == 0);
        }
        assert_eq!(history.held_since(), Some(5_000));
    }

    #[test]
    fn an_owner_that_waits_again_has_another_wait() {
        let waiting = |seconds| {
            let mut waiter = wait("orders");
            (waiter.owner, waiter.since) = ("b".to_owned(), at(seconds));
            LockView { waiters: vec![waiter], ..held_by("a", &[]) }
        };
        let mut history = LockHistory::default();
        for (now, since, is_other) in [(10_000, 5, false), (11_000, 6, false), (30_000, 28, true)] {
            let seen = history.observe(Some(&waiting(since)), query(now, false, 10));
            assert_eq!(seen.has_other_wait, is_other, "{since}");
        }
        history.observe(Some(&held_by("b", &[])), query(31_000, false, 10));
        assert_eq!(history.holds()[1].waited_ms, Some(3_000));
    }
}
