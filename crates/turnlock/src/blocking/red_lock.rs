use std::time::Duration;

use super::interrupt::Interrupt;
use super::lock::Lock;
use super::multi_guard::MultiGuard;
use crate::error::Error;
use crate::inspection::Inspection;

/// As [`turnlock::RedLock`](crate::RedLock), for programs without a runtime. The calling thread is the owner on every
/// server, as in Java: a thread that holds the lock gets it again at once.
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
pub struct RedLock {
    locks: Vec<Lock>,
    node_timeout: Option<Duration>,
}

impl RedLock {
    /// As [`turnlock::RedLock::new`](crate::RedLock::new).
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let lock = Self { locks: locks.into_iter().collect(), node_timeout: None };
        lock.mine().map(|_| lock)
    }

    /// As [`turnlock::RedLock::lease`](crate::RedLock::lease).
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { locks: self.locks.iter().map(|lock| lock.lease(lease)).collect(), ..self.clone() }
    }

    /// As [`turnlock::RedLock::node_timeout`](crate::RedLock::node_timeout).
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn node_timeout(&self, timeout: Duration) -> Self {
        Self { node_timeout: Some(timeout), ..self.clone() }
    }

    /// The same lock, whose waits end with [`Error::Interrupted`] when `interrupt` is raised.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { locks: self.locks.iter().map(|lock| lock.interruptible(interrupt)).collect(), ..self.clone() }
    }

    /// Takes the lock, and waits for it as long as it takes.
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        let mine = self.mine()?;
        self.wait(mine.lock()).map(|guard| self.guard(guard))
    }

    /// Takes the lock if it is free, or held by this thread, and does not wait.
    pub fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        let mine = self.mine()?;
        self.wait(mine.try_lock()).map(|guard| guard.map(|guard| self.guard(guard)))
    }

    /// Takes the lock, and waits for it for `wait` at the most.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        let mine = self.mine()?;
        self.wait(mine.try_lock_for(wait)).map(|guard| guard.map(|guard| self.guard(guard)))
    }

    /// Takes the lock, runs `body` and gives the lock back. As [`Lock::run`].
    pub fn run<T>(&self, body: impl FnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock()?.run(body)
    }

    /// As [`run`](RedLock::run), but waits for `wait` at the most. `None`: `body` did not run.
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        body: impl FnOnce(&MultiGuard) -> T,
    ) -> Result<Option<T>, Error> {
        self.try_lock_for(wait)?.map(|guard| guard.run(body)).transpose()
    }

    /// As [`turnlock::RedLock::inspect`](crate::RedLock::inspect).
    pub fn inspect(&self) -> Result<Vec<Result<Inspection, Error>>, Error> {
        Ok(self.locks[0].bridge().block_on(self.mine()?.inspect()))
    }

    /// The lock as the calling thread's.
    fn mine(&self) -> Result<crate::RedLock, Error> {
        let lock = crate::RedLock::new(self.locks.iter().map(Lock::mine))?;
        Ok(self.node_timeout.map_or_else(|| lock.clone(), |timeout| lock.node_timeout(timeout)))
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.locks[0].bridge().wait(self.locks[0].name(), future)
    }

    fn guard(&self, guard: crate::MultiGuard) -> MultiGuard {
        MultiGuard::new(guard, &self.locks)
    }
}
