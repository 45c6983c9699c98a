use std::collections::HashSet;
use std::time::{Duration, SystemTime};

pub use turnlock_core::model::Role;
use turnlock_core::model::{HolderPicture, Snapshot};
use turnlock_core::{Kind, LockName, OwnerId};

use crate::engine::Shared;

/// What a lock, a semaphore or a latch looks like on the store, and here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The name.
    pub name: String,
    /// Its key on the store.
    pub key: String,
    /// What it is. Of a read-write lock, the side that was asked.
    pub kind: Kind,
    /// Who holds it: of a lock its owner, of a read-write lock all readers or the writer, of a permit semaphore every
    /// permit that is out.
    pub holders: Vec<Holder>,
    /// The rest of the lease; `None` when nobody holds the lock, or somebody does without end.
    pub ttl: Option<Duration>,
    /// How many tasks of this client wait for it.
    pub waiting_here: usize,
    /// Who waits for a fair lock, of all clients, the next one first. Empty for other kinds, which keep no queue on the
    /// store.
    pub queue: Vec<OwnerId>,
    /// The last token that a fenced lock gave out.
    pub token: Option<u64>,
    /// The free permits of a semaphore, or the count of a latch. `None` when it was not set yet, and for locks.
    pub available: Option<i64>,
}

impl Inspection {
    pub(crate) fn new(shared: &Shared, name: &LockName, snapshot: Snapshot) -> Self {
        // The id of a permit does not tell whose it is.
        let ours: HashSet<OwnerId> = match name.kind() {
            Kind::Permits => shared.rooms.holds(name).iter().flat_map(|hold| hold.permit_ids()).collect(),
            _ => HashSet::new(),
        };
        let is_mine = |owner: &OwnerId| owner.is_of(shared.client) || ours.contains(owner);
        let holder = |HolderPicture { owner, count, role, ttl, since }| {
            let is_mine = is_mine(&owner);
            Holder { owner, count, role, ttl, is_mine, since }
        };
        Self {
            name: name.to_string(),
            key: name.key().to_owned(),
            kind: name.kind(),
            waiting_here: match name.kind() {
                Kind::Fair => snapshot.queue.iter().filter(|waiter| waiter.is_of(shared.client)).count(),
                _ => shared.rooms.waiting(name),
            },
            holders: snapshot.holders.into_iter().map(holder).collect(),
            ttl: snapshot.ttl,
            queue: snapshot.queue,
            token: snapshot.token,
            available: snapshot.number,
        }
    }

    /// Whether somebody holds it.
    pub fn is_locked(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// Someone who holds a lock, or a permit that is out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner on the wire, `<client uuid>:<number>`, or the id of a permit.
    pub owner: OwnerId,
    /// How often it holds the lock.
    pub count: u64,
    /// As what it holds.
    pub role: Role,
    /// The rest of its own lease, where each holder has one of its own: readers and permits.
    pub ttl: Option<Duration>,
    /// Whether the holder belongs to this client.
    pub is_mine: bool,
    /// When the hold began, where the store knows that by itself. Redis does not: there, ask for the
    /// [identities](crate::Client::identities) of holders, which tell what was [announced](crate::Guard::announce).
    pub since: Option<SystemTime>,
}
