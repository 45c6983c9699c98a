use std::time::Duration;

use super::interrupt::Interrupt;
use super::lock::Lock;
use super::multi_guard::MultiGuard;
use crate::error::Error;
use crate::inspection::Inspection;

/// As [`turnlock::MultiLock`](crate::MultiLock), for programs without a runtime. The calling thread is the owner of every
/// member, as in Java: what it holds already, alone or with others, it gets again at once.
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
pub struct MultiLock {
    locks: Vec<Lock>,
}

impl MultiLock {
    /// As [`turnlock::MultiLock::new`](crate::MultiLock::new).
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let lock = Self { locks: locks.into_iter().collect() };
        lock.mine().map(|_| lock)
    }

    /// As [`turnlock::MultiLock::lease`](crate::MultiLock::lease).
    #[must_use = "this makes another handle; the locks are as they were"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { locks: self.locks.iter().map(|lock| lock.lease(lease)).collect() }
    }

    /// The same locks, whose waits end with [`Error::Interrupted`] when `interrupt` is raised.
    #[must_use = "this makes another handle; the locks are as they were"]
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { locks: self.locks.iter().map(|lock| lock.interruptible(interrupt)).collect() }
    }

    /// Takes all the locks, and waits for them as long as it takes.
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        let mine = self.mine()?;
        self.wait(mine.lock()).map(|guard| self.guard(guard))
    }

    /// Takes all the locks if each is free, or held by this thread, and does not wait.
    pub fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        let mine = self.mine()?;
        self.wait(mine.try_lock()).map(|guard| guard.map(|guard| self.guard(guard)))
    }

    /// Takes all the locks, and waits for them for `wait` at the most.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        let mine = self.mine()?;
        self.wait(mine.try_lock_for(wait)).map(|guard| guard.map(|guard| self.guard(guard)))
    }

    /// Takes all the locks, runs `body` and gives them back. As [`Lock::run`].
    pub fn run<T>(&self, body: impl FnOnce(&MultiGuard) -> T) -> Result<T, Error> {
        self.lock()?.run(body)
    }

    /// As [`run`](MultiLock::run), but waits for `wait` at the most. `None`: `body` did not run.
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        body: impl FnOnce(&MultiGuard) -> T,
    ) -> Result<Option<T>, Error> {
        self.try_lock_for(wait)?.map(|guard| guard.run(body)).transpose()
    }

    /// As [`turnlock::MultiLock::inspect`](crate::MultiLock::inspect).
    pub fn inspect(&self) -> Result<Vec<Inspection>, Error> {
        self.locks[0].bridge().block_on(self.mine()?.inspect())
    }

    /// The locks as the calling thread's.
    fn mine(&self) -> Result<crate::MultiLock, Error> {
        crate::MultiLock::new(self.locks.iter().map(Lock::mine))
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.locks[0].bridge().wait(self.locks[0].name(), future)
    }

    fn guard(&self, guard: crate::MultiGuard) -> MultiGuard {
        MultiGuard::new(guard, &self.locks)
    }
}
