use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use turnlock_core::LockName;

use super::bridge::{Bridge, IntoBlocking, blocking_form};
use crate::engine::Engine;
use crate::lock::after_body;
use crate::{Error, GuardError, LostReason, OwnerId};

blocking_form! {
    /// A held lock: [`turnlock::Guard`](crate::Guard). Dropping it releases the lock in the background.
    #[must_use = "the lock is released when the guard is dropped: bind it to a variable"]
    guard Guard
}

impl Guard {
    delegate! { Guard:
        /// Returns the name of the lock.
        get name(&self) -> &str;
        /// Returns the owner id on the store.
        get owner_id(&self) -> &OwnerId;
        /// Returns how many guards share this hold.
        get hold_count(&self) -> u32;
        /// Returns the fencing token.
        get token(&self) -> Option<u64>;
        /// Returns how many replicas acknowledged.
        get replicas(&self) -> u32;
        /// Returns `true` if the lock is held.
        get is_valid(&self) -> bool;
        /// Returns until when the lock is held.
        get valid_until(&self) -> Instant;
        /// Writes since when the lock is held.
        block announce(&self) -> Result<(), Error>;
    }

    /// Acquires the lock once more: [`turnlock::Guard::reenter`](crate::Guard::reenter).
    pub fn reenter(&self) -> Result<Self, Error> {
        Ok(self.bridge.block_on(self.inner.reenter())?.into_blocking(&self.bridge))
    }

    /// Releases the lock, and waits for the store: [`turnlock::Guard::unlock`](crate::Guard::unlock).
    pub fn unlock(self) -> Result<(), Error> {
        self.bridge.block_on(self.inner.unlock())
    }

    /// Lets the store release the lock after `time`: [`turnlock::Guard::unlock_after`](crate::Guard::unlock_after).
    pub fn unlock_after(self, time: Duration) -> Result<(), GuardError<Self>> {
        let outcome = self.bridge.block_on(self.inner.unlock_after(time));
        outcome.map_err(|error| error.map(|guard| guard.into_blocking(&self.bridge)))
    }

    /// Keeps the lock held without the guard, until this thread calls [`Lock::unlock`](super::Lock::unlock) or ends.
    ///
    /// For code that locks in one place and unlocks in another, as in Java.
    pub fn detach(self) {
        DETACHED.with_borrow_mut(|detached| detached.push(self));
    }

    /// Blocks until the lock is lost: [`turnlock::Guard::lost`](crate::Guard::lost).
    pub fn wait_lost(&self) -> LostReason {
        self.bridge.block_on(self.inner.lost())
    }

    /// Returns the guard of this lock that the calling thread detached last.
    pub(super) fn take_detached(engine: &Arc<Engine>, name: &LockName) -> Option<Self> {
        // The names of the two sides of a read-write lock are equal, but for their kinds.
        let is_of_lock = |Self { inner: guard, .. }: &Self| {
            let held = &guard.hold().name;
            Arc::ptr_eq(&guard.grant.engine, engine) && held == name && held.kind() == name.kind()
        };
        DETACHED.with_borrow_mut(|detached| {
            let last = detached.iter().rposition(is_of_lock)?;
            Some(detached.remove(last))
        })
    }

    /// Runs `body` under this guard, and releases it.
    pub(super) fn run<T>(self, body: impl FnOnce(&Self) -> T) -> Result<T, Error> {
        let output = body(&self);
        let (lost, name) = (self.inner.lost_error(), self.name().to_owned());
        let released = self.unlock();
        after_body(lost.map_or(Ok(output), Err)?, released, Some(&name))
    }
}

thread_local! {
    /// The detached guards of this thread. They end with it.
    static DETACHED: RefCell<Vec<Guard>> = RefCell::default();
}
