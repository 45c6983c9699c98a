use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use turnlock::Error;
use turnlock_core::error_chain;

use super::history::{HoldRecord, epoch_millis};
use super::lock_records::LockRecords;
use super::observation::Observation;
use crate::commands::lock_view::{HolderView, LockView};
use crate::escape::escape_message;

/// The most viewers at a time.
const MAX_VIEWERS: usize = 32;
/// How many messages a viewer can be behind. One that is further behind gets a new snapshot.
const MAX_BEHIND: usize = 16;
/// How long a query may take: `SCAN` up to ten seconds, and then the locks that it found. A page waits for 60 s or longer
/// (`connection.js`). Tests do not wait so long.
const QUERY_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 20_000 });
/// The shortest time between two queries that viewers cause, if the interval is longer.
const WAKE_PAUSE: Duration = Duration::from_millis(250);

/// Queries the store while someone watches, and tells all viewers what is different.
#[derive(Debug)]
pub(super) struct Feed {
    state: Mutex<State>,
    /// `None` at the end of the program.
    messages: Mutex<Option<broadcast::Sender<Arc<Message>>>>,
    viewers: Arc<Semaphore>,
    /// Wakes the query: the first viewer is there, or a lock was released.
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    records: LockRecords,
    /// The number of the last message.
    version: u64,
    /// There were viewers since the last query that succeeded.
    is_current: bool,
    /// Why the last query failed, if it did.
    outage: Option<String>,
}

/// A message to viewers: its event name and its JSON.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) version: u64,
    pub(super) event: &'static str,
    pub(super) data: String,
}

#[derive(Serialize)]
struct Outage<'a> {
    now: u64,
    error: &'a str,
}

impl Feed {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            messages: Mutex::new(Some(broadcast::Sender::new(MAX_BEHIND))),
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            wake: Notify::new(),
        }
    }

    /// Queries the store once per `interval` while there are viewers.
    pub(super) async fn run(&self, interval: Duration, query: impl AsyncFn() -> Result<Observation, Error>) {
        loop {
            while self.has_room_for(MAX_VIEWERS) {
                self.set_old();
                self.wake.notified().await;
            }
            let start = Instant::now();
            let found = match timeout(QUERY_LIMIT, query()).await {
                Ok(found) => found.map_err(|error| escape_message(&error_chain(&error))),
                Err(_) => Err(format!("a query of the store took longer than {QUERY_LIMIT:?}")),
            };
            self.publish(found);
            let elapsed = start.elapsed();
            let next = start + time_to_next(interval, elapsed);
            if timeout_at(next, self.wake.notified()).await.is_ok() {
                // Many requests at once are one.
                sleep_until(start + time_to_next((interval / 4).min(WAKE_PAUSE), elapsed)).await;
            }
        }
    }

    /// Queries the store as soon as possible.
    pub(super) fn query_soon(&self) {
        self.wake.notify_one();
    }

    /// Returns `true` if so many viewers can be added.
    pub(super) fn has_room_for(&self, viewers: usize) -> bool {
        self.viewers.available_permits() >= viewers
    }

    /// Adds a viewer: a receiver of messages, and its place. `None` if there are too many, or at the end.
    pub(super) fn subscribe(&self) -> Option<(broadcast::Receiver<Arc<Message>>, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.viewers).try_acquire_owned().ok()?;
        let receiver = self.messages().as_ref()?.subscribe();
        if !self.state().is_current {
            self.wake.notify_one();
        }
        Some((receiver, permit))
    }

    /// Returns all locks as a message. `None` if they are not known, or too old: during an outage, old ones are better than none.
    pub(super) fn snapshot(&self) -> Option<Message> {
        let state = self.state();
        let snapshot = || state.records.snapshot(epoch_millis(SystemTime::now()), state.outage.as_deref());
        let data = || serde_json::to_string(&snapshot()).unwrap_or_default();
        let is_usable = state.is_current || (state.outage.is_some() && state.records.is_known());
        is_usable.then(|| Message { version: state.version, event: "snapshot", data: data() })
    }

    /// Returns the recent holds of a lock. Empty if it is not known.
    pub(super) fn holds(&self, name: &str) -> Vec<HoldRecord> {
        self.state().records.holds(name).cloned().collect()
    }

    /// Returns `true` if a holder, as it was read just now, has the hold that viewers saw first at `seen`.
    pub(super) fn has_hold(&self, lock: &LockView, holder: &HolderView, seen: u64) -> bool {
        let state = self.state();
        state.records.has_hold(lock, holder, seen, !state.is_current || state.outage.is_some())
    }

    /// Ends the messages to all viewers.
    pub(super) fn end(&self) {
        *self.messages() = None;
    }

    /// Without viewers, nothing is known of now.
    fn set_old(&self) {
        let mut state = self.state();
        (state.is_current, state.outage) = (false, None);
    }

    /// Records the result of a query and sends it to all viewers. Never waits for one of them.
    pub(super) fn publish(&self, found: Result<Observation, String>) {
        let now = epoch_millis(SystemTime::now());
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        let message = match found {
            Ok(observation) => {
                let after_gap = !state.is_current || state.outage.is_some();
                (state.is_current, state.outage) = (true, None);
                let change = state.records.update(observation, now, after_gap);
                Message { version, event: "change", data: serde_json::to_string(&change).unwrap_or_default() }
            }
            Err(error) => {
                let outage = Outage { now, error: &error };
                let data = serde_json::to_string(&outage).unwrap_or_default();
                state.outage = Some(error);
                Message { version, event: "outage", data }
            }
        };
        if let Some(sender) = &*self.messages() {
            // An error: the last viewer has gone meanwhile.
            let _ = sender.send(Arc::new(message));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn messages(&self) -> MutexGuard<'_, Option<broadcast::Sender<Arc<Message>>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From the start of a query that took `elapsed` to the next one. Queries take half of the time at most, also those that fail: a store
/// that is too slow for them is not searched all the time.
fn time_to_next(interval: Duration, elapsed: Duration) -> Duration {
    interval.max(2 * elapsed)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn a_query_that_hangs_is_an_outage_and_is_repeated() {
        let feed = Feed::new();
        let (mut messages, _permit) = feed.subscribe().expect("a viewer");
        let run = feed.run(Duration::from_millis(1), std::future::pending);
        let outages = async {
            for _ in 0..2 {
                let message = messages.recv().await.unwrap();
                let data: Value = serde_json::from_str(&message.data).unwrap();
                assert_eq!(message.event, "outage");
                assert!(data["error"].as_str().unwrap().contains("took longer than"), "{data}");
            }
        };
        tokio::select! {
            () = run => {}
            outages = timeout(Duration::from_secs(30), outages) => outages.expect("two outages"),
        }
        assert!(feed.snapshot().is_none(), "no lock is known");
    }

    #[test]
    fn queries_take_half_of_the_time_at_most() {
        for (interval, elapsed, next) in
            [(1_000, 0, 1_000), (1_000, 500, 1_000), (1_000, 600, 1_200), (1_000, 20_000, 40_000)]
        {
            let [interval, elapsed, next] = [interval, elapsed, next].map(Duration::from_millis);
            assert_eq!(time_to_next(interval, elapsed), next, "{elapsed:?}");
        }
    }

    #[test]
    fn a_snapshot_has_the_outage_until_a_query_succeeds() {
        let feed = Feed::new();
        let snapshot = || serde_json::from_str::<Value>(&feed.snapshot().unwrap().data).unwrap();
        feed.publish(Ok(Observation::default()));
        assert!(snapshot()["outage"].is_null());
        feed.publish(Err("no reply".to_owned()));
        assert_eq!(snapshot()["outage"], "no reply");
        feed.publish(Ok(Observation::default()));
        assert!(snapshot()["outage"].is_null());
        // As for the first viewer after a while.
        feed.state().is_current = false;
        assert!(feed.snapshot().is_none());
        feed.publish(Err("no reply".to_owned()));
        assert_eq!(snapshot()["outage"], "no reply");
    }
}
