//! How one start of the machine is told from another.
//!
//! Linux gives each start an id. Elsewhere there is the clock alone, which begins anew with the machine: a mark of the latest
//! moment is kept, and a clock that is behind it is that of a later start. The time of day is not asked, since it can be set.
//!
//! So a hold of this start is never taken for one of an earlier start. Without ids, a start is overlooked if nobody opens the file
//! before the clock has passed the mark. As every `keep_for` sets the mark, what was kept then lasts for no more than its own
//! time from there on.

use std::time::Duration;

use rusqlite::{OptionalExtension, Transaction};
use turnlock_core::Moment;

/// What a mark of the clock begins with; no id does.
const CLOCK: &str = "clock:";

/// How far a clock may go back without a start of the machine: some are made of others, and not quite steady.
const UNSTEADY: Duration = Duration::from_secs(60);

/// The id of this start, if the system has one.
pub(super) fn id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Notes this start. Whether the file was last used in an earlier one.
pub(super) fn note(transaction: &Transaction<'_>, id: Option<&str>, now: Moment) -> rusqlite::Result<bool> {
    let before: Option<String> =
        transaction.query_row("SELECT id FROM boot", [], |row| row.get(0)).optional()?;
    let is_another = is_another(before.as_deref(), id, now);
    let mark = match (id, &before) {
        (Some(id), _) => id.to_owned(),
        // Who sees no id learns nothing of this start that was not known.
        (None, Some(before)) if !before.starts_with(CLOCK) => return Ok(is_another),
        (None, Some(before)) if !is_another => mark_of(now).max(before.clone()),
        (None, _) => mark_of(now),
    };
    transaction.execute("DELETE FROM boot", [])?;
    transaction.execute("INSERT INTO boot VALUES (?1)", [mark])?;
    Ok(is_another)
}

/// Notes the moment, where the clock is what starts are told by.
pub(super) fn note_clock(transaction: &Transaction<'_>, now: Moment) -> rusqlite::Result<()> {
    // Marks are as long as each other, so that the later one is the greater one.
    let update = "UPDATE boot SET id = ?1 WHERE id BETWEEN ?2 AND ?1";
    transaction.prepare_cached(update)?.execute([mark_of(now).as_str(), CLOCK])?;
    Ok(())
}

/// Whether the mark `before` was surely set in another start of the machine than this one.
fn is_another(before: Option<&str>, id: Option<&str>, now: Moment) -> bool {
    let Some(before) = before else { return false };
    match before.strip_prefix(CLOCK) {
        None => id.is_some_and(|id| id != before),
        Some(micros) => micros.parse().is_ok_and(|seen| now + UNSTEADY < Moment::from_micros(seen)),
    }
}

fn mark_of(now: Moment) -> String {
    format!("{CLOCK}{:020}", now.as_micros())
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn at(minutes: u64) -> Moment {
        Moment::from_micros(0) + Duration::from_secs(60 * minutes)
    }

    #[test]
    fn a_start_is_another_by_its_id_or_by_a_clock_that_began_anew() {
        let mark = mark_of(at(100));
        for (before, id, now, expected) in [
            // A new file.
            (None, Some("one"), at(5), false),
            (None, None, at(5), false),
            (Some("one"), Some("one"), at(5), false),
            (Some("one"), Some("two"), at(5), true),
            // Seen from where there is no id.
            (Some("one"), None, at(5), false),
            (Some(&*mark), None, at(100), false),
            (Some(&*mark), None, at(5_000), false),
            (Some(&*mark), None, at(99), false),
            (Some(&*mark), None, at(98), true),
            (Some(&*mark), None, at(0), true),
            // Seen first from where there is none.
            (Some(&*mark), Some("one"), at(101), false),
            (Some(&*mark), Some("one"), at(5), true),
            (Some("clock:what"), None, at(0), false),
        ] {
            assert_eq!(is_another(before, id, now), expected, "{before:?}, {id:?}, {now:?}");
        }
    }

    #[test]
    fn the_mark_goes_with_the_clock_of_this_start() {
        let mut connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch("CREATE TABLE boot (id TEXT NOT NULL)").expect("a table");
        let transaction = connection.transaction().expect("a transaction");
        let mark = || transaction.query_row("SELECT id FROM boot", [], |row| row.get::<_, String>(0));
        let note = |id, now| note(&transaction, id, now).expect("noted");
        assert!(!note(None, at(50)));
        assert_eq!(mark(), Ok(mark_of(at(50))));
        note_clock(&transaction, at(70)).expect("noted");
        note_clock(&transaction, at(69)).expect("noted");
        assert_eq!(mark(), Ok(mark_of(at(70))), "it does not go back");
        assert!(!note(None, at(70)) && !note(None, at(80)));
        assert_eq!(mark(), Ok(mark_of(at(80))));
        assert!(note(None, at(2)), "the machine was started anew");
        assert_eq!(mark(), Ok(mark_of(at(2))));
        assert!(!note(None, at(3)), "and is told once");
        assert!(!note(Some("one"), at(4)) && note(Some("two"), at(5)));
        note_clock(&transaction, at(6)).expect("noted");
        assert!(!note(None, at(0)));
        assert_eq!(mark(), Ok("two".to_owned()), "an id stays until another one comes");
    }
}
