use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use turnlock_core::{Kind, LockName};

use crate::engine::{Engine, Hold};
use crate::error::Error;
use crate::guard::Guard;
use crate::lock::Lock;

/// Someone who holds locks, under whatever task: what a thread is to Redisson.
///
/// Each [`Lock::lock`] is an owner of its own, so two tasks that share a lock exclude each other. Where several parts of
/// a program are to be *one* owner, they share an `Owner`, and what it holds already it gets again at once.
///
/// An owner is a matter of this process. On the wire, each outermost hold has a number of its own.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let me = client.owner();
/// let lock = client.lock("orders").owned_by(&me);
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?; // the same owner: no waiting
/// assert_eq!(inner.hold_count(), 2);
/// assert!(client.lock("orders").try_lock().await?.is_none()); // anybody else
/// # drop((outer, inner));
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Owner {
    engine: Weak<Engine>,
    number: u64,
    files: Arc<Mutex<HashMap<LockName, Arc<OwnerFile>>>>,
}

/// What an owner has of one lock.
#[derive(Debug, Default)]
pub(crate) struct OwnerFile {
    /// Held while this owner is taking the lock, so that its own tasks do not wait for each other in the queue.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// What it holds alone.
    hold: Mutex<Weak<Hold>>,
    /// What it holds as a reader.
    read_hold: Mutex<Weak<Hold>>,
    kept: Mutex<Vec<Guard>>,
}

impl OwnerFile {
    fn place(&self, kind: Kind) -> MutexGuard<'_, Weak<Hold>> {
        let place = if kind == Kind::Read { &self.read_hold } else { &self.hold };
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hold of this owner, of this kind, if it has one that was not given back.
    pub(crate) fn hold(&self, kind: Kind) -> Option<Arc<Hold>> {
        let hold = self.place(kind).upgrade()?;
        let is_open = hold.state().guards > 0;
        is_open.then_some(hold)
    }

    /// The same, if it is believed in.
    pub(crate) fn valid_hold(&self, kind: Kind) -> Option<Arc<Hold>> {
        self.hold(kind).filter(|hold| hold.is_valid())
    }

    pub(crate) fn set_hold(&self, hold: &Arc<Hold>) {
        *self.place(hold.name.kind()) = Arc::downgrade(hold);
    }

    fn is_in_use(&self) -> bool {
        self.hold(Kind::Lock).is_some() || self.hold(Kind::Read).is_some() || !self.kept().is_empty()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Guard>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner {
    pub(crate) fn new(engine: &Arc<Engine>, number: u64) -> Self {
        Self { engine: Arc::downgrade(engine), number, files: Arc::default() }
    }

    pub(crate) fn is_of(&self, engine: &Arc<Engine>) -> bool {
        std::ptr::eq(self.engine.as_ptr(), Arc::as_ptr(engine))
    }

    /// Whether the client that this owner belongs to is still there.
    pub(crate) fn is_of_use(&self) -> bool {
        self.engine.strong_count() > 0
    }

    /// The file on one lock. Files of locks that are not held any more are put away on the way.
    pub(crate) fn file(&self, name: &LockName) -> Arc<OwnerFile> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(name) {
            return Arc::clone(file);
        }
        files.retain(|_, file| Arc::strong_count(file) > 1 || file.is_in_use());
        Arc::clone(files.entry(name.clone()).or_default())
    }

    /// Keeps a guard, so that the lock stays held until [`unlock`](Owner::unlock): for code that locks in one place and
    /// unlocks in another.
    pub fn keep(&self, guard: Guard) {
        let file = self.file(&guard.hold().name);
        file.kept().push(guard);
    }

    /// Gives back the guard of this lock that was kept last.
    ///
    /// [`Error::NotHeld`] when there is none: this owner never held the lock, or has given it back already.
    /// [`Error::Lost`] when it was held, and expired or was taken away since.
    ///
    /// Cancelling: safe. The release goes on in the background.
    pub async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        let name = lock.checked_name()?;
        let file = self.file(name);
        let guard = {
            let mut kept = file.kept();
            let last = kept.iter().rposition(|guard| guard.hold().name.kind() == name.kind());
            last.map(|last| kept.remove(last))
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
