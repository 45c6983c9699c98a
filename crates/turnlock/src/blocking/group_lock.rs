use std::time::{Duration, Instant};

use super::Lock;
use super::bridge::{Bridge, IntoBlocking, blocking_form};
use crate::group::Policy;
use crate::lock::after_body;
use crate::{All, Error, Inspection, LostMember, Majority, TryAcquire};

blocking_form! {
    /// A handle to several locks as one: [`turnlock::GroupLock`](crate::GroupLock).
    ///
    /// The calling thread is the owner of every member, as in Java: it acquires members that it already holds at once.
    #[must_use = "a handle holds nothing: call `lock()`, `try_lock()` or `try_lock_for()`"]
    handle GroupLock<P>
}

/// A handle to several locks that are acquired together: [`turnlock::MultiLock`](crate::MultiLock).
///
/// The calling thread is the owner of every member, as in Java: it acquires members that it already holds at once.
///
/// # Examples
///
/// ```
/// use turnlock::blocking::{Client, MultiLock};
///
/// let client = Client::connect("memory://")?;
/// let (from, to) = (client.lock("account:7"), client.lock("account:3"));
/// let held_before = from.lock()?;
/// let guard = MultiLock::new([from.clone(), to])?.lock()?;
/// assert_eq!(from.hold_count()?, 2);
/// guard.unlock()?;
/// # drop(held_before);
/// # Ok::<(), turnlock::Error>(())
/// ```
pub type MultiLock = GroupLock<All>;

/// A handle to one lock on several independent servers: [`turnlock::RedLock`](crate::RedLock).
///
/// The calling thread is the owner on every server, as in Java: a thread that holds the lock acquires it again at once.
///
/// # Examples
///
/// ```
/// use turnlock::blocking::{Client, RedLock};
///
/// let clients = ["memory://x", "memory://y", "memory://z"].map(Client::connect);
/// let clients = clients.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let lock = RedLock::new(clients.iter().map(|client| client.lock("orders")))?;
/// let guard = lock.lock()?;
/// assert!(guard.is_valid());
/// guard.unlock()?;
/// # Ok::<(), turnlock::Error>(())
/// ```
pub type RedLock = GroupLock<Majority>;

#[expect(private_bounds, reason = "there are two policies, and users add none")]
impl<P: Policy> GroupLock<P> {
    /// Combines locks: [`turnlock::GroupLock::new`](crate::GroupLock::new).
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let (locks, bridges): (Vec<_>, Vec<_>) =
            locks.into_iter().map(|lock| (lock.inner, lock.bridge)).unzip();
        let inner = crate::GroupLock::new(locks)?;
        Ok(Self { inner, bridge: Bridge::of_group(&bridges) })
    }

    delegate! { GroupLock:
        /// Sets a fixed lease.
        set with_lease(&self, lease: Duration) -> Self;
        /// Returns the number of members.
        #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
        get len(&self) -> usize;
        /// Returns the name of the first member.
        get name(&self) -> &str;
        /// Acquires the lock, and waits until enough members grant it.
        own lock(&self) -> Result<MultiGuard, Error>;
        /// Acquires the lock if it is free or this thread holds it, without waiting.
        own try_lock(&self) -> Result<TryAcquire<MultiGuard>, Error>;
        /// Acquires the lock, and waits at most `wait`.
        own try_lock_for(&self, wait: Duration) -> Result<TryAcquire<MultiGuard>, Error>;
    }

    /// Acquires the lock, runs `body`, and releases the lock: [`Lock::run`].
    #[track_caller]
    pub fn run<T>(&self, body: impl FnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock()?.run(body)
    }

    /// Acquires the lock within `wait`, runs `body`, and releases the lock.
    ///
    /// Returns `None` if the lock was busy, and `body` did not run. Otherwise as [`run`](GroupLock::run).
    #[track_caller]
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        body: impl FnOnce(&MultiGuard) -> T,
    ) -> Result<Option<T>, Error> {
        self.try_lock_for(wait)?.acquired().map(|guard| guard.run(body)).transpose()
    }

    fn with_thread_owner(&self) -> crate::GroupLock<P> {
        self.inner.with_owners(|member| self.bridge.owner(member))
    }
}

impl GroupLock<All> {
    delegate! { MultiLock:
        /// Inspects each member.
        block inspect(&self) -> Result<Vec<Inspection>, Error>;
    }
}

impl GroupLock<Majority> {
    delegate! { RedLock:
        /// Sets the time-out of one server.
        set with_node_timeout(&self, timeout: Duration) -> Self;
    }

    /// Inspects the lock on each server: [`turnlock::RedLock::inspect`](crate::RedLock::inspect).
    pub fn inspect(&self) -> Result<Vec<Result<Inspection, Error>>, Error> {
        Ok(self.bridge.block_on(self.inner.inspect()))
    }
}

blocking_form! {
    /// Several held locks: [`turnlock::MultiGuard`](crate::MultiGuard). Dropping it releases them in the background.
    #[must_use = "the locks are released when the guard is dropped: bind it to a variable"]
    guard MultiGuard
}

impl MultiGuard {
    delegate! { MultiGuard:
        /// Returns how many members are held.
        get held(&self) -> usize;
        /// Returns the fencing token of a member.
        get token(&self, member: usize) -> Option<u64>;
        /// Returns `true` if enough members are held.
        get is_valid(&self) -> bool;
        /// Returns until when enough members are held.
        get valid_until(&self) -> Instant;
    }

    /// Releases all members, and waits for the stores: [`turnlock::MultiGuard::unlock`](crate::MultiGuard::unlock).
    pub fn unlock(self) -> Result<(), Error> {
        self.bridge.block_on(self.inner.unlock())
    }

    /// Blocks until too few members are held: [`turnlock::MultiGuard::lost`](crate::MultiGuard::lost).
    pub fn wait_lost(&self) -> LostMember {
        self.bridge.block_on(self.inner.lost())
    }

    /// Runs `body` under this guard, and releases it.
    fn run<T>(self, body: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let output = body(&self);
        let lost = self.inner.lost_error();
        let released = self.unlock();
        after_body(lost.map_or(Ok(output), Err)?, released, None)
    }
}
