use std::time::Duration;

use super::interrupt::Interrupt;
use super::lock::Lock;
use super::multi_guard::MultiGuard;
use crate::error::Error;
use crate::inspection::Inspection;
use crate::try_acquire::TryAcquire;

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
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `lock()`, `try_lock()` or `try_lock_for()`"]
pub struct RedLock {
    locks: Vec<Lock>,
    node_timeout: Option<Duration>,
}

impl RedLock {
    /// Combines locks, one on each server: [`turnlock::RedLock::new`](crate::RedLock::new).
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let lock = Self { locks: locks.into_iter().collect(), node_timeout: None };
        lock.with_thread_owner().map(|_| lock)
    }

    /// Sets a fixed lease: [`turnlock::RedLock::with_lease`](crate::RedLock::with_lease).
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { locks: self.locks.iter().map(|lock| lock.with_lease(lease)).collect(), ..self.clone() }
    }

    /// Sets the time-out of one server: [`turnlock::RedLock::with_node_timeout`](crate::RedLock::with_node_timeout).
    pub fn with_node_timeout(&self, timeout: Duration) -> Self {
        Self { node_timeout: Some(timeout), ..self.clone() }
    }

    /// Returns the name of the lock on the first server.
    pub fn name(&self) -> &str {
        self.locks[0].name()
    }

    /// Makes waits interruptible: they end with [`Error::Interrupted`] when `interrupt` is raised.
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { locks: self.locks.iter().map(|lock| lock.interruptible(interrupt)).collect(), ..self.clone() }
    }

    /// Acquires the lock, and waits until a majority grants it: [`turnlock::RedLock::lock`](crate::RedLock::lock).
    #[track_caller]
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        let lock = self.with_thread_owner()?;
        self.wait(lock.lock()).map(|guard| self.guard(guard))
    }

    /// Acquires the lock if it is free or this thread holds it, without waiting:
    /// [`turnlock::RedLock::try_lock`](crate::RedLock::try_lock).
    #[track_caller]
    pub fn try_lock(&self) -> Result<TryAcquire<MultiGuard>, Error> {
        let lock = self.with_thread_owner()?;
        self.wait(lock.try_lock()).map(|outcome| outcome.map(|guard| self.guard(guard)))
    }

    /// Acquires the lock, and waits at most `wait`: [`turnlock::RedLock::try_lock_for`](crate::RedLock::try_lock_for).
    #[track_caller]
    pub fn try_lock_for(&self, wait: Duration) -> Result<TryAcquire<MultiGuard>, Error> {
        let lock = self.with_thread_owner()?;
        self.wait(lock.try_lock_for(wait)).map(|outcome| outcome.map(|guard| self.guard(guard)))
    }

    /// Acquires the lock, runs `body`, and releases the lock: [`Lock::run`].
    #[track_caller]
    pub fn run<T>(&self, body: impl FnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock()?.run(body)
    }

    /// Acquires the lock within `wait`, runs `body`, and releases the lock.
    ///
    /// Returns `None` if the lock was busy, and `body` did not run. Otherwise as [`run`](RedLock::run).
    #[track_caller]
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        body: impl FnOnce(&MultiGuard) -> T,
    ) -> Result<Option<T>, Error> {
        self.try_lock_for(wait)?.acquired().map(|guard| guard.run(body)).transpose()
    }

    /// Inspects the lock on each server: [`turnlock::RedLock::inspect`](crate::RedLock::inspect).
    pub fn inspect(&self) -> Result<Vec<Result<Inspection, Error>>, Error> {
        Ok(self.locks[0].bridge().block_on(self.with_thread_owner()?.inspect()))
    }

    /// Returns the lock with the calling thread as owner.
    fn with_thread_owner(&self) -> Result<crate::RedLock, Error> {
        let lock = crate::RedLock::new(self.locks.iter().map(Lock::with_thread_owner))?;
        Ok(self.node_timeout.map_or_else(|| lock.clone(), |timeout| lock.with_node_timeout(timeout)))
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.locks[0].bridge().wait(self.locks[0].name(), future)
    }

    fn guard(&self, guard: crate::MultiGuard) -> MultiGuard {
        MultiGuard::new(guard, &self.locks)
    }
}
