use std::time::Duration;

use turnlock_core::OwnerId;

/// What a lock looks like on the store, and here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The name of the lock.
    pub name: String,
    /// Its key on the store.
    pub key: String,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// The rest of the lease; `None` when nobody holds the lock, or somebody does without end.
    pub ttl: Option<Duration>,
    /// How many tasks of this client wait for it.
    pub waiting_here: usize,
}

impl Inspection {
    /// Whether somebody holds the lock.
    pub fn is_locked(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// Someone who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner on the wire: `<client uuid>:<number>`.
    pub owner: OwnerId,
    /// How often it holds the lock.
    pub count: u64,
    /// Whether the holder belongs to this client.
    pub is_mine: bool,
}
