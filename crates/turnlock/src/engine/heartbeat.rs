use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use turnlock_core::model::QueuePosition;
use turnlock_core::{LockName, Moment, OwnerId};

use super::Shared;
use super::wakeup::Wakeup;
use crate::backend::{FairWaiter, StepReply};
use crate::clock;

/// How often a fair waiter sends a heartbeat. The store skips a waiter whose last heartbeat is four periods
/// old.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a waiter may ignore its turn before its heartbeats stop.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(4);

/// The number of waiters per request.
const BATCH: usize = 256;

/// The waiters of this client in the fair queues of the store.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    waiters: Mutex<HashMap<OwnerId, Entry>>,
    added: Notify,
}

#[derive(Clone, Debug)]
struct Entry {
    waiter: FairWaiter,
    wakeup: Arc<Wakeup>,
    /// When it last sent a request itself. A waiter that has just sent one need not be woken for its turn.
    last_request: Moment,
    /// Since when it has been its turn without a request.
    turn_since: Option<Moment>,
}

impl Entry {
    /// Returns `true` if it ignores its turn, as a future that is not polled. The waiters behind it must not
    /// wait for it.
    fn is_unresponsive(&self, now: Moment) -> bool {
        self.turn_since.is_some_and(|since| now >= since + UNRESPONSIVE_AFTER)
    }
}

impl Heartbeats {
    fn waiters(&self) -> MutexGuard<'_, HashMap<OwnerId, Entry>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends heartbeats for a waiter until it is dropped.
pub(super) struct HeartbeatEntry {
    heartbeats: Arc<Heartbeats>,
    owner: OwnerId,
}

impl HeartbeatEntry {
    pub(super) fn new(shared: &Shared, name: &LockName, owner: &OwnerId, wakeup: &Arc<Wakeup>) -> Self {
        let waiter = FairWaiter { name: name.clone(), owner: owner.clone() };
        let entry =
            Entry { waiter, wakeup: Arc::clone(wakeup), last_request: clock::now(), turn_since: None };
        let mut waiters = shared.heartbeats.waiters();
        waiters.insert(owner.clone(), entry);
        if waiters.len() == 1 {
            shared.heartbeats.added.notify_one();
        }
        drop(waiters);
        Self { heartbeats: Arc::clone(&shared.heartbeats), owner: owner.clone() }
    }

    pub(super) fn note_request(&self) {
        if let Some(entry) = self.heartbeats.waiters().get_mut(&self.owner) {
            entry.last_request = clock::now();
            entry.turn_since = None;
        }
    }
}

impl Drop for HeartbeatEntry {
    fn drop(&mut self) {
        self.heartbeats.waiters().remove(&self.owner);
    }
}

/// Sends the heartbeats of all waiters once per second. Ends with the engine.
pub(super) async fn run(engine: Weak<Shared>, heartbeats: Arc<Heartbeats>) {
    while let Some(shared) = engine.upgrade() {
        let started = clock::now();
        let waiters: Vec<_> =
            heartbeats.waiters().values().filter(|entry| !entry.is_unresponsive(started)).cloned().collect();
        for batch in waiters.chunks(BATCH) {
            send_batch(&shared, batch).await;
        }
        drop(shared);
        if heartbeats.waiters().is_empty() {
            // Times out to notice that the engine is gone.
            let _ = tokio::time::timeout(PERIOD, heartbeats.added.notified()).await;
        }
        tokio::time::sleep((started + PERIOD).since(clock::now())).await;
    }
}

async fn send_batch(shared: &Shared, entries: &[Entry]) {
    let waiters: Vec<_> = entries.iter().map(|entry| entry.waiter.clone()).collect();
    let positions = match shared.backend.heartbeat(&waiters, shared.settings.usual_limit()).await {
        Ok(StepReply { value, .. }) => value,
        Err(failure) => {
            tracing::warn!(%failure, waiters = waiters.len(), "heartbeat failed, will retry");
            return;
        }
    };
    let (now, poll) = (clock::now(), shared.settings.poll_interval);
    for (entry, position) in entries.iter().zip(positions) {
        let name = &entry.waiter.name;
        if let Some(current) = shared.heartbeats.waiters().get_mut(&entry.waiter.owner) {
            let is_its_turn = position == Some(QueuePosition::ItsTurn) && current.last_request < now;
            current.turn_since = is_its_turn.then(|| current.turn_since.unwrap_or(now));
        }
        match position {
            Some(QueuePosition::NotInQueue) => {
                let owner = &entry.waiter.owner;
                tracing::warn!(%name, %owner, "waiter is missing from the fair queue, queueing again");
                entry.wakeup.wake();
            }
            // A message announces the turn too, so the first report wakes the waiter only with a short poll
            // interval. Later, the message may have been lost, or the waiter ahead may have died.
            Some(QueuePosition::ItsTurn) if poll <= PERIOD || entry.turn_since.is_some() => {
                entry.wakeup.wake();
            }
            Some(QueuePosition::ItsTurn | QueuePosition::InQueue) | None => {}
        }
    }
}
