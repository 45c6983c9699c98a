use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use turnlock_core::model::{Released, Reply, Step};
use turnlock_core::{ClientId, Kind, LockName, Moment};

use crate::activity::{Activity, ActivityRecord, ActivityScope};
use crate::call::{ReplyFuture, StepOptions, StepReply};
use crate::clock;
use crate::directory::{Directory, FoundKeys, Search};
use crate::examination::{ClientProfile, Examination, ReleaseMessages};
use crate::failure::{Failure, Sent};
use crate::finding::{Finding, Level, Topic};
use crate::records::Records;
use crate::row::{self, Executed, Row};
use crate::store::{Signals, Store};

/// A store in the memory of this process.
///
/// `memory://` is one store for all clients of this process, and `memory://NAME` another one for each name. A
/// `MemoryStore` for `Builder::memory` is separate from these: a store for one test. It
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
pub struct MemoryStore(Arc<State>);

#[derive(Default)]
struct State {
    rows: Mutex<HashMap<Box<str>, Row>>,
    clients: Mutex<Vec<Weak<dyn Signals>>>,
    records: Mutex<Records>,
    loses_messages: AtomicBool,
}

static NAMED: LazyLock<Mutex<HashMap<String, Weak<State>>>> = LazyLock::new(Mutex::default);

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the store of this name in this process. It is dropped with its last user.
    pub fn named(name: &str) -> Self {
        let mut named = NAMED.lock();
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
        self.0.rows.lock().clear();
        self.forget_client_records();
    }

    /// While `lose` is `true`, drops all messages about releases.
    pub fn lose_messages(&self, lose: bool) {
        self.0.loses_messages.store(lose, Ordering::Relaxed);
    }

    /// Deletes the records of all clients, as their expiry would.
    #[doc(hidden)]
    pub fn forget_client_records(&self) {
        *self.0.records.lock() = Records::default();
    }

    /// Executes steps, and notifies the waiters. Returns also how many clients were notified.
    fn execute(&self, steps: &[Step], me: ClientId) -> Result<(Vec<Result<Reply, Failure>>, u32), Failure> {
        let Executed { replies, freed } = row::execute(&mut *self.0.rows.lock(), steps, clock::both(), me)?;
        if freed.is_empty() || self.0.loses_messages.load(Ordering::Relaxed) {
            return Ok((replies, 0));
        }
        let clients = self.0.clients.lock().clone();
        let mut notified = 0;
        for client in clients.iter().filter_map(Weak::upgrade) {
            let mut is_concerned = false;
            for name in &freed {
                is_concerned |= client.freed(name);
            }
            notified += u32::from(is_concerned);
        }
        Ok((replies, notified))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("rows", &self.0.rows.lock().len()).finish()
    }
}

/// The store of one client on a [`MemoryStore`].
#[derive(Debug)]
pub struct Memory {
    store: MemoryStore,
    client: ClientId,
}

impl Memory {
    /// Creates the store of this client.
    pub fn new(store: MemoryStore, client: ClientId) -> Self {
        Self { store, client }
    }
}

/// A reply that is made when it is first polled, so that a future that is never polled has no effect.
fn on_poll<T: Send + 'static>(reply: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> ReplyFuture<T> {
    Box::pin(async move {
        let sent = Sent { connection: 1, at: clock::now() };
        Ok(StepReply::new(reply()?, sent))
    })
}

impl Store for Memory {
    fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<Reply> {
        let (store, client) = (self.store.clone(), self.client);
        Box::pin(async move {
            options.without_replicas(step.name())?;
            let sent = Sent { connection: 1, at: clock::now() };
            let (mut replies, notified) = store.execute(std::slice::from_ref(&step), client)?;
            let value = replies.pop().unwrap_or_else(|| Err(Failure::unavailable("no reply")))?;
            let notified = (value == Reply::Released(Released::Freed)).then_some(notified);
            Ok(StepReply { notified, ..StepReply::new(value, sent) })
        })
    }

    fn call_batch(&self, steps: Vec<Step>, _: StepOptions) -> ReplyFuture<Vec<Option<Reply>>> {
        let (store, client) = (self.store.clone(), self.client);
        on_poll(move || Ok(store.execute(&steps, client)?.0.into_iter().map(Result::ok).collect()))
    }

    fn subscribe(&self, _: &LockName) -> BoxFuture<'static, ()> {
        // Every client is notified of every release, and wakes its own waiters.
        Box::pin(ready(()))
    }

    fn shares_fair_subscriptions(&self) -> bool {
        true
    }

    fn unsubscribe(&self, _: &LockName) {}

    fn attach(&self, signals: Weak<dyn Signals>) {
        let mut clients = self.store.0.clients.lock();
        clients.retain(|client| client.strong_count() > 0);
        clients.push(signals);
    }

    fn directory(&self) -> &dyn Directory {
        self
    }

    fn examination(&self) -> &dyn Examination {
        self
    }
}

impl Examination for Memory {
    fn examine<'a>(
        &'a self,
        _: &'a ClientProfile,
        _: &'a dyn ReleaseMessages,
    ) -> BoxFuture<'a, Vec<Finding>> {
        let text = "The store is in the memory of this process, without a server to check. Its locks exclude only \
                    clients of this process, and end with it.";
        Box::pin(ready(vec![Finding::new(Level::Fine, Topic::Server, text)]))
    }
}

impl Directory for Memory {
    fn find(&self, search: Search, _: Duration) -> ReplyFuture<FoundKeys> {
        let store = self.store.clone();
        on_poll(move || {
            let (now, mut rows) = (clock::both(), store.0.rows.lock());
            let matching = rows.iter_mut().filter(|(key, _)| search.matches(key));
            let held =
                matching.filter_map(|(key, row)| row.held_kind(now).map(|kind| (key.to_string(), kind)));
            // Sorted, so that a truncated result is the same each time.
            Ok(FoundKeys::new(&search, held.collect::<BTreeMap<_, _>>(), true))
        })
    }

    fn kind_of(&self, name: &LockName, _: Duration) -> ReplyFuture<Option<Kind>> {
        let (store, name) = (self.store.clone(), name.clone());
        on_poll(move || {
            let mut rows = store.0.rows.lock();
            Ok(rows.get_mut(name.key()).and_then(|row| row.remembered_kind(clock::both())))
        })
    }

    fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        lasts: Duration,
        _: Duration,
    ) -> ReplyFuture<()> {
        let store = self.store.clone();
        on_poll(move || {
            store.0.records.lock().write_client_record(client, record, lasts, clock::now());
            Ok(())
        })
    }

    fn client_records(&self, clients: &[ClientId], _: Duration) -> ReplyFuture<Vec<Option<String>>> {
        let (store, clients) = (self.store.clone(), clients.to_vec());
        on_poll(move || Ok(store.0.records.lock().client_records(&clients, clock::now())))
    }

    fn write_activity(
        &self,
        client: ClientId,
        record: Option<ActivityRecord>,
        _: Duration,
    ) -> ReplyFuture<Option<Moment>> {
        let store = self.store.clone();
        on_poll(move || {
            let mut records = store.0.records.lock();
            // Under the mutex, so that stamps are in the order of the writes.
            let now = clock::now();
            records.write_activity(client, record, now);
            Ok(Some(now))
        })
    }

    fn activity(&self, scope: ActivityScope, _: Duration) -> ReplyFuture<Activity> {
        let store = self.store.clone();
        on_poll(move || {
            let records = store.0.records.lock();
            Ok(records.activity(scope, clock::now()))
        })
    }
}
