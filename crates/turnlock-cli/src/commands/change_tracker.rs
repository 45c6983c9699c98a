use std::collections::BTreeMap;

use super::lock_view::LockView;

/// The last known state of each lock, to print only changes.
#[derive(Debug, Default)]
pub(super) struct ChangeTracker {
    known: BTreeMap<String, LockView>,
}

impl ChangeTracker {
    /// Returns the locks that are new, changed or released since the last call.
    ///
    /// A lock that is missing from an incomplete query is not taken as released.
    pub(super) fn changes(&mut self, current: &[LockView], is_complete: bool) -> Vec<LockView> {
        let mut changes = Vec::new();
        let mut before = std::mem::take(&mut self.known);
        for lock in current {
            let known = before.remove(&lock.name);
            if known.is_none_or(|known| lock.differs_from(&known)) {
                changes.push(lock.clone());
            }
            self.known.insert(lock.name.clone(), lock.clone());
        }
        if is_complete {
            changes.extend(before.into_values().map(LockView::released));
        } else {
            self.known.append(&mut before);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock_view::tests::held;
    use super::*;

    fn names(changes: &[LockView]) -> Vec<(&str, bool)> {
        changes.iter().map(|lock| (lock.name.as_str(), lock.locked)).collect()
    }

    #[test]
    fn only_changes_are_returned() {
        let mut tracker = ChangeTracker::default();
        assert_eq!(names(&tracker.changes(&[held("a"), held("b")], true)), [("a", true), ("b", true)]);
        assert_eq!(names(&tracker.changes(&[held("a"), held("b")], true)), []);
        let mut other = held("b");
        other.holders[0].owner = "another".to_owned();
        assert_eq!(names(&tracker.changes(&[held("a"), other.clone()], true)), [("b", true)]);
        assert_eq!(names(&tracker.changes(&[other], true)), [("a", false)]);
        assert_eq!(names(&tracker.changes(&[], true)), [("b", false)]);
        assert_eq!(names(&tracker.changes(&[], true)), []);
    }

    #[test]
    fn a_lock_missing_from_an_incomplete_query_is_not_released() {
        let mut tracker = ChangeTracker::default();
        tracker.changes(&[held("a"), held("b")], true);
        assert_eq!(names(&tracker.changes(&[held("a")], false)), []);
        assert_eq!(names(&tracker.changes(&[held("a")], true)), [("b", false)]);
    }
}
