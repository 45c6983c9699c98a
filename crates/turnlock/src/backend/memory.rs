use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use turnlock_core::model::{Acquired, LockState, Released, Renewed, Snapshot};
use turnlock_core::{Lease, LockName, Moment};

use super::{Answer, Backend, Claim, Renewal, Sent, Signals, Step};
use crate::clock;

/// Locks in the memory of this process: the model and a mutex.
///
/// `memory://` makes a store of its own for each client; `memory://NAME` is one store for all clients of this process
/// that name it. A `MemoryStore` given to [`Builder::memory`](crate::Builder::memory) can be shared as well, and can
/// misbehave on purpose, so that code which uses locks can be tested for what it does then.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use turnlock::{Client, MemoryStore};
///
/// let store = MemoryStore::new();
/// let one = Client::builder().memory(&store)?;
/// let two = Client::builder().memory(&store)?;
/// let guard = one.lock("orders").lock().await?;
/// assert!(two.lock("orders").try_lock().await?.is_none());
///
/// store.lose_data(); // as a server does that restarts without persistence
/// assert!(two.lock("orders").try_lock().await?.is_some());
/// assert!(matches!(guard.unlock().await, Err(turnlock::Error::Lost { .. })));
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Store>);

#[derive(Default)]
struct Store {
    locks: Mutex<HashMap<Box<str>, LockState>>,
    clients: Mutex<Vec<Weak<dyn Signals>>>,
    mute: AtomicBool,
}

static NAMED: Mutex<Option<HashMap<String, Weak<Store>>>> = Mutex::new(None);

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The store of this name in this process. It lives as long as somebody uses it.
    pub(crate) fn named(name: &str) -> Self {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        let named = named.get_or_insert_default();
        named.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            return Self(store);
        }
        let store = Self::new();
        named.insert(name.to_owned(), Arc::downgrade(&store.0));
        store
    }

    /// Forgets every lock, without telling anybody.
    pub fn lose_data(&self) {
        self.locks().clear();
    }

    /// While `true`, releases are told to nobody, as when messages are lost on the way.
    pub fn lose_signals(&self, lose: bool) {
        self.0.mute.store(lose, Ordering::Relaxed);
    }

    fn locks(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, LockState>> {
        self.0.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step on one lock. What is free needs no entry.
    fn step<T>(&self, name: &LockName, step: impl FnOnce(&mut LockState, Moment) -> T) -> T {
        let now = clock::now();
        let mut locks = self.locks();
        let mut fresh = LockState::default();
        let state = locks.get_mut(name.key());
        let known = state.is_some();
        let state = state.unwrap_or(&mut fresh);
        let answer = step(state, now);
        match (known, state.is_free(now)) {
            (true, true) => drop(locks.remove(name.key())),
            (false, false) => drop(locks.insert(name.key().into(), fresh)),
            _ => {}
        }
        answer
    }

    fn tell(&self, name: &LockName) {
        if self.0.mute.load(Ordering::Relaxed) {
            return;
        }
        let clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for client in clients.iter().filter_map(Weak::upgrade) {
            client.freed(name);
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("locks", &self.locks().len()).finish()
    }
}

/// One client's way to a [`MemoryStore`].
#[derive(Debug)]
pub(crate) struct Memory {
    store: MemoryStore,
    attached: OnceLock<()>,
}

impl Memory {
    pub(crate) fn new(store: MemoryStore) -> Self {
        Self { store, attached: OnceLock::new() }
    }
}

/// A step that is done when it is polled, not before, so that a future that was never polled did nothing.
fn at_once<T: Send + 'static>(step: impl FnOnce() -> T + Send + 'static) -> Step<T> {
    Box::pin(async move {
        let sent = Sent { connection: 1, at: clock::now() };
        Ok(Answer { value: step(), sent })
    })
}

impl Backend for Memory {
    fn acquire(&self, claim: Claim<'_>, lease: Lease, _: Duration) -> Step<Acquired> {
        let (store, name, owner) = (self.store.clone(), claim.name.clone(), claim.owner.clone());
        let target = claim.target;
        at_once(move || store.step(&name, |lock, now| lock.acquire(now, &owner, target, lease)))
    }

    fn release(&self, claim: Claim<'_>, _: Duration) -> Step<Released> {
        let (store, name, owner) = (self.store.clone(), claim.name.clone(), claim.owner.clone());
        let target = claim.target;
        at_once(move || {
            let answer = store.step(&name, |lock, now| lock.release(now, &owner, target));
            if answer == Released::Freed {
                store.tell(&name);
            }
            answer
        })
    }

    fn renew(&self, lines: &[Renewal], _: Duration) -> Step<Vec<Option<Renewed>>> {
        let (store, lines) = (self.store.clone(), lines.to_vec());
        at_once(move || {
            let renew =
                |line: &Renewal| store.step(&line.name, |lock, now| lock.renew(now, &line.owner, line.lease));
            lines.iter().map(|line| Some(renew(line))).collect()
        })
    }

    fn force_unlock(&self, name: &LockName, _: Duration) -> Step<bool> {
        let (store, name) = (self.store.clone(), name.clone());
        at_once(move || {
            let was_held = store.step(&name, LockState::force_unlock);
            if was_held {
                store.tell(&name);
            }
            was_held
        })
    }

    fn inspect(&self, name: &LockName, _: Duration) -> Step<Snapshot> {
        let (store, name) = (self.store.clone(), name.clone());
        at_once(move || store.step(&name, LockState::snapshot))
    }

    fn listen(&self, _: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // Every client hears of every release, and looks at its own waiters.
        Box::pin(std::future::ready(()))
    }

    fn unlisten(&self, _: &LockName) {}

    fn attach(&self, signals: Weak<dyn Signals>) {
        if self.attached.set(()).is_ok() {
            let mut clients = self.store.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.retain(|client| client.strong_count() > 0);
            clients.push(signals);
        }
    }
}
