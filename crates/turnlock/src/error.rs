use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{LeaseError, NameError};
use turnlock_store::{Failure, FailureKind, OpenError, SettingError};

use crate::kind::Kind;

/// The cause of an error, as the store or the connection reported it.
pub type Cause = Arc<dyn std::error::Error + Send + Sync + 'static>;

/// An error, by what the caller can do about it.
///
/// A busy lock is not an error: `try_lock` and `try_lock_for` return [`TryAcquire::Busy`](crate::TryAcquire::Busy).
///
/// `Display` prints no cause. Print the chain of [`source`](std::error::Error::source) too, for example with anyhow's
/// `{:#}`.
///
/// | error | what to do |
/// |---|---|
/// | [`Lost`](Error::Lost) | Stop the work, or check that it did not run twice. |
/// | [`Unavailable`](Error::Unavailable), [`NotEnoughReplicas`](Error::NotEnoughReplicas) | Retry later: [`is_retryable`](Error::is_retryable). |
/// | [`InDoubt`](Error::InDoubt) | Nothing: the client goes on until the lock is free. |
/// | [`Denied`](Error::Denied) | Fix the password, or grant the permission: see [`acl`](crate::acl). |
/// | [`NotALock`](Error::NotALock), [`WrongKind`](Error::WrongKind) | Choose another name. |
/// | [`ShuttingDown`](Error::ShuttingDown), [`Interrupted`](Error::Interrupted) | Expected at the end of a program or a wait. |
/// | all others | A bug in the calling code, or a wrong setting. |
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock was held and is no longer held.
    ///
    /// Another owner may have held it since. Check the work done since then before it has effects.
    #[error("lock {name:?} was lost: {reason}")]
    Lost {
        /// The name of the lock.
        name: String,
        /// Why it was lost.
        reason: LostReason,
    },
    /// The caller does not hold the lock that it releases: a bug in the calling code.
    #[error("lock {name:?} is not held by {owner}; nothing was released")]
    NotHeld {
        /// The name of the lock.
        name: String,
        /// The owner that tried to release it.
        owner: String,
    },
    /// The wait would not end.
    ///
    /// The owner would wait for itself: it reads and requests the write lock, or requests again a lock that is not
    /// reentrant. Release the first hold first. Calls that do not wait are busy instead.
    ///
    /// Or several tasks wait for each other, and the client [fails on deadlocks](crate::Builder::fail_on_deadlock).
    /// Release what the task holds, and start again.
    #[error("waiting for {name:?} would be a deadlock: {reason}")]
    WouldDeadlock {
        /// The name of the lock.
        name: String,
        /// The hold of the owner that is in the way, or who waits for whom.
        reason: String,
    },
    /// The store did not confirm a release.
    ///
    /// The client retries in the background until the lease ends; then the lock is free. Permits of a
    /// [`Semaphore`](crate::Semaphore) have no lease: they can stay taken if the store does not reply for 50 minutes.
    #[error("the release of lock {name:?} is not confirmed; the client retries until the lease ends")]
    InDoubt {
        /// The name of the lock.
        name: String,
        /// The last failure, if there was one.
        source: Option<Cause>,
    },
    /// The store cannot be reached, or cannot serve the request now. Retry later.
    #[error("the store is not available for {what}")]
    Unavailable {
        /// The operation, with the name of the lock if there is one.
        what: String,
        /// The last failure.
        source: Cause,
    },
    /// Too few replicas acknowledged the grant in time, so it was released. Retry later.
    #[error(
        "{reached} of {wanted} replicas acknowledged {name:?}, so it was released; check the replicas, or require fewer"
    )]
    NotEnoughReplicas {
        /// The name of the lock.
        name: String,
        /// How many replicas were required: [`Lock::with_replicas`](crate::Lock::with_replicas).
        wanted: u32,
        /// How many acknowledged the last attempt.
        reached: u32,
    },
    /// The store refuses the user: wrong password, or a missing permission.
    #[error("the store denies {what}")]
    Denied {
        /// The operation.
        what: String,
        /// The error of the store.
        source: Cause,
    },
    /// The key holds a value that is not a lock. Nothing was changed.
    #[error("{key:?} is not a lock, it holds {found}; use another name")]
    NotALock {
        /// The key, or the path of a file.
        key: String,
        /// What was found there.
        found: String,
    },
    /// The name is in use as another kind of primitive. Nothing was changed.
    #[error("{name:?} is in use as a {}; a {expected} was requested", found.to_core().primitive())]
    WrongKind {
        /// The name.
        name: String,
        /// The requested kind.
        expected: Kind,
        /// The kind that was found.
        found: Kind,
    },
    /// The name cannot be the name of a lock.
    #[error(transparent)]
    BadName(#[from] NameError),
    /// The lease cannot be used.
    #[error(transparent)]
    BadLease(#[from] LeaseError),
    /// An argument of a call cannot be used.
    #[error("invalid {argument}: {reason}")]
    BadArgument {
        /// The argument.
        argument: &'static str,
        /// Why it cannot be used, and what can.
        reason: String,
    },
    /// A setting of the client is wrong, or contradicts another setting.
    #[error("invalid setting `{setting}`: {reason}")]
    BadConfiguration {
        /// The setting: a method of [`Builder`](crate::Builder) or one of its arguments, a parameter of the URL, or `url`.
        setting: &'static str,
        /// Why it cannot be used, and what can.
        reason: String,
    },
    /// The store, or this kind of lock, does not support the operation.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The client is shutting down and acquires no locks.
    #[error("the client is shutting down")]
    ShuttingDown,
    /// Another thread interrupted the wait. Only in [`blocking`](crate::blocking).
    #[error("the wait for lock {name:?} was interrupted")]
    Interrupted {
        /// The name of the lock.
        name: String,
    },
}

impl Error {
    /// Returns `true` if the same call can succeed later: the store was not available.
    ///
    /// The client has retried already, for the wait of the caller or [`retry_for`](crate::Builder::retry_for). On a store
    /// without replicas, [`NotEnoughReplicas`](Error::NotEnoughReplicas) is permanent.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::NotEnoughReplicas { .. })
    }

    /// The error with its causes in one line, for log lines.
    pub(crate) fn with_causes(&self) -> String {
        turnlock_core::error_chain(self)
    }

    pub(crate) fn bad_setting(setting: &'static str, reason: impl Into<String>) -> Self {
        Self::BadConfiguration { setting, reason: reason.into() }
    }

    pub(crate) fn bad_argument(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::BadArgument { argument, reason: reason.into() }
    }
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The fixed lease ended.
    #[error("its lease ended")]
    Expired,
    /// The lease ended before the store confirmed a renewal.
    ///
    /// The store did not reply, replied with errors, or this process was paused.
    #[error("the store confirmed no renewal for {:.1} s", unconfirmed_for.as_secs_f64())]
    NotRenewed {
        /// The time since the last confirmed request was sent.
        unconfirmed_for: Duration,
    },
    /// The store no longer has the hold, on a connection that had confirmed it.
    ///
    /// The lock was released by force, its key was deleted, or it expired early by the clock of the store.
    #[error("released by force, or its key was deleted or expired on the store")]
    Taken,
    /// The store no longer has the hold, after a reconnect or a fail-over.
    ///
    /// The store restarted without its data, or a replica without the lock was promoted. A forced release during the
    /// interruption looks the same.
    #[error("the store lost its data, or the lock was released by force while the connection was down")]
    GoneAfterReconnect,
}

impl LostReason {
    /// A word for each reason, as the value of a label.
    #[cfg(feature = "metrics")]
    pub(crate) const LABELS: [&str; 4] = ["expired", "not_renewed", "taken", "gone_after_reconnect"];

    /// Its index in [`Self::LABELS`].
    #[cfg(feature = "metrics")]
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Expired => 0,
            Self::NotRenewed { .. } => 1,
            Self::Taken => 2,
            Self::GoneAfterReconnect => 3,
        }
    }

    /// The lease ended by the local clock. The store may still have the hold.
    pub(crate) fn is_local_end(self) -> bool {
        matches!(self, Self::Expired | Self::NotRenewed { .. })
    }
}

/// Converts a failure of a store to an error of the public interface.
pub(crate) trait IntoError {
    /// `what` describes the operation.
    fn into_error(self, what: impl FnOnce() -> String) -> Error;
}

impl IntoError for Failure {
    fn into_error(self, what: impl FnOnce() -> String) -> Error {
        match self.kind {
            FailureKind::Unavailable(source) => Error::Unavailable { what: what(), source },
            FailureKind::Denied(source) => Error::Denied { what: what(), source },
            FailureKind::NotALock { key, found } => Error::NotALock { key, found },
            FailureKind::WrongKind { name, expected, found } => {
                Error::WrongKind { name, expected: Kind::from_core(expected), found: Kind::from_core(found) }
            }
            FailureKind::Unsupported(text) => Error::Unsupported(text),
            FailureKind::NotEnoughReplicas { name, wanted, reached } => {
                Error::NotEnoughReplicas { name, wanted, reached }
            }
        }
    }
}

impl IntoError for OpenError {
    fn into_error(self, what: impl FnOnce() -> String) -> Error {
        match self {
            Self::BadSetting(error) => error.into(),
            Self::Failed(failure) => failure.into_error(what),
            Self::RuntimeGone => Error::ShuttingDown,
        }
    }
}

impl From<SettingError> for Error {
    fn from(SettingError { setting, reason }: SettingError) -> Self {
        Self::bad_setting(setting, reason)
    }
}
