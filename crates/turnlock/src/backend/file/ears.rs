use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use turnlock_core::{ClientId, LockName};

use super::place::Place;
use super::presence;
use super::roll;
use super::wake_pipe::WakePipe;
use crate::backend::Signals;

/// What one client listens for, and how it hears of it: from its own process directly, from others by its pipe. It also looks
/// whether those still live who stand in its way, since the dead tell nobody.
pub(super) struct Ears {
    place: Place,
    signals: OnceLock<Weak<dyn Signals>>,
    state: Mutex<State>,
    /// Rings when there is somebody to look at.
    watching: Notify,
}

#[derive(Default)]
struct State {
    last: u64,
    numbers: HashMap<LockName, u64>,
    names: HashMap<u64, LockName>,
    /// The numbers of the names that have this key.
    by_key: HashMap<Box<str>, BTreeSet<u64>>,
    /// Who stands in the way, by key.
    in_the_way: HashMap<Box<str>, Vec<ClientId>>,
}

/// How often to look whether those in the way live.
const LOOK: Duration = Duration::from_millis(200);

impl Ears {
    pub(super) fn new(place: Place) -> Self {
        Self { place, signals: OnceLock::new(), state: Mutex::default(), watching: Notify::new() }
    }

    pub(super) fn attach(&self, signals: Weak<dyn Signals>) {
        let _ = self.signals.set(signals);
    }

    /// From here on, others in this process tell this client directly.
    pub(super) fn be_heard_as(self: &Arc<Self>, client: ClientId) {
        roll::enter(client, self);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number by which others will say this name.
    pub(super) fn listen_for(&self, name: &LockName) -> u64 {
        let mut state = self.state();
        state.forget(name);
        state.last += 1;
        let number = state.last;
        state.numbers.insert(name.clone(), number);
        state.names.insert(number, name.clone());
        state.by_key.entry(name.key().into()).or_default().insert(number);
        number
    }

    pub(super) fn stop_listening_for(&self, name: &LockName) -> Option<u64> {
        self.state().forget(name)
    }

    /// These stand in the way of what is listened for under this key.
    pub(super) fn watch(&self, key: &str, clients: Vec<ClientId>) {
        let mut state = self.state();
        if clients.is_empty() || !state.by_key.contains_key(key) {
            state.in_the_way.remove(key);
            return;
        }
        state.in_the_way.insert(key.into(), clients);
        drop(state);
        self.watching.notify_one();
    }

    /// Somebody said this number.
    pub(super) fn hear(&self, number: u64) {
        let name = self.state().names.get(&number).cloned();
        if let (Some(name), Some(signals)) = (name, self.signals()) {
            signals.freed(&name);
        }
    }

    /// The store may not be what it was.
    pub(super) fn store_changed(&self) {
        if let Some(signals) = self.signals() {
            signals.server_changed();
        }
    }

    fn signals(&self) -> Option<Arc<dyn Signals>> {
        self.signals.get()?.upgrade()
    }

    fn is_watching(&self) -> bool {
        !self.state().in_the_way.is_empty()
    }

    /// Tells those to ask again in whose way somebody stands who has died.
    fn look_for_the_dead(&self) {
        let watched: Vec<_> =
            self.state().in_the_way.iter().map(|(key, clients)| (key.clone(), clients.clone())).collect();
        for (key, clients) in watched {
            if clients.iter().all(|client| presence::is_alive(&self.place, *client)) {
                continue;
            }
            let mut state = self.state();
            state.in_the_way.remove(&key);
            let numbers = state.by_key.get(&key).into_iter().flatten();
            let names: Vec<_> = numbers.filter_map(|number| state.names.get(number)).cloned().collect();
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
    fn forget(&mut self, name: &LockName) -> Option<u64> {
        let number = self.numbers.remove(name)?;
        self.names.remove(&number);
        if let Some(numbers) = self.by_key.get_mut(name.key()) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_key.remove(name.key());
                self.in_the_way.remove(name.key());
            }
        }
        Some(number)
    }
}

/// Listens until it is dropped.
pub(super) async fn listen(ears: Arc<Ears>, mut pipe: WakePipe) {
    // Kept over the loop: what is heard meanwhile must not put it off.
    let mut look_at = None;
    loop {
        if ears.is_watching() {
            look_at.get_or_insert_with(|| Instant::now() + LOOK);
        } else {
            look_at = None;
        }
        let look = async {
            match look_at {
                Some(moment) => tokio::time::sleep_until(moment).await,
                None => ears.watching.notified().await,
            }
        };
        tokio::select! {
            number = pipe.next() => match number {
                Ok(number) => ears.hear(number),
                Err(error) => {
                    tracing::warn!(%error, "other processes cannot wake this one any more: it polls");
                    return;
                }
            },
            () = look => if look_at.take().is_some() {
                ears.look_for_the_dead();
            },
        }
    }
}
