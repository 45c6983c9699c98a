use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{LeaseError, NameError};

/// The cause behind an error, as the store reported it.
pub type Cause = Arc<dyn std::error::Error + Send + Sync + 'static>;

/// What went wrong, by what the caller can do about it.
///
/// A lock that somebody else holds is not an error: `try_lock` and `try_lock_for` answer `Ok(None)` then.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock was held and is not any more. Work done since may have run beside another holder's: check it, or use
    /// its own protection, before going on.
    #[error("lock {name:?} is lost: {reason}")]
    Lost {
        /// The lock.
        name: String,
        /// How it was lost.
        reason: LostReason,
    },
    /// The lock was never held by the one who gives it back. A fault in the calling code.
    #[error("lock {name:?} is not held by {owner}: there is nothing to unlock")]
    NotHeld {
        /// The lock.
        name: String,
        /// Who tried to unlock.
        owner: String,
    },
    /// The owner would wait for itself: it reads and asks to write, or asks again for a lock that cannot be held twice.
    /// Give back first what it has.
    #[error("{name:?} would wait for its own owner: {reason}")]
    WouldDeadlock {
        /// The lock.
        name: String,
        /// What the owner has that stands in the way.
        reason: &'static str,
    },
    /// The store did not confirm a release, or that a lock is [kept](crate::Guard::keep_for). The lock is free at the latest
    /// when its lease ends, or the time that it was to be kept; until then the client goes on trying in the background. Permits without a lease may stay out for good when the store does not answer for 50
    /// minutes.
    #[error(
        "the end of lock {name:?} was not confirmed; that goes on in the background until the lease ends"
    )]
    InDoubt {
        /// The lock.
        name: String,
        /// The last failure, where there was one.
        source: Option<Cause>,
    },
    /// The store cannot be reached, or cannot serve just now. Trying again later may help.
    #[error("the store cannot serve {what} now: {source}")]
    Unavailable {
        /// What was being done, with the lock's name where there is one.
        what: String,
        /// The last failure.
        source: Cause,
    },
    /// Fewer replicas than asked for have acknowledged the lock in time, so it was given back. See to the replicas, or ask for
    /// [fewer](crate::Lock::acknowledged_by). Trying again later may help.
    #[error(
        "{name:?} was acknowledged by {reached} of {wanted} replicas, so it was given back: see to the replicas, or ask \
         for fewer"
    )]
    NotEnoughReplicas {
        /// The lock.
        name: String,
        /// How many were to acknowledge it.
        wanted: u32,
        /// How many did, at the last try.
        reached: u32,
    },
    /// The store refuses: wrong password, or the user lacks a permission.
    #[error("the store denies {what}: {source}")]
    Denied {
        /// What was being done.
        what: String,
        /// The store's words.
        source: Cause,
    },
    /// The key of the lock holds something that is not a lock. It was left as it is: remove it, or use another name.
    #[error(
        "the key {key:?} holds no lock but {found}; it was left as it is: use another name, or remove the key"
    )]
    Corrupt {
        /// The key.
        key: String,
        /// What was found there.
        found: String,
    },
    /// The name cannot be the name of a lock.
    #[error(transparent)]
    BadName(#[from] NameError),
    /// The lease cannot be used.
    #[error(transparent)]
    BadLease(#[from] LeaseError),
    /// A setting is wrong, or contradicts another.
    #[error("bad setting `{setting}`: {reason}")]
    BadConfiguration {
        /// The setting.
        setting: &'static str,
        /// Why it cannot be, and what can.
        reason: String,
    },
    /// The store, or this version of turnlock, cannot do this.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The client is shutting down and takes no new locks.
    #[error("the client is shutting down")]
    ShuttingDown,
    /// The wait was ended from another thread. Only in [`blocking`](crate::blocking).
    #[error("the wait for lock {name:?} was interrupted")]
    Interrupted {
        /// The lock.
        name: String,
    },
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// Its fixed lease ended.
    #[error("its lease ended")]
    Expired,
    /// The lease ended before the store confirmed a renewal. The store did not reply, replied with errors, or this process
    /// did not run.
    #[error("no renewal was confirmed by the store for {:.1} s", unconfirmed_for.as_secs_f64())]
    NotRenewed {
        /// The time since the last request that the store confirmed was sent.
        unconfirmed_for: Duration,
    },
    /// The store replied that this owner does not hold the lock, on a connection on which it had confirmed the hold. The lock
    /// was unlocked by force, its key was removed, or it expired early by the clock of the store.
    #[error("taken away by force, or its key was removed or expired on the store")]
    Taken,
    /// The store replied that this owner does not hold the lock, in the first reply after a reconnect, a fail-over, or a change
    /// of the store's file. The store restarted without its data or a replica without the lock was promoted; a forced unlock
    /// during the interruption looks the same.
    #[error("the store lost its data, or the lock was taken away while the connection was down")]
    GoneAfterReconnect,
}

impl LostReason {
    /// Whether the lease ended by the local clock. The store may still have the hold.
    pub(crate) fn is_local_end(self) -> bool {
        matches!(self, Self::Expired | Self::NotRenewed { .. })
    }
}

impl Error {
    /// Whether trying again later may help.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::NotEnoughReplicas { .. })
    }

    pub(crate) fn bad_setting(setting: &'static str, reason: impl Into<String>) -> Self {
        Self::BadConfiguration { setting, reason: reason.into() }
    }
}
