use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;
use turnlock_core::model::WrongKind;
use turnlock_core::{Kind, LockName};

use super::store_path::StorePath;
use crate::backend::{Failure, FailureKind, Sent};
use crate::error::Error;

/// Why a step on the file failed.
#[derive(Debug)]
pub(super) struct FileError {
    cause: Cause,
    /// `true` if the step may have taken effect, or still may.
    in_doubt: bool,
}

#[derive(Debug)]
enum Cause {
    /// An error of the operating system. Its text names the path where that is known.
    Io(io::Error),
    /// Other processes kept the file locked until the time-out.
    Busy,
    TimedOut(Duration),
    /// `SQLite` has no permission to read or write the file.
    NoAccess(String),
    /// The file is damaged, as reported by `SQLite`.
    Damaged(String),
    /// Any other error of `SQLite`.
    Sqlite(String),
    /// The file, or the row of one name, is not what was expected.
    Corrupt {
        key: String,
        found: String,
    },
    /// The row of a name has another kind.
    WrongKind {
        name: LockName,
        found: Kind,
    },
    /// The path cannot have a store.
    BadPath(String),
}

impl FileError {
    fn without_effect(cause: Cause) -> Self {
        Self { cause, in_doubt: false }
    }

    /// The error of a commit, whose transaction may have taken effect.
    pub(super) fn from_commit(error: rusqlite::Error) -> Self {
        Self { in_doubt: true, ..Self::from(error) }
    }

    pub(super) fn from_io(error: &io::Error) -> Self {
        Self::without_effect(Cause::Io(io::Error::new(error.kind(), error.to_string())))
    }

    pub(super) fn from_path(path: &Path, error: &io::Error) -> Self {
        Self::from_io(&io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// The path cannot have a store.
    pub(super) fn bad_path(reason: String) -> Self {
        Self::without_effect(Cause::BadPath(reason))
    }

    /// The file is not a store.
    pub(super) fn foreign(store_path: &StorePath, found: &str) -> Self {
        Self::without_effect(Cause::Corrupt { key: store_path.to_string(), found: found.to_owned() })
    }

    pub(super) fn wrong_kind(name: &LockName, WrongKind(found): WrongKind) -> Self {
        Self::without_effect(Cause::WrongKind { name: name.clone(), found })
    }

    pub(super) fn unreadable(key: &str, error: &serde_json::Error) -> Self {
        let found = format!("unreadable data ({error})");
        Self::without_effect(Cause::Corrupt { key: key.to_owned(), found })
    }

    /// The step did not complete in time. It completes later.
    pub(super) fn timed_out(limit: Duration) -> Self {
        Self { cause: Cause::TimedOut(limit), in_doubt: true }
    }

    pub(super) fn into_failure(self, store_path: &StorePath, sent: Sent) -> Failure {
        let unavailable = |kind, text: String| FailureKind::Unavailable(Arc::new(io::Error::new(kind, text)));
        let denied = |error: io::Error| FailureKind::Denied(Arc::new(error));
        let kind = match self.cause {
            Cause::Io(error) => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => denied(error),
                _ => FailureKind::Unavailable(Arc::new(error)),
            },
            Cause::Busy => unavailable(
                io::ErrorKind::ResourceBusy,
                format!(
                    "{store_path} is in use: another process kept it locked for too long, or is stopped; retry, or end \
                     that process"
                ),
            ),
            Cause::TimedOut(limit) => unavailable(
                io::ErrorKind::TimedOut,
                format!("{store_path} was not read or written within {limit:?}"),
            ),
            Cause::Sqlite(text) => unavailable(io::ErrorKind::Other, format!("{store_path}: {text}")),
            Cause::NoAccess(text) => denied(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "no access to {store_path} ({text}): check the permissions of the file and of its directory"
                ),
            )),
            Cause::Damaged(text) => FailureKind::NotALock {
                key: store_path.to_string(),
                found: format!("a damaged store file ({text})"),
            },
            Cause::Corrupt { key, found } => FailureKind::NotALock { key, found },
            Cause::WrongKind { name, found } => Failure::wrong_kind(&name, found).kind,
            Cause::BadPath(reason) => FailureKind::Unsupported(reason),
        };
        Failure { kind, in_doubt: self.in_doubt.then_some(sent), took_effect: false }
    }

    /// Converts this to an error of the public interface, for a store that was being opened.
    pub(super) fn into_error(self, store_path: &StorePath) -> Error {
        match self.cause {
            Cause::BadPath(reason) => Error::bad_setting("url", reason),
            _ => {
                self.into_failure(store_path, Sent::never()).into_error(|| format!("a store in {store_path}"))
            }
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.cause, Cause::Busy)
    }

    /// Returns `true` if the error is about one name only, not about the store.
    pub(super) fn concerns_only(&self, name: &LockName) -> bool {
        match &self.cause {
            Cause::Corrupt { key, .. } => key == name.key(),
            Cause::WrongKind { name: other, .. } => other.key() == name.key(),
            _ => false,
        }
    }
}

impl From<rusqlite::Error> for FileError {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        Self::without_effect(match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Cause::Busy,
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Cause::Damaged(text),
            Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                Cause::NoAccess(text)
            }
            _ => Cause::Sqlite(text),
        })
    }
}
