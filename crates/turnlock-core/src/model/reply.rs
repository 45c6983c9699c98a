use std::time::{Duration, SystemTime};

use crate::{Kind, Lease, Moment, OwnerId};

/// The reply to a [`Step`](super::Step) of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To an acquire.
    Acquired(Acquired),
    /// To a release.
    Released(Released),
    /// To a renewal, or to a step that sets the lease.
    Renewed(Renewed),
    /// To a heartbeat.
    Position(QueuePosition),
    /// To a forced unlock: whether it was held.
    ForceUnlocked(bool),
    /// To an operation on a counter.
    Number(i64),
    /// To a request to forget.
    Forgotten,
    /// To an inspection.
    Snapshot(Snapshot),
}

impl Reply {
    /// The reply of a step that notifies no waiter.
    pub(super) fn quiet(self) -> (Self, Notification) {
        (self, Notification::None)
    }

    /// Converts the outcome of a step of one kind.
    pub(super) fn of<T>(wrap: fn(T) -> Self, outcome: (T, Notification)) -> (Self, Notification) {
        (wrap(outcome.0), outcome.1)
    }
}

/// The reply to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acquired {
    /// The owner holds the lock, with at least the target count, for at least the lease from now on.
    Granted,
    /// As [`Granted`](Self::Granted), with a fencing token.
    GrantedWith {
        /// Higher than every token before it.
        token: u64,
    },
    /// Other owners hold the lock.
    Busy {
        /// The longest time that they may still hold it. `None` if unknown or unlimited.
        ttl: Option<Duration>,
    },
    /// As [`Busy`](Self::Busy), and the owner is in the queue of a fair lock behind other waiters.
    ///
    /// They notify it when it is its turn.
    Queued,
    /// A reentry found no hold of this owner: the outer hold is lost.
    Gone,
}

/// The reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// The hold ended.
    Freed,
    /// The hold ended, and the [next](super::Claim::next) waiter was granted the lock.
    PassedOn,
    /// The owner still holds the lock, with the target count.
    StillHeld,
    /// The owner did not hold the lock. Nothing changed.
    NotHeld,
}

/// The reply to a renewal, or to a step that sets the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewed {
    /// The owner holds the lock for the lease from now on; after a renewal, for at least the lease.
    Renewed,
    /// The owner holds the lock for longer than the renewed lease and its [margin](Lease::margin).
    ///
    /// A renewal never shortens a lease. An earlier request is the reason, not this one.
    Longer,
    /// The owner does not hold the lock. Nothing changed.
    NotHeld,
}

impl Renewed {
    /// The reply to a renewal for `lease` at `now` of a hold that lasts until `end`.
    pub(super) fn until(end: Moment, now: Moment, lease: Lease) -> Self {
        if end > now + lease.as_duration() + lease.margin() { Self::Longer } else { Self::Renewed }
    }
}

/// The position of a waiter in the queue of a fair lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueuePosition {
    /// In the queue.
    InQueue,
    /// First in the queue, and the lock is free: the waiter should send its acquire.
    ItsTurn,
    /// Not in the queue any more: the waiter should queue again.
    NotInQueue,
}

/// The waiters to notify after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// No waiter.
    None,
    /// All subscribers of the name's channel.
    Subscribers,
    /// One waiter of a fair lock, on its own channel.
    Waiter(OwnerId),
}

impl Notification {
    /// [`Subscribers`](Self::Subscribers) if `condition` is true, else [`None`](Self::None).
    pub(super) fn subscribers_if(condition: bool) -> Self {
        if condition { Self::Subscribers } else { Self::None }
    }
}

/// The owners that a state mentions, whether their leases have ended or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The owners of holds or permits.
    pub holders: Vec<OwnerId>,
    /// The owners in a queue, or with a writer's intent.
    pub waiters: Vec<OwnerId>,
}

/// The state of a primitive as seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The current holders.
    pub holders: Vec<HolderSnapshot>,
    /// The rest of the lease. `None` if there is no holder, or the hold does not expire.
    pub ttl: Option<Duration>,
    /// The waiters on the store, in order. Only fair locks have a queue there.
    pub queue: Vec<OwnerId>,
    /// The last token, of a fenced lock.
    pub token: Option<u64>,
    /// Free permits, or the count of a latch. `None` for other kinds, or if it was not set.
    pub number: Option<i64>,
}

/// One holder as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderSnapshot {
    /// The owner, or the id of a permit.
    pub owner: OwnerId,
    /// The hold count.
    pub count: u64,
    /// How it holds.
    pub role: Role,
    /// The rest of this holder's lease, for kinds where each holder has its own.
    pub ttl: Option<Duration>,
    /// When the hold began, if the store knows it.
    pub since: Option<SystemTime>,
}

impl HolderSnapshot {
    /// A holder without a known beginning.
    pub fn new(owner: OwnerId, count: u64, role: Role, ttl: Option<Duration>) -> Self {
        Self { owner, count, role, ttl, since: None }
    }
}

/// How an owner holds a primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Exclusively.
    Holder,
    /// Shared with other readers.
    Reader,
    /// Exclusively, as the writer of a read-write lock.
    Writer,
    /// As one of several permits.
    Permit,
}

impl Role {
    /// Returns `true` if a holder in this role holds a lock of this kind: of a read-write lock, this side.
    pub fn matches_kind(self, kind: Kind) -> bool {
        match kind {
            Kind::Read => self == Self::Reader,
            Kind::Write => self == Self::Writer,
            _ => true,
        }
    }
}
