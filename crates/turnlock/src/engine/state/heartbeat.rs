use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use turnlock_core::model::{QueuePosition, Reply, Step};
use turnlock_core::{LockName, Moment, OwnerId};

use super::lock_queue::Wakeup;
use crate::clock;
use crate::engine::CheckedSettings;
use turnlock_store::{StepOptions, StepReply, Store};

/// How often a fair waiter sends a heartbeat. The store skips a waiter whose last heartbeat is four periods
/// old.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a waiter may ignore its turn before its heartbeats stop.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(4);

/// The number of waiters per request.
const BATCH: usize = 256;

/// The waiters of this client in the fair queues of the store.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    waiters: Mutex<HashMap<OwnerId, Entry>>,
    added: Notify,
}

#[derive(Clone, Debug)]
struct Entry {
    name: LockName,
    owner: OwnerId,
    wakeup: Arc<Wakeup>,
    /// When it last sent a request itself. A waiter that has just sent one need not be woken for its turn.
    last_request: Moment,
    /// Since when it has been its turn without a request.
    turn_since: Option<Moment>,
}

/// Sends heartbeats for a waiter until it is dropped.
pub(crate) struct HeartbeatEntry {
    heartbeats: Arc<Heartbeats>,
    owner: OwnerId,
}

impl HeartbeatEntry {
    pub(crate) fn new(
        heartbeats: &Arc<Heartbeats>,
        name: &LockName,
        owner: &OwnerId,
        wakeup: &Arc<Wakeup>,
    ) -> Self {
        let (name, wakeup) = (name.clone(), Arc::clone(wakeup));
        let entry =
            Entry { name, owner: owner.clone(), wakeup, last_request: clock::now(), turn_since: None };
        let mut waiters = heartbeats.waiters.lock();
        waiters.insert(owner.clone(), entry);
        if waiters.len() == 1 {
            heartbeats.added.notify_one();
        }
        drop(waiters);
        Self { heartbeats: Arc::clone(heartbeats), owner: owner.clone() }
    }

    pub(crate) fn note_request(&self) {
        if let Some(entry) = self.heartbeats.waiters.lock().get_mut(&self.owner) {
            entry.last_request = clock::now();
            entry.turn_since = None;
        }
    }
}

impl Drop for HeartbeatEntry {
    fn drop(&mut self) {
        self.heartbeats.waiters.lock().remove(&self.owner);
    }
}

/// Sends the heartbeats of all waiters once per second. Ends with the engine.
pub(crate) async fn run(engine: Weak<Heartbeats>, store: Weak<dyn Store>, settings: CheckedSettings) {
    while let (Some(heartbeats), Some(store)) = (engine.upgrade(), store.upgrade()) {
        let started = clock::now();
        // The waiters behind one that ignores its turn, as a future that is not polled, must not wait for it.
        let is_responsive =
            |entry: &&Entry| entry.turn_since.is_none_or(|since| started < since + UNRESPONSIVE_AFTER);
        let waiters: Vec<_> = heartbeats.waiters.lock().values().filter(is_responsive).cloned().collect();
        for batch in waiters.chunks(BATCH) {
            send_batch(&heartbeats, &*store, &settings, batch).await;
        }
        drop(store);
        let is_idle = heartbeats.waiters.lock().is_empty();
        if is_idle {
            // Times out to notice that the engine is gone.
            let _ = tokio::time::timeout(PERIOD, heartbeats.added.notified()).await;
        }
        drop(heartbeats);
        tokio::time::sleep((started + PERIOD).since(clock::now())).await;
    }
}

async fn send_batch(
    heartbeats: &Heartbeats,
    store: &dyn Store,
    settings: &CheckedSettings,
    entries: &[Entry],
) {
    let step = |entry: &Entry| Step::Heartbeat(entry.name.clone(), entry.owner.clone());
    let options = StepOptions::of_engine(settings.usual_limit(), 0);
    let replies = match store.call_batch(entries.iter().map(step).collect(), options).await {
        Ok(StepReply { value, .. }) => value,
        Err(failure) => {
            tracing::warn!(%failure, waiters = entries.len(), "heartbeat failed, will retry");
            return;
        }
    };
    let (now, poll) = (clock::now(), settings.poll_interval);
    for (Entry { name, owner, wakeup, turn_since, .. }, reply) in entries.iter().zip(replies) {
        if let Some(current) = heartbeats.waiters.lock().get_mut(owner) {
            let is_its_turn =
                reply == Some(Reply::Position(QueuePosition::ItsTurn)) && current.last_request < now;
            current.turn_since = is_its_turn.then(|| current.turn_since.unwrap_or(now));
        }
        match reply {
            Some(Reply::Position(QueuePosition::NotInQueue)) => {
                tracing::warn!(%name, %owner, "waiter is missing from the fair queue, queueing again");
                wakeup.wake();
            }
            // A message announces the turn too, so the first report wakes the waiter only with a short poll
            // interval. Later, the message may have been lost, or the waiter ahead may have died.
            Some(Reply::Position(QueuePosition::ItsTurn)) if poll <= PERIOD || turn_since.is_some() => {
                wakeup.wake();
            }
            _ => {}
        }
    }
}
