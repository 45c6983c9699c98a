use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{FlockOperation, flock};

use super::file_error::FileError;
use super::file_system;
use turnlock_store::{SettingError, percent_decode, settings};

settings! {
    /// The settings of a file store.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct FileSettings;
    pub in_text {
        /// `true` to accept a file system that is not known to be local.
        any_file_system: bool,
    }
    in_code {}
    parts {}
}

impl FileSettings {
    /// Parses what follows `file:` in a URL. Returns the path too; an empty one is the default store of this user.
    ///
    /// `file:PATH` is a path as it is; `file://` starts a standard URL. A `?` can be a part of both, so only a
    /// setting of a file store is parsed as a parameter.
    pub fn parse_url(rest: &str) -> Result<(PathBuf, Self), SettingError> {
        let mut settings = Self::default();
        let parameter = rest.rsplit_once('?').and_then(|(path, pair)| Some((path, pair.split_once('=')?)));
        let rest = match parameter {
            Some((path, (name, value))) if settings.set(name, value)? => path,
            _ => rest,
        };
        let Some(standard) = rest.strip_prefix("//") else { return Ok((rest.into(), settings)) };
        let path = standard.strip_prefix("localhost").unwrap_or(standard);
        if !path.starts_with('/') {
            let reason = "not a path; write it as file:/var/lib/jobs.locks or file:///var/lib/jobs.locks";
            return Err(bad_url(reason));
        }
        Ok((PathBuf::from(&*percent_decode("url", path)?), settings))
    }
}

/// The location of a store: a file, and beside it a directory with the files of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePath {
    pub(super) database: PathBuf,
    pub(super) clients: PathBuf,
    /// `true` for the default path, whose parent directory is created if it does not exist.
    is_default: bool,
    /// `true` to accept a file system that is not known to be local.
    any_file_system: bool,
}

impl StorePath {
    /// Resolves a path. An empty path is the default store of this user.
    ///
    /// The default is in the state directory and not in the runtime directory, which cron jobs do not have: a
    /// cron job and a shell of the same user must use the same store.
    pub fn new(path: &Path, settings: &FileSettings) -> Result<Self, SettingError> {
        let any_file_system = settings.any_file_system.unwrap_or_default();
        if path.as_os_str().is_empty() {
            let state = state_directory().ok_or_else(|| {
                bad_url(
                    "the default store needs a home directory, and there is none: give a path, as in \
                     file:/var/lib/jobs.locks",
                )
            })?;
            let database = state.join("turnlock").join("locks");
            return Ok(Self { any_file_system, is_default: true, ..Self::at(database) });
        }
        let path = std::path::absolute(path)
            .map_err(|error| bad_url(format!("the path {} cannot be resolved: {error}", path.display())))?;
        if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(bad_url(format!(
                "the path {} is a directory: give a file in it, as in file:/var/lib/jobs.locks",
                path.display()
            )));
        }
        Ok(Self { any_file_system, ..Self::at(path) })
    }

    fn at(database: PathBuf) -> Self {
        let mut clients = database.clone().into_os_string();
        clients.push(".clients");
        Self { database, clients: clients.into(), is_default: false, any_file_system: false }
    }

    /// Creates what is missing, for this user only. Rejects a file that is not a store, and leaves it
    /// unchanged.
    ///
    /// Must be called by one thread at a time: it closes the file that it created, and by POSIX rules that
    /// would end the locks of a connection that another thread has opened in between.
    pub(super) fn prepare(&self) -> Result<(), FileError> {
        let directory = self.database.parent().unwrap_or(Path::new("/"));
        if self.is_default {
            private_directory(directory).map_err(FileError::at(directory))?;
        } else if !directory.is_dir() {
            return Err(FileError::BadPath(format!(
                "the directory {} does not exist: create it, or use another path",
                directory.display()
            )));
        }
        if !self.any_file_system {
            // A symbolic link or a mount may be on another file system than its directory.
            let others = [&*self.database, &*self.clients].into_iter().filter(|path| path.exists());
            std::iter::once(directory).chain(others).try_for_each(file_system::check)?;
        }
        let exists = self.database.try_exists().map_err(FileError::at(&self.database))?;
        if exists {
            self.recognize()?;
        }
        self.create_clients_directory().map_err(FileError::at(&self.clients))?;
        if !exists && !self.create().map_err(FileError::at(&self.database))? {
            self.recognize()?;
        }
        Ok(())
    }

    /// Creates the file, and removes what is left of an earlier one. Returns `false` if it exists.
    fn create(&self) -> io::Result<bool> {
        // Locked, so that no process removes what another one has just created.
        let directory = fs::File::open(&self.clients)?;
        flock(&directory, FlockOperation::LockExclusive)?;
        if self.database.try_exists()? {
            return Ok(false);
        }
        for suffix in ["-wal", "-shm"] {
            let mut path = self.database.clone().into_os_string();
            path.push(suffix);
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.database)?;
        Ok(true)
    }

    pub(super) fn create_clients_directory(&self) -> io::Result<()> {
        private_directory(&self.clients)?;
        self.chown_to_store_owner(&self.clients);
        Ok(())
    }

    /// Changes the owner of a client's file to that of the store.
    ///
    /// Root may use the store of any user, who must be able to check whether root's client is alive.
    pub(super) fn chown_to_store_owner(&self, path: &Path) {
        let wanted = fs::metadata(&self.database).map(|found| (found.uid(), found.gid()));
        let current = fs::metadata(path).map(|found| (found.uid(), found.gid()));
        if let (Ok((user, group)), Ok(current)) = (wanted, current)
            && current != (user, group)
        {
            // Fails for users other than root, who do not need it.
            let _ = chown(path, Some(user), Some(group));
        }
    }

    /// Checks that the existing file is a store, or empty, so that it can become one.
    ///
    /// Reads it through a connection that takes no locks and creates no files. It has to be a connection of
    /// `SQLite`: to open and close the file in any other way would end the locks that other connections of
    /// this process have.
    fn recognize(&self) -> Result<(), FileError> {
        let found = fs::metadata(&self.database).map_err(FileError::at(&self.database))?;
        if !found.is_file() {
            return Err(FileError::foreign(self, "a directory or a device"));
        }
        if found.len() == 0 {
            return Ok(());
        }
        match read_application_id(&self.database) {
            Ok(id) if id == i64::from(APPLICATION_ID) => Ok(()),
            Ok(_) => Err(FileError::foreign(self, "a database of another program")),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                Err(FileError::foreign(self, "a file of another kind"))
            }
            // The file looks like this during a checkpoint, too, or if a process died in one: the rest is in
            // the WAL, which only a connection with locks reads.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Display for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.database.display().fmt(f)
    }
}

fn state_directory() -> Option<PathBuf> {
    let xdg = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    xdg.or_else(|| Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(".local/state")))
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The `SQLite` application id of a store, which is in the header of the file.
pub(super) const APPLICATION_ID: u32 = u32::from_be_bytes(*b"turn");

/// Reads the application id of a file. Neither changes the file nor creates others beside it.
fn read_application_id(path: &Path) -> rusqlite::Result<i64> {
    // `immutable` can only be given in a URL, in which these characters need an escape.
    const SPECIAL: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');
    let path = percent_encode(path.as_os_str().as_bytes(), SPECIAL);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file://{path}?immutable=1"), flags)?;
    connection.pragma_query_value(None, "application_id", |row| row.get(0))
}

fn bad_url(reason: impl Into<String>) -> SettingError {
    SettingError::new("url", reason)
}
