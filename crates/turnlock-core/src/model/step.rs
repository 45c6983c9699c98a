use std::time::{Duration, SystemTime};

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
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The lock, with its kind.
    pub name: &'a LockName,
    /// The owner. Used for one outermost hold and never again, so it also identifies the request on a
    /// semaphore.
    pub owner: &'a OwnerId,
    /// The hold count to reach.
    pub target: u32,
    /// The number of permits, for kinds that have them.
    pub permits: u32,
    /// For a read hold inside a write hold of the same caller: the owner of the write hold.
    pub under: Option<&'a OwnerId>,
    /// `true` if the store may not know the hold, so that only what it remembers of the hold counts.
    ///
    /// Set for the undo of a request without a reply, and for the release of a hold so young that a store
    /// which does not remember it has lost the grant.
    pub unsure: bool,
}

impl<'a> Claim<'a> {
    /// Creates a claim on a whole lock.
    pub fn new(name: &'a LockName, owner: &'a OwnerId, target: u32) -> Self {
        Self { name, owner, target, permits: 1, under: None, unsure: false }
    }
}

/// The options of an acquire.
#[derive(Clone, Copy, Debug)]
pub struct AcquireOptions {
    /// The lease of the hold.
    pub lease: Lease,
    /// `true` if the owner waits when it is refused. Then it may queue, or register a writer's intent, on the
    /// store.
    pub waits: bool,
    /// The highest token of the lock that this client has seen.
    pub highest_token: u64,
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
    /// A reentry found no hold of this owner: the outer hold is lost.
    Gone,
}

/// The reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// The hold ended.
    Freed,
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
