use std::time::Duration;

use turnlock_core::{ClientId, Moment};

/// The longest activity record, in bytes.
pub const MAX_ACTIVITY_LEN: usize = 8_192;

/// The maximum number of activity records that one request reads.
pub const MAX_ACTIVITY_RECORDS: usize = 1_000;

/// The length in bytes after which a server adds no further record to a reply. Replies to acquires and renewals wait behind it.
pub const MAX_ACTIVITY_REPLY_LEN: usize = 2 << 20;

/// What a client publishes about its waits and holds, for diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityRecord {
    /// The text, at most [`MAX_ACTIVITY_LEN`] bytes.
    pub text: String,
    /// It has a waiter that holds something, so it can be part of a deadlock.
    pub is_linked: bool,
    /// The time to live.
    pub lasts: Duration,
}

/// Which activity records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityScope {
    /// All records.
    All,
    /// Those that can be part of a deadlock: [`ActivityRecord::is_linked`].
    Linked,
}

/// The activity records on a store. Untrusted input: other users of the store write there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// When they were read, on the store's clock.
    pub now: Moment,
    /// The records that have not expired, each client once.
    pub records: Vec<StoredActivity>,
    /// How many records the store has looked through for them, or has in all: what such requests cost it.
    pub scanned: usize,
    /// `false` if a limit was reached before all were read.
    pub is_complete: bool,
}

/// An activity record, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredActivity {
    /// The client that wrote it.
    pub client: ClientId,
    /// When it was written, on the store's clock.
    pub written: Moment,
    /// The text.
    pub text: String,
}
