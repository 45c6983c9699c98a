use std::collections::HashMap;

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Transaction};
use turnlock_core::{ClientId, LockName};
use turnlock_store::row::{Row, Table};
use turnlock_store::{Failure, Sent};

use super::file_error::FileError;
use super::presence;
use super::store_path::StorePath;

/// The rows of a store, inside one transaction. A row is stored as JSON.
pub(super) struct FileTable<'a> {
    pub(super) sql: &'a Transaction<'a>,
    store_path: &'a StorePath,
    /// The texts that were read, to skip a write without a change.
    texts: HashMap<Box<str>, String>,
}

impl<'a> FileTable<'a> {
    pub(super) fn new(sql: &'a Transaction<'a>, store_path: &'a StorePath) -> Self {
        Self { sql, store_path, texts: HashMap::new() }
    }

    /// Reads a row, and its text.
    fn read(&self, key: &str) -> Result<Option<(Row, String)>, FileError> {
        let mut select = self.sql.prepare_cached("SELECT row FROM items WHERE key = ?1")?;
        let found = select.query_row([key], |row| Ok(text_of(key, row.get_ref(0)?))).optional()?;
        found.transpose()?.map(|text| Ok((parse(key, &text)?, text))).transpose()
    }

    /// Returns the clients to wake after the commit, with the numbers of their subscriptions to `freed` names.
    pub(super) fn subscribers(&self, freed: &[LockName]) -> Result<Vec<(ClientId, i64)>, FileError> {
        let mut subscriptions = Vec::new();
        for name in freed {
            let select = "SELECT client, number FROM listeners WHERE key = ?1 AND channel = ?2";
            let mut select = self.sql.prepare_cached(select)?;
            let mut rows = select.query((name.key(), name.channel()))?;
            while let Some(row) = rows.next()? {
                // A damaged one notifies no client.
                let client = row.get_ref(0)?.as_str().ok().and_then(ClientId::from_wire);
                subscriptions.extend(client.zip(row.get_ref(1)?.as_i64().ok()));
            }
        }
        Ok(subscriptions)
    }

    fn failure(&self, error: FileError) -> Failure {
        error.into_failure(self.store_path, Sent::never())
    }
}

impl Table for FileTable<'_> {
    fn load(&mut self, key: &str) -> Result<Option<Row>, Failure> {
        let found = self.read(key).map_err(|error| self.failure(error))?;
        Ok(found.map(|(row, text)| {
            self.texts.insert(key.into(), text);
            row
        }))
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

/// Returns the text of a row. A damaged file can have any bytes there.
pub(super) fn text_of(key: &str, value: ValueRef<'_>) -> Result<String, FileError> {
    value.as_str().map(str::to_owned).map_err(|error| FileError::unreadable(key, &error))
}

/// Parses the text of a row.
pub(super) fn parse(key: &str, text: &str) -> Result<Row, FileError> {
    serde_json::from_str(text).map_err(|error| FileError::unreadable(key, &error))
}
