use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;
use turnlock_store::{Failure, FailureKind, OpenError, Sent, SettingError};

use super::access_problem;
use super::store_path::StorePath;

/// Why a step on the file failed, before it is known to whom it is reported.
#[derive(Debug)]
pub(super) enum FileError {
    /// An error of the operating system. Its text names the path where that is known.
    Io(io::Error),
    Sqlite(rusqlite::Error),
    /// The error of a commit, whose transaction may have taken effect.
    Commit(rusqlite::Error),
    /// The step did not complete in time. It completes later.
    TimedOut(Duration),
    /// A failure that is already one of the store, such as that of one row.
    Failed(FailureKind),
    /// The path cannot have a store.
    BadPath(String),
    /// A file of the store could do harm, or this process must not use it.
    Denied(String),
    /// Another process is creating the store.
    Busy,
}

impl FileError {
    /// Converts an error of the operating system with this file.
    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |error| Self::Io(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// The file is not a store.
    pub(super) fn foreign(store_path: &dyn fmt::Display, found: &str) -> Self {
        let (key, found) = (store_path.to_string(), found.to_owned());
        Self::Failed(FailureKind::NotALock { key, found })
    }

    pub(super) fn unreadable(key: &str, error: &dyn fmt::Display) -> Self {
        let (key, found) = (key.to_owned(), format!("unreadable data ({error})"));
        Self::Failed(FailureKind::NotALock { key, found })
    }

    /// Converts an error of opening the file, in which `SQLITE_ERROR` is a schema or a format that this version of
    /// `SQLite` cannot use.
    pub(super) fn of_opening(self, store_path: &dyn fmt::Display) -> Self {
        match self {
            // `Unknown` is the code for `SQLITE_ERROR`.
            Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
                Self::Failed(damaged(&error, store_path))
            }
            _ => self,
        }
    }

    pub(super) fn into_failure(self, store_path: &StorePath, sent: Sent) -> Failure {
        let in_doubt = matches!(self, Self::Commit(_) | Self::TimedOut(_)).then_some(sent);
        let kind = match self {
            Self::Io(error) => of_io(error, store_path),
            Self::Sqlite(error) | Self::Commit(error) => of_sqlite(&error, store_path),
            Self::TimedOut(limit) => {
                let text = format!("{store_path} was not read or written within {limit:?}");
                FailureKind::Unavailable(Arc::new(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
            Self::Failed(kind) => kind,
            Self::BadPath(reason) => FailureKind::Unsupported(reason),
            Self::Denied(reason) => {
                FailureKind::Denied(Arc::new(io::Error::new(io::ErrorKind::PermissionDenied, reason)))
            }
            Self::Busy => busy(store_path),
        };
        Failure { kind, in_doubt, took_effect: false }
    }

    /// Converts this to the error of a store that was being opened.
    pub(super) fn into_open_error(self, store_path: &StorePath) -> OpenError {
        match self {
            Self::BadPath(reason) => SettingError::new("url", reason).into(),
            _ => self.into_failure(store_path, Sent::never()).into(),
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Busy => true,
            Self::Sqlite(error) | Self::Commit(error) => is_busy(error),
            _ => false,
        }
    }
}

/// Returns `true` if other processes kept the file locked until the time-out.
fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn of_io(error: io::Error, store_path: &StorePath) -> FailureKind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => access_problem::full_disk(store_path),
        kind => access_problem::find(store_path).unwrap_or_else(|| match kind {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                FailureKind::Denied(Arc::new(error))
            }
            _ => FailureKind::Unavailable(Arc::new(error)),
        }),
    }
}

fn of_sqlite(error: &rusqlite::Error, store_path: &StorePath) -> FailureKind {
    let unknown = || {
        let text = format!("{store_path}: {error}");
        FailureKind::Unavailable(Arc::new(io::Error::other(text)))
    };
    match error.sqlite_error_code() {
        _ if is_busy(error) => busy(store_path),
        code if is_damage(code, error) => damaged(error, store_path),
        Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
            access_problem::find(store_path).unwrap_or_else(|| {
                let text = format!(
                    "no access to {store_path} ({error}): check the permissions of the file and of its directory"
                );
                FailureKind::Denied(Arc::new(io::Error::new(io::ErrorKind::PermissionDenied, text)))
            })
        }
        Some(ErrorCode::DiskFull) => access_problem::full_disk(store_path),
        Some(ErrorCode::SystemIoFailure) => access_problem::find(store_path).unwrap_or_else(unknown),
        _ => unknown(),
    }
}

fn busy(store_path: &StorePath) -> FailureKind {
    let text = format!(
        "{store_path} is in use: another process kept it locked for too long, or is stopped; retry, or end that process"
    );
    FailureKind::Unavailable(Arc::new(io::Error::new(io::ErrorKind::ResourceBusy, text)))
}

fn damaged(error: &rusqlite::Error, store_path: &dyn fmt::Display) -> FailureKind {
    FailureKind::NotALock { key: store_path.to_string(), found: format!("a damaged store file ({error})") }
}

/// Returns `true` if the file has something else than a store has there.
fn is_damage(code: Option<ErrorCode>, error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{
        FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, SqlInputError, Utf8Error,
    };
    matches!(code, Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
        || matches!(
            error,
            FromSqlConversionFailure(..)
                | IntegralValueOutOfRange(..)
                | InvalidColumnType(..)
                // The tables or columns are not those of a store.
                | SqlInputError { .. }
                | Utf8Error(..)
        )
}

impl From<Failure> for FileError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.kind)
    }
}

impl From<rusqlite::Error> for FileError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
