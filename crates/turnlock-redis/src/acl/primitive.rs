use turnlock_core::{Kind, LockName};

use super::command::Commands;
use crate::steps;

/// A kind of lock, semaphore or latch that a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Primitive {
    /// `Client::lock`, alone or in a group.
    Lock,
    /// `Client::fair_lock`.
    FairLock,
    /// `Client::read_write_lock`, both sides.
    ReadWriteLock,
    /// `Client::fenced_lock`.
    FencedLock,
    /// `Client::spin_lock`.
    SpinLock,
    /// `Client::plain_lock`.
    PlainLock,
    /// `Client::semaphore`.
    Semaphore,
    /// `Client::permit_semaphore`.
    PermitSemaphore,
    /// `Client::latch`.
    Latch,
}

const FAIR_LOCK: Commands = Commands {
    required: "pttl hset pexpire hget hdel hlen time lindex llen lpop lpos lrange lrem rpush zadd zcard \
               zmscore zrange zrem zscore hexists del hgetall",
    optional: &[
        (
            "exists",
            "when a waiter gives up just after it was notified, the next may be notified a second later",
        ),
        ("lpush", "a waiter that does not run for 4 s when it gets the lock loses its place in the queue"),
    ],
};

const READ_WRITE_LOCK: Commands = Commands {
    required: "hmget pttl hset pexpire set hget hdel hgetall del hexists",
    optional: &[
        ("get", "new readers do not queue behind a waiting writer"),
        (
            "hlen",
            "a hash that is not a lock, but has a field `mode` with the value `write`, counts as a held lock",
        ),
        ("hrandfield", "the release of one of many readers takes longer, the more they are"),
        ("rename", "a reader that releases one of several holds keeps its count"),
    ],
};

const PERMIT_SEMAPHORE: Commands = Commands::required(
    "get set decrby incrby del pexpire pttl time zadd zcard zcount zmscore zrangebyscore zrem zremrangebyscore",
);

impl Primitive {
    /// All primitives.
    pub const ALL: [Self; 9] = [
        Self::Lock,
        Self::FairLock,
        Self::ReadWriteLock,
        Self::FencedLock,
        Self::SpinLock,
        Self::PlainLock,
        Self::Semaphore,
        Self::PermitSemaphore,
        Self::Latch,
    ];

    /// Returns the name for texts: `read-write lock`.
    pub fn noun(self) -> &'static str {
        match self {
            Self::ReadWriteLock => "read-write lock",
            other => other.kind().label(),
        }
    }

    /// The kind of its name. A read-write lock has two; this is its write side.
    pub(crate) fn kind(self) -> Kind {
        self.needs().0
    }

    /// The commands beyond those of every client.
    pub(super) fn commands(self) -> Commands {
        self.needs().1
    }

    /// The table of kinds and commands.
    ///
    /// Required commands are in the order of use: acquire and release, renew, force unlock, inspect.
    fn needs(self) -> (Kind, Commands) {
        const LOCK: &str = "pttl hset pexpire hget hdel hexists hlen del hgetall";
        let required = Commands::required;
        match self {
            Self::Lock => (Kind::Lock, required(LOCK)),
            Self::SpinLock => (Kind::Spin, required(LOCK)),
            Self::FencedLock => {
                (Kind::Fenced, required("pttl hset pexpire hget hdel time get set hexists hlen del hgetall"))
            }
            Self::FairLock => (Kind::Fair, FAIR_LOCK),
            Self::ReadWriteLock => (Kind::Write, READ_WRITE_LOCK),
            Self::PlainLock => (Kind::Plain, required("set pttl get pexpire del")),
            // PEXPIRE allows a release on a server that is out of memory.
            Self::Semaphore => (Kind::Semaphore, required("get set decrby incrby del pexpire pttl")),
            Self::PermitSemaphore => (Kind::Permits, PERMIT_SEMAPHORE),
            Self::Latch => (Kind::Latch, required("get set decr del pexpire pttl")),
        }
    }

    /// Returns `true` if releases are published.
    pub(super) fn sends_messages(self) -> bool {
        self.kind().publishes_releases()
    }

    /// Returns `true` if the holder's client can be identified.
    pub(super) fn identifies_clients(self) -> bool {
        self.kind().identifies_clients() || self == Self::PermitSemaphore
    }

    /// The patterns of its keys, for names that match a pattern.
    ///
    /// The pattern is passed as a name: the rules for keys treat both alike.
    pub(crate) fn keys(self, names: &str) -> Vec<String> {
        let Ok(name) = LockName::of(self.kind(), "", names) else { return Vec::new() };
        let records = || name.beside(steps::REQUEST) + ":*";
        let others = match self {
            Self::Lock | Self::SpinLock | Self::PlainLock => Vec::new(),
            Self::FairLock => steps::queue_keys(&name).to_vec(),
            Self::ReadWriteLock => vec![steps::intent_key(&name), name.below("*:rwlock_timeout:*")],
            Self::FencedLock => vec![name.beside(steps::TOKEN)],
            Self::Semaphore | Self::Latch => vec![records()],
            Self::PermitSemaphore => vec![records(), steps::taken_key(&name)],
        };
        [vec![names.to_owned()], others].concat()
    }

    /// The pattern of its channels, if it publishes releases.
    pub(super) fn channel(self, names: &str) -> Option<String> {
        let name = LockName::of(self.kind(), "", names).ok().filter(|_| self.sends_messages())?;
        // Each waiter of a fair lock has a channel of its own.
        let waiter = if self == Self::FairLock { ":*" } else { "" };
        Some([name.channel(), waiter].concat())
    }
}

/// The pattern of the key that never exists.
///
/// In a cluster, scripts on several keys declare it, so that they wait while their slot migrates.
pub(super) fn never_key(names: &str) -> Option<String> {
    LockName::parse(names).ok().map(|name| name.beside("turnlock_never"))
}
