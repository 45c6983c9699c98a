use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use turnlock_core::{ClientId, LockName, Moment};

use super::Shared;
use super::hold::Hold;
use crate::backend::{Answer, Failure, FailureKind};
use crate::clock;
use crate::error::Error;
use crate::identity::{Identity, MOST_ANNOUNCED};

/// How long what is written down stands.
const LASTS: Duration = Duration::from_secs(3_600);

/// How soon it is written again, by a client that is in use: one or two failures are made up for.
const PERIOD: Duration = Duration::from_secs(1_200);

/// How soon it is tried again when the store did not answer.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

/// What this client says of itself on the store, for people who ask. Nothing waits for it, and nothing fails by it.
#[derive(Debug)]
pub(super) struct Introduction {
    identity: Identity,
    /// When to say it next, in microseconds of our clock.
    due: AtomicU64,
    /// The holds whose beginning is told, by the numbers of their owners.
    announced: Mutex<BTreeMap<u64, (SystemTime, Weak<Hold>)>>,
    /// Held while it is being said, so that what was said last is the latest.
    turn: tokio::sync::Mutex<()>,
}

impl Introduction {
    pub(super) fn new(client: ClientId, label: Option<&str>) -> Self {
        Self {
            identity: Identity::of_this_process(client, label),
            due: AtomicU64::new(0),
            announced: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether it is to be said now; to one of those who ask at the same time.
    fn take_turn(&self, now: Moment) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        let next = (now + PERIOD).as_micros();
        now.as_micros() >= due
            && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Another server may answer now, which has not heard of it.
    pub(super) fn is_due_again(&self) {
        let again = |due| (due < Moment::NEVER.as_micros()).then_some(0);
        let _ = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, again);
    }

    fn is_due_at(&self, moment: Moment) {
        self.due.store(moment.as_micros(), Ordering::Relaxed);
    }

    fn announced(&self) -> MutexGuard<'_, BTreeMap<u64, (SystemTime, Weak<Hold>)>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be written down now.
    fn record(&self) -> String {
        let mut announced = self.announced();
        announced.retain(|_, (_, hold)| hold.upgrade().is_some_and(|hold| hold.state().guards > 0));
        while announced.len() > MOST_ANNOUNCED {
            announced.pop_first();
        }
        let since = announced.iter().map(|(number, (since, _))| (*number, *since)).collect();
        Identity { since, ..self.identity.clone() }.to_record()
    }
}

impl Shared {
    /// Says in the background who this client is, if it is time to. The store has just answered something about `name`, which
    /// was sent at `now`.
    pub(super) fn introduce_if_due(&self, name: &LockName, now: Moment) {
        if !name.kind().shows_clients() || !self.introduction.take_turn(now) {
            return;
        }
        // No errand: a client that is done does not wait for it.
        if let Some(shared) = self.this.upgrade() {
            self.runtime.spawn(async move {
                if let Err(failure) = shared.introduce().await {
                    tracing::debug!(%failure, "who this client is could not be written down");
                }
            });
        }
    }

    /// Writes down since when this is held.
    pub(crate) async fn announce(&self, hold: &Arc<Hold>) -> Result<(), Error> {
        // An owner of another form is the id of a permit, which says nothing of its client.
        let Some((_, number)) = hold.owner.parts() else { return Ok(()) };
        let held_for = clock::now().since(hold.began);
        let since = SystemTime::now().checked_sub(held_for).unwrap_or(SystemTime::UNIX_EPOCH);
        hold.state().is_personal = true;
        self.introduction.announced().insert(number, (since, Arc::downgrade(hold)));
        let what = || format!("to announce lock {:?}", hold.name.as_str());
        self.introduce().await.map_err(|failure| failure.into_error(what))
    }

    async fn introduce(&self) -> Result<(), Failure> {
        let introduction = &self.introduction;
        let _turn = introduction.turn.lock().await;
        let limit = self.settings.usual_patience();
        let said = self.backend.introduce(self.client, introduction.record(), LASTS, limit).await;
        introduction.is_due_at(match &said {
            Ok(Answer { .. }) => clock::now() + PERIOD,
            // It will not be allowed later either.
            Err(Failure { kind: FailureKind::Denied(_) | FailureKind::Unsupported(_), .. }) => Moment::NEVER,
            Err(_) => clock::now() + AFTER_FAILURE,
        });
        said.map(drop)
    }

    /// What clients say of themselves, in their order.
    pub(crate) async fn introductions(&self, clients: &[ClientId]) -> Result<Vec<Option<Identity>>, Error> {
        let limit = self.settings.usual_patience();
        let mut found = Vec::with_capacity(clients.len());
        for clients in clients.chunks(AT_ONCE) {
            let mut answer = self.backend.introductions(clients, limit).await;
            if answer.as_ref().is_err_and(Failure::is_worth_a_retry) {
                answer = self.backend.introductions(clients, limit).await;
            }
            let records = match answer {
                Ok(Answer { value, .. }) => value,
                // To one who may not look, nobody has said anything.
                Err(Failure { kind: FailureKind::Denied(cause), .. }) => {
                    tracing::debug!(%cause, "who other clients are may not be read");
                    vec![None; clients.len()]
                }
                Err(failure) => return Err(failure.into_error(|| "who the clients are".to_owned())),
            };
            let identity =
                |(client, record): (&ClientId, Option<String>)| Identity::from_record(*client, &record?);
            found.extend(clients.iter().zip(records).map(identity));
        }
        Ok(found)
    }
}

/// How many clients are asked about in one request.
const AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::{Memory, MemoryStore};
    use crate::client::Client;
    use crate::engine::Engine;
    use crate::settings::Settings;

    /// Waits until the store knows the client.
    async fn is_told(shared: &Shared) {
        let told = async || shared.introductions(&[shared.client]).await.expect("an answer")[0].is_some();
        for _ in 0..500 {
            if told().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the store was not told within five seconds");
    }

    #[tokio::test]
    async fn it_is_said_again_while_a_lock_is_renewed() {
        let store = MemoryStore::new();
        let settings = Settings {
            watchdog: turnlock_core::Lease::new(Duration::from_millis(300)).expect("a good lease"),
            ..Settings::default()
        };
        let engine =
            Engine::start(Arc::new(Memory::new(store.clone())), ClientId::from_random([7; 16]), settings);
        let shared = Arc::clone(&engine.shared);
        let guard = Client::new(engine).lock("renewed").lock().await.expect("free");
        is_told(&shared).await;
        store.forget_introductions();
        // As if twenty minutes had passed.
        shared.introduction.is_due_at(clock::now());
        is_told(&shared).await;
        assert!(guard.is_valid());
        assert!(!shared.introduction.take_turn(clock::now() + Duration::from_secs(1_100)));
        assert!(shared.introduction.take_turn(clock::now() + Duration::from_secs(1_300)));
    }
}
