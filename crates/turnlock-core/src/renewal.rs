//! Which hold is due next, to be renewed or to be declared lost.

use std::collections::BTreeMap;

use crate::Moment;

/// The key of an entry in a [`RenewalSchedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleKey {
    due: Moment,
    number: u64,
}

/// Items in the order in which they are due.
///
/// Each hold has one entry, and one timer serves all of them.
#[derive(Debug)]
pub struct RenewalSchedule<T> {
    entries: BTreeMap<ScheduleKey, T>,
    next: u64,
}

impl<T> Default for RenewalSchedule<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), next: 0 }
    }
}

impl<T> RenewalSchedule<T> {
    /// Adds an item that is due at `due`.
    pub fn insert(&mut self, due: Moment, item: T) -> ScheduleKey {
        let key = ScheduleKey { due, number: self.next };
        self.next += 1;
        self.entries.insert(key, item);
        key
    }

    /// Removes an item. Returns `None` if it was removed before.
    pub fn cancel(&mut self, key: ScheduleKey) -> Option<T> {
        self.entries.remove(&key)
    }

    /// Replaces the item of an entry, which stays due at the same time. Returns `false` if there is no such
    /// entry.
    pub fn replace(&mut self, key: ScheduleKey, item: T) -> bool {
        self.entries.get_mut(&key).map(|entry| *entry = item).is_some()
    }

    /// Removes and returns all items that are due.
    pub fn take_due(&mut self, now: Moment) -> Vec<T> {
        let after = ScheduleKey { due: now, number: u64::MAX };
        let later = self.entries.split_off(&after);
        std::mem::replace(&mut self.entries, later).into_values().collect()
    }

    /// Removes and returns all items, due or not.
    pub fn take_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.entries).into_values().collect()
    }

    /// Returns when the next item is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.entries.first_key_value().map(|(key, _)| key.due)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there are no items.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
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
        assert_eq!(schedule.take_due(at(20)), ["first", "replacement", "second"]);
        assert_eq!(schedule.take_due(at(20)), Vec::<&str>::new());
        assert_eq!((schedule.len(), schedule.take_all()), (1, vec!["late"]));
        assert!(schedule.is_empty());
    }
}
