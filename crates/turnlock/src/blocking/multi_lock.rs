use std::time::Duration;

use super::interrupt::Interrupt;
use super::lock::Lock;
use super::multi_guard::MultiGuard;
use crate::error::Error;
use crate::inspection::Inspection;
use crate::try_acquire::TryAcquire;

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
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `lock()`, `try_lock()` or `try_lock_for()`"]
pub struct MultiLock {
    locks: Vec<Lock>,
}

impl MultiLock {
    /// Combines locks: [`turnlock::MultiLock::new`](crate::MultiLock::new).
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let lock = Self { locks: locks.into_iter().collect() };
        lock.with_thread_owner().map(|_| lock)
    }

    /// Sets a fixed lease: [`turnlock::MultiLock::with_lease`](crate::MultiLock::with_lease).
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { locks: self.locks.iter().map(|lock| lock.with_lease(lease)).collect() }
    }

    /// Returns the number of members.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Makes waits interruptible: they end with [`Error::Interrupted`] when `interrupt` is raised.
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { locks: self.locks.iter().map(|lock| lock.interruptible(interrupt)).collect() }
    }

    /// Acquires all locks, and waits until they are free: [`turnlock::MultiLock::lock`](crate::MultiLock::lock).
    #[track_caller]
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        let lock = self.with_thread_owner()?;
        self.wait(lock.lock()).map(|guard| self.guard(guard))
    }

    /// Acquires all locks if each is free or held by this thread, without waiting:
    /// [`turnlock::MultiLock::try_lock`](crate::MultiLock::try_lock).
    #[track_caller]
    pub fn try_lock(&self) -> Result<TryAcquire<MultiGuard>, Error> {
        let lock = self.with_thread_owner()?;
        self.wait(lock.try_lock()).map(|outcome| outcome.map(|guard| self.guard(guard)))
    }

    /// Acquires all locks, and waits at most `wait`:
    /// [`turnlock::MultiLock::try_lock_for`](crate::MultiLock::try_lock_for).
    #[track_caller]
    pub fn try_lock_for(&self, wait: Duration) -> Result<TryAcquire<MultiGuard>, Error> {
        let lock = self.with_thread_owner()?;
        self.wait(lock.try_lock_for(wait)).map(|outcome| outcome.map(|guard| self.guard(guard)))
    }

    /// Acquires all locks, runs `body`, and releases them: [`Lock::run`].
    #[track_caller]
    pub fn run<T>(&self, body: impl FnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock()?.run(body)
    }

    /// Acquires all locks within `wait`, runs `body`, and releases them.
    ///
    /// Returns `None` if a lock was busy, and `body` did not run. Otherwise as [`run`](MultiLock::run).
    #[track_caller]
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        body: impl FnOnce(&MultiGuard) -> T,
    ) -> Result<Option<T>, Error> {
        self.try_lock_for(wait)?.acquired().map(|guard| guard.run(body)).transpose()
    }

    /// Inspects each member: [`turnlock::MultiLock::inspect`](crate::MultiLock::inspect).
    pub fn inspect(&self) -> Result<Vec<Inspection>, Error> {
        self.locks[0].bridge().block_on(self.with_thread_owner()?.inspect())
    }

    /// Returns the locks with the calling thread as owner.
    fn with_thread_owner(&self) -> Result<crate::MultiLock, Error> {
        crate::MultiLock::new(self.locks.iter().map(Lock::with_thread_owner))
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.locks[0].bridge().wait(self.locks[0].name(), future)
    }

    fn guard(&self, guard: crate::MultiGuard) -> MultiGuard {
        MultiGuard::new(guard, &self.locks)
    }
}
