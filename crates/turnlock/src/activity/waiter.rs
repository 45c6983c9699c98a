use std::time::{Duration, SystemTime};

use turnlock_core::{ClientId, OwnerId};

use crate::Kind;

/// A wait of at least a second that a client has announced on the store.
///
/// The texts are untrusted input, as those of an [`Identity`](crate::Identity): escape them before rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The name of what it waits for, without the key prefix of the reading client.
    pub name: String,
    /// Its key on the store.
    pub key: String,
    /// The kind. Of a read-write lock, the side that it waits for.
    pub kind: Kind,
    /// The owner id that it will hold as. For permits, whose ids do not contain their client, `<client uuid>:0`.
    pub owner: OwnerId,
    /// The client.
    pub client: ClientId,
    /// The name of the machine or the container.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// The label of the client.
    pub label: String,
    /// The tokio task or the thread that waits, as `task 7`. `None` if it is not known.
    pub task: Option<String>,
    /// Since when it waits, by the clock of this machine.
    pub since: SystemTime,
    /// How long it waits from now on, at most. `None` if it waits without a limit.
    pub time_left: Option<Duration>,
    /// Where it waits, as `src/main.rs:7`: see [`Builder::announce_call_sites`](crate::Builder::announce_call_sites).
    pub call_site: Option<String>,
    /// What the waiting task holds meanwhile.
    pub holds: Vec<HeldLock>,
    /// The waiter belongs to this client.
    pub is_mine: bool,
}

/// What a waiting task holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// The name, without the key prefix of the reading client.
    pub name: String,
    /// Its key on the store.
    pub key: String,
    /// The kind.
    pub kind: Kind,
    /// The owner id.
    pub owner: OwnerId,
}

/// The result of [`Client::waits`](crate::Client::waits).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// The waiters, those that wait longest first.
    pub waiters: Vec<Waiter>,
    /// The number of other waiters, of clients with very many.
    pub unlisted: u64,
    /// `false` if the store has more records than one request reads.
    pub is_complete: bool,
}

impl Waiter {
    /// Returns host, process id and label for people: `web-1:4711 (billing)`.
    pub fn process(&self) -> String {
        format!("{}:{} ({})", self.host, self.pid, self.label)
    }
}
