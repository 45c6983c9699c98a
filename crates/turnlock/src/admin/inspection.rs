use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use turnlock_core::model::{HolderSnapshot, Snapshot};
use turnlock_core::{self as core, LockName, OwnerId};

use crate::Kind;
use crate::activity::{SituationByKey, Waiter};
use crate::engine::Engine;

/// The state of a lock, a semaphore or a latch on the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The name.
    pub name: String,
    /// Its key on the store.
    pub key: String,
    /// The kind. Of a read-write lock, the side of the handle.
    pub kind: Kind,
    /// The holders: the owner of a lock, all readers or the writer of a read-write lock, the taken permits of a permit
    /// semaphore.
    pub holders: Vec<Holder>,
    /// The remaining lease. `None` if it is free, or held without a lease.
    pub ttl: Option<Duration>,
    /// The number of waiters of this client.
    pub waiting_here: usize,
    /// The waiters of a fair lock, of all clients, the next one first. Other kinds have no queue on the store.
    pub queue: Vec<OwnerId>,
    /// The waiters of all clients that have announced themselves: after a second, and not those of Redisson.
    pub waiters: Vec<Waiter>,
    /// The last token of a fenced lock.
    pub token: Option<u64>,
    /// The free permits of a semaphore, or the count of a latch. `None` if it was never set, and for locks.
    pub available: Option<i64>,
}

impl Inspection {
    pub(crate) fn new(
        engine: &Engine,
        name: &LockName,
        snapshot: Snapshot,
        situation: &SituationByKey<'_>,
    ) -> Self {
        // The id of a permit does not contain its client.
        let mut holds = Vec::new();
        if name.kind() == core::Kind::Permits {
            engine.wait_queues.for_holds(name, |hold| holds.push(Arc::clone(hold)));
        }
        let ours: HashSet<_> = holds.iter().flat_map(|hold| hold.permit_ids()).collect();
        let is_mine = |owner: &OwnerId| owner.belongs_to(engine.client) || ours.contains(owner);
        let holder = |HolderSnapshot { owner, count, role, ttl, since }| {
            let is_mine = is_mine(&owner);
            let announced = situation.hold_of(name.key(), name.kind(), &owner);
            Holder {
                count,
                role: Role::from_core(role),
                ttl,
                is_mine,
                since: since.or(announced.map(|(_, since)| since)),
                is_stuck: announced.is_some_and(|(hold, _)| hold.stuck),
                task: announced.and_then(|(hold, _)| hold.task.clone()),
                call_site: announced.and_then(|(hold, _)| hold.at.clone()),
                owner,
            }
        };
        Self {
            name: name.to_string(),
            key: name.key().to_owned(),
            kind: Kind::from_core(name.kind()),
            waiting_here: match name.kind() {
                core::Kind::Fair => {
                    snapshot.queue.iter().filter(|waiter| waiter.belongs_to(engine.client)).count()
                }
                _ => engine.wait_queues.waiting(name),
            },
            holders: snapshot.holders.into_iter().map(holder).collect(),
            ttl: snapshot.ttl,
            queue: snapshot.queue,
            waiters: situation.waiters_of(name.key(), &engine.reader()),
            token: snapshot.token,
            available: snapshot.number,
        }
    }

    /// Returns `true` if there is a holder.
    pub fn is_locked(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// A holder of a lock, or a taken permit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner id, `<client uuid>:<number>`, or the id of a permit.
    pub owner: OwnerId,
    /// The hold count.
    pub count: u64,
    /// The role of the holder.
    pub role: Role,
    /// The remaining lease of this holder: readers and permits have their own.
    pub ttl: Option<Duration>,
    /// The holder belongs to this client.
    pub is_mine: bool,
    /// When the hold began, if the store records it, or its client has announced it: holds of turnlock, after a second.
    ///
    /// See [`Builder::announce_waits`](crate::Builder::announce_waits). A client announces its 64 oldest holds, every
    /// 20 s.
    pub since: Option<SystemTime>,
    /// Its client has announced that it seems to be stuck: it holds far longer than before, or its task blocks its thread.
    pub is_stuck: bool,
    /// The tokio task or the thread that acquired it, as `task 7`, if its client has announced it.
    pub task: Option<String>,
    /// Where it was acquired, as `src/main.rs:7`, if its client
    /// [announces call sites](crate::Builder::announce_call_sites).
    pub call_site: Option<String>,
}

/// The role in which a holder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The only holder of a lock.
    Holder,
    /// A reader, among others.
    Reader,
    /// The writer, which can read as well.
    Writer,
    /// A taken permit.
    Permit,
}

impl Role {
    /// A holder in this role holds a lock of this kind: of a read-write lock, this side.
    pub(crate) fn matches_kind(self, kind: core::Kind) -> bool {
        match kind {
            core::Kind::Read => self == Self::Reader,
            core::Kind::Write => self == Self::Writer,
            _ => true,
        }
    }

    pub(crate) fn from_core(role: core::model::Role) -> Self {
        match role {
            core::model::Role::Holder => Self::Holder,
            core::model::Role::Reader => Self::Reader,
            core::model::Role::Writer => Self::Writer,
            core::model::Role::Permit => Self::Permit,
        }
    }
}
