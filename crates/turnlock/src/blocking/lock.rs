use std::sync::Arc;
use std::time::Duration;

use turnlock_core::OwnerId;

use super::bridge::Bridge;
use super::guard::Guard;
use super::interrupt::Interrupt;
use super::thread_owner;
use crate::error::Error;
use crate::inspection::Inspection;
use crate::try_acquire::TryAcquire;

/// A handle to a lock: [`turnlock::Lock`](crate::Lock). It holds nothing.
///
/// The calling thread is the owner: a thread that holds the lock acquires it again at once. A plain lock is not
/// reentrant.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// let client = turnlock::blocking::Client::connect("memory://")?;
/// let lock = client.lock("orders:42"); // a handle: holds nothing yet
///
/// let guard = lock.lock()?; // waits; renewed while the guard lives
/// guard.unlock()?;
///
/// let guard = lock.with_lease(Duration::from_secs(10)).lock()?; // expires after 10 s
/// # drop(guard);
/// # Ok::<(), turnlock::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle holds nothing: call `lock()`, `try_lock()` or `try_lock_for()`"]
pub struct Lock {
    inner: crate::Lock,
    bridge: Bridge,
}

impl Lock {
    pub(super) fn new(inner: crate::Lock, bridge: Bridge) -> Self {
        Self { inner, bridge }
    }

    /// Sets a fixed lease, which is not renewed: [`turnlock::Lock::with_lease`](crate::Lock::with_lease).
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { inner: self.inner.with_lease(lease), ..self.clone() }
    }

    /// Requires replicas to acknowledge each grant: [`turnlock::Lock::with_replicas`](crate::Lock::with_replicas).
    pub fn with_replicas(&self, replicas: u32) -> Self {
        Self { inner: self.inner.with_replicas(replicas), ..self.clone() }
    }

    /// Makes waits interruptible: they end with [`Error::Interrupted`] when `interrupt` is raised.
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
    }

    /// Returns the name of the lock. Empty if the given name is not valid.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Acquires the lock, and waits until it is free: [`turnlock::Lock::lock`](crate::Lock::lock).
    #[track_caller]
    pub fn lock(&self) -> Result<Guard, Error> {
        let lock = self.with_thread_owner();
        self.bridge.wait(self.name(), lock.lock()).map(|guard| self.guard(guard))
    }

    /// Acquires the lock if it is free or this thread holds it, without waiting:
    /// [`turnlock::Lock::try_lock`](crate::Lock::try_lock).
    #[track_caller]
    pub fn try_lock(&self) -> Result<TryAcquire<Guard>, Error> {
        let lock = self.with_thread_owner();
        self.bridge.wait(self.name(), lock.try_lock()).map(|outcome| outcome.map(|guard| self.guard(guard)))
    }

    /// Acquires the lock, and waits at most `wait`: [`turnlock::Lock::try_lock_for`](crate::Lock::try_lock_for).
    #[track_caller]
    pub fn try_lock_for(&self, wait: Duration) -> Result<TryAcquire<Guard>, Error> {
        let lock = self.with_thread_owner();
        self.bridge
            .wait(self.name(), lock.try_lock_for(wait))
            .map(|outcome| outcome.map(|guard| self.guard(guard)))
    }

    /// Releases the guard that this thread [detached](Guard::detach) last.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if there is none. [`Error::Lost`] if the lock was lost since.
    pub fn unlock(&self) -> Result<(), Error> {
        let name = self.inner.checked_name()?;
        match thread_owner::take_detached(self.bridge.client.id(), name) {
            Some(guard) => guard.unlock(),
            None => Err(Error::NotHeld { name: self.name().to_owned(), owner: "this thread".to_owned() }),
        }
    }

    /// Acquires the lock, runs `body`, and releases the lock.
    ///
    /// If the lock is lost, `body` is not cancelled: it can check [`Guard::is_valid`].
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Lock::lock), and [`Error::Lost`] if the lock was lost before `body` ended.
    #[track_caller]
    pub fn run<T>(&self, body: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        Self::run_under(self.lock()?, body)
    }

    /// Acquires the lock within `wait`, runs `body`, and releases the lock.
    ///
    /// Returns `None` if the lock was busy, and `body` did not run. Otherwise as [`run`](Lock::run).
    #[track_caller]
    pub fn try_run_for<T>(&self, wait: Duration, body: impl FnOnce(&Guard) -> T) -> Result<Option<T>, Error> {
        self.try_lock_for(wait)?.acquired().map(|guard| Self::run_under(guard, body)).transpose()
    }

    /// Returns `true` if the lock is held, by any owner of any process:
    /// [`turnlock::Lock::is_locked`](crate::Lock::is_locked).
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.is_locked())
    }

    /// Returns `true` if this thread holds the lock on the store.
    pub fn is_held_by_current_thread(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.is_held_by(&self.bridge.owner()))
    }

    /// Returns the hold count of this thread on the store, or 0.
    pub fn hold_count(&self) -> Result<u64, Error> {
        self.bridge.block_on(self.inner.hold_count(&self.bridge.owner()))
    }

    /// Returns the remaining lease of the holder: [`turnlock::Lock::remaining`](crate::Lock::remaining).
    pub fn remaining(&self) -> Result<Option<Duration>, Error> {
        self.bridge.block_on(self.inner.remaining())
    }

    /// Releases the lock of any owner by force: [`turnlock::Lock::force_unlock`](crate::Lock::force_unlock).
    pub fn force_unlock(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.force_unlock())
    }

    /// Releases the lock by force if `owner` holds it:
    /// [`turnlock::Lock::force_unlock_of`](crate::Lock::force_unlock_of).
    pub fn force_unlock_of(&self, owner: &OwnerId) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.force_unlock_of(owner))
    }

    /// Returns the holders, their counts and leases: [`turnlock::Lock::inspect`](crate::Lock::inspect).
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.bridge.block_on(self.inner.inspect())
    }

    /// Returns the lock with the calling thread as owner.
    pub(super) fn with_thread_owner(&self) -> crate::Lock {
        self.inner.with_owner(&self.bridge.owner())
    }

    pub(super) fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    pub(super) fn guard(&self, guard: crate::Guard) -> Guard {
        Guard::new(guard, Arc::clone(&self.bridge.thread), self.bridge.client.id())
    }

    fn run_under<T>(guard: Guard, body: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        let output = body(&guard);
        let lost = guard.lost();
        let name = guard.name().to_owned();
        match (guard.unlock(), lost) {
            (_, Some(reason)) => Err(Error::Lost { name, reason }),
            (Err(error @ Error::Lost { .. }), None) => Err(error),
            (Err(error), None) => {
                tracing::warn!(%name, error = %error.with_causes(), "release failed after the body returned");
                Ok(output)
            }
            (Ok(()), None) => Ok(output),
        }
    }
}
