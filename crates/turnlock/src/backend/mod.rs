//! The stores behind the engine.
//!
//! A [`Backend`] executes atomic steps: one call is one step of a model in `turnlock_core::model`. It knows
//! nothing of guards, local queues or retries, which are the engine's. There are three: `redis`, `file` and
//! `memory`.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use turnlock_core::model::{
    AcquireOptions, Acquired, Claim, CounterOp, QueuePosition, Released, Renewed, Snapshot,
};
use turnlock_core::{ClientId, Doubt, Kind, Lease, LockName, Moment, OwnerId};

use crate::clock;
use crate::doctor::ServerProbe;
use crate::error::{Cause, Error};
pub(crate) use search::{FoundKeys, Search};

mod embedded;
#[cfg(all(feature = "file", unix))]
pub(crate) mod file;
pub(crate) mod memory;
pub(crate) mod redis;
mod search;

/// A step under way. It does nothing until it is polled, and must be polled to completion after that.
pub(crate) type Step<T> = Pin<Box<dyn Future<Output = Result<StepReply<T>, Failure>> + Send>>;

/// A request for the probes of the servers behind a store.
pub(crate) type ServerProbes<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Arc<dyn ServerProbe>>, Failure>> + Send + 'a>>;

/// The reply of the store to a step.
#[derive(Debug)]
pub(crate) struct StepReply<T> {
    pub(crate) value: T,
    pub(crate) sent: Sent,
    /// How many replicas acknowledged the step, if that was requested.
    pub(crate) replicas: u32,
    /// How many clients were notified, this one included if it subscribes. `None` if unknown.
    pub(crate) notified: Option<u32>,
}

impl<T> StepReply<T> {
    /// A reply without replicas and notifications.
    pub(crate) fn new(value: T, sent: Sent) -> Self {
        Self { value, sent, replicas: 0, notified: None }
    }
}

/// The options of a step that grants or renews.
#[derive(Clone, Debug)]
pub(crate) struct StepOptions {
    /// The response time-out. With replicas, also the longest time until the step is sent.
    pub(crate) limit: Duration,
    /// How many replicas must acknowledge the grant or renewal for it to count.
    pub(crate) replicas: u32,
    /// The future that requested the step.
    pub(crate) caller: Caller,
}

impl StepOptions {
    /// For a step requested by the engine itself.
    pub(crate) fn of_engine(limit: Duration, replicas: u32) -> Self {
        Self { limit, replicas, caller: Caller::ENGINE }
    }
}

/// The future that requested a step.
///
/// A step that was sent completes without it. A step that still waits to join a batch or a `WAIT` is not sent
/// after the caller was dropped.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Option<Weak<()>>);

impl Caller {
    /// The engine itself, which is never dropped.
    pub(crate) const ENGINE: Self = Self(None);

    /// The owner of `alive`, until it is dropped.
    pub(crate) fn with(alive: &Arc<()>) -> Self {
        Self(Some(Arc::downgrade(alive)))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|alive| alive.strong_count() == 0)
    }
}

/// When a request was sent, and on which connection. Order is preserved on one connection only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) connection: u64,
    /// A moment before the send.
    pub(crate) at: Moment,
}

impl Sent {
    /// For a reply without a request, since there was nothing to send.
    pub(crate) fn never() -> Self {
        Self { connection: 0, at: clock::now() }
    }

    /// Returns `doubt` unless a reply to this request settles it.
    pub(crate) fn unsettled(self, doubt: Option<Doubt>) -> Option<Doubt> {
        doubt.filter(|doubt| !doubt.is_settled_by(self.connection, self.at))
    }
}

/// The failure of a step.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// Set if the step was sent without a reply, so that it may have taken effect, or still may.
    /// `None` if it certainly has no effect.
    pub(crate) in_doubt: Option<Sent>,
    /// `true` if the step got a reply and took effect on the store, but too few replicas acknowledged it.
    pub(crate) took_effect: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum FailureKind {
    /// The store cannot be reached or cannot serve. A retry may help.
    Unavailable(Cause),
    Denied(Cause),
    /// The key holds something else than a lock.
    NotALock {
        key: String,
        found: String,
    },
    /// The key holds another kind of lock.
    WrongKind {
        name: String,
        expected: Kind,
        found: Kind,
    },
    /// The store cannot do this. A retry cannot help.
    Unsupported(String),
    /// Too few replicas acknowledged the step.
    NotEnoughReplicas {
        name: String,
        wanted: u32,
        reached: u32,
    },
}

impl Failure {
    /// A failure of a step that certainly had no effect.
    pub(crate) fn refused(kind: FailureKind) -> Self {
        Self { kind, in_doubt: None, took_effect: false }
    }

    /// A step on a key that holds another kind of lock.
    pub(crate) fn wrong_kind(name: &LockName, found: Kind) -> Self {
        let (name, expected) = (name.to_string(), name.kind());
        Self::refused(FailureKind::WrongKind { name, expected, found })
    }

    /// A failure of a step that took effect, but must not count.
    pub(crate) fn unacknowledged(kind: FailureKind, sent: Sent) -> Self {
        Self { kind, in_doubt: Some(sent), took_effect: true }
    }

    pub(crate) fn is_retryable(&self) -> bool {
        match self.kind {
            FailureKind::Unavailable(_) => true,
            // A store without replicas refuses the step, and always will.
            FailureKind::NotEnoughReplicas { .. } => self.took_effect,
            FailureKind::Denied(_)
            | FailureKind::NotALock { .. }
            | FailureKind::WrongKind { .. }
            | FailureKind::Unsupported(_) => false,
        }
    }

    /// Returns the doubt after this failure, combined with that of `earlier` requests of the same hold.
    ///
    /// `lasts` is how long the hold would last that was requested.
    pub(crate) fn merge_doubt(&self, earlier: Option<Doubt>, lasts: Duration) -> Option<Doubt> {
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
    pub(crate) fn into_cause(self) -> Option<Cause> {
        match self.kind {
            FailureKind::Unavailable(cause) | FailureKind::Denied(cause) => Some(cause),
            FailureKind::NotALock { .. }
            | FailureKind::WrongKind { .. }
            | FailureKind::Unsupported(_)
            | FailureKind::NotEnoughReplicas { .. } => None,
        }
    }

    /// Converts this to an error of the public interface. `what` describes the operation.
    pub(crate) fn into_error(self, what: impl FnOnce() -> String) -> Error {
        match self.kind {
            FailureKind::Unavailable(source) => Error::Unavailable { what: what(), source },
            FailureKind::Denied(source) => Error::Denied { what: what(), source },
            FailureKind::NotALock { key, found } => Error::NotALock { key, found },
            FailureKind::WrongKind { name, expected, found } => {
                let (expected, found) = (crate::Kind::from_core(expected), crate::Kind::from_core(found));
                Error::WrongKind { name, expected, found }
            }
            FailureKind::Unsupported(text) => Error::Unsupported(text),
            FailureKind::NotEnoughReplicas { name, wanted, reached } => {
                Error::NotEnoughReplicas { name, wanted, reached }
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            FailureKind::Unavailable(cause) | FailureKind::Denied(cause) => cause.fmt(f),
            FailureKind::NotALock { key, found } => write!(f, "{key:?} holds {found}"),
            FailureKind::WrongKind { name, found, .. } => {
                write!(f, "{name:?} is a {}", crate::Kind::from_core(*found).primitive())
            }
            FailureKind::Unsupported(text) => f.write_str(text),
            FailureKind::NotEnoughReplicas { wanted, reached, .. } => {
                write!(f, "acknowledged by {reached} of {wanted} replicas")
            }
        }
    }
}

/// One renewal of a batch. With a lease of `None`, it only checks that the owner holds the lock.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
    pub(crate) permits: u32,
    pub(crate) lease: Option<Lease>,
}

impl Renewal {
    pub(crate) fn claim(&self) -> Claim<'_> {
        Claim { permits: self.permits, ..Claim::new(&self.name, &self.owner, 1) }
    }
}

/// One waiter of a fair lock, in a batch of heartbeats.
#[derive(Clone, Debug)]
pub(crate) struct FairWaiter {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
}

/// A store of locks.
///
/// Each method is one atomic step of the model, and waits at most `limit` for the reply. The kind of the name
/// selects the model.
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    /// Acquires the lock, or raises the count of a hold to the target.
    ///
    /// A grant that too few replicas acknowledge is a failure that [took effect](Failure::took_effect).
    fn acquire(&self, claim: Claim<'_>, options: AcquireOptions, step_options: StepOptions)
    -> Step<Acquired>;

    /// Lowers the count of a hold to the target. Zero ends it, and removes the owner as a waiter.
    fn release(&self, claim: Claim<'_>, limit: Duration) -> Step<Released>;

    /// Renews several holds, whose kinds are of one [renewal group](Kind::renewal_group).
    ///
    /// Returns one outcome per line, in order. The outcome is `None` if the store failed with that line only,
    /// or if too few replicas acknowledged a renewal.
    fn renew(&self, lines: &[Renewal], step_options: StepOptions) -> Step<Vec<Option<Renewed>>>;

    /// Sets the lease of a hold to exactly `lease`, which may shorten it. The hold outlasts its client.
    ///
    /// If too few replicas acknowledge that, it is a failure that [took effect](Failure::took_effect).
    fn unlock_after(&self, claim: Claim<'_>, lease: Lease, step_options: StepOptions) -> Step<Renewed>;

    /// As `unlock_after`, for a hold that its client goes on using: it may end with the client.
    fn set_lease(&self, claim: Claim<'_>, lease: Lease, step_options: StepOptions) -> Step<Renewed> {
        self.unlock_after(claim, lease, step_options)
    }

    /// Sends heartbeats of waiters of fair locks, and returns their positions. Outcomes as for `renew`.
    fn heartbeat(&self, waiters: &[FairWaiter], limit: Duration) -> Step<Vec<Option<QueuePosition>>>;

    fn force_unlock(&self, name: &LockName, limit: Duration) -> Step<bool>;

    /// Performs an operation on a counter, once for each `request`.
    fn perform(&self, name: &LockName, op: CounterOp, request: &OwnerId, limit: Duration) -> Step<i64>;

    /// Forgets the outcome of a request on a counter. No copy of it may be under way, nor be sent later.
    fn forget(&self, name: &LockName, request: &OwnerId, limit: Duration) -> Step<()>;

    fn inspect(&self, name: &LockName, limit: Duration) -> Step<Snapshot>;

    /// Finds held locks by name. Counters are not found.
    ///
    /// The search is bounded, and waits at most `limit` for each reply.
    fn find(&self, search: Search, limit: Duration) -> Step<FoundKeys>;

    /// Returns the kind found at the key of this name, whatever the kind in the name. `None` if it is not a
    /// lock.
    fn kind_of(&self, name: &LockName, limit: Duration) -> Step<Option<Kind>>;

    /// Stores the record of a client, which expires after `lasts`. No lock depends on it.
    fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        lasts: Duration,
        limit: Duration,
    ) -> Step<()>;

    /// Returns the records of these clients, in order. `None` for a client without a record.
    fn client_records(&self, clients: &[ClientId], limit: Duration) -> Step<Vec<Option<String>>>;

    /// Subscribes to releases of `name`.
    ///
    /// Ready when later releases reach [`Signals::freed`]. Gives up silently after a while, since waiters
    /// also poll.
    fn subscribe(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Ends the subscription to `name`. The backend may keep it for a moment.
    fn unsubscribe(&self, name: &LockName);

    /// Returns probes of the servers that store locks, for the doctor. Empty if there are no servers.
    fn server_probes(&self) -> ServerProbes<'_>;

    /// Describes the store to users if it has no servers.
    fn about(&self) -> String;

    /// Sets the receiver of signals. Called once, before any step.
    fn attach(&self, signals: Weak<dyn Signals>);
}

/// The events that a backend reports. Each is a hint to check again, never a grant.
pub(crate) trait Signals: Send + Sync {
    /// A release of `name` was published.
    fn freed(&self, name: &LockName);

    /// A connection broke or was re-established: holds should be confirmed.
    fn connection_changed(&self);

    /// As `connection_changed`, and the new server may lack writes that the old one confirmed.
    fn server_changed(&self);
}
