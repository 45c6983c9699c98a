use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;
use turnlock_core::LockName;
use turnlock_core::model::OfAnotherKind;

use super::place::Place;
use crate::backend::{Failure, FailureKind, Sent};
use crate::error::Error;

/// Why a step on a file was not done.
#[derive(Debug)]
pub(super) struct Trouble {
    cause: Cause,
    /// Whether it may have been done all the same, or may still be.
    in_doubt: bool,
}

#[derive(Debug)]
enum Cause {
    Unavailable(io::Error),
    /// Other processes are at it.
    Busy,
    Denied(io::Error),
    Corrupt {
        key: String,
        found: String,
    },
    Misplaced(String),
}

impl Trouble {
    fn surely(cause: Cause) -> Self {
        Self { cause, in_doubt: false }
    }

    /// The same trouble, of a step that may have been done.
    pub(super) fn of_commit(error: rusqlite::Error) -> Self {
        Self { in_doubt: true, ..Self::from(error) }
    }

    pub(super) fn of_io(error: &io::Error) -> Self {
        let copy = io::Error::new(error.kind(), error.to_string());
        Self::surely(match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Cause::Denied(copy),
            _ => Cause::Unavailable(copy),
        })
    }

    pub(super) fn of_path(path: &Path, error: &io::Error) -> Self {
        Self::of_io(&io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// The place cannot have a store.
    pub(super) fn misplaced(reason: String) -> Self {
        Self::surely(Cause::Misplaced(reason))
    }

    /// The file is not ours.
    pub(super) fn foreign(place: &Place, found: &str) -> Self {
        Self::surely(Cause::Corrupt { key: place.to_string(), found: found.to_owned() })
    }

    pub(super) fn of_another_kind(name: &LockName, OfAnotherKind(found): OfAnotherKind) -> Self {
        Self::surely(Cause::Corrupt { key: name.key().to_owned(), found: found.to_owned() })
    }

    pub(super) fn unreadable(key: &str, error: &serde_json::Error) -> Self {
        let found = format!("something that cannot be read ({error})");
        Self::surely(Cause::Corrupt { key: key.to_owned(), found })
    }

    /// No answer came in time.
    pub(super) fn silence(limit: Duration) -> Self {
        let text = format!("the file did not answer within {limit:?}");
        Self { cause: Cause::Unavailable(io::Error::new(io::ErrorKind::TimedOut, text)), in_doubt: true }
    }

    pub(super) fn into_failure(self, sent: Sent) -> Failure {
        let kind = match self.cause {
            Cause::Unavailable(error) => FailureKind::Unavailable(Arc::new(error)),
            Cause::Busy => FailureKind::Unavailable(Arc::new(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "the file is busy: other processes kept it for too long, or one of them is paused",
            ))),
            Cause::Denied(error) => FailureKind::Denied(Arc::new(error)),
            Cause::Corrupt { key, found } => FailureKind::Corrupt { key, found },
            Cause::Misplaced(reason) => FailureKind::Unsupported(reason),
        };
        Failure { kind, in_doubt: self.in_doubt.then_some(sent), stands: false }
    }

    /// The same as an error of the public interface; `what` was being opened.
    pub(super) fn into_error(self, what: &str) -> Error {
        match self.cause {
            Cause::Misplaced(reason) => Error::bad_setting("url", reason),
            _ => self.into_failure(Sent::never()).into_error(|| what.to_owned()),
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.cause, Cause::Busy)
    }

    /// Whether it is the trouble of one name, and not of the store.
    pub(super) fn is_of_one_name(&self, name: &LockName) -> bool {
        matches!(&self.cause, Cause::Corrupt { key, .. } if key == name.key())
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        Self::surely(match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Cause::Busy,
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Cause::Corrupt {
                key: "the whole store".to_owned(),
                found: format!("a damaged database ({text})"),
            },
            Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                Cause::Denied(io::Error::new(io::ErrorKind::PermissionDenied, text))
            }
            _ => Cause::Unavailable(io::Error::other(text)),
        })
    }
}
