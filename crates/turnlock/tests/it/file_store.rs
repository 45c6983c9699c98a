//! A file store that one case uses.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use turnlock_testkit::TempDir;

#[derive(Debug)]
pub(crate) struct FileStore {
    dir: TempDir,
}

impl FileStore {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("locks")
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.path().display())
    }

    /// Opens the database directly.
    pub(crate) fn raw_connection(&self) -> Connection {
        let connection = Connection::open(self.path()).expect("a database");
        connection.busy_timeout(Duration::from_secs(10)).expect("a setting");
        connection
    }

    /// Deletes every lock, without a message.
    pub(crate) fn lose_data(&self) {
        self.raw_connection().execute("DELETE FROM items", []).expect("deleted");
    }

    /// Deletes one lock, without a message.
    pub(crate) fn delete(&self, key: &str) {
        assert_eq!(
            self.raw_connection().execute("DELETE FROM items WHERE key = ?1", [key]).expect("deleted"),
            1
        );
    }

    /// Blocks new subscriptions, so that later waiters receive no message.
    pub(crate) fn lose_messages(&self) {
        let table = "DROP TABLE listeners;
            CREATE TABLE listeners (key TEXT, channel TEXT, client TEXT, number INTEGER CHECK (number IS NULL));";
        self.raw_connection().execute_batch(table).expect("a table");
    }
}
