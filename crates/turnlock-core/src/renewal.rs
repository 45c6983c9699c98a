//! Which hold is due next, to be renewed or to be declared lost.

use std::collections::BTreeMap;

use crate::Moment;

/// The key of an entry in a [`RenewalSchedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleKey {
    due: Moment,
    number: u64,
}

/// A pass over all items that were present when it began.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    cursor: ScheduleKey,
    /// Entries from this number on are newer.
    before: u64,
}

/// Items in the order in which they are due.
///
/// Each hold has one entry, and one timer serves all of them.
#[derive(Debug)]
pub struct RenewalSchedule<T> {
    /// The last entry has no item. It keeps the map from being freed and allocated again for a single item.
    entries: BTreeMap<ScheduleKey, Option<T>>,
    next: u64,
}

/// The key of the entry without an item.
const END: ScheduleKey = ScheduleKey { due: Moment::NEVER, number: u64::MAX };

impl<T> Default for RenewalSchedule<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::from([(END, None)]), next: 0 }
    }
}

impl<T> RenewalSchedule<T> {
    /// Adds an item that is due at `due`.
    pub fn insert(&mut self, due: Moment, item: T) -> ScheduleKey {
        let key = ScheduleKey { due, number: self.next };
        self.next += 1;
        self.entries.insert(key, Some(item));
        key
    }

    /// Removes an item. Returns `None` if it was removed before.
    pub fn cancel(&mut self, key: ScheduleKey) -> Option<T> {
        self.entries.remove(&key).flatten()
    }

    /// Replaces the item of an entry, which stays due at the same time. Returns `false` if there is no such
    /// entry.
    pub fn replace(&mut self, key: ScheduleKey, item: T) -> bool {
        self.entries.get_mut(&key).map(|entry| *entry = Some(item)).is_some()
    }

    /// Removes and returns the items that are due, the first `most` of them.
    pub fn take_due(&mut self, now: Moment, most: usize) -> Vec<T> {
        let mut due = Vec::new();
        while let Some(entry) = self.entries.first_entry().filter(|entry| entry.key().due <= now)
            && *entry.key() < END
            && due.len() < most
        {
            due.extend(entry.remove());
        }
        due
    }

    /// Begins to take all present items, due or not.
    pub fn sweep(&self) -> Sweep {
        Sweep { cursor: ScheduleKey { due: Moment::from_micros(0), number: 0 }, before: self.next }
    }

    /// Removes and returns the next items of a sweep: at most `most`, in order.
    ///
    /// Items that were added since the sweep began are left. `sweep` is `None` after the last item.
    pub fn take_swept(&mut self, sweep: &mut Option<Sweep>, most: usize) -> Vec<T> {
        let Some(Sweep { cursor, before }) = sweep.take() else { return Vec::new() };
        let mut keys = Vec::new();
        for (index, (key, _)) in self.entries.range(cursor..END).enumerate() {
            if index == most {
                *sweep = Some(Sweep { cursor: *key, before });
                break;
            }
            if key.number < before {
                keys.push(*key);
            }
        }
        keys.into_iter().filter_map(|key| self.cancel(key)).collect()
    }

    /// Returns when the next item is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.entries.first_key_value().filter(|(key, _)| **key < END).map(|(key, _)| key.due)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.entries.len() - 1
    }

    /// Returns `true` if there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_items_are_taken_in_order_and_once() {
        let at = Moment::from_micros;
        let mut schedule = RenewalSchedule::default();
        schedule.insert(at(30), "late");
        schedule.insert(at(10), "first");
        let cancelled = schedule.insert(at(10), "cancelled");
        schedule.insert(at(20), "second");
        assert_eq!(schedule.next_due(), Some(at(10)));
        assert_eq!(schedule.cancel(cancelled), Some("cancelled"));
        assert_eq!(schedule.cancel(cancelled), None);
        let replaced = schedule.insert(at(15), "replaced");
        assert!(schedule.replace(replaced, "replacement"));
        assert!(!schedule.replace(cancelled, "too late"));
        assert_eq!(schedule.take_due(at(20), 2), ["first", "replacement"]);
        assert_eq!(schedule.take_due(at(20), 2), ["second"]);
        assert_eq!(schedule.take_due(at(20), 2), Vec::<&str>::new());
        assert_eq!((schedule.len(), schedule.next_due()), (1, Some(at(30))));
        assert_eq!(schedule.take_due(Moment::NEVER, 2), ["late"]);
        assert_eq!(schedule.take_due(Moment::NEVER, 2), Vec::<&str>::new());
        assert_eq!((schedule.is_empty(), schedule.next_due()), (true, None));
    }

    #[test]
    fn a_sweep_takes_what_was_present_a_few_at_a_time() {
        let at = Moment::from_micros;
        let mut schedule = RenewalSchedule::default();
        for number in 0..5 {
            schedule.insert(at(number), number);
        }
        let mut sweep = Some(schedule.sweep());
        assert_eq!(schedule.take_swept(&mut sweep, 3), [0, 1, 2]);
        schedule.insert(at(1), 6);
        schedule.insert(at(9), 7);
        assert_eq!(schedule.take_swept(&mut sweep, 3), [3, 4]);
        assert!(sweep.is_none());
        assert_eq!(schedule.take_swept(&mut sweep, 3), Vec::<u64>::new());
        assert_eq!(schedule.take_due(Moment::NEVER, 9), [6, 7]);
    }
}
