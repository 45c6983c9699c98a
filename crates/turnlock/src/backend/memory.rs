use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use turnlock_core::model::{
    AcquireOptions, Acquired, Claim, CounterOp, Item, Notification, Now, QueuePosition, Released, Renewed,
    Snapshot, WrongKind,
};
use turnlock_core::{ClientId, Kind, Lease, LockName, Moment, OwnerId};

use super::embedded::{OwnedClaim, now, unacknowledged};
use super::{
    Backend, Failure, FairWaiter, FoundKeys, Renewal, Search, Sent, ServerProbes, Signals, Step, StepOptions,
    StepReply,
};
use crate::clock;

/// A store in the memory of this process.
///
/// `memory://` is one store for all clients of this process, and `memory://NAME` another one for each name. A
/// `MemoryStore` for [`Builder::memory`](crate::Builder::memory) is separate from these: a store for one test. It
/// can simulate failures.
///
/// If tokio's clock is paused when a client is made, leases follow it, in the whole process.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use turnlock::{Client, MemoryStore};
///
/// let store = MemoryStore::new();
/// let one = Client::builder().memory(&store)?;
/// let two = Client::builder().memory(&store)?;
/// let guard = one.lock("orders").lock().await?;
/// assert!(two.lock("orders").try_lock().await?.is_busy());
///
/// store.lose_data(); // as a server that restarts without persistence
/// assert!(two.lock("orders").try_lock().await?.acquired().is_some());
/// assert!(matches!(guard.unlock().await, Err(turnlock::Error::Lost { .. })));
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Store>);

#[derive(Default)]
struct Store {
    items: Mutex<HashMap<Box<str>, Item>>,
    clients: Mutex<Vec<Weak<dyn Signals>>>,
    /// The records of clients, and when they expire.
    client_records: Mutex<HashMap<ClientId, (String, Moment)>>,
    loses_messages: AtomicBool,
}

static NAMED: Mutex<Option<HashMap<String, Weak<Store>>>> = Mutex::new(None);

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the store of this name in this process. It is dropped with its last user.
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

    /// Deletes all data without a notification, as a server that restarts without persistence.
    pub fn lose_data(&self) {
        self.items().clear();
        self.client_records().clear();
    }

    /// While `lose` is `true`, drops all messages about releases.
    pub fn lose_messages(&self, lose: bool) {
        self.0.loses_messages.store(lose, Ordering::Relaxed);
    }

    fn items(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Item>> {
        self.0.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes the records of all clients, as their expiry would.
    #[cfg(test)]
    pub(crate) fn forget_client_records(&self) {
        self.client_records().clear();
    }

    fn client_records(&self) -> std::sync::MutexGuard<'_, HashMap<ClientId, (String, Moment)>> {
        self.0.client_records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes one step on the item of a name. A free item has no entry.
    fn step<T>(&self, name: &LockName, step: impl FnOnce(&mut Item, Now) -> T) -> T {
        let now = now();
        let mut items = self.items();
        let mut fresh = None;
        let item = items.get_mut(name.key());
        let existed = item.is_some();
        let item = item.unwrap_or_else(|| fresh.insert(Item::new(name.kind())));
        let reply = step(item, now);
        let is_free = item.is_free(now);
        if existed && is_free {
            items.remove(name.key());
        } else if let Some(fresh) = fresh.filter(|_| !is_free) {
            items.insert(name.key().into(), fresh);
        }
        reply
    }

    /// Executes one step on the item of a name, and notifies the waiters.
    fn step_and_notify<T>(
        &self,
        name: &LockName,
        step: impl FnOnce(&mut Item, Now) -> Result<(T, Notification), WrongKind>,
    ) -> Result<T, Failure> {
        let (reply, notification) = self.step(name, step).map_err(|found| wrong_kind(name, found))?;
        match notification {
            Notification::None => {}
            Notification::Subscribers => self.notify(name),
            Notification::Waiter(waiter) => self.notify(&name.for_waiter(&waiter)),
        }
        Ok(reply)
    }

    /// Returns how many clients a release reaches.
    fn subscribers(&self) -> u32 {
        if self.0.loses_messages.load(Ordering::Relaxed) {
            return 0;
        }
        let clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let connected = clients.iter().filter(|client| client.strong_count() > 0).count();
        u32::try_from(connected).unwrap_or(u32::MAX)
    }

    fn notify(&self, name: &LockName) {
        if self.0.loses_messages.load(Ordering::Relaxed) {
            return;
        }
        let clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for client in clients.iter().filter_map(Weak::upgrade) {
            client.freed(name);
        }
    }
}

fn wrong_kind(name: &LockName, WrongKind(found): WrongKind) -> Failure {
    Failure::wrong_kind(name, found)
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("items", &self.items().len()).finish()
    }
}

/// The backend of one client on a [`MemoryStore`].
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

/// A step that runs when it is first polled, so that a future that is never polled has no effect.
fn on_poll<T: Send + 'static>(step: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Step<T> {
    Box::pin(async move {
        let sent = Sent { connection: 1, at: clock::now() };
        Ok(StepReply::new(step()?, sent))
    })
}

impl Backend for Memory {
    fn acquire(
        &self,
        claim: Claim<'_>,
        options: AcquireOptions,
        step_options: StepOptions,
    ) -> Step<Acquired> {
        if step_options.replicas > 0 {
            return unacknowledged(claim.name, step_options.replicas);
        }
        let (store, claim) = (self.store.clone(), OwnedClaim::of(claim));
        on_poll(move || {
            store.step_and_notify(&claim.name, |item, now| item.acquire(now, &claim.as_claim(), &options))
        })
    }

    fn release(&self, claim: Claim<'_>, _: Duration) -> Step<Released> {
        let (store, claim) = (self.store.clone(), OwnedClaim::of(claim));
        let step = move || {
            store
                .step_and_notify(&claim.name, |item, now| item.release(now, &claim.as_claim()))
                .map(|released| (released, store.subscribers()))
        };
        Box::pin(async move {
            let StepReply { value: (value, subscribers), sent, .. } = on_poll(step).await?;
            let notified = (value == Released::Freed).then_some(subscribers);
            Ok(StepReply { notified, ..StepReply::new(value, sent) })
        })
    }

    fn renew(&self, lines: &[Renewal], _: StepOptions) -> Step<Vec<Option<Renewed>>> {
        let (store, lines) = (self.store.clone(), lines.to_vec());
        on_poll(move || {
            let renew = |line: &Renewal| {
                store.step(&line.name, |item, now| item.renew(now, &line.claim(), line.lease)).ok()
            };
            Ok(lines.iter().map(renew).collect())
        })
    }

    fn unlock_after(&self, claim: Claim<'_>, lease: Lease, step_options: StepOptions) -> Step<Renewed> {
        if step_options.replicas > 0 {
            return unacknowledged(claim.name, step_options.replicas);
        }
        let (store, claim) = (self.store.clone(), OwnedClaim::of(claim));
        on_poll(move || {
            store.step_and_notify(&claim.name, |item, now| item.unlock_after(now, &claim.as_claim(), lease))
        })
    }

    fn heartbeat(&self, waiters: &[FairWaiter], _: Duration) -> Step<Vec<Option<QueuePosition>>> {
        let (store, waiters) = (self.store.clone(), waiters.to_vec());
        on_poll(move || {
            let heartbeat = |waiter: &FairWaiter| {
                store.step_and_notify(&waiter.name, |item, now| item.heartbeat(now, &waiter.owner)).ok()
            };
            Ok(waiters.iter().map(heartbeat).collect())
        })
    }

    fn force_unlock(&self, name: &LockName, _: Duration) -> Step<bool> {
        let (store, name) = (self.store.clone(), name.clone());
        on_poll(move || store.step_and_notify(&name, |item, now| item.force_unlock(now, name.kind())))
    }

    fn perform(&self, name: &LockName, op: CounterOp, request: &OwnerId, _: Duration) -> Step<i64> {
        let (store, name, request) = (self.store.clone(), name.clone(), request.clone());
        on_poll(move || {
            store.step_and_notify(&name, |item, now| item.perform(now, name.kind(), op, &request))
        })
    }

    fn forget(&self, name: &LockName, request: &OwnerId, _: Duration) -> Step<()> {
        let (store, name, request) = (self.store.clone(), name.clone(), request.clone());
        on_poll(move || {
            store
                .step(&name, |item, _| item.forget(name.kind(), &request))
                .map_err(|found| wrong_kind(&name, found))
        })
    }

    fn inspect(&self, name: &LockName, _: Duration) -> Step<Snapshot> {
        let (store, name) = (self.store.clone(), name.clone());
        on_poll(move || {
            store
                .step(&name, |item, now| item.snapshot(now, name.kind()))
                .map_err(|found| wrong_kind(&name, found))
        })
    }

    fn find(&self, search: Search, _: Duration) -> Step<FoundKeys> {
        let store = self.store.clone();
        on_poll(move || {
            let (now, mut items) = (now(), store.items());
            let matching = items.iter_mut().filter(|(key, _)| search.matches(key));
            let held =
                matching.filter_map(|(key, item)| item.held_kind(now).map(|kind| (key.to_string(), kind)));
            // Sorted, so that a truncated result is the same each time.
            Ok(FoundKeys::new(&search, held.collect::<BTreeMap<_, _>>(), true))
        })
    }

    fn kind_of(&self, name: &LockName, _: Duration) -> Step<Option<Kind>> {
        let (store, name) = (self.store.clone(), name.clone());
        on_poll(move || {
            let now = now();
            let mut items = store.items();
            let item = items.get_mut(name.key());
            Ok(item.and_then(|item| item.remembered_kind(now)))
        })
    }

    fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        lasts: Duration,
        _: Duration,
    ) -> Step<()> {
        let store = self.store.clone();
        on_poll(move || {
            let (now, mut client_records) = (clock::now(), store.client_records());
            client_records.retain(|_, (_, end)| *end > now);
            client_records.insert(client, (record, now + lasts));
            Ok(())
        })
    }

    fn client_records(&self, clients: &[ClientId], _: Duration) -> Step<Vec<Option<String>>> {
        let (store, clients) = (self.store.clone(), clients.to_vec());
        on_poll(move || {
            let (now, client_records) = (clock::now(), store.client_records());
            let unexpired = |client| client_records.get(client).filter(|(_, end)| *end > now);
            Ok(clients.iter().map(|client| unexpired(client).map(|(record, _)| record.clone())).collect())
        })
    }

    fn subscribe(&self, _: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // Every client is notified of every release, and wakes its own waiters.
        Box::pin(std::future::ready(()))
    }

    fn unsubscribe(&self, _: &LockName) {}

    fn server_probes(&self) -> ServerProbes<'_> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn about(&self) -> String {
        "The store is in the memory of this process, without a server to check. Its locks exclude only clients of this \
         process, and end with it."
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
