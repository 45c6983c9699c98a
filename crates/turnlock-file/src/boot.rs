//! Detection of reboots: leases are counted by the boot clock, which restarts with the machine.
//!
//! Linux has an id for each boot. Other systems have only the clock: the file keeps a mark with the latest
//! moment, and a clock that is behind the mark belongs to a later boot. The wall clock is not used, since it
//! can be set.
//!
//! So a hold of this boot is never mistaken for one of an earlier boot. Without ids, a reboot is missed if no
//! client opens the file before the clock has passed the mark. Every `unlock_after` moves the mark, so such a
//! hold then lasts at most for its own duration after that.

use std::time::Duration;

use rusqlite::{OptionalExtension, Transaction};
use turnlock_core::Moment;

/// The prefix of a clock mark. No boot id starts with it.
const CLOCK: &str = "clock:";

/// How far the clock may go back within one boot: on some systems it is derived from others, and not quite
/// steady.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// Returns the id of this boot, if the system has one.
pub(super) fn id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Records this boot. Returns `true` if the file was last used in an earlier one.
pub(super) fn record(transaction: &Transaction<'_>, id: Option<&str>, now: Moment) -> rusqlite::Result<bool> {
    let before: Option<String> =
        transaction.query_row("SELECT id FROM boot", [], |row| row.get(0)).optional()?;
    let is_reboot = is_reboot(before.as_deref(), id, now);
    let mark = match (id, &before) {
        (Some(id), _) => id.to_owned(),
        // A client that sees no boot id must not replace a recorded one.
        (None, Some(before)) if !before.starts_with(CLOCK) => return Ok(is_reboot),
        (None, Some(before)) if !is_reboot => clock_mark(now).max(before.clone()),
        (None, _) => clock_mark(now),
    };
    // Every client that opens the file comes here, and most of them would write the same.
    if before.as_ref() != Some(&mark) {
        transaction.execute("DELETE FROM boot", [])?;
        transaction.execute("INSERT INTO boot VALUES (?1)", [mark])?;
    }
    Ok(is_reboot)
}

/// Moves the clock mark forward, if the file has one instead of a boot id.
pub(super) fn record_clock(transaction: &Transaction<'_>, now: Moment) -> rusqlite::Result<()> {
    // Marks have equal lengths, so the later one compares greater.
    let update = "UPDATE boot SET id = ?1 WHERE id BETWEEN ?2 AND ?1";
    transaction.prepare_cached(update)?.execute([clock_mark(now).as_str(), CLOCK])?;
    Ok(())
}

/// Returns `true` if the mark `before` is certainly from another boot than this one.
fn is_reboot(before: Option<&str>, id: Option<&str>, now: Moment) -> bool {
    let Some(before) = before else { return false };
    match before.strip_prefix(CLOCK) {
        None => id.is_some_and(|id| id != before),
        Some(micros) => {
            micros.parse().is_ok_and(|latest| now + CLOCK_TOLERANCE < Moment::from_micros(latest))
        }
    }
}

fn clock_mark(now: Moment) -> String {
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
    fn a_reboot_is_detected_by_its_id_or_by_a_clock_that_went_back() {
        let mark = clock_mark(at(100));
        for (before, id, now, expected) in [
            // A new file.
            (None, Some("one"), at(5), false),
            (None, None, at(5), false),
            (Some("one"), Some("one"), at(5), false),
            (Some("one"), Some("two"), at(5), true),
            // A client without an id.
            (Some("one"), None, at(5), false),
            (Some(&*mark), None, at(100), false),
            (Some(&*mark), None, at(5_000), false),
            (Some(&*mark), None, at(99), false),
            (Some(&*mark), None, at(98), true),
            (Some(&*mark), None, at(0), true),
            // First used by a client without an id.
            (Some(&*mark), Some("one"), at(101), false),
            (Some(&*mark), Some("one"), at(5), true),
            (Some("clock:what"), None, at(0), false),
        ] {
            assert_eq!(is_reboot(before, id, now), expected, "{before:?}, {id:?}, {now:?}");
        }
    }

    #[test]
    fn the_mark_follows_the_clock_of_this_boot() {
        let mut connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch("CREATE TABLE boot (id TEXT NOT NULL)").expect("a table");
        let transaction = connection.transaction().expect("a transaction");
        let mark = || transaction.query_row("SELECT id FROM boot", [], |row| row.get::<_, String>(0));
        let record = |id, now| record(&transaction, id, now).expect("recorded");
        assert!(!record(None, at(50)));
        assert_eq!(mark(), Ok(clock_mark(at(50))));
        record_clock(&transaction, at(70)).expect("recorded");
        record_clock(&transaction, at(69)).expect("recorded");
        assert_eq!(mark(), Ok(clock_mark(at(70))), "it does not go back");
        assert!(!record(None, at(70)) && !record(None, at(80)));
        assert_eq!(mark(), Ok(clock_mark(at(80))));
        assert!(record(None, at(2)), "a reboot");
        assert_eq!(mark(), Ok(clock_mark(at(2))));
        assert!(!record(None, at(3)), "reported once");
        assert!(!record(Some("one"), at(4)) && record(Some("two"), at(5)));
        record_clock(&transaction, at(6)).expect("recorded");
        assert!(!record(None, at(0)));
        assert_eq!(mark(), Ok("two".to_owned()), "an id stays until there is another");
    }
}
