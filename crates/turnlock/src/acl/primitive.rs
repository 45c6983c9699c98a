use turnlock_core::{Kind, LockName};

use super::AclCommand;

/// Something that a client gives out by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Primitive {
    /// [`Client::lock`](crate::Client::lock), alone or in a group.
    Lock,
    /// [`Client::fair_lock`](crate::Client::fair_lock).
    FairLock,
    /// [`Client::read_write_lock`](crate::Client::read_write_lock), both sides.
    ReadWriteLock,
    /// [`Client::fenced_lock`](crate::Client::fenced_lock).
    FencedLock,
    /// [`Client::spin_lock`](crate::Client::spin_lock).
    SpinLock,
    /// [`Client::plain_lock`](crate::Client::plain_lock).
    PlainLock,
    /// [`Client::semaphore`](crate::Client::semaphore).
    Semaphore,
    /// [`Client::permit_semaphore`](crate::Client::permit_semaphore).
    PermitSemaphore,
    /// [`Client::latch`](crate::Client::latch).
    Latch,
}

// Taking and giving back; then renewing; unlocking by force; looking.
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

// PEXPIRE is for a server that is out of memory: without it, nothing could be given back there.
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
    /// All of them.
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

    /// How it is called in messages to people.
    pub fn noun(self) -> &'static str {
        match self {
            Self::ReadWriteLock => "read-write lock",
            other => other.kind().noun(),
        }
    }

    /// The kind of its name; of a read-write lock, that of one of its sides.
    fn kind(self) -> Kind {
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

    pub(super) fn is_told(self) -> bool {
        self.kind().is_told()
    }

    pub(super) fn shows_clients(self) -> bool {
        self.kind().shows_clients()
    }

    /// What it needs beside what every client does.
    pub(super) fn commands(self) -> Vec<AclCommand> {
        let needed = match self {
            Self::Lock | Self::SpinLock => LOCK,
            Self::FairLock => FAIR_LOCK,
            Self::ReadWriteLock => READ_WRITE_LOCK,
            Self::FencedLock => FENCED_LOCK,
            Self::PlainLock => PLAIN_LOCK,
            Self::Semaphore => SEMAPHORE,
            Self::PermitSemaphore => PERMIT_SEMAPHORE,
            Self::Latch => LATCH,
        };
        let helpful: &[AclCommand] = match self {
            Self::FairLock => &[AclCommand::helpful(
                "exists",
                "when one gives up who was just told of its turn, the next may hear of it a second later",
            )],
            Self::ReadWriteLock => &[
                AclCommand::helpful("get", "new readers do not stay behind a writer that waits"),
                AclCommand::helpful(
                    "hlen",
                    "a hash that is not a lock, but has a field `mode` with the value `write`, is waited for",
                ),
                AclCommand::helpful(
                    "rename",
                    "a reader that gives back one of several holds keeps its count",
                ),
            ],
            _ => &[],
        };
        needed.iter().map(|name| AclCommand::needed(name)).chain(helpful.iter().copied()).collect()
    }

    /// Its keys, for names that match a pattern. The pattern is taken for a name, since the rules for keys treat both
    /// alike.
    pub(crate) fn keys(self, names: &str) -> Vec<String> {
        let Ok(name) = LockName::of(self.kind(), "", names) else { return Vec::new() };
        let beside = match self {
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
        [vec![names.to_owned()], beside].concat()
    }

    /// Its channels, where its ends are told.
    pub(super) fn channel(self, names: &str) -> Option<String> {
        let name = LockName::of(self.kind(), "", names).ok().filter(|_| self.is_told())?;
        // Each waiter of a fair lock has a channel of its own.
        let waiter = if self == Self::FairLock { ":*" } else { "" };
        Some([name.channel(), waiter].concat())
    }
}

/// The key that never is, which scripts on several keys name in a cluster so that they wait for a slot that is moving.
pub(super) fn guard(names: &str) -> Option<String> {
    LockName::parse(names).ok().map(|name| name.beside("turnlock_never"))
}
