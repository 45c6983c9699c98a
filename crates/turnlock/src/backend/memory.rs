use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use turnlock_core::model::{
    Acquired, Claim, Deed, Item, Now, OfAnotherKind, Place, Released, Renewed, Snapshot, Wake, Wish,
};
use turnlock_core::{ClientId, Kind, Lease, LockName, Moment, OwnerId};

use super::embedded::{OwnedClaim, now, unacknowledged};
use super::{
    Answer, Backend, Care, Examinees, Failure, FailureKind, Renewal, Search, Sent, Sightings, Signals, Step,
    Waiter,
};
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
    items: Mutex<HashMap<Box<str>, Item>>,
    clients: Mutex<Vec<Weak<dyn Signals>>>,
    /// What clients say of themselves, and until when.
    introductions: Mutex<HashMap<ClientId, (String, Moment)>>,
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
        self.items().clear();
        self.introductions().clear();
    }

    /// While `true`, releases are told to nobody, as when messages are lost on the way.
    pub fn lose_signals(&self, lose: bool) {
        self.0.mute.store(lose, Ordering::Relaxed);
    }

    fn items(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Item>> {
        self.0.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets who the clients are, as time does.
    #[cfg(test)]
    pub(crate) fn forget_introductions(&self) {
        self.introductions().clear();
    }

    fn introductions(&self) -> std::sync::MutexGuard<'_, HashMap<ClientId, (String, Moment)>> {
        self.0.introductions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step on one item. What is free needs no entry.
    fn step<T>(&self, name: &LockName, step: impl FnOnce(&mut Item, Now) -> T) -> T {
        let now = now();
        let mut items = self.items();
        let mut fresh = None;
        let item = items.get_mut(name.key());
        let known = item.is_some();
        let item = item.unwrap_or_else(|| fresh.insert(Item::new(name.kind())));
        let answer = step(item, now);
        let is_free = item.is_free(now);
        if known && is_free {
            items.remove(name.key());
        } else if let Some(fresh) = fresh.filter(|_| !is_free) {
            items.insert(name.key().into(), fresh);
        }
        answer
    }

    /// A step that may have to be told to somebody.
    fn step_and_tell<T>(
        &self,
        name: &LockName,
        step: impl FnOnce(&mut Item, Now) -> Result<(T, Wake), OfAnotherKind>,
    ) -> Result<T, Failure> {
        let (answer, wake) = self.step(name, step).map_err(|found| foreign(name, found))?;
        match wake {
            Wake::Nobody => {}
            Wake::Listeners => self.tell(name),
            Wake::Waiter(waiter) => self.tell(&name.for_waiter(&waiter)),
        }
        Ok(answer)
    }

    /// How many hear of a release.
    fn listeners(&self) -> u32 {
        let clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let listeners = clients.iter().filter(|client| client.strong_count() > 0).count();
        if self.0.mute.load(Ordering::Relaxed) { 0 } else { u32::try_from(listeners).unwrap_or(u32::MAX) }
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

fn foreign(name: &LockName, OfAnotherKind(found): OfAnotherKind) -> Failure {
    Failure::refused(FailureKind::Corrupt { key: name.key().to_owned(), found: found.to_owned() })
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("items", &self.items().len()).finish()
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
fn at_once<T: Send + 'static>(step: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Step<T> {
    Box::pin(async move {
        let sent = Sent { connection: 1, at: clock::now() };
        Ok(Answer::new(step()?, sent))
    })
}

impl Backend for Memory {
    fn acquire(&self, claim: Claim<'_>, wish: Wish, care: Care) -> Step<Acquired> {
        if care.replicas > 0 {
            return unacknowledged(claim.name, care.replicas);
        }
        let (store, claim) = (self.store.clone(), OwnedClaim::of(claim));
        at_once(move || {
            store.step_and_tell(&claim.name, |item, now| item.acquire(now, &claim.as_claim(), &wish))
        })
    }

    fn release(&self, claim: Claim<'_>, _: Duration) -> Step<Released> {
        let (store, claim) = (self.store.clone(), OwnedClaim::of(claim));
        let step = move || {
            store
                .step_and_tell(&claim.name, |item, now| item.release(now, &claim.as_claim()))
                .map(|released| (released, store.listeners()))
        };
        Box::pin(async move {
            let Answer { value: (value, listeners), sent, .. } = at_once(step).await?;
            Ok(Answer { told: (value == Released::Freed).then_some(listeners), ..Answer::new(value, sent) })
        })
    }

    fn renew(&self, lines: &[Renewal], _: Care) -> Step<Vec<Option<Renewed>>> {
        let (store, lines) = (self.store.clone(), lines.to_vec());
        at_once(move || {
            let renew = |line: &Renewal| {
                store.step(&line.name, |item, now| item.renew(now, &line.claim(), line.lease)).ok()
            };
            Ok(lines.iter().map(renew).collect())
        })
    }

    fn keep(&self, claim: Claim<'_>, lease: Lease, care: Care) -> Step<Renewed> {
        if care.replicas > 0 {
            return unacknowledged(claim.name, care.replicas);
        }
        let (store, claim) = (self.store.clone(), OwnedClaim::of(claim));
        at_once(move || {
            store.step_and_tell(&claim.name, |item, now| item.keep(now, &claim.as_claim(), lease))
        })
    }

    fn attend(&self, waiters: &[Waiter], _: Duration) -> Step<Vec<Option<Place>>> {
        let (store, waiters) = (self.store.clone(), waiters.to_vec());
        at_once(move || {
            let attend = |waiter: &Waiter| {
                store.step_and_tell(&waiter.name, |item, now| item.attend(now, &waiter.owner)).ok()
            };
            Ok(waiters.iter().map(attend).collect())
        })
    }

    fn force_unlock(&self, name: &LockName, _: Duration) -> Step<bool> {
        let (store, name) = (self.store.clone(), name.clone());
        at_once(move || store.step_and_tell(&name, |item, now| item.force_unlock(now, name.kind())))
    }

    fn perform(&self, name: &LockName, deed: Deed, request: &OwnerId, _: Duration) -> Step<i64> {
        let (store, name, request) = (self.store.clone(), name.clone(), request.clone());
        at_once(move || {
            store.step_and_tell(&name, |item, now| item.perform(now, name.kind(), deed, &request))
        })
    }

    fn forget(&self, name: &LockName, request: &OwnerId, _: Duration) -> Step<()> {
        let (store, name, request) = (self.store.clone(), name.clone(), request.clone());
        at_once(move || {
            store
                .step(&name, |item, _| item.forget(name.kind(), &request))
                .map_err(|found| foreign(&name, found))
        })
    }

    fn inspect(&self, name: &LockName, _: Duration) -> Step<Snapshot> {
        let (store, name) = (self.store.clone(), name.clone());
        at_once(move || {
            store
                .step(&name, |item, now| item.snapshot(now, name.kind()))
                .map_err(|found| foreign(&name, found))
        })
    }

    fn find(&self, search: Search, _: Duration) -> Step<Sightings> {
        let store = self.store.clone();
        at_once(move || {
            let (now, mut items) = (now(), store.items());
            let wanted = items.iter_mut().filter(|(key, _)| search.wants(key));
            let held =
                wanted.filter_map(|(key, item)| item.held_kind(now).map(|kind| (key.to_string(), kind)));
            // In order, so that a bound cuts off the same ones each time.
            Ok(Sightings::new(&search, held.collect::<BTreeMap<_, _>>(), true))
        })
    }

    fn kind_of(&self, name: &LockName, _: Duration) -> Step<Option<Kind>> {
        let (store, name) = (self.store.clone(), name.clone());
        at_once(move || {
            let now = now();
            let mut items = store.items();
            let item = items.get_mut(name.key());
            Ok(item.and_then(|item| item.remembered_kind(now)))
        })
    }

    fn introduce(&self, client: ClientId, record: String, lasts: Duration, _: Duration) -> Step<()> {
        let store = self.store.clone();
        at_once(move || {
            let (now, mut introductions) = (clock::now(), store.introductions());
            introductions.retain(|_, (_, end)| *end > now);
            introductions.insert(client, (record, now + lasts));
            Ok(())
        })
    }

    fn introductions(&self, clients: &[ClientId], _: Duration) -> Step<Vec<Option<String>>> {
        let (store, clients) = (self.store.clone(), clients.to_vec());
        at_once(move || {
            let (now, introductions) = (clock::now(), store.introductions());
            let said = |client| introductions.get(client).filter(|(_, end)| *end > now);
            Ok(clients.iter().map(|client| said(client).map(|(record, _)| record.clone())).collect())
        })
    }

    fn listen(&self, _: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // Every client hears of every release, and looks at its own waiters.
        Box::pin(std::future::ready(()))
    }

    fn unlisten(&self, _: &LockName) {}

    fn examinees(&self) -> Examinees<'_> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn about(&self) -> String {
        "The store is in the memory of this process: there is no server to look at. Its locks end with it, and exclude nobody in \
         another process."
            .to_owned()
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        if self.attached.set(()).is_ok() {
            let mut clients = self.store.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.retain(|client| client.strong_count() > 0);
            clients.push(signals);
        }
    }
}
