use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use turnlock_core::{ClientId, LockName, Moment};

use super::hold::Hold;
use crate::clock;
use crate::engine::CheckedSettings;
use crate::error::{Error, IntoError};
use crate::identity::{Identity, MAX_ANNOUNCED};
use turnlock_store::{Failure, FailureKind, StepReply, Store, simulation};

/// How long the store keeps a record.
const RECORD_TTL: Duration = Duration::from_secs(3_600);

/// How often a client in use writes its record: one or two failed writes are tolerated.
const WRITE_PERIOD: Duration = Duration::from_secs(1_200);

/// The delay before the next write after a failed one.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// What this client publishes about itself on the store, for people who inspect locks.
///
/// No lock operation waits for it or fails with it.
#[derive(Debug)]
pub(crate) struct ClientRecord {
    store: Arc<dyn Store>,
    /// The response time-out.
    limit: Duration,
    client: ClientId,
    identity: Identity,
    /// When to write the record next, in microseconds of the local clock.
    due: AtomicU64,
    /// The announced holds with the time of their grant, by the number of their owner.
    announced: Mutex<BTreeMap<u64, (SystemTime, Weak<Hold>)>>,
    /// Held during a write, so that the last write has the latest content.
    write_lock: tokio::sync::Mutex<()>,
}

impl ClientRecord {
    pub(crate) fn new(store: Arc<dyn Store>, client: ClientId, settings: &CheckedSettings) -> Self {
        Self {
            store,
            limit: settings.usual_limit(),
            client,
            identity: Identity::of_this_process(client, settings.label.as_deref()),
            due: AtomicU64::new(0),
            announced: Mutex::default(),
            write_lock: tokio::sync::Mutex::default(),
        }
    }

    /// Returns `true` if the record is due, to one of several concurrent callers.
    fn begin_write_if_due(&self, now: Moment) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        let next = (now + WRITE_PERIOD).as_micros();
        now.as_micros() >= due
            && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Makes the record due at once: another server may have taken over that does not have it.
    pub(crate) fn set_due_now(&self) {
        let again = |due| (due < Moment::NEVER.as_micros()).then_some(0);
        let _ = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, again);
    }

    fn set_due(&self, moment: Moment) {
        self.due.store(moment.as_micros(), Ordering::Relaxed);
    }

    /// The record as it is to be written now.
    fn record(&self) -> String {
        let mut announced = self.announced.lock();
        announced.retain(|_, (_, hold)| hold.upgrade().is_some_and(|hold| hold.guards() > 0));
        while announced.len() > MAX_ANNOUNCED {
            announced.pop_first();
        }
        let since = announced.iter().map(|(number, (since, _))| (*number, *since)).collect();
        Identity { since, ..self.identity.clone() }.to_record()
    }

    /// Writes the record on `runtime`, if it is due.
    ///
    /// Called when the store has replied to a request about `name` that was sent at `now`. Not a background task:
    /// shutdown does not wait for it.
    pub(crate) fn write_if_due(self: &Arc<Self>, name: &LockName, now: Moment, runtime: &Handle) {
        if !name.kind().identifies_clients() || !self.begin_write_if_due(now) {
            return;
        }
        let record = Arc::clone(self);
        simulation::spawn(runtime, async move {
            if let Err(failure) = record.write().await {
                tracing::debug!(%failure, "client record not written");
            }
        });
    }

    /// Publishes since when `hold` is held.
    pub(crate) async fn announce(&self, hold: &Arc<Hold>) -> Result<(), Error> {
        // Any other owner is a permit id, which does not contain a client.
        let Some((_, number)) = hold.owner.parts() else { return Ok(()) };
        let held_for = clock::now().since(hold.began);
        let since = SystemTime::now().checked_sub(held_for).unwrap_or(SystemTime::UNIX_EPOCH);
        hold.inner().is_bound_to_owner = true;
        self.announced.lock().insert(number, (since, Arc::downgrade(hold)));
        let what = || format!("the announcement of lock {:?}", hold.name.as_str());
        self.write().await.map_err(|failure| failure.into_error(what))
    }

    async fn write(&self) -> Result<(), Failure> {
        let _writing = self.write_lock.lock().await;
        let outcome = self
            .store
            .directory()
            .write_client_record(self.client, self.record(), RECORD_TTL, self.limit)
            .await;
        self.set_due(match &outcome {
            Ok(StepReply { .. }) => clock::now() + WRITE_PERIOD,
            // A later write would be refused too.
            Err(Failure { kind: FailureKind::Denied(_) | FailureKind::Unsupported(_), .. }) => Moment::NEVER,
            Err(_) => clock::now() + RETRY_DELAY,
        });
        outcome.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::config::Settings;
    use crate::engine::Engine;
    use turnlock_store::{Memory, MemoryStore};

    /// Waits until the store has the record of the client.
    async fn until_written(engine: &Engine) {
        let is_written =
            async || engine.client_records(&[engine.client]).await.expect("a reply")[0].is_some();
        for _ in 0..500 {
            if is_written().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no client record within five seconds");
    }

    #[tokio::test]
    async fn the_record_is_written_again_while_a_lock_is_renewed() {
        let store = MemoryStore::new();
        let settings = Settings { watchdog_timeout: Some(Duration::from_millis(300)), ..Settings::default() };
        let settings = settings.check("a test", false).expect("good settings");
        let engine = Engine::start(
            Arc::new(Memory::new(store.clone(), ClientId::from_random([7; 16]))),
            ClientId::from_random([7; 16]),
            settings,
        );
        let guard = Client::new(Arc::clone(&engine)).lock("renewed").lock().await.expect("free");
        until_written(&engine).await;
        store.forget_client_records();
        // As after twenty minutes.
        engine.client_record.set_due(clock::now());
        until_written(&engine).await;
        assert!(guard.is_valid());
        assert!(!engine.client_record.begin_write_if_due(clock::now() + Duration::from_secs(1_100)));
        assert!(engine.client_record.begin_write_if_due(clock::now() + Duration::from_secs(1_300)));
    }
}
