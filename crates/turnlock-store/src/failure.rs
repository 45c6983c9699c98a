use std::io;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{Doubt, Kind, LockName, Moment};

use crate::clock;
use crate::settings::SettingError;

/// The error of a store, as the source of a failure.
pub type Cause = Arc<dyn std::error::Error + Send + Sync + 'static>;

/// When a request was sent, and on which connection.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The number of the connection. Two requests share it only if they are executed in the order of their sending.
    pub connection: u64,
    /// A moment by the [clock](crate::clock) of the client, from which its lease counts.
    ///
    /// Not after the send. It is earlier if the store counts the lease from an earlier moment, as that of a session.
    pub at: Moment,
}

impl Sent {
    /// For a reply without a request, since there was nothing to send.
    pub fn never() -> Self {
        Self { connection: 0, at: clock::now() }
    }

    /// Returns `doubt` unless a reply to this request settles it.
    pub fn unsettled(self, doubt: Option<Doubt>) -> Option<Doubt> {
        doubt.filter(|doubt| !doubt.is_settled_by(self.connection, self.at))
    }
}

/// The failure of a step.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{kind}")]
pub struct Failure {
    /// Why it failed.
    pub kind: FailureKind,
    /// Set if the step was sent without a reply, so that it may have taken effect, or still may.
    /// `None` if it certainly has no effect.
    pub in_doubt: Option<Sent>,
    /// `true` if the step got a reply and took effect on the store, but too few replicas acknowledged it.
    pub took_effect: bool,
}

/// Why a step failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FailureKind {
    /// The store cannot be reached or cannot serve. A retry may help.
    #[error("{0}")]
    Unavailable(Cause),
    /// The client has no permission, or is not authenticated.
    #[error("{0}")]
    Denied(Cause),
    /// The key holds something else than a lock.
    #[error("{key:?} holds {found}")]
    NotALock {
        /// The key.
        key: String,
        /// What it holds.
        found: String,
    },
    /// The key holds another kind of lock.
    #[error("{name:?} is a {}", found.primitive())]
    WrongKind {
        /// The name.
        name: String,
        /// The kind that was requested.
        expected: Kind,
        /// The kind that it holds.
        found: Kind,
    },
    /// The store cannot do this. A retry cannot help.
    #[error("{0}")]
    Unsupported(String),
    /// Too few replicas acknowledged the step.
    #[error("acknowledged by {reached} of {wanted} replicas")]
    NotEnoughReplicas {
        /// The name.
        name: String,
        /// How many must acknowledge it.
        wanted: u32,
        /// How many did.
        reached: u32,
    },
}

impl Failure {
    /// A failure of a step that certainly had no effect.
    pub fn refused(kind: FailureKind) -> Self {
        Self { kind, in_doubt: None, took_effect: false }
    }

    /// A failure of a step that was certainly not executed, with a text.
    pub fn unavailable(text: impl Into<String>) -> Self {
        Self::refused(FailureKind::Unavailable(Arc::new(io::Error::other(text.into()))))
    }

    /// A step on a key that holds another kind of lock.
    pub fn wrong_kind(name: &LockName, found: Kind) -> Self {
        let (name, expected) = (name.to_string(), name.kind());
        Self::refused(FailureKind::WrongKind { name, expected, found })
    }

    /// A failure of a step that took effect, but must not count.
    pub fn unacknowledged(kind: FailureKind, sent: Sent) -> Self {
        Self { kind, in_doubt: Some(sent), took_effect: true }
    }

    /// Returns `true` if a retry may help.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            FailureKind::Unavailable(_) => true,
            // A store without replicas refuses the step, and always will.
            FailureKind::NotEnoughReplicas { .. } => self.took_effect,
            _ => false,
        }
    }

    /// Returns `true` if the failure is about this name only, not about the store.
    pub fn concerns_only(&self, name: &LockName) -> bool {
        match &self.kind {
            FailureKind::NotALock { key, .. } => key == name.key(),
            FailureKind::WrongKind { .. } => true,
            _ => false,
        }
    }

    /// Combines the doubt after this failure with that of `earlier` requests of the hold.
    ///
    /// `lasts` is how long the hold would last that was requested.
    pub fn merge_doubt(&self, earlier: Option<Doubt>, lasts: Duration) -> Option<Doubt> {
        let Some(sent) = self.in_doubt else { return earlier };
        if self.took_effect {
            let end = clock::now() + lasts;
            return Some(
                earlier.map_or_else(|| Doubt::of_existing_hold(end), |earlier| earlier.lasting_until(end)),
            );
        }
        let doubt = Doubt::new(sent.connection, sent.at, lasts);
        Some(earlier.map_or(doubt, |earlier| earlier.and(doubt)))
    }

    /// Returns the error of the store, if there is one.
    pub fn into_cause(self) -> Option<Cause> {
        match self.kind {
            FailureKind::Unavailable(cause) | FailureKind::Denied(cause) => Some(cause),
            _ => None,
        }
    }
}

/// Why a store could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting is wrong.
    #[error(transparent)]
    BadSetting(#[from] SettingError),
    /// The store failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The runtime of the client is gone.
    #[error("the runtime of the client is gone")]
    RuntimeGone,
}
