//! Where locks live. A backend does one atomic step a call and knows nothing of guards, queues or retries.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use turnlock_core::model::{Acquired, Claim, Deed, Place, Released, Renewed, Snapshot, Wish};
use turnlock_core::{ClientId, Doubt, Kind, Lease, LockName, Moment, OwnerId};

use crate::clock;
use crate::doctor::Examinee;
use crate::error::{Cause, Error};
pub(crate) use search::{Search, Sightings};

mod embedded;
#[cfg(all(feature = "file", unix))]
pub(crate) mod file;
pub(crate) mod memory;
pub(crate) mod redis;
mod search;

/// A step on its way. It does nothing until it is polled, and must be run to its end once it was.
pub(crate) type Step<T> = Pin<Box<dyn Future<Output = Result<Answer<T>, Failure>> + Send>>;

/// The servers behind a store, on their way.
pub(crate) type Examinees<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Arc<dyn Examinee>>, Failure>> + Send + 'a>>;

/// What the store answered.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) sent: Sent,
    /// How many replicas have acknowledged it, where that was asked for.
    pub(crate) replicas: u32,
    /// How many clients were told of it, this one included if it listens; where that is known.
    pub(crate) told: Option<u32>,
}

impl<T> Answer<T> {
    /// An answer of the store alone.
    pub(crate) fn new(value: T, sent: Sent) -> Self {
        Self { value, sent, replicas: 0, told: None }
    }
}

/// How careful a step is that grants or renews.
#[derive(Clone, Debug)]
pub(crate) struct Care {
    /// How long to wait for an answer. Where replicas are asked, also how long to wait until it can be sent.
    pub(crate) limit: Duration,
    /// How many replicas must have acknowledged what it granted or renewed, or else it does not count.
    pub(crate) replicas: u32,
    /// Who asked for it.
    pub(crate) caller: Caller,
}

impl Care {
    /// For a step that the engine itself asks for.
    pub(crate) fn of_engine(limit: Duration, replicas: u32) -> Self {
        Self { limit, replicas, caller: Caller::ENGINE }
    }
}

/// The future that asked for a step. The step is finished without it; but one that waits for its turn to share a call or a
/// `WAIT` is not sent any more when this is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Option<Weak<()>>);

impl Caller {
    /// The engine itself, which is never gone.
    pub(crate) const ENGINE: Self = Self(None);

    /// Whoever owns `presence`, until it is dropped.
    pub(crate) fn with(presence: &Arc<()>) -> Self {
        Self(Some(Arc::downgrade(presence)))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|presence| presence.strong_count() == 0)
    }
}

/// A request that left: on which connection, since order is kept on one connection only, and when, at the earliest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) connection: u64,
    pub(crate) at: Moment,
}

impl Sent {
    /// For a request that was not sent, since there was nothing to ask.
    pub(crate) fn never() -> Self {
        Self { connection: 0, at: clock::now() }
    }

    /// What of `doubt` is left when this request was answered.
    pub(crate) fn leaves_of(self, doubt: Option<Doubt>) -> Option<Doubt> {
        doubt.filter(|doubt| !doubt.is_settled_by(self.connection, self.at))
    }
}

/// A step that was not answered as it should be.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The step was sent and not answered: it may have been done, or may still be.
    /// `None` when it certainly was not and will not be.
    pub(crate) in_doubt: Option<Sent>,
    /// It was answered all the same, and what it began stands on the store: what is missing is that replicas have it.
    pub(crate) stands: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum FailureKind {
    /// Not now; later perhaps.
    Unavailable(Cause),
    Denied(Cause),
    Corrupt {
        key: String,
        found: String,
    },
    /// Never, on this store.
    Unsupported(String),
    /// Done, and acknowledged by too few replicas.
    NotEnoughReplicas {
        name: String,
        wanted: u32,
        reached: u32,
    },
}

impl Failure {
    /// A failure of a step that was certainly not done.
    pub(crate) fn refused(kind: FailureKind) -> Self {
        Self { kind, in_doubt: None, stands: false }
    }

    /// A failure of a step that was done, but is not to count.
    pub(crate) fn of_standing(kind: FailureKind, sent: Sent) -> Self {
        Self { kind, in_doubt: Some(sent), stands: true }
    }

    pub(crate) fn is_worth_a_retry(&self) -> bool {
        match self.kind {
            FailureKind::Unavailable(_) => true,
            // A store that has no replicas does not begin at all, and will not have any later.
            FailureKind::NotEnoughReplicas { .. } => self.stands,
            FailureKind::Denied(_) | FailureKind::Corrupt { .. } | FailureKind::Unsupported(_) => false,
        }
    }

    /// What is in doubt after this failure of a request for a hold that would last so long, when `earlier` ones of the same
    /// hold have left a doubt.
    pub(crate) fn adds_doubt_to(&self, earlier: Option<Doubt>, lasts: Duration) -> Option<Doubt> {
        let Some(sent) = self.in_doubt else { return earlier };
        if self.stands {
            let end = clock::now() + lasts;
            return Some(
                earlier.map_or_else(|| Doubt::of_standing_hold(end), |earlier| earlier.lasting_until(end)),
            );
        }
        let doubt = Doubt::new(sent.connection, sent.at, lasts);
        Some(earlier.map_or(doubt, |earlier| earlier.and(doubt)))
    }

    /// What the store said, where it said something.
    pub(crate) fn into_cause(self) -> Option<Cause> {
        match self.kind {
            FailureKind::Unavailable(cause) | FailureKind::Denied(cause) => Some(cause),
            FailureKind::Corrupt { .. }
            | FailureKind::Unsupported(_)
            | FailureKind::NotEnoughReplicas { .. } => None,
        }
    }

    /// The same as an error of the public interface; `what` was being done.
    pub(crate) fn into_error(self, what: impl FnOnce() -> String) -> Error {
        match self.kind {
            FailureKind::Unavailable(source) => Error::Unavailable { what: what(), source },
            FailureKind::Denied(source) => Error::Denied { what: what(), source },
            FailureKind::Corrupt { key, found } => Error::Corrupt { key, found },
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
            FailureKind::Corrupt { key, found } => write!(f, "{key:?} holds {found}"),
            FailureKind::Unsupported(text) => f.write_str(text),
            FailureKind::NotEnoughReplicas { wanted, reached, .. } => {
                write!(f, "acknowledged by {reached} of {wanted} replicas")
            }
        }
    }
}

/// One line of a batch of renewals. A lease of `None` only looks whether the owner holds.
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

/// One waiter of a fair lock, in a batch of signs of life.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) name: LockName,
    pub(crate) owner: OwnerId,
}

/// A place where locks live.
///
/// Each method is one atomic step of the model of the same name, and waits for its answer for `limit` at the most. What
/// is done, and to what, follows from the kind of the name.
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    /// Takes the lock, or raises the count of a hold to the target.
    ///
    /// A grant that too few replicas have acknowledged is a failure, and stands.
    fn acquire(&self, claim: Claim<'_>, wish: Wish, care: Care) -> Step<Acquired>;

    /// Lowers the count of a hold to the target; zero ends it, and takes away what a waiter left.
    fn release(&self, claim: Claim<'_>, limit: Duration) -> Step<Released>;

    /// Each line has an outcome of its own, in the order of the lines; `None` where the store failed with just that one.
    /// The lines are of kinds that are renewed in the same way. Where too few replicas have acknowledged the batch, what it
    /// renewed has no outcome.
    fn renew(&self, lines: &[Renewal], care: Care) -> Step<Vec<Option<Renewed>>>;

    /// Sets the lease of a hold to just this, which may be less than is left.
    ///
    /// Where too few replicas have acknowledged it, that is a failure, and stands.
    fn keep(&self, claim: Claim<'_>, lease: Lease, care: Care) -> Step<Renewed>;

    /// The same for a hold that its client goes on with: where holds end with their client, so does this one.
    fn set_lease(&self, claim: Claim<'_>, lease: Lease, care: Care) -> Step<Renewed> {
        self.keep(claim, lease, care)
    }

    /// Says that waiters of fair locks are alive, and where they stand. Outcomes as for `renew`.
    fn attend(&self, waiters: &[Waiter], limit: Duration) -> Step<Vec<Option<Place>>>;

    fn force_unlock(&self, name: &LockName, limit: Duration) -> Step<bool>;

    /// A step on a number without owners. It counts once for each `request`.
    fn perform(&self, name: &LockName, deed: Deed, request: &OwnerId, limit: Duration) -> Step<i64>;

    /// Forgets what became of a request on a number without owners, of which no copy is under way nor will be sent.
    fn forget(&self, name: &LockName, request: &OwnerId, limit: Duration) -> Step<()>;

    fn inspect(&self, name: &LockName, limit: Duration) -> Step<Snapshot>;

    /// Looks for what is held under the names of a search; a bounded search, which waits for each answer for `limit`. Numbers
    /// without owners are not found.
    fn find(&self, search: Search, limit: Duration) -> Step<Sightings>;

    /// What stands at the key of this name, whatever the kind in the name. `None` when nothing does that could be a lock.
    fn kind_of(&self, name: &LockName, limit: Duration) -> Step<Option<Kind>>;

    /// Writes down what a client says of itself, and forgets it after `lasts`. No lock depends on it.
    fn introduce(&self, client: ClientId, record: String, lasts: Duration, limit: Duration) -> Step<()>;

    /// What these clients say of themselves, in their order; `None` for one that says nothing.
    fn introductions(&self, clients: &[ClientId], limit: Duration) -> Step<Vec<Option<String>>>;

    /// Starts to listen for releases of `name`; ready when a release from then on will be told to [`Signals::freed`].
    /// Gives up silently after a while: a waiter polls anyway.
    fn listen(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Nobody waits for `name` any more. The backend may listen on for a moment.
    fn unlisten(&self, name: &LockName);

    /// The servers that have locks just now, to be examined. None where there are no servers.
    fn examinees(&self) -> Examinees<'_>;

    /// What there is instead of servers, in plain words, where there are none to examine.
    fn about(&self) -> String;

    /// Says whom to tell. Called once, before any step.
    fn attach(&self, signals: Weak<dyn Signals>);
}

/// What a backend tells by itself. Each is a hint to look again, never a grant.
pub(crate) trait Signals: Send + Sync {
    /// A release of `name` was published.
    fn freed(&self, name: &LockName);

    /// A connection broke or was made anew: what is held should be confirmed.
    fn connection_changed(&self);

    /// The same; and another server may answer now, which has not heard of everything that was confirmed.
    fn server_changed(&self);
}
