//! What is held, of whatever kind: a lock or permits.

use std::time::{Duration, Instant};

use turnlock::{Error, Guard, LostReason, Permits};

use crate::rig::{Kind, KindClient};

/// Whatever a kind gives out.
#[derive(Debug)]
pub(crate) enum Held {
    Guard(Guard),
    Permits(Permits),
}

impl Held {
    pub(crate) fn replicas(&self) -> u32 {
        match self {
            Self::Guard(guard) => guard.replicas(),
            Self::Permits(permits) => permits.replicas(),
        }
    }

    pub(crate) async fn give_back(self) {
        self.release().await.expect("held");
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.unlock().await,
            Self::Permits(permits) => permits.release().await,
        }
    }

    pub(crate) fn token(&self) -> Option<u64> {
        match self {
            Self::Guard(guard) => guard.token(),
            Self::Permits(_) => None,
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Guard(guard) => guard.is_valid(),
            Self::Permits(permits) => permits.is_valid(),
        }
    }

    pub(crate) fn valid_until(&self) -> Instant {
        match self {
            Self::Guard(guard) => guard.valid_until(),
            Self::Permits(permits) => permits.valid_until(),
        }
    }

    pub(crate) async fn lost(&self) -> LostReason {
        match self {
            Self::Guard(guard) => guard.lost().await,
            Self::Permits(permits) => permits.lost().await,
        }
    }
}

/// One thing of the client's kind, of which there is one.
pub(crate) struct Thing<'a> {
    client: &'a KindClient,
    name: String,
}

impl<'a> Thing<'a> {
    /// The one that is there already.
    pub(crate) fn of(client: &'a KindClient, name: &str) -> Self {
        Self { client, name: name.to_owned() }
    }

    pub(crate) async fn new(client: &'a KindClient, name: &str) -> Self {
        match client.kind() {
            Kind::Semaphore => assert!(client.semaphore(name).try_set_permits(1).await.expect("set")),
            Kind::Permits => assert!(client.permit_semaphore(name).try_set_permits(1).await.expect("set")),
            _ => {}
        }
        Self::of(client, name)
    }

    /// Takes it, acknowledged by so many replicas.
    pub(crate) async fn take(&self, replicas: u32, wait: Duration) -> Result<Option<Held>, Error> {
        let (client, name) = (self.client, &self.name);
        let permits = |permits: Option<Permits>| permits.map(Held::Permits);
        match client.kind() {
            Kind::Semaphore => {
                let semaphore = client.semaphore(name).acknowledged_by(replicas);
                semaphore.try_acquire_for(1, wait).await.map(permits)
            }
            Kind::Permits => {
                let semaphore = client.permit_semaphore(name).acknowledged_by(replicas);
                semaphore.try_acquire_for(1, wait).await.map(permits)
            }
            _ => {
                let lock = client.lock(name).acknowledged_by(replicas);
                Ok(lock.try_lock_for(wait).await?.map(Held::Guard))
            }
        }
    }

    /// What is left of the lease of the only one who has it, on the store.
    pub(crate) async fn rest(&self) -> Duration {
        let (client, name) = (self.client, &self.name);
        let seen = match client.kind() {
            Kind::Permits => client.permit_semaphore(name).inspect().await,
            _ => client.lock(name).inspect().await,
        };
        let seen = seen.expect("an answer");
        assert_eq!(seen.holders.len(), 1, "{seen:?}");
        seen.holders[0].ttl.or(seen.ttl).expect("a lease")
    }

    /// Whether nobody has it, on the store.
    pub(crate) async fn is_free(&self) -> bool {
        let (client, name) = (self.client, &self.name);
        match client.kind() {
            Kind::Semaphore => client.semaphore(name).available().await.expect("an answer") == 1,
            Kind::Permits => client.permit_semaphore(name).available().await.expect("an answer") == 1,
            _ => !client.lock(name).is_locked().await.expect("an answer"),
        }
    }
}
