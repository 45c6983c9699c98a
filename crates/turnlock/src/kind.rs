use std::fmt;

use turnlock_core as core;

/// The kind of a primitive on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The reentrant lock: [`Client::lock`](crate::Client::lock).
    Lock,
    /// The reentrant lock that polls: [`Client::spin_lock`](crate::Client::spin_lock). It has the key of [`Kind::Lock`].
    Spin,
    /// The reentrant lock with fencing tokens: [`Client::fenced_lock`](crate::Client::fenced_lock).
    Fenced,
    /// The reentrant lock with a queue on the store: [`Client::fair_lock`](crate::Client::fair_lock).
    Fair,
    /// The read side of a [`ReadWriteLock`](crate::ReadWriteLock).
    Read,
    /// The write side of a [`ReadWriteLock`](crate::ReadWriteLock).
    Write,
    /// The `SET NX PX` lock of other libraries: [`Client::plain_lock`](crate::Client::plain_lock).
    Plain,
    /// A [`Semaphore`](crate::Semaphore), whose permits have no lease.
    Semaphore,
    /// A [`PermitSemaphore`](crate::PermitSemaphore), whose permits have ids and leases.
    Permits,
    /// A [`Latch`](crate::Latch).
    Latch,
}

impl Kind {
    /// The name of the primitive. A read-write lock has two kinds.
    pub(crate) fn primitive(self) -> &'static str {
        match self {
            Self::Read | Self::Write => "read-write lock",
            _ => self.to_core().label(),
        }
    }

    pub(crate) fn from_core(kind: core::Kind) -> Self {
        match kind {
            core::Kind::Lock => Self::Lock,
            core::Kind::Spin => Self::Spin,
            core::Kind::Fenced => Self::Fenced,
            core::Kind::Fair => Self::Fair,
            core::Kind::Read => Self::Read,
            core::Kind::Write => Self::Write,
            core::Kind::Plain => Self::Plain,
            core::Kind::Semaphore => Self::Semaphore,
            core::Kind::Permits => Self::Permits,
            core::Kind::Latch => Self::Latch,
        }
    }

    pub(crate) fn to_core(self) -> core::Kind {
        match self {
            Self::Lock => core::Kind::Lock,
            Self::Spin => core::Kind::Spin,
            Self::Fenced => core::Kind::Fenced,
            Self::Fair => core::Kind::Fair,
            Self::Read => core::Kind::Read,
            Self::Write => core::Kind::Write,
            Self::Plain => core::Kind::Plain,
            Self::Semaphore => core::Kind::Semaphore,
            Self::Permits => core::Kind::Permits,
            Self::Latch => core::Kind::Latch,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_core().label())
    }
}
