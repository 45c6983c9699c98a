use std::collections::HashMap;

use rusqlite::{OptionalExtension, Transaction};
use turnlock_core::{ClientId, LockName};
use turnlock_store::row::{Row, Table};
use turnlock_store::{Failure, Sent};

use super::file_error::FileError;
use super::presence;
use super::store_path::StorePath;

/// The rows of a store, inside one transaction. A row is stored as JSON.
pub(super) struct FileTable<'a> {
    sql: &'a Transaction<'a>,
    store_path: &'a StorePath,
    /// The texts that were read, to skip a write without a change.
    texts: HashMap<Box<str>, String>,
}

impl<'a> FileTable<'a> {
    pub(super) fn new(sql: &'a Transaction<'a>, store_path: &'a StorePath) -> Self {
        Self { sql, store_path, texts: HashMap::new() }
    }

    fn load_text(&self, key: &str) -> Result<Option<String>, FileError> {
        let mut select = self.sql.prepare_cached("SELECT row FROM items WHERE key = ?1")?;
        Ok(select.query_row([key], |row| row.get(0)).optional()?)
    }

    fn failure(&self, error: FileError) -> Failure {
        error.into_failure(self.store_path, Sent::never())
    }
}

impl Table for FileTable<'_> {
    fn load(&mut self, key: &str) -> Result<Option<Row>, Failure> {
        let text = self.load_text(key).map_err(|error| self.failure(error))?;
        let Some(text) = text else { return Ok(None) };
        let row = parse(key, &text).map_err(|error| self.failure(error))?;
        self.texts.insert(key.into(), text);
        Ok(Some(row))
    }

    fn replace(&mut self, key: &str, row: Option<Row>) -> Result<(), Failure> {
        let before = self.texts.get(key).map(String::as_str);
        write(self.sql, key, before, row.as_ref()).map_err(|error| self.failure(error))
    }

    fn is_alive(&self, client: ClientId) -> bool {
        presence::is_alive(self.store_path, client)
    }
}

/// Writes a row if it has changed; `before` is the text that was read. `None` deletes it.
pub(super) fn write(
    sql: &Transaction<'_>,
    key: &str,
    before: Option<&str>,
    row: Option<&Row>,
) -> Result<(), FileError> {
    let Some(row) = row else {
        if before.is_some() {
            sql.prepare_cached("DELETE FROM items WHERE key = ?1")?.execute([key])?;
        }
        return Ok(());
    };
    let text = serde_json::to_string(row).map_err(|error| FileError::unreadable(key, &error))?;
    if before != Some(&text) {
        sql.prepare_cached("INSERT OR REPLACE INTO items VALUES (?1, ?2)")?.execute([key, &text])?;
    }
    Ok(())
}

/// Parses the text of a row.
pub(super) fn parse(key: &str, text: &str) -> Result<Row, FileError> {
    serde_json::from_str(text).map_err(|error| FileError::unreadable(key, &error))
}

/// A client to wake after the commit, with the number of its subscription.
pub(super) struct PendingWakeup {
    pub(super) client: ClientId,
    pub(super) subscription: u64,
}

/// Returns the subscribers of the names that were freed.
pub(super) fn subscribers(
    sql: &Transaction<'_>,
    freed: &[LockName],
) -> Result<Vec<PendingWakeup>, FileError> {
    let mut wakeups = Vec::new();
    for name in freed {
        let select = "SELECT client, number FROM listeners WHERE key = ?1 AND channel = ?2";
        let mut select = sql.prepare_cached(select)?;
        let mut rows = select.query((name.key(), name.channel()))?;
        while let Some(row) = rows.next()? {
            let (client, number): (String, i64) = (row.get(0)?, row.get(1)?);
            if let (Some(client), Ok(subscription)) = (ClientId::from_wire(&client), u64::try_from(number)) {
                wakeups.push(PendingWakeup { client, subscription });
            }
        }
    }
    Ok(wakeups)
}
