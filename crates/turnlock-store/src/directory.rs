use std::future::ready;
use std::time::Duration;

use turnlock_core::{ClientId, Glob, Kind, LockName, Moment};

use crate::activity::{Activity, ActivityRecord, ActivityScope};
use crate::call::{ReplyFuture, StepReply};
use crate::failure::{Failure, FailureKind, Sent};

/// What a store may do for operators: find locks, and tell who the clients are.
///
/// No lock depends on it. By default, a search is refused, and no records are kept.
pub trait Directory: Send + Sync {
    /// Finds held locks by name. Counters are not found.
    ///
    /// The search is bounded, and waits at most `limit` for each reply.
    fn find(&self, _search: Search, _limit: Duration) -> ReplyFuture<FoundKeys> {
        unsupported()
    }

    /// Returns the kind found at the key of this name, whatever the kind in the name. `None` if it is not a
    /// lock.
    fn kind_of(&self, _name: &LockName, _limit: Duration) -> ReplyFuture<Option<Kind>> {
        unsupported()
    }

    /// Stores the record of a client, which expires after `lasts`.
    ///
    /// A record about a hold of permits has an id of its own, of the same form, which is not the id of a client.
    fn write_client_record(
        &self,
        _client: ClientId,
        _record: String,
        _lasts: Duration,
        _limit: Duration,
    ) -> ReplyFuture<()> {
        without_request(())
    }

    /// Returns the records of these clients, in order. `None` for a client without a record.
    fn client_records(&self, clients: &[ClientId], _limit: Duration) -> ReplyFuture<Vec<Option<String>>> {
        without_request(vec![None; clients.len()])
    }

    /// Stores the activity record of a client, or removes it. Returns the time of the write, on the store's clock.
    ///
    /// `None` if the store keeps no such records. The clock is the same for all clients. A write must be stamped when it
    /// is executed: not before it was sent, and not after its reply. Deadlocks are proven by these stamps.
    fn write_activity(
        &self,
        _client: ClientId,
        _record: Option<ActivityRecord>,
        _limit: Duration,
    ) -> ReplyFuture<Option<Moment>> {
        without_request(None)
    }

    /// Returns the activity records that have not expired.
    ///
    /// At most [`MAX_ACTIVITY_RECORDS`](crate::MAX_ACTIVITY_RECORDS). Longer records than
    /// [`MAX_ACTIVITY_LEN`](crate::MAX_ACTIVITY_LEN) are left out.
    fn activity(&self, _scope: ActivityScope, _limit: Duration) -> ReplyFuture<Activity> {
        without_request(Activity::default())
    }
}

fn unsupported<T: Send + 'static>() -> ReplyFuture<T> {
    let kind = FailureKind::Unsupported("finding locks on this store".to_owned());
    Box::pin(ready(Err(Failure::refused(kind))))
}

fn without_request<T: Send + 'static>(value: T) -> ReplyFuture<T> {
    Box::pin(ready(Ok(StepReply::new(value, Sent::never()))))
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
