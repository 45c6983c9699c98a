//! Finds, checks and creates the files of a store.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::access_problem;
use super::file_error::FileError;
use super::file_system;
use super::store_directory::StoreDirectory;
use super::store_path::{APPLICATION_ID, StorePath};

/// Creates what is missing, for this user or the group of the directory. Rejects a file that is not a store, and
/// leaves it unchanged.
///
/// Must be called by one thread at a time: it closes the file that it created, and by POSIX rules that
/// would end the locks of a connection that another thread has opened in between.
pub(super) fn prepare(store_path: &StorePath) -> Result<(), FileError> {
    let path = store_path.directory();
    if store_path.is_default {
        private_directory(path).map_err(FileError::at(path))?;
    } else if let Some(reason) = access_problem::of_missing_directory(path) {
        return Err(FileError::BadPath(reason));
    }
    let directory = StoreDirectory::open(store_path).map_err(FileError::at(path))?;
    if !store_path.any_file_system {
        // A symbolic link or a mount may be on another file system than its directory.
        let others = [&*store_path.database, &*store_path.clients].into_iter().filter(|path| path.exists());
        std::iter::once(path).chain(others).try_for_each(file_system::check)?;
    }
    directory.check()?;
    let exists = store_path.database.try_exists().map_err(FileError::at(&store_path.database))?;
    if exists {
        recognize(store_path)?;
    }
    directory.create_clients().map_err(FileError::at(&store_path.clients))?;
    if !exists && !directory.create_database()? {
        recognize(store_path)?;
    }
    Ok(())
}

/// Checks that the existing file is a store, or empty, so that it can become one.
///
/// Reads it through a connection that takes no locks and creates no files. It has to be a connection of
/// `SQLite`: to open and close the file in any other way would end the locks that other connections of
/// this process have.
fn recognize(store_path: &StorePath) -> Result<(), FileError> {
    let found = fs::metadata(&store_path.database).map_err(FileError::at(&store_path.database))?;
    if !found.is_file() {
        return Err(FileError::foreign(store_path, "a directory or a device"));
    }
    if found.len() == 0 {
        return Ok(());
    }
    match read_application_id(&store_path.database) {
        Ok(id) if id == i64::from(APPLICATION_ID) => Ok(()),
        Ok(_) => Err(FileError::foreign(store_path, "a database of another program")),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Err(FileError::foreign(store_path, "a file of another kind"))
        }
        // The file looks like this during a checkpoint, too, or if a process died in one: the rest is in
        // the WAL, which only a connection with locks reads.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

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

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
