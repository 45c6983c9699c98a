use super::{Notification, Owners, Reply, Snapshot};
use crate::{Kind, Lease, LockName, Moment, OwnerId};

/// The time of a step, by the clocks of the store.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The monotonic clock, for leases.
    pub moment: Moment,
    /// The wall clock, for tokens: microseconds since 1970.
    pub wall: u64,
}

/// One owner's claim on a name: the hold that it shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The lock, with its kind.
    pub name: LockName,
    /// The owner. Used for one outermost hold and never again, so it also identifies the request on a
    /// semaphore.
    pub owner: OwnerId,
    /// The hold count to reach.
    pub target: u32,
    /// The number of permits, for kinds that have them.
    pub permits: u32,
    /// For a read hold inside a write hold of the same caller: the owner of the write hold.
    ///
    /// Boxed, since it is rare and a claim is part of every step.
    pub under: Option<Box<OwnerId>>,
    /// `true` if the store may not know the hold, so that only what it remembers of the hold counts.
    ///
    /// Set for the undo of a request without a reply, and for the release of a hold so young that a store
    /// which does not remember it has lost the grant.
    pub unsure: bool,
    /// For the release of a fair lock: a waiter of the same client, and its lease.
    ///
    /// If the release ends the hold, and this waiter is next, it is granted the lock in the same step. If it is
    /// the owner itself, the owner returns to the head of the queue instead.
    pub next: Option<(OwnerId, Lease)>,
}

impl Claim {
    /// Creates a claim on a whole lock.
    pub fn new(name: &LockName, owner: &OwnerId, target: u32) -> Self {
        let (name, owner) = (name.clone(), owner.clone());
        Self { name, owner, target, permits: 1, under: None, unsure: false, next: None }
    }
}

/// The options of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireOptions {
    /// The lease of the hold.
    pub lease: Lease,
    /// `true` if the owner waits when it is refused. Then it may queue, or register a writer's intent, on the
    /// store.
    pub waits: bool,
    /// The highest token of the lock that this client has seen.
    pub highest_token: u64,
}

/// An operation on a counter: a semaphore or a latch.
///
/// Its request has an id and takes effect once, however often it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterOp {
    /// Sets the number if there is none. Replies 1 if it was set, else 0.
    SetOnce(u64),
    /// Adds to the number of permits, or subtracts from it. Replies the new number.
    Add(i64),
    /// Adds permits that need not have been acquired. Replies the new number.
    Release(u32),
    /// Sets the total number of permits, free and taken. Replies the number of free ones.
    SetTotal(u64),
    /// Takes all free permits. Replies how many.
    Drain,
    /// Decrements a latch. Replies the remaining count.
    CountDown,
    /// Deletes the counter. Replies 1 if it existed, else 0.
    Delete,
}

/// One atomic change of a primitive, or a question about it. The name in it selects the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Acquires it, or raises the count of a hold to the target. Replies [`Acquired`](super::Acquired).
    Acquire(Claim, AcquireOptions),
    /// Lowers the count of a hold to the target. Zero ends it, and removes the owner as a waiter. Replies
    /// [`Released`](super::Released).
    Release(Claim),
    /// Extends the lease of a hold; without a lease, only checks that it is held. Replies
    /// [`Renewed`](super::Renewed).
    Renew(Claim, Option<Lease>),
    /// Sets the lease of a hold to exactly `lease`, which may shorten it. Replies [`Renewed`](super::Renewed).
    SetLease {
        /// The hold.
        claim: Claim,
        /// The lease, from now on.
        lease: Lease,
        /// `true` for a delayed unlock: the hold lasts for the lease, even if its client ends first.
        outlasts_client: bool,
    },
    /// Shows that a waiter of a fair lock is alive. Replies its [`QueuePosition`](super::QueuePosition).
    Heartbeat(LockName, OwnerId),
    /// Ends the hold of any owner. Replies whether it was held.
    ForceUnlock(LockName),
    /// Performs an operation on a counter, once for each request id. Replies a number.
    Perform(LockName, CounterOp, OwnerId),
    /// Forgets the outcome of a request on a counter. No copy of it may be under way, nor be sent later.
    Forget(LockName, OwnerId),
    /// Returns the state as seen from outside: a [`Snapshot`](super::Snapshot).
    Inspect(LockName),
}

impl Step {
    /// The name of the primitive.
    pub fn name(&self) -> &LockName {
        match self {
            Self::Acquire(claim, _)
            | Self::Release(claim)
            | Self::Renew(claim, _)
            | Self::SetLease { claim, .. } => &claim.name,
            Self::Heartbeat(name, _)
            | Self::ForceUnlock(name)
            | Self::Perform(name, ..)
            | Self::Forget(name, _)
            | Self::Inspect(name) => name,
        }
    }

    /// The kind of the primitive.
    pub fn kind(&self) -> Kind {
        self.name().kind()
    }
}

/// The state of one primitive, which executes its steps.
pub trait Model {
    /// Executes a step of a kind that uses this state. `None` if the kind does not have this step.
    ///
    /// [`Step::Inspect`] is left to [`snapshot`](Self::snapshot).
    fn apply(&mut self, now: Now, step: &Step) -> Option<(Reply, Notification)>;

    /// Returns the state as seen from outside.
    fn snapshot(&mut self, now: Now) -> Snapshot;

    /// Returns the owners that the state mentions. By default, there are none.
    fn owners(&self) -> Owners {
        Owners::default()
    }

    /// Removes the holds and queue entries of owners that no longer exist.
    fn remove_owners(&mut self, _now: Now, _is_gone: &dyn Fn(&OwnerId) -> bool) -> Notification {
        Notification::None
    }

    /// Forgets all requests, when no client is left that sent one.
    fn forget_all(&mut self) {}

    /// Returns `true` if nothing is left to remember, so that the state can be deleted.
    fn is_free(&mut self, now: Now) -> bool;
}
