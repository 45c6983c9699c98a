use std::collections::BTreeMap;

use super::picture::Picture;

/// What was seen last of each lock, so that only what has changed is told.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    known: BTreeMap<String, Picture>,
}

impl ChangeLog {
    /// What is new, other or gone since the last look. What an incomplete look does not show may still be there.
    pub(super) fn changes(&mut self, seen: &[Picture], is_complete: bool) -> Vec<Picture> {
        let mut changes = Vec::new();
        let mut before = std::mem::take(&mut self.known);
        for picture in seen {
            let known = before.remove(&picture.name);
            if known.is_none_or(|known| picture.differs_from(&known)) {
                changes.push(picture.clone());
            }
            self.known.insert(picture.name.clone(), picture.clone());
        }
        if is_complete {
            changes.extend(before.into_values().map(Picture::gone));
        } else {
            self.known.append(&mut before);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::held;
    use super::*;

    fn names(changes: &[Picture]) -> Vec<(&str, bool)> {
        changes.iter().map(|picture| (picture.name.as_str(), picture.locked)).collect()
    }

    #[test]
    fn only_what_has_changed_is_told() {
        let mut log = ChangeLog::default();
        assert_eq!(names(&log.changes(&[held("a"), held("b")], true)), [("a", true), ("b", true)]);
        assert_eq!(names(&log.changes(&[held("a"), held("b")], true)), []);
        let mut other = held("b");
        other.holders[0].owner = "another".to_owned();
        assert_eq!(names(&log.changes(&[held("a"), other.clone()], true)), [("b", true)]);
        assert_eq!(names(&log.changes(&[other], true)), [("a", false)]);
        assert_eq!(names(&log.changes(&[], true)), [("b", false)]);
        assert_eq!(names(&log.changes(&[], true)), []);
    }

    #[test]
    fn what_was_not_looked_at_is_not_gone() {
        let mut log = ChangeLog::default();
        log.changes(&[held("a"), held("b")], true);
        assert_eq!(names(&log.changes(&[held("a")], false)), []);
        assert_eq!(names(&log.changes(&[held("a")], true)), [("b", false)]);
    }
}
