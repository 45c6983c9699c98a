use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use turnlock_core::model::Place;
use turnlock_core::{LockName, Moment, OwnerId};

use super::Shared;
use super::rooms::Bell;
use crate::backend::{Answer, Waiter};
use crate::clock;

/// How often a waiter of a fair lock gives a sign of life. One that is silent for four times as long is taken for dead,
/// and those behind it pass.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a waiter whose turn it is may leave it at that before it is not spoken for any more.
const ASLEEP_AFTER: Duration = Duration::from_secs(4);

/// How many waiters are spoken for by one request.
const BATCH: usize = 256;

/// The waiters of this client that stand in the queue of a fair lock, on the store.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    waiters: Mutex<HashMap<OwnerId, Entry>>,
    came: Notify,
}

#[derive(Clone, Debug)]
struct Entry {
    waiter: Waiter,
    bell: Arc<Bell>,
    /// When it last asked by itself: one that asked a moment ago need not be told that it is its turn.
    asked: Moment,
    /// Since when it has been its turn without its asking.
    turn_since: Option<Moment>,
}

impl Entry {
    /// Whether nobody seems to poll it: it is its turn, and it does not take it. Those behind it must not wait for that.
    fn is_asleep(&self, now: Moment) -> bool {
        self.turn_since.is_some_and(|since| now >= since + ASLEEP_AFTER)
    }
}

impl Attendance {
    fn waiters(&self) -> MutexGuard<'_, HashMap<OwnerId, Entry>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter that is being spoken for, until this is dropped.
pub(super) struct Attendee {
    attendance: Arc<Attendance>,
    owner: OwnerId,
}

impl Attendee {
    pub(super) fn new(shared: &Shared, name: &LockName, owner: &OwnerId, bell: &Arc<Bell>) -> Self {
        let waiter = Waiter { name: name.clone(), owner: owner.clone() };
        let entry = Entry { waiter, bell: Arc::clone(bell), asked: clock::now(), turn_since: None };
        let mut waiters = shared.attendance.waiters();
        waiters.insert(owner.clone(), entry);
        if waiters.len() == 1 {
            shared.attendance.came.notify_one();
        }
        drop(waiters);
        Self { attendance: Arc::clone(&shared.attendance), owner: owner.clone() }
    }

    pub(super) fn has_asked(&self) {
        if let Some(entry) = self.attendance.waiters().get_mut(&self.owner) {
            entry.asked = clock::now();
            entry.turn_since = None;
        }
    }
}

impl Drop for Attendee {
    fn drop(&mut self) {
        self.attendance.waiters().remove(&self.owner);
    }
}

/// Speaks for the waiters, once a second. Ends with the engine.
pub(super) async fn run(engine: Weak<Shared>, attendance: Arc<Attendance>) {
    while let Some(shared) = engine.upgrade() {
        let begun = clock::now();
        let waiters: Vec<_> =
            attendance.waiters().values().filter(|entry| !entry.is_asleep(begun)).cloned().collect();
        for batch in waiters.chunks(BATCH) {
            speak_for(&shared, batch).await;
        }
        drop(shared);
        if attendance.waiters().is_empty() {
            // Looks up now and then, to see whether the engine is still there.
            let _ = tokio::time::timeout(PERIOD, attendance.came.notified()).await;
        }
        tokio::time::sleep((begun + PERIOD).since(clock::now())).await;
    }
}

async fn speak_for(shared: &Shared, entries: &[Entry]) {
    let waiters: Vec<_> = entries.iter().map(|entry| entry.waiter.clone()).collect();
    let places = match shared.backend.attend(&waiters, shared.settings.usual_patience()).await {
        Ok(Answer { value, .. }) => value,
        Err(failure) => {
            tracing::warn!(%failure, waiters = waiters.len(), "no sign of life could be given for waiters");
            return;
        }
    };
    let (now, poll) = (clock::now(), shared.settings.poll);
    for (entry, place) in entries.iter().zip(places) {
        let name = &entry.waiter.name;
        if let Some(known) = shared.attendance.waiters().get_mut(&entry.waiter.owner) {
            let its_turn = place == Some(Place::ItsTurn) && known.asked < now;
            known.turn_since = its_turn.then(|| known.turn_since.unwrap_or(now));
        }
        match place {
            Some(Place::Nowhere) => {
                tracing::warn!(%name, owner = %entry.waiter.owner, "thrown out of the queue: queueing again");
                entry.bell.ring();
            }
            // Told by a message as well, so the first time counts only where looking so often was asked for. The message may
            // have got lost, or it is its turn since somebody before it has died.
            Some(Place::ItsTurn) if poll <= PERIOD || entry.turn_since.is_some() => entry.bell.ring(),
            Some(Place::ItsTurn | Place::InQueue) | None => {}
        }
    }
}
