use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use turnlock_core::{ClientId, Kind, LockName, Moment};

use super::hold::Hold;
use crate::clock;
use crate::engine::CheckedSettings;
use crate::error::{Error, IntoError};
use crate::identity::{Identity, MAX_ANNOUNCED};
use turnlock_store::{Failure, FailureKind, Store, simulation};

/// How long the store keeps a record.
const RECORD_TTL: Duration = Duration::from_secs(3_600);

/// How often a client in use writes its record: one or two failed writes are tolerated.
const WRITE_PERIOD: Duration = Duration::from_secs(1_200);

/// The delay before the next write after a failed one.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// How long a delayed unlock waits at most for the record that tells of it.
const KEPT_LIMIT: Duration = Duration::from_millis(500);

/// What this client publishes about itself on the store, for people who inspect locks.
///
/// No lock operation fails with it, and only a delayed unlock waits for it, for a moment. There is one record of the
/// client, and one of each announced hold of permits, whose ids do not contain the client.
#[derive(Debug)]
pub(crate) struct ClientRecord {
    store: Arc<dyn Store>,
    /// The response time-out.
    limit: Duration,
    client: ClientId,
    identity: Identity,
    /// When to write the record of the client next.
    due: Due,
    /// When to write the records of permits next; never if there are none.
    permits_due: Due,
    /// The store refused the last write, and would refuse a later one too.
    is_refused: AtomicBool,
    /// The announced holds, by the id of their record and their number in it.
    announced: Mutex<BTreeMap<(ClientId, u64), Announced>>,
    /// Held during a write, so that the last write has the latest content.
    write_lock: tokio::sync::Mutex<()>,
}

/// What is published about a hold.
#[derive(Debug)]
struct Announced {
    since: SystemTime,
    /// The end of its delayed unlock, if it has one.
    kept_until: Option<Moment>,
    hold: Weak<Hold>,
}

impl Announced {
    /// Returns `false` if the hold has ended.
    fn is_current(&self, now: Moment) -> bool {
        match self.kept_until {
            Some(end) => end > now,
            None => self.hold.upgrade().is_some_and(|hold| hold.guards() > 0),
        }
    }
}

/// A time in microseconds of the local clock.
#[derive(Debug)]
struct Due(AtomicU64);

impl Due {
    const NEVER: u64 = Moment::NEVER.as_micros();

    /// Returns `true` if the time has come, to one of several concurrent callers, and sets the next time.
    fn begin(&self, now: Moment) -> bool {
        let due = self.0.load(Ordering::Relaxed);
        let next = (now + WRITE_PERIOD).as_micros();
        now.as_micros() >= due
            && self.0.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn set(&self, moment: Moment) {
        self.0.store(moment.as_micros(), Ordering::Relaxed);
    }

    fn set_no_later_than(&self, moment: Moment) {
        self.0.fetch_min(moment.as_micros(), Ordering::Relaxed);
    }

    /// Sets the time to now, unless it is never.
    fn set_now(&self) {
        let again = |due| (due < Self::NEVER).then_some(0);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, again);
    }
}

impl ClientRecord {
    pub(crate) fn new(store: Arc<dyn Store>, client: ClientId, settings: &CheckedSettings) -> Self {
        Self {
            store,
            limit: settings.usual_limit(),
            client,
            identity: Identity::of_this_process(client, settings.label.as_deref()),
            due: Due(AtomicU64::new(0)),
            permits_due: Due(AtomicU64::new(Due::NEVER)),
            is_refused: AtomicBool::new(false),
            announced: Mutex::default(),
            write_lock: tokio::sync::Mutex::default(),
        }
    }

    /// The host, process and label of this client.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Makes the records due at once: another server may have taken over that does not have them.
    pub(crate) fn set_due_now(&self) {
        self.due.set_now();
        self.permits_due.set_now();
    }

    /// The record with this id as it is to be written now, and how long the store keeps it.
    ///
    /// It outlasts the delayed unlocks in it: nothing refreshes it after the process has exited.
    fn record(&self, id: ClientId) -> (String, Duration) {
        let (now, wall) = (clock::now(), clock::wall());
        let mut announced = self.announced.lock();
        announced.retain(|_, hold| hold.is_current(now));
        let excess: Vec<_> =
            of_record(&announced, id).rev().skip(MAX_ANNOUNCED).map(|(key, _)| *key).collect();
        for key in excess {
            announced.remove(&key);
        }
        let mut identity = Identity { record: id, ..self.identity.clone() };
        let mut kept = Duration::ZERO;
        for ((_, number), hold) in of_record(&announced, id) {
            identity.since.insert(*number, hold.since);
            if let Some(left) = hold.kept_until.map(|end| end.since(now)) {
                identity.kept_until.extend(wall.checked_add(left).map(|end| (*number, end)));
                kept = kept.max(left);
            }
        }
        (identity.to_record(), RECORD_TTL.saturating_add(kept))
    }

    /// Writes the records that a request about `name` concerns on `runtime`, if they are due.
    ///
    /// Called when the store has replied to a request that was sent at `now`. Not a background task: shutdown does not wait
    /// for it.
    pub(crate) fn write_if_due(self: &Arc<Self>, name: &LockName, now: Moment, runtime: &Handle) {
        let is_of_permits = name.kind() == Kind::Permits;
        let due = if is_of_permits { &self.permits_due } else { &self.due };
        let has_record = is_of_permits || name.kind().identifies_clients();
        if !has_record || self.is_refused.load(Ordering::Relaxed) || !due.begin(now) {
            return;
        }
        let record = Arc::clone(self);
        simulation::spawn(runtime, async move {
            let ids = if is_of_permits { record.permit_records() } else { vec![record.client] };
            for id in ids {
                if let Err(failure) = record.write(id).await {
                    tracing::debug!(%failure, "client record not written");
                }
            }
        });
    }

    /// The ids of the records of permits that are held.
    fn permit_records(&self) -> Vec<ClientId> {
        let now = clock::now();
        let mut announced = self.announced.lock();
        announced.retain(|_, hold| hold.is_current(now));
        let ids: Vec<_> = announced.keys().map(|(id, _)| *id).filter(|id| *id != self.client).collect();
        if ids.is_empty() {
            self.permits_due.set(Moment::NEVER);
        }
        ids
    }

    /// Publishes since when `hold` is held.
    pub(crate) async fn announce(&self, hold: &Arc<Hold>) -> Result<(), Error> {
        hold.inner().is_bound_to_owner = true;
        let what = || format!("the announcement of lock {:?}", hold.name.as_str());
        self.publish(hold, None).await.map_err(|failure| failure.into_error(what))
    }

    /// Publishes that `hold` has a delayed unlock, which ends at `until`. Takes no longer than a moment.
    pub(crate) async fn announce_kept(&self, hold: &Arc<Hold>, until: Moment) {
        if self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        match tokio::time::timeout(KEPT_LIMIT, self.publish(hold, Some(until))).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => tracing::debug!(%failure, "client record not written"),
            Err(_) => tracing::debug!("client record not written in time"),
        }
    }

    async fn publish(&self, hold: &Arc<Hold>, kept_until: Option<Moment>) -> Result<(), Failure> {
        let Some(key) = Identity::record_key(&hold.owner) else { return Ok(()) };
        let held_for = clock::now().since(hold.began);
        let since = clock::wall().checked_sub(held_for).unwrap_or(SystemTime::UNIX_EPOCH);
        self.announced.lock().insert(key, Announced { since, kept_until, hold: Arc::downgrade(hold) });
        self.write(key.0).await
    }

    async fn write(&self, id: ClientId) -> Result<(), Failure> {
        let _writing = self.write_lock.lock().await;
        let (record, lasts) = self.record(id);
        let outcome = self.store.directory().write_client_record(id, record, lasts, self.limit).await;
        let is_refused = matches!(
            &outcome,
            Err(Failure { kind: FailureKind::Denied(_) | FailureKind::Unsupported(_), .. })
        );
        self.is_refused.store(is_refused, Ordering::Relaxed);
        let next = clock::now() + if outcome.is_ok() { WRITE_PERIOD } else { RETRY_DELAY };
        if id == self.client {
            self.due.set(next);
        } else {
            // A write of one record does not put off those of the others.
            self.permits_due.set_no_later_than(next);
        }
        outcome.map(drop)
    }
}

/// The holds in the record with this id, in the order of their numbers.
fn of_record(
    announced: &BTreeMap<(ClientId, u64), Announced>,
    id: ClientId,
) -> impl DoubleEndedIterator<Item = (&(ClientId, u64), &Announced)> {
    announced.range((id, 0)..=(id, u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::config::Settings;
    use crate::engine::Engine;
    use turnlock_store::{Memory, MemoryStore};

    /// Waits until the store has this record.
    async fn until_written(engine: &Engine, id: ClientId) {
        let is_written = async || engine.client_records(&[id]).await.expect("a reply")[0].is_some();
        for _ in 0..500 {
            if is_written().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no client record within five seconds");
    }

    fn engine_on(store: &MemoryStore) -> Arc<Engine> {
        let settings = Settings { watchdog_timeout: Some(Duration::from_millis(300)), ..Settings::default() };
        let settings = settings.check("a test", false).expect("good settings");
        let client = ClientId::from_random([7; 16]);
        Engine::start(Arc::new(Memory::new(store.clone(), client)), client, settings)
    }

    #[tokio::test]
    async fn the_record_is_written_again_while_a_lock_is_renewed() {
        let store = MemoryStore::new();
        let engine = engine_on(&store);
        let guard = Client::new(Arc::clone(&engine)).lock("renewed").lock().await.expect("free");
        until_written(&engine, engine.client).await;
        store.forget_client_records();
        // As after twenty minutes.
        engine.client_record.due.set(clock::now());
        until_written(&engine, engine.client).await;
        assert!(guard.is_valid());
        assert!(!engine.client_record.due.begin(clock::now() + Duration::from_secs(1_100)));
        assert!(engine.client_record.due.begin(clock::now() + Duration::from_secs(1_300)));
    }

    #[tokio::test]
    async fn the_records_of_permits_are_written_again_while_they_are_renewed() {
        let store = MemoryStore::new();
        let engine = engine_on(&store);
        let semaphore = Client::new(Arc::clone(&engine)).permit_semaphore("slots");
        semaphore.set_permits(3).await.expect("set");
        let mut records = Vec::new();
        let mut all = Vec::new();
        for _ in 0..2 {
            let permit = semaphore.acquire(1).await.expect("free");
            permit.announce().await.expect("written");
            let owner = turnlock_core::OwnerId::from_wire(&permit.ids()[0]);
            records.push(Identity::record_key(&owner).expect("an id of a permit").0);
            all.push(permit);
        }
        let silent = semaphore.acquire(1).await.expect("free");
        store.forget_client_records();
        // As after a fail-over.
        engine.client_record.set_due_now();
        for id in &records {
            until_written(&engine, *id).await;
        }
        let others = engine.client_records(&[engine.client]).await.expect("a reply");
        assert_eq!(others, [None], "no lock was requested");
        drop(all);
        engine.background.drained().await;
        engine.client_record.set_due_now();
        let renewed = silent.valid_until();
        while silent.valid_until() == renewed
            || engine.client_record.permits_due.0.load(Ordering::Relaxed) < Due::NEVER
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
