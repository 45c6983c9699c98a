//! The tables of a store, and how a file is recognized as one.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use turnlock_core::ClientId;
use turnlock_core::model::Now;

use super::boot;
use super::file_error::FileError;
use super::file_table;
use super::store_path::{APPLICATION_ID, StorePath};

const FORMAT: u32 = 1;

/// The length of the log, in pages, at which a new connection writes it back to the file.
///
/// The first connection after a while reads the whole log, 2 ms for 1,000 pages; to write it back waits for the disk.
/// Programs that connect for each lock are faster with a short log.
const SHORT_LOG: u32 = 250;

/// The same for a connection that has made many steps.
const LONG_LOG: u32 = 1_000;

/// The digits that all permits of a hold have in common.
const PERMIT_DIGITS: usize = 24;

/// Makes an empty file a store, and configures the connection. Rejects a database that is not a store.
pub(super) fn set_up(connection: &mut Connection, store_path: &StorePath) -> Result<(), FileError> {
    distrust(connection)?;
    // The id is read last: another process writes it with the first page.
    let pages: u32 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let id: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if id != i64::from(APPLICATION_ID) {
        if pages > 0 {
            return Err(FileError::foreign(store_path, "a database of another program"));
        }
        // The application id comes first and not through the WAL, so that it is in the file before anything else.
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(FileError::BadPath(format!(
            "the file system of the path cannot share memory between processes (journal mode {mode}): use a path on a \
             local disk"
        )));
    }
    // A crash of the machine ends every hold, so a step need not be on disk before its reply. The file stays
    // consistent.
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "wal_autocheckpoint", SHORT_LOG)?;
    Ok(())
}

/// Executes nothing that the file brings along: another user may have written to it. Closing leaves the log as it is.
///
/// This holds for the whole life of the connection, also if the tables change later.
fn distrust(connection: &Connection) -> rusqlite::Result<()> {
    for (setting, value) in [
        // First, since a connection that is closed after an error must not write or remove anything either. Most programs
        // exit without waiting for the connection to close, and members of a group cannot create `-wal` again.
        (DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        connection.set_db_config(setting, value)?;
    }
    connection.pragma_update(None, "cell_size_check", true)
}

/// Lets the log grow longer, for a connection that has made many steps.
pub(super) fn allow_long_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", LONG_LOG)
}

/// Creates the tables, and ends all holds after a reboot.
///
/// A container may have a boot id of its own on the same kernel: as long as an earlier client is alive
/// (`is_in_use`), another id is not a reboot.
pub(super) fn migrate(
    transaction: &Transaction<'_>,
    boot: Option<&str>,
    now: Now,
    is_in_use: bool,
) -> Result<(), FileError> {
    let format: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if format > FORMAT {
        return Err(FileError::BadPath(format!(
            "the file was created by a newer turnlock (format {format}, this version supports {FORMAT}): upgrade \
             turnlock, or use another file"
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
    // Not a new format: an older version does not need the table, and locks in the same file.
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS activity (
             client TEXT PRIMARY KEY, written INTEGER, ends INTEGER, is_linked INTEGER, record TEXT
         ) WITHOUT ROWID;",
    )?;
    if !is_in_use && boot::record(transaction, boot, now.moment)? {
        reset_after_reboot(transaction, now)?;
    }
    Ok(())
}

/// Checks that the tables are those of a store. Prepares statements that the steps use, for which they stay cached.
///
/// Rejects a file with code in it (a trigger, a view or a virtual table), since only another program creates such.
pub(super) fn check_tables(connection: &Connection, store_path: &StorePath) -> Result<(), FileError> {
    let others = "SELECT type || ' ' || name FROM sqlite_schema
                  WHERE (type = 'index' OR type = 'table' AND sql LIKE 'CREATE TABLE %') IS NOT TRUE";
    if let Some(other) = connection.query_row(others, [], |row| text_of(row, 0)).optional()? {
        let found =
            format!("a store that another program has changed (it has a {})", other.unwrap_or_default());
        return Err(FileError::foreign(store_path, &found));
    }
    for statement in [
        "SELECT row FROM items WHERE key = ?1",
        "INSERT OR REPLACE INTO items VALUES (?1, ?2)",
        "SELECT client, number FROM listeners WHERE key = ?1 AND channel = ?2",
        "INSERT OR REPLACE INTO listeners VALUES (?1, ?2, ?3, ?4)",
        "SELECT card FROM clients WHERE id = ?1",
        "INSERT OR REPLACE INTO clients VALUES (?1, ?2)",
    ] {
        connection.prepare_cached(statement)?;
    }
    Ok(())
}

/// Removes all owners, subscriptions and clients: they are from an earlier boot, and so are the moments in
/// the rows.
fn reset_after_reboot(transaction: &Transaction<'_>, now: Now) -> Result<(), FileError> {
    let mut rows = transaction.prepare("SELECT key, row FROM items")?;
    let rows: Vec<(Option<String>, Option<String>)> =
        rows.query_map([], |row| Ok((text_of(row, 0)?, text_of(row, 1)?)))?.collect::<Result<_, _>>()?;
    for (key, text) in rows.into_iter().filter_map(|(key, text)| key.zip(text)) {
        // A row that cannot be read stays: it is an error of its own name, and of no other.
        let Ok(mut row) = file_table::parse(&key, &text) else { continue };
        row.reset_after_reboot(now);
        let is_free = row.remembered_kind(now).is_none();
        file_table::write(transaction, &key, Some(&text), (!is_free).then_some(&row))?;
    }
    transaction.execute_batch("DELETE FROM listeners; DELETE FROM clients; DELETE FROM activity;")?;
    Ok(())
}

/// Removes the subscriptions and records of dead clients.
///
/// The record stays while a hold outlasts the client. So does a record of permits, which has no client of its own: its id
/// is made of the digits that the ids of the permits begin with.
pub(super) fn remove_dead_clients(
    transaction: &Transaction<'_>,
    is_alive: impl Fn(ClientId) -> bool,
) -> Result<(), FileError> {
    let mut select = transaction.prepare("SELECT id FROM clients UNION SELECT client FROM listeners")?;
    let known: Vec<Option<String>> =
        select.query_map([], |row| text_of(row, 0))?.collect::<Result<_, _>>()?;
    for id in known
        .into_iter()
        .flatten()
        .filter(|id| ClientId::from_wire(id).is_none_or(|client| !is_alive(client)))
    {
        transaction.execute("DELETE FROM listeners WHERE client = ?1", [&id])?;
        let digits = id.replace('-', "");
        let permits = digits.get(..PERMIT_DIGITS).unwrap_or(&id);
        let unused = "DELETE FROM clients WHERE id = ?1
             AND NOT EXISTS (SELECT 1 FROM items WHERE instr(row, ?1) OR instr(row, ?2))";
        transaction.execute(unused, [&*id, permits])?;
    }
    Ok(())
}

/// Returns the text of a column. `None` if a damaged file has something else there.
fn text_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(row.get_ref(column)?.as_str().ok().map(str::to_owned))
}
