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

/// Converts a kind from and to the kind of the same name in the core.
macro_rules! like_core {
    ($($kind:ident)*) => {
        impl Kind {
            pub(crate) fn from_core(kind: core::Kind) -> Self {
                match kind { $(core::Kind::$kind => Self::$kind,)* }
            }

            pub(crate) fn to_core(self) -> core::Kind {
                match self { $(Self::$kind => core::Kind::$kind,)* }
            }
        }
    };
}

like_core!(Lock Spin Fenced Fair Read Write Plain Semaphore Permits Latch);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_core().label())
    }
}
