use std::sync::Arc;
use std::time::Duration;

use turnlock_core::OwnerId;

use super::bridge::Bridge;
use super::guard::Guard;
use super::interrupt::Interrupt;
use super::thread_owner;
use crate::error::Error;
use crate::inspection::Inspection;

/// As [`turnlock::Lock`](crate::Lock), for programs without a runtime; the calling thread is the owner.
#[derive(Clone, Debug)]
pub struct Lock {
    inner: crate::Lock,
    bridge: Bridge,
}

impl Lock {
    pub(super) fn new(inner: crate::Lock, bridge: Bridge) -> Self {
        Self { inner, bridge }
    }

    /// The same lock, taken with a fixed lease. As [`turnlock::Lock::lease`](crate::Lock::lease).
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { inner: self.inner.lease(lease), ..self.clone() }
    }

    /// As [`turnlock::Lock::acknowledged_by`](crate::Lock::acknowledged_by).
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn acknowledged_by(&self, replicas: u32) -> Self {
        Self { inner: self.inner.acknowledged_by(replicas), ..self.clone() }
    }

    /// The same lock, whose waits end with [`Error::Interrupted`] when `interrupt` is raised.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Takes the lock, and waits for it as long as it takes.
    pub fn lock(&self) -> Result<Guard, Error> {
        let mine = self.mine();
        self.bridge.wait(self.name(), mine.lock()).map(|guard| self.guard(guard))
    }

    /// Takes the lock if it is free, or held by this thread, and does not wait.
    pub fn try_lock(&self) -> Result<Option<Guard>, Error> {
        let mine = self.mine();
        self.bridge.wait(self.name(), mine.try_lock()).map(|guard| guard.map(|guard| self.guard(guard)))
    }

    /// Takes the lock, and waits for it for `wait` at the most.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        let mine = self.mine();
        self.bridge
            .wait(self.name(), mine.try_lock_for(wait))
            .map(|guard| guard.map(|guard| self.guard(guard)))
    }

    /// Gives back what this thread [kept](Guard::keep) last of this lock.
    ///
    /// [`Error::NotHeld`] when this thread kept nothing; [`Error::Lost`] when what it kept expired or was taken away.
    pub fn unlock(&self) -> Result<(), Error> {
        let name = self.inner.checked_name()?;
        match thread_owner::take_kept(self.bridge.client.id(), name) {
            Some(guard) => guard.unlock(),
            None => Err(Error::NotHeld { name: self.name().to_owned(), owner: "this thread".to_owned() }),
        }
    }

    /// Takes the lock, runs `body` and gives the lock back.
    ///
    /// A body that blocks cannot be cancelled when the lock is lost; it can look at [`Guard::is_valid`]. If the lock was
    /// lost before the body ended, the result is [`Error::Lost`].
    pub fn run<T>(&self, body: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        Self::run_under(self.lock()?, body)
    }

    /// As [`run`](Lock::run), but waits for the lock for `wait` at the most. `None`: `body` did not run.
    pub fn try_run_for<T>(&self, wait: Duration, body: impl FnOnce(&Guard) -> T) -> Result<Option<T>, Error> {
        self.try_lock_for(wait)?.map(|guard| Self::run_under(guard, body)).transpose()
    }

    /// Whether anybody holds the lock.
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.is_locked())
    }

    /// Whether this thread holds the lock.
    pub fn is_held_by_current_thread(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.is_held_by(&self.bridge.owner()))
    }

    /// How often this thread holds the lock.
    pub fn hold_count(&self) -> Result<u64, Error> {
        self.bridge.block_on(self.inner.hold_count(&self.bridge.owner()))
    }

    /// The rest of the holder's lease. As [`turnlock::Lock::remaining`](crate::Lock::remaining).
    pub fn remaining(&self) -> Result<Option<Duration>, Error> {
        self.bridge.block_on(self.inner.remaining())
    }

    /// Takes the lock away from whoever holds it. As [`turnlock::Lock::force_unlock`](crate::Lock::force_unlock).
    pub fn force_unlock(&self) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.force_unlock())
    }

    /// Takes the lock away from this owner. As [`turnlock::Lock::force_unlock_of`](crate::Lock::force_unlock_of).
    pub fn force_unlock_of(&self, owner: &OwnerId) -> Result<bool, Error> {
        self.bridge.block_on(self.inner.force_unlock_of(owner))
    }

    /// Who holds the lock. As [`turnlock::Lock::inspect`](crate::Lock::inspect).
    pub fn inspect(&self) -> Result<Inspection, Error> {
        self.bridge.block_on(self.inner.inspect())
    }

    /// The lock as the calling thread's.
    pub(super) fn mine(&self) -> crate::Lock {
        self.inner.owned_by(&self.bridge.owner())
    }

    pub(super) fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        Guard::new(guard, Arc::clone(&self.bridge.home), self.bridge.client.id())
    }

    fn run_under<T>(guard: Guard, body: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        let output = body(&guard);
        let lost = guard.lost();
        let name = guard.name().to_owned();
        match (guard.unlock(), lost) {
            (_, Some(reason)) => Err(Error::Lost { name, reason }),
            (Err(error @ Error::Lost { .. }), None) => Err(error),
            (Err(error), None) => {
                tracing::warn!(%name, %error, "the lock of a finished body could not be given back");
                Ok(output)
            }
            (Ok(()), None) => Ok(output),
        }
    }
}
