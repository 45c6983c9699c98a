use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use turnlock_core::{ClientId, LockName};

use super::presence;
use super::store_path::StorePath;
use super::wake_pipe::WakePipe;
use turnlock_store::Signals;

/// The subscriptions of one client, and the delivery of wake-ups to it.
///
/// Clients of the same process wake it directly, those of other processes through its pipe. It also watches
/// whether the clients are alive that block its waiters, since a dead client publishes no release.
pub(super) struct Wakeups {
    store_path: StorePath,
    signals: OnceLock<Weak<dyn Signals>>,
    state: Mutex<State>,
    /// Notified when there are blockers to watch.
    watching: Notify,
}

#[derive(Default)]
struct State {
    last: i64,
    names: HashMap<i64, LockName>,
    /// The subscriptions to names with this key.
    by_key: HashMap<Box<str>, HashMap<LockName, i64>>,
    /// The other clients that hold a key, or wait for it.
    blockers: HashMap<Box<str>, Vec<ClientId>>,
}

/// The clients of this process, which wake each other without a pipe.
static CLIENTS: LazyLock<Mutex<HashMap<ClientId, Weak<Wakeups>>>> = LazyLock::new(Mutex::default);

/// How often to check whether the blockers are alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl Wakeups {
    pub(super) fn new(store_path: StorePath) -> Self {
        Self { store_path, signals: OnceLock::new(), state: Mutex::default(), watching: Notify::new() }
    }

    pub(super) fn attach(&self, signals: Weak<dyn Signals>) {
        let _ = self.signals.set(signals);
    }

    /// Makes this client known to the others of this process, which wake it directly from now on.
    pub(super) fn register(self: &Arc<Self>, client: ClientId) {
        let mut clients = CLIENTS.lock();
        clients.retain(|_, wakeups| wakeups.strong_count() > 0);
        clients.insert(client, Arc::downgrade(self));
    }

    /// Returns the wake-ups of a client, if it belongs to this process.
    pub(super) fn of(client: ClientId) -> Option<Arc<Self>> {
        CLIENTS.lock().get(&client)?.upgrade()
    }

    /// Adds a subscription to a name, and returns its number. Replaces an earlier one.
    pub(super) fn subscribe(&self, name: &LockName) -> i64 {
        let mut state = self.state.lock();
        state.forget(name);
        state.last += 1;
        let number = state.last;
        state.names.insert(number, name.clone());
        state.by_key.entry(name.key().into()).or_default().insert(name.clone(), number);
        number
    }

    pub(super) fn unsubscribe(&self, name: &LockName) -> Option<i64> {
        self.state.lock().forget(name)
    }

    /// Watches these clients, which block the subscribed names with this key.
    pub(super) fn watch(&self, key: &str, clients: Vec<ClientId>) {
        let mut state = self.state.lock();
        if clients.is_empty() || !state.by_key.contains_key(key) {
            state.blockers.remove(key);
            return;
        }
        state.blockers.insert(key.into(), clients);
        drop(state);
        self.watching.notify_one();
    }

    /// Handles a wake-up for a subscription.
    pub(super) fn wake(&self, subscription: i64) {
        let name = self.state.lock().names.get(&subscription).cloned();
        if let (Some(name), Some(signals)) = (name, self.signals()) {
            signals.freed(&name);
        }
    }

    /// Handles the replacement of the file, which may have lost data.
    pub(super) fn store_replaced(&self) {
        if let Some(signals) = self.signals() {
            signals.server_changed();
        }
    }

    fn signals(&self) -> Option<Arc<dyn Signals>> {
        self.signals.get()?.upgrade()
    }

    /// Wakes the waiters of keys that a dead client blocks.
    fn check_blockers(&self) {
        let watched: Vec<_> =
            self.state.lock().blockers.iter().map(|(key, clients)| (key.clone(), clients.clone())).collect();
        for (key, clients) in watched {
            if clients.iter().all(|client| presence::is_alive(&self.store_path, *client)) {
                continue;
            }
            let mut state = self.state.lock();
            state.blockers.remove(&key);
            let names: Vec<_> = state.by_key.get(&key).into_iter().flat_map(HashMap::keys).cloned().collect();
            drop(state);
            if let Some(signals) = self.signals() {
                for name in &names {
                    signals.freed(name);
                }
            }
        }
    }
}

impl State {
    fn forget(&mut self, name: &LockName) -> Option<i64> {
        let subscriptions = self.by_key.get_mut(name.key())?;
        let number = subscriptions.remove(name)?;
        if subscriptions.is_empty() {
            self.by_key.remove(name.key());
            self.blockers.remove(name.key());
        }
        self.names.remove(&number);
        Some(number)
    }
}

/// Receives wake-ups and checks blockers, until it is dropped or the pipe fails.
pub(super) async fn run(wakeups: Arc<Wakeups>, mut pipe: WakePipe) {
    // Outside the loop, so that wake-ups do not postpone the next check.
    let mut next_check = None;
    loop {
        if wakeups.state.lock().blockers.is_empty() {
            next_check = None;
        } else {
            next_check.get_or_insert_with(|| Instant::now() + CHECK_INTERVAL);
        }
        let check = async {
            match next_check {
                Some(moment) => tokio::time::sleep_until(moment).await,
                None => wakeups.watching.notified().await,
            }
        };
        tokio::select! {
            number = pipe.next() => match number {
                Ok(subscription) => wakeups.wake(subscription),
                Err(error) => {
                    tracing::warn!(%error, "wake-up pipe failed, will poll");
                    return;
                }
            },
            () = check => if next_check.take().is_some() {
                wakeups.check_blockers();
            },
        }
    }
}
