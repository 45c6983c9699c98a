use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::fs::{FlockOperation, flock};

use super::trouble::Trouble;
use super::{file_system, schema};
use crate::error::Error;

/// Where a store is: a file, and beside it a directory with something of each client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) database: PathBuf,
    pub(super) clients: PathBuf,
    /// Whether the directory around it is ours to make.
    is_default: bool,
    /// Whether it may be on a file system that is not known to be local.
    any_file_system: bool,
}

impl Place {
    /// The place of a path. An empty one is the place of this user's usual store.
    ///
    /// That is in the state directory and not in the runtime directory, since cron knows nothing of the latter: a line of cron
    /// and a shell of the same user must come to the same store.
    pub(crate) fn of(path: &Path) -> Result<Self, Error> {
        if path.as_os_str().is_empty() {
            let state = state_directory().ok_or_else(|| {
                bad("there is no home directory to keep the usual store in; name a file, as in file:/var/lib/jobs.locks")
            })?;
            return Ok(Self::at(state.join("turnlock").join("locks"), true));
        }
        let path =
            std::path::absolute(path).map_err(|error| bad(format!("the path cannot be used: {error}")))?;
        if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(bad("the path names a directory; name a file in it, as in file:/var/lib/jobs.locks"));
        }
        Ok(Self::at(path, false))
    }

    /// The same, on a file system of any kind.
    pub(crate) fn on_any_file_system(self) -> Self {
        Self { any_file_system: true, ..self }
    }

    fn at(database: PathBuf, is_default: bool) -> Self {
        let mut clients = database.clone().into_os_string();
        clients.push(".clients");
        Self { database, clients: clients.into(), is_default, any_file_system: false }
    }

    /// Makes what is missing, for this user alone, and refuses what is no store of ours without touching it.
    ///
    /// To be called by one thread at a time: a file that was just made is closed again, and a connection that another thread has
    /// opened meanwhile would lose its locks by that.
    pub(super) fn prepare(&self) -> Result<(), Trouble> {
        let directory = self.database.parent().unwrap_or(Path::new("/"));
        if self.is_default {
            private_directory(directory).map_err(|error| Trouble::of_path(directory, &error))?;
        } else if !directory.is_dir() {
            return Err(Trouble::misplaced(format!(
                "the directory {} is not there: make it, or name a file elsewhere",
                directory.display()
            )));
        }
        if !self.any_file_system {
            // What is behind a link, or mounted by itself, may be elsewhere than the directory around it.
            let others = [&*self.database, &*self.clients].into_iter().filter(|path| path.exists());
            std::iter::once(directory).chain(others).try_for_each(file_system::check)?;
        }
        let is_there =
            self.database.try_exists().map_err(|error| Trouble::of_path(&self.database, &error))?;
        if is_there {
            self.recognize()?;
        }
        self.make_directory_of_clients().map_err(|error| Trouble::of_path(&self.clients, &error))?;
        if !is_there && !self.create().map_err(|error| Trouble::of_path(&self.database, &error))? {
            self.recognize()?;
        }
        Ok(())
    }

    /// Makes the file if there is none, and clears away what is left of one that was removed. Whether it did.
    fn create(&self) -> io::Result<bool> {
        // Others may want to make it, too: nobody may clear away what another has just made.
        let turn = fs::File::open(&self.clients)?;
        flock(&turn, FlockOperation::LockExclusive)?;
        if self.database.try_exists()? {
            return Ok(false);
        }
        for end in ["-wal", "-shm"] {
            let mut path = self.database.clone().into_os_string();
            path.push(end);
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.database)?;
        Ok(true)
    }

    pub(super) fn make_directory_of_clients(&self) -> io::Result<()> {
        private_directory(&self.clients)?;
        self.give_to_owner(&self.clients);
        Ok(())
    }

    /// Gives a file of ours to the owner of the store, if it is another: root may use anybody's store, and its owner must be able
    /// to see whether root still lives.
    pub(super) fn give_to_owner(&self, path: &Path) {
        let owner = fs::metadata(&self.database).map(|found| (found.uid(), found.gid()));
        let ours = fs::metadata(path).map(|found| (found.uid(), found.gid()));
        if let (Ok((user, group)), Ok(ours)) = (owner, ours)
            && ours != (user, group)
        {
            // Others than root may not, and need not.
            let _ = chown(path, Some(user), Some(group));
        }
    }

    /// Whether the file that is there is a store of ours, or is empty and may become one.
    ///
    /// It is only looked at, by a connection that takes no locks and makes no files. By `SQLite` all the same: who opens and closes
    /// the file in any other way takes away the locks that other connections of this process have on it.
    fn recognize(&self) -> Result<(), Trouble> {
        let found = fs::metadata(&self.database).map_err(|error| Trouble::of_path(&self.database, &error))?;
        if !found.is_file() {
            return Err(Trouble::foreign(self, "a directory or a device"));
        }
        if found.len() == 0 {
            return Ok(());
        }
        match schema::mark_of(&self.database) {
            Ok(mark) if mark == schema::MARK => Ok(()),
            Ok(_) => Err(Trouble::foreign(self, "a database of another program")),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                Err(Trouble::foreign(self, "a file of another kind"))
            }
            // So it looks, too, where somebody is at a checkpoint, or was when it died: what is missing is in the log, which only a
            // connection with locks reads.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.database.display().fmt(f)
    }
}

fn state_directory() -> Option<PathBuf> {
    let told = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    told.or_else(|| Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(".local/state")))
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn bad(reason: impl Into<String>) -> Error {
    Error::bad_setting("url", reason)
}
