use std::collections::BTreeMap;

use crate::commands::lock_view::LockView;

/// The last known state of each lock that passes the filters, to print only changes.
#[derive(Debug, Default)]
pub(super) struct ChangeTracker {
    known: BTreeMap<String, LockView>,
}

impl ChangeTracker {
    /// Returns the locks that are new, changed or released since the last call, in the order of their names.
    ///
    /// A lock that no longer passes the filters is a change too, with its current state. A lock that is missing from an
    /// incomplete query is not taken as released.
    pub(super) fn changes(
        &mut self,
        current: &[LockView],
        is_complete: bool,
        is_wanted: impl Fn(&LockView) -> bool,
    ) -> Vec<LockView> {
        let mut changes = Vec::new();
        let mut before = std::mem::take(&mut self.known);
        for lock in current {
            let known = before.remove(&lock.name);
            let is_wanted = is_wanted(lock);
            let is_change = match &known {
                None => is_wanted,
                Some(known) => !is_wanted || lock.differs_from(known),
            };
            if is_change {
                changes.push(lock.clone());
            }
            if is_wanted {
                self.known.insert(lock.name.clone(), lock.clone());
            }
        }
        if is_complete {
            changes.extend(before.into_values().map(LockView::released));
            changes.sort_by(|a, b| a.name.cmp(&b.name));
        } else {
            self.known.append(&mut before);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lock_view::tests::held;

    fn names(changes: &[LockView]) -> Vec<(&str, bool)> {
        changes.iter().map(|lock| (lock.name.as_str(), lock.locked)).collect()
    }

    #[test]
    fn only_changes_are_returned() {
        let mut tracker = ChangeTracker::default();
        let mut changes = |locks: &[LockView]| tracker.changes(locks, true, |_| true);
        assert_eq!(names(&changes(&[held("a"), held("b")])), [("a", true), ("b", true)]);
        assert_eq!(names(&changes(&[held("a"), held("b")])), []);
        let mut other = held("b");
        other.holders[0].owner = "another".to_owned();
        assert_eq!(names(&changes(&[held("a"), other.clone()])), [("b", true)]);
        assert_eq!(names(&changes(&[other])), [("a", false)]);
        assert_eq!(names(&changes(&[])), [("b", false)]);
        assert_eq!(names(&changes(&[])), []);
    }

    #[test]
    fn a_lock_missing_from_an_incomplete_query_is_not_released() {
        let mut tracker = ChangeTracker::default();
        tracker.changes(&[held("a"), held("b")], true, |_| true);
        assert_eq!(names(&tracker.changes(&[held("a")], false, |_| true)), []);
        assert_eq!(names(&tracker.changes(&[held("a")], true, |_| true)), [("b", false)]);
    }

    #[test]
    fn a_lock_that_no_longer_passes_the_filters_is_not_taken_as_released() {
        let mut tracker = ChangeTracker::default();
        let mut changes = |lock: &LockView| {
            tracker.changes(std::slice::from_ref(lock), true, |lock| lock.holders[0].owner != "another")
        };
        let (mut lock, mut other) = (held("a"), held("a"));
        other.holders[0].owner = "another".to_owned();
        assert_eq!(names(&changes(&other)), []);
        assert_eq!(names(&changes(&lock)), [("a", true)]);
        let left = changes(&other);
        assert_eq!((names(&left), left[0].holders[0].owner.as_str()), (vec![("a", true)], "another"));
        assert_eq!(names(&changes(&other)), []);
        lock.holders[0].count = 2;
        assert_eq!(names(&changes(&lock)), [("a", true)]);
    }
}
