use std::time::Duration;

use turnlock_core::{ClientId, Glob, Kind, LockName};

use crate::call::ReplyFuture;

/// What a store may do for operators: find locks, and tell who the clients are.
///
/// No lock depends on it.
pub trait Directory: Send + Sync {
    /// Finds held locks by name. Counters are not found.
    ///
    /// The search is bounded, and waits at most `limit` for each reply.
    fn find(&self, search: Search, limit: Duration) -> ReplyFuture<FoundKeys>;

    /// Returns the kind found at the key of this name, whatever the kind in the name. `None` if it is not a
    /// lock.
    fn kind_of(&self, name: &LockName, limit: Duration) -> ReplyFuture<Option<Kind>>;

    /// Stores the record of a client, which expires after `lasts`.
    fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        lasts: Duration,
        limit: Duration,
    ) -> ReplyFuture<()>;

    /// Returns the records of these clients, in order. `None` for a client without a record.
    fn client_records(&self, clients: &[ClientId], limit: Duration) -> ReplyFuture<Vec<Option<String>>>;
}

/// The longest record of a client, in bytes.
pub const MAX_RECORD_LEN: usize = 4096;

/// A search for locks by name.
#[derive(Clone, Debug)]
pub struct Search {
    /// The key prefix of the client.
    pub prefix: String,
    /// The pattern for names.
    pub names: Glob,
    /// The maximum number of results.
    pub at_most: usize,
}

impl Search {
    /// Returns `true` if `key` is the prefix followed by a matching name.
    pub fn matches(&self, key: &str) -> bool {
        key.strip_prefix(&*self.prefix).is_some_and(|name| !name.is_empty() && self.names.matches(name))
    }
}

/// The result of a [`Search`].
#[derive(Clone, Debug)]
pub struct FoundKeys {
    /// The keys that may be held, each once, with their kinds.
    pub items: Vec<(String, Kind)>,
    /// `true` if the search covered all keys.
    pub is_complete: bool,
}

impl FoundKeys {
    /// Truncates `found` to the maximum of the search; the result is incomplete then.
    pub fn new(search: &Search, found: impl IntoIterator<Item = (String, Kind)>, is_complete: bool) -> Self {
        let mut items: Vec<_> = found.into_iter().collect();
        let is_complete = is_complete && items.len() <= search.at_most;
        items.truncate(search.at_most);
        Self { items, is_complete }
    }
}
