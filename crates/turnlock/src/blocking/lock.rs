use std::time::Duration;

use super::Guard;
use super::bridge::{Bridge, IntoBlocking, blocking_form};
use crate::{Error, Inspection, OwnerId, TryAcquire};

blocking_form! {
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
    #[must_use = "a handle holds nothing: call `lock()`, `try_lock()` or `try_lock_for()`"]
    handle Lock
}

impl Lock {
    delegate! { Lock:
        /// Sets a fixed lease, which is not renewed.
        set with_lease(&self, lease: Duration) -> Self;
        /// Requires replicas to acknowledge each grant.
        set with_replicas(&self, replicas: u32) -> Self;
        /// Returns the name of the lock. Empty if the given name is not valid.
        get name(&self) -> &str;
        /// Acquires the lock, and waits until it is free.
        own lock(&self) -> Result<Guard, Error>;
        /// Acquires the lock if it is free or this thread holds it, without waiting.
        own try_lock(&self) -> Result<TryAcquire<Guard>, Error>;
        /// Acquires the lock, and waits at most `wait`.
        own try_lock_for(&self, wait: Duration) -> Result<TryAcquire<Guard>, Error>;
        /// Returns `true` if the lock is held, by any owner of any process.
        block is_locked(&self) -> Result<bool, Error>;
        /// Returns the remaining lease of the holder.
        block remaining(&self) -> Result<Option<Duration>, Error>;
        /// Releases the lock of any owner by force.
        block force_unlock(&self) -> Result<bool, Error>;
        /// Releases the lock by force if `owner` holds it.
        block force_unlock_of(&self, owner: &OwnerId) -> Result<bool, Error>;
        /// Returns the holders, their counts and leases.
        block inspect(&self) -> Result<Inspection, Error>;
    }

    /// Releases the guard that this thread [detached](Guard::detach) last.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if there is none. [`Error::Lost`] if the lock was lost since.
    pub fn unlock(&self) -> Result<(), Error> {
        let named = &self.inner.named;
        match Guard::take_detached(&named.engine, named.checked()?) {
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
        self.lock()?.run(body)
    }

    /// Acquires the lock within `wait`, runs `body`, and releases the lock.
    ///
    /// Returns `None` if the lock was busy, and `body` did not run. Otherwise as [`run`](Lock::run).
    #[track_caller]
    pub fn try_run_for<T>(&self, wait: Duration, body: impl FnOnce(&Guard) -> T) -> Result<Option<T>, Error> {
        self.try_lock_for(wait)?.acquired().map(|guard| guard.run(body)).transpose()
    }

    /// Returns `true` if this thread holds the lock on the store.
    pub fn is_held_by_current_thread(&self) -> Result<bool, Error> {
        Ok(self.hold_count()? > 0)
    }

    /// Returns the hold count of this thread on the store, or 0.
    pub fn hold_count(&self) -> Result<u64, Error> {
        self.bridge.block_on(self.inner.hold_count(&self.bridge.owner(0)))
    }

    fn with_thread_owner(&self) -> crate::Lock {
        self.inner.with_owner(&self.bridge.owner(0))
    }
}
