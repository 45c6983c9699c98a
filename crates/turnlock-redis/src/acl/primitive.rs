use turnlock_core::{Kind, LockName};

use super::AclCommand;

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

// In the order of use: acquire and release, renew, force unlock, inspect.
const LOCK: &[&str] = &["pttl", "hset", "pexpire", "hget", "hdel", "hexists", "hlen", "del", "hgetall"];

const FENCED_LOCK: &[&str] =
    &["pttl", "hset", "pexpire", "hget", "hdel", "time", "get", "set", "hexists", "hlen", "del", "hgetall"];

const FAIR_LOCK: &[&str] = &[
    "pttl", "hset", "pexpire", "hget", "hdel", "hlen", "time", "lindex", "lpop", "lpos", "lrem", "rpush",
    "zadd", "zrem", "zscore", "hexists", "del", "hgetall", "lrange",
];

const READ_WRITE_LOCK: &[&str] =
    &["hmget", "pttl", "hset", "pexpire", "set", "hget", "hdel", "hgetall", "del", "hexists"];

const PLAIN_LOCK: &[&str] = &["set", "pttl", "get", "pexpire", "del"];

// PEXPIRE allows a release on a server that is out of memory.
const SEMAPHORE: &[&str] = &["get", "set", "decrby", "incrby", "del", "pexpire", "pttl"];

const PERMIT_SEMAPHORE: &[&str] = &[
    "get",
    "set",
    "decrby",
    "incrby",
    "del",
    "pexpire",
    "pttl",
    "time",
    "zadd",
    "zcard",
    "zcount",
    "zmscore",
    "zrangebyscore",
    "zrem",
    "zremrangebyscore",
];

const LATCH: &[&str] = &["get", "set", "decr", "del", "pexpire", "pttl"];

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
        match self {
            Self::Lock => Kind::Lock,
            Self::FairLock => Kind::Fair,
            Self::ReadWriteLock => Kind::Write,
            Self::FencedLock => Kind::Fenced,
            Self::SpinLock => Kind::Spin,
            Self::PlainLock => Kind::Plain,
            Self::Semaphore => Kind::Semaphore,
            Self::PermitSemaphore => Kind::Permits,
            Self::Latch => Kind::Latch,
        }
    }

    /// Returns `true` if releases are published.
    pub(super) fn sends_messages(self) -> bool {
        self.kind().publishes_releases()
    }

    /// Returns `true` if the holder's client can be identified.
    pub(super) fn identifies_clients(self) -> bool {
        self.kind().identifies_clients()
    }

    /// The commands beyond those of every client.
    pub(super) fn commands(self) -> Vec<AclCommand> {
        let required = match self {
            Self::Lock | Self::SpinLock => LOCK,
            Self::FairLock => FAIR_LOCK,
            Self::ReadWriteLock => READ_WRITE_LOCK,
            Self::FencedLock => FENCED_LOCK,
            Self::PlainLock => PLAIN_LOCK,
            Self::Semaphore => SEMAPHORE,
            Self::PermitSemaphore => PERMIT_SEMAPHORE,
            Self::Latch => LATCH,
        };
        let optional: &[AclCommand] = match self {
            Self::FairLock => &[AclCommand::optional(
                "exists",
                "when a waiter gives up just after it was notified, the next may be notified a second later",
            )],
            Self::ReadWriteLock => &[
                AclCommand::optional("get", "new readers do not queue behind a waiting writer"),
                AclCommand::optional(
                    "hlen",
                    "a hash that is not a lock, but has a field `mode` with the value `write`, counts as \
                     a held lock",
                ),
                AclCommand::optional("rename", "a reader that releases one of several holds keeps its count"),
            ],
            _ => &[],
        };
        required.iter().map(|name| AclCommand::required(name)).chain(optional.iter().copied()).collect()
    }

    /// The patterns of its keys, for names that match a pattern.
    ///
    /// The pattern is passed as a name: the rules for keys treat both alike.
    pub(crate) fn keys(self, names: &str) -> Vec<String> {
        let Ok(name) = LockName::of(self.kind(), "", names) else { return Vec::new() };
        let others = match self {
            Self::Lock | Self::SpinLock | Self::PlainLock => Vec::new(),
            Self::FairLock => ["redisson_lock_queue", "redisson_lock_timeout", "turnlock_waiters"]
                .map(|prefix| name.beside(prefix))
                .to_vec(),
            Self::ReadWriteLock => {
                vec![name.beside("turnlock_writer_waits"), name.below("*:rwlock_timeout:*")]
            }
            Self::FencedLock => vec![name.beside("redisson_lock_token")],
            Self::Semaphore | Self::Latch => vec![name.beside("turnlock_request") + ":*"],
            Self::PermitSemaphore => vec![name.beside("turnlock_request") + ":*", name.below("timeout")],
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
