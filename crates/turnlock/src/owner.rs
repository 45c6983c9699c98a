use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use turnlock_core::{Kind, LockName};

use crate::engine::{Engine, Hold};
use crate::error::Error;
use crate::guard::Guard;
use crate::lock::Lock;

/// An explicit owner of locks: what a thread is to Redisson.
///
/// Each [`Lock::lock`] is a new owner, so two tasks that share a lock exclude each other. Parts of a program that share
/// an `Owner` are one owner: what it holds, it acquires again at once.
///
/// An owner exists in this process only. On the store each outermost hold has a number of its own.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let owner = client.owner();
/// let lock = client.lock("orders").with_owner(&owner);
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?; // the same owner: does not wait
/// assert_eq!(inner.hold_count(), 2);
/// assert!(client.lock("orders").try_lock().await?.is_busy()); // another owner
/// # drop((outer, inner));
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Owner {
    engine: Weak<Engine>,
    number: u64,
    holds: Arc<Mutex<HashMap<LockName, Arc<OwnerHolds>>>>,
}

/// The holds of an owner on one lock.
#[derive(Debug, Default)]
pub(crate) struct OwnerHolds {
    /// Locked while this owner acquires, so that its own tasks do not wait for each other in the queue.
    pub(crate) acquiring: tokio::sync::Mutex<()>,
    /// The exclusive hold.
    hold: Mutex<Weak<Hold>>,
    /// The read hold.
    read_hold: Mutex<Weak<Hold>>,
    detached: Mutex<Vec<Guard>>,
}

impl OwnerHolds {
    fn slot(&self, kind: Kind) -> MutexGuard<'_, Weak<Hold>> {
        let slot = if kind == Kind::Read { &self.read_hold } else { &self.hold };
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hold of this kind, if it has guards.
    pub(crate) fn hold(&self, kind: Kind) -> Option<Arc<Hold>> {
        let hold = self.slot(kind).upgrade()?;
        let has_guards = hold.state().guards > 0;
        has_guards.then_some(hold)
    }

    /// Returns the hold of this kind, if it has guards and is valid.
    pub(crate) fn valid_hold(&self, kind: Kind) -> Option<Arc<Hold>> {
        self.hold(kind).filter(|hold| hold.is_valid())
    }

    pub(crate) fn set_hold(&self, hold: &Arc<Hold>) {
        *self.slot(hold.name.kind()) = Arc::downgrade(hold);
    }

    fn is_in_use(&self) -> bool {
        self.hold(Kind::Lock).is_some() || self.hold(Kind::Read).is_some() || !self.detached().is_empty()
    }

    fn detached(&self) -> MutexGuard<'_, Vec<Guard>> {
        self.detached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner {
    pub(crate) fn new(engine: &Arc<Engine>, number: u64) -> Self {
        Self { engine: Arc::downgrade(engine), number, holds: Arc::default() }
    }

    pub(crate) fn is_of(&self, engine: &Arc<Engine>) -> bool {
        std::ptr::eq(self.engine.as_ptr(), Arc::as_ptr(engine))
    }

    /// The client of this owner still exists.
    pub(crate) fn has_client(&self) -> bool {
        self.engine.strong_count() > 0
    }

    /// Returns the holds on one lock. Removes the entries of locks that are no longer held.
    pub(crate) fn holds(&self, name: &LockName) -> Arc<OwnerHolds> {
        let mut all = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holds) = all.get(name) {
            return Arc::clone(holds);
        }
        all.retain(|_, holds| Arc::strong_count(holds) > 1 || holds.is_in_use());
        Arc::clone(all.entry(name.clone()).or_default())
    }

    /// Keeps the lock held without the guard, until [`unlock`](Owner::unlock).
    ///
    /// For code that locks in one place and unlocks in another.
    pub fn detach(&self, guard: Guard) {
        let holds = self.holds(&guard.hold().name);
        holds.detached().push(guard);
    }

    /// Releases the guard of `lock` that was [detached](Owner::detach) last.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if there is none. [`Error::Lost`] if the lock was lost since.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. The release continues in the background.
    pub async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        let name = lock.checked_name()?;
        let holds = self.holds(name);
        let guard = {
            let mut detached = holds.detached();
            let last = detached.iter().rposition(|guard| guard.hold().name.kind() == name.kind());
            last.map(|last| detached.remove(last))
        };
        match guard {
            Some(guard) => guard.unlock().await,
            None => Err(Error::NotHeld { name: name.to_string(), owner: self.to_string() }),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owner {}", self.number)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.number)
    }
}
