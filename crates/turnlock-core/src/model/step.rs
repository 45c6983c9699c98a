use std::time::{Duration, SystemTime};

use crate::{Kind, Lease, LockName, Moment, OwnerId};

/// When a step is done, by the store's own reckoning.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// On the clock that only goes forward: for leases.
    pub moment: Moment,
    /// On the wall: microseconds since 1970, for tokens.
    pub wall: u64,
}

/// What an owner shall have of a lock: a hold of this count.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The lock, with its kind.
    pub name: &'a LockName,
    /// Who. Used for one outermost hold and never again, so it also names the request where there is no owner.
    pub owner: &'a OwnerId,
    /// The hold count that shall be.
    pub target: u32,
    /// How many permits, for the kinds that have them.
    pub permits: u32,
    /// A reader that comes while `under` writes: the owner of that write hold, which is the reader's own.
    pub under: Option<&'a OwnerId>,
    /// Whether the hold may be unknown to the store, so that only what the store remembers of it counts: the undo of a
    /// request that got no answer; or the end of a hold that is so young that a store which does not remember it has lost
    /// the grant.
    pub unsure: bool,
}

impl<'a> Claim<'a> {
    /// A claim to a whole lock.
    pub fn new(name: &'a LockName, owner: &'a OwnerId, target: u32) -> Self {
        Self { name, owner, target, permits: 1, under: None, unsure: false }
    }
}

/// What else an acquire says.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// For how long.
    pub lease: Lease,
    /// Whether the owner will wait when it is refused: then it may leave its place or its word on the store.
    pub waits: bool,
    /// The highest token that this client has seen of the lock.
    pub highest_token: u64,
}

/// The answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acquired {
    /// The owner holds the lock, with at least the target count, for the lease from now on.
    Granted,
    /// The same, with the token of the grant.
    GrantedWith {
        /// Higher than every token before it.
        token: u64,
    },
    /// Others hold it; `ttl` is how long that may last at the most. `None`: unknown, or without end.
    Busy {
        /// The rest of the holder's lease.
        ttl: Option<Duration>,
    },
    /// A reentry found no hold of this owner: the hold that it was to deepen is lost.
    Gone,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// The owner's hold is over, and those who wait must be told.
    Freed,
    /// The owner still holds it, with the target count.
    Lowered,
    /// The owner did not hold it; nothing was done.
    NotHeld,
}

/// The answer to a renewal, or to a step that sets the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewed {
    /// The owner holds the lock, from now on for the lease: after a renewal, at least for that.
    Renewed,
    /// After a renewal: the owner holds the lock for longer than the lease and its [margin](Lease::margin), for which nothing that
    /// it does now is the reason. Nothing was shortened.
    Longer,
    /// The owner does not hold it; nothing was done.
    NotHeld,
}

impl Renewed {
    /// The answer to a renewal for `lease` at `now` of a hold that lasts until `end`.
    pub(super) fn until(end: Moment, now: Moment, lease: Lease) -> Self {
        if end > now + lease.as_duration() + lease.margin() { Self::Longer } else { Self::Renewed }
    }
}

/// Where a waiter of a fair lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the queue.
    InQueue,
    /// First in the queue, and the lock is free: it should ask.
    ItsTurn,
    /// Not in the queue any more: it should queue again.
    Nowhere,
}

/// A step on a number that has no owners. Its request has an id, and counts once however often it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Sets the number if there is none. Answers 1 if it did, else 0.
    SetOnce(u64),
    /// Adds to the number of permits, or takes from it. Answers the new number.
    Add(i64),
    /// Gives permits back that need not have been taken. Answers the new number.
    Release(u32),
    /// Sets the number of all permits, free and taken. Answers the number of free ones.
    SetTotal(u64),
    /// Takes all free permits. Answers how many.
    Drain,
    /// One less on a latch. Answers the count that is left.
    CountDown,
    /// Removes it. Answers 1 if it was there, else 0.
    Delete,
}

/// Who must be told of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Nobody.
    Nobody,
    /// All who listen on the channel of the name.
    Listeners,
    /// One waiter of a fair lock, on its own channel.
    Waiter(OwnerId),
}

/// Who has something of a thing, by any step of the past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parties {
    /// Who holds it, or a part of it.
    pub holding: Vec<OwnerId>,
    /// Who has left a place in a queue, or its word, there.
    pub waiting: Vec<OwnerId>,
}

impl Wake {
    /// All who listen, if something happened that they must know; else nobody.
    pub(super) fn if_so(something_happened: bool) -> Self {
        if something_happened { Self::Listeners } else { Self::Nobody }
    }
}

/// What a thing looks like from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Who holds it.
    pub holders: Vec<HolderPicture>,
    /// The rest of the lease; `None` when nobody holds it, or somebody does without end.
    pub ttl: Option<Duration>,
    /// Who waits on the store, the first first. Only a fair lock knows.
    pub queue: Vec<OwnerId>,
    /// The last token. Only a fenced lock has one.
    pub token: Option<u64>,
    /// Free permits, or the count of a latch. `None` when there is no such thing, or it was not set yet.
    pub number: Option<i64>,
}

/// One holder, as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderPicture {
    /// Who, or the id of a permit.
    pub owner: OwnerId,
    /// How often.
    pub count: u64,
    /// As what.
    pub role: Role,
    /// The rest of its own lease, where each holder has one of its own.
    pub ttl: Option<Duration>,
    /// When the hold began, where the store knows it.
    pub since: Option<SystemTime>,
}

/// As what somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Alone.
    Holder,
    /// With other readers.
    Reader,
    /// Alone, with the right to read as well.
    Writer,
    /// Of one permit.
    Permit,
}

impl Role {
    /// Whether one in this role holds a lock of this kind: of a read-write lock, this side of it.
    pub fn is_of(self, kind: Kind) -> bool {
        match kind {
            Kind::Read => self == Self::Reader,
            Kind::Write => self == Self::Writer,
            _ => true,
        }
    }
}
