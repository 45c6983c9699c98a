//! A store in a file of its own, for one case.

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

    /// The file as one who knows nothing of locks opens it.
    pub(crate) fn plain(&self) -> Connection {
        let connection = Connection::open(self.path()).expect("a database");
        connection.busy_timeout(Duration::from_secs(10)).expect("a setting");
        connection
    }

    /// Forgets every lock, without telling anybody.
    pub(crate) fn lose_data(&self) {
        self.plain().execute("DELETE FROM items", []).expect("deleted");
    }

    /// Forgets one lock, without telling anybody.
    pub(crate) fn lose(&self, key: &str) {
        assert_eq!(self.plain().execute("DELETE FROM items WHERE key = ?1", [key]).expect("deleted"), 1);
    }

    /// From here on, nobody hears of anything that he did not hear of before.
    pub(crate) fn lose_signals(&self) {
        let trigger = "CREATE TRIGGER mute BEFORE INSERT ON listeners BEGIN SELECT RAISE(IGNORE); END";
        self.plain().execute_batch(trigger).expect("a trigger");
    }
}
