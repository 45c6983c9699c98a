use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use turnlock_core::{ClientId, LockName, Moment};

use super::Shared;
use super::hold::Hold;
use crate::backend::{Failure, FailureKind, StepReply};
use crate::clock;
use crate::error::Error;
use crate::identity::{Identity, MAX_ANNOUNCED};

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
pub(super) struct ClientRecord {
    identity: Identity,
    /// When to write the record next, in microseconds of the local clock.
    due: AtomicU64,
    /// The announced holds with the time of their grant, by the number of their owner.
    announced: Mutex<BTreeMap<u64, (SystemTime, Weak<Hold>)>>,
    /// Held during a write, so that the last write has the latest content.
    write_lock: tokio::sync::Mutex<()>,
}

impl ClientRecord {
    pub(super) fn new(client: ClientId, label: Option<&str>) -> Self {
        Self {
            identity: Identity::of_this_process(client, label),
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
    pub(super) fn set_due_now(&self) {
        let again = |due| (due < Moment::NEVER.as_micros()).then_some(0);
        let _ = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, again);
    }

    fn set_due(&self, moment: Moment) {
        self.due.store(moment.as_micros(), Ordering::Relaxed);
    }

    fn announced(&self) -> MutexGuard<'_, BTreeMap<u64, (SystemTime, Weak<Hold>)>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record as it is to be written now.
    fn record(&self) -> String {
        let mut announced = self.announced();
        announced.retain(|_, (_, hold)| hold.upgrade().is_some_and(|hold| hold.state().guards > 0));
        while announced.len() > MAX_ANNOUNCED {
            announced.pop_first();
        }
        let since = announced.iter().map(|(number, (since, _))| (*number, *since)).collect();
        Identity { since, ..self.identity.clone() }.to_record()
    }
}

impl Shared {
    /// Writes the client record in the background, if it is due.
    ///
    /// Called when the store has replied to a request about `name` that was sent at `now`.
    pub(super) fn write_client_record_if_due(&self, name: &LockName, now: Moment) {
        if !name.kind().identifies_clients() || !self.client_record.begin_write_if_due(now) {
            return;
        }
        // Not a background task: shutdown does not wait for it.
        if let Some(shared) = self.weak_self.upgrade() {
            self.runtime.spawn(async move {
                if let Err(failure) = shared.write_client_record().await {
                    tracing::debug!(%failure, "client record not written");
                }
            });
        }
    }

    /// Publishes since when `hold` is held.
    pub(crate) async fn announce(&self, hold: &Arc<Hold>) -> Result<(), Error> {
        // Any other owner is a permit id, which does not contain a client.
        let Some((_, number)) = hold.owner.parts() else { return Ok(()) };
        let held_for = clock::now().since(hold.began);
        let since = SystemTime::now().checked_sub(held_for).unwrap_or(SystemTime::UNIX_EPOCH);
        hold.state().is_bound_to_owner = true;
        self.client_record.announced().insert(number, (since, Arc::downgrade(hold)));
        let what = || format!("the announcement of lock {:?}", hold.name.as_str());
        self.write_client_record().await.map_err(|failure| failure.into_error(what))
    }

    async fn write_client_record(&self) -> Result<(), Failure> {
        let client_record = &self.client_record;
        let _writing = client_record.write_lock.lock().await;
        let limit = self.settings.usual_limit();
        let outcome =
            self.backend.write_client_record(self.client, client_record.record(), RECORD_TTL, limit).await;
        client_record.set_due(match &outcome {
            Ok(StepReply { .. }) => clock::now() + WRITE_PERIOD,
            // A later write would be refused too.
            Err(Failure { kind: FailureKind::Denied(_) | FailureKind::Unsupported(_), .. }) => Moment::NEVER,
            Err(_) => clock::now() + RETRY_DELAY,
        });
        outcome.map(drop)
    }

    /// Reads the records of `clients`, in their order.
    pub(crate) async fn client_records(&self, clients: &[ClientId]) -> Result<Vec<Option<Identity>>, Error> {
        let limit = self.settings.usual_limit();
        let mut found = Vec::with_capacity(clients.len());
        for clients in clients.chunks(RECORDS_PER_REQUEST) {
            let mut reply = self.backend.client_records(clients, limit).await;
            if reply.as_ref().is_err_and(Failure::is_retryable) {
                reply = self.backend.client_records(clients, limit).await;
            }
            let records = match reply {
                Ok(StepReply { value, .. }) => value,
                // Without the right to read records, all clients are unknown.
                Err(Failure { kind: FailureKind::Denied(cause), .. }) => {
                    tracing::debug!(%cause, "no permission to read client records");
                    vec![None; clients.len()]
                }
                Err(failure) => return Err(failure.into_error(|| "the client records".to_owned())),
            };
            let identity =
                |(client, record): (&ClientId, Option<String>)| Identity::from_record(*client, &record?);
            found.extend(clients.iter().zip(records).map(identity));
        }
        Ok(found)
    }
}

/// The number of clients per request.
const RECORDS_PER_REQUEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::{Memory, MemoryStore};
    use crate::client::Client;
    use crate::engine::Engine;
    use crate::settings::Settings;

    /// Waits until the store has the record of the client.
    async fn until_written(shared: &Shared) {
        let is_written =
            async || shared.client_records(&[shared.client]).await.expect("a reply")[0].is_some();
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
        let settings = Settings {
            watchdog_timeout: turnlock_core::Lease::new(Duration::from_millis(300)).expect("a good lease"),
            ..Settings::default()
        };
        let engine =
            Engine::start(Arc::new(Memory::new(store.clone())), ClientId::from_random([7; 16]), settings);
        let shared = Arc::clone(&engine.shared);
        let guard = Client::new(engine).lock("renewed").lock().await.expect("free");
        until_written(&shared).await;
        store.forget_client_records();
        // As after twenty minutes.
        shared.client_record.set_due(clock::now());
        until_written(&shared).await;
        assert!(guard.is_valid());
        assert!(!shared.client_record.begin_write_if_due(clock::now() + Duration::from_secs(1_100)));
        assert!(shared.client_record.begin_write_if_due(clock::now() + Duration::from_secs(1_300)));
    }
}
