//! The tables of a store, and how a file is known to be one.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction};

use turnlock_core::ClientId;
use turnlock_core::model::Now;

use super::boot;
use super::row::Row;
use super::trouble::Trouble;

/// The mark of our files: `SQLite` keeps it in the head of the file, for just this use.
pub(super) const MARK: u32 = u32::from_be_bytes(*b"turn");
const FORMAT: u32 = 1;

/// The mark of a file, which is not changed by this, nor anything made beside it.
pub(super) fn mark_of(path: &Path) -> rusqlite::Result<u32> {
    // The path in a URL, for the sake of a parameter; in it, these characters mean something else.
    const SPECIAL: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');
    let path = percent_encode(path.as_os_str().as_bytes(), SPECIAL);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file://{path}?immutable=1"), flags)?;
    connection.pragma_query_value(None, "application_id", |row| row.get(0))
}

/// Whether there is something in the file, and it is not ours. The mark comes with the first page, so it is looked at last.
pub(super) fn is_foreign(connection: &Connection) -> rusqlite::Result<bool> {
    let pages: u32 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let mark: u32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    Ok(pages > 0 && mark != MARK)
}

/// Makes an empty file a store, or brings one to what this process needs.
pub(super) fn set_up(connection: &mut Connection) -> Result<(), Trouble> {
    // The mark first, and not by way of the log, so that it is in the file before anything else is.
    let mark: u32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if mark != MARK {
        connection.pragma_update(None, "application_id", MARK)?;
    }
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(Trouble::misplaced(format!(
            "the file system cannot share memory between processes (journal mode {mode}): name a file on a local disk"
        )));
    }
    // A crash of the machine ends every hold, so nothing need be on the disk before a step is answered; the file stays whole.
    connection.pragma_update(None, "synchronous", "normal")?;
    // Most programs end without waiting for the end of this connection: no time to begin to clear the log.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(())
}

/// Makes the tables, and ends what was held before the machine was last started.
///
/// A container may have a boot id of its own on the same kernel: as long as somebody lives who came before, the machine was not
/// started anew.
pub(super) fn migrate(
    transaction: &Transaction<'_>,
    boot: Option<&str>,
    now: Now,
    is_in_use: bool,
) -> Result<(), Trouble> {
    let format: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if format > FORMAT {
        return Err(Trouble::misplaced(format!(
            "the store was made by a newer turnlock (format {format}, and this one knows {FORMAT}): use that, or another file"
        )));
    }
    if format == 0 {
        transaction.execute_batch(
            "CREATE TABLE items (key TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID;
             CREATE TABLE listeners (
                 key TEXT NOT NULL, channel TEXT NOT NULL, client TEXT NOT NULL, number INTEGER NOT NULL,
                 PRIMARY KEY (key, channel, client)
             ) WITHOUT ROWID;
             CREATE INDEX listeners_by_client ON listeners (client);
             CREATE TABLE clients (id TEXT PRIMARY KEY, card TEXT) WITHOUT ROWID;
             CREATE TABLE boot (id TEXT NOT NULL);",
        )?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    if !is_in_use && boot::note(transaction, boot, now.moment)? {
        begin_anew(transaction, now)?;
    }
    Ok(())
}

/// The moments in the rows are of a clock that is no more, and so are the clients.
fn begin_anew(transaction: &Transaction<'_>, now: Now) -> Result<(), Trouble> {
    let mut rows = transaction.prepare("SELECT key, row FROM items")?;
    let rows: Vec<(String, String)> =
        rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (key, text) in rows {
        let mut row = Row::read(&key, text)?;
        row.begin_anew(now);
        row.store(transaction, &key, now)?;
    }
    transaction.execute_batch("DELETE FROM listeners; DELETE FROM clients;")?;
    Ok(())
}

/// Takes out what clients said of themselves who are no more, and have nothing that outlasts them.
pub(super) fn forget_the_dead(
    transaction: &Transaction<'_>,
    is_alive: impl Fn(ClientId) -> bool,
) -> Result<(), Trouble> {
    let mut select = transaction.prepare("SELECT id FROM clients UNION SELECT client FROM listeners")?;
    let known: Vec<String> = select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for id in known.into_iter().filter(|id| ClientId::from_wire(id).is_none_or(|client| !is_alive(client))) {
        transaction.execute("DELETE FROM listeners WHERE client = ?1", [&id])?;
        let unused =
            "DELETE FROM clients WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM items WHERE instr(row, ?1))";
        transaction.execute(unused, [&id])?;
    }
    Ok(())
}
