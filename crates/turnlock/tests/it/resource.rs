//! Locks and semaphores of one permit behind one type.

use std::time::{Duration, Instant};

use turnlock::{Error, Guard, LostReason, Permits, TryAcquire};

use crate::fixture::{Kind, KindClient};

/// A guard or permits that are held.
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

    /// Releases, and panics if that fails.
    pub(crate) async fn expect_release(self) {
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

/// A lock, or a semaphore of one permit, of the client's kind.
pub(crate) struct Resource<'a> {
    client: &'a KindClient,
    name: String,
}

impl<'a> Resource<'a> {
    /// Refers to an existing resource.
    pub(crate) fn of(client: &'a KindClient, name: &str) -> Self {
        Self { client, name: name.to_owned() }
    }

    /// Creates the resource: sets the number of permits to one.
    pub(crate) async fn new(client: &'a KindClient, name: &str) -> Self {
        match client.kind() {
            Kind::Semaphore => assert!(client.semaphore(name).try_set_permits(1).await.expect("set")),
            Kind::Permits => assert!(client.permit_semaphore(name).try_set_permits(1).await.expect("set")),
            _ => {}
        }
        Self::of(client, name)
    }

    /// Acquires it, acknowledged by `replicas` replicas.
    pub(crate) async fn acquire(&self, replicas: u32, wait: Duration) -> Result<Option<Held>, Error> {
        let (client, name) = (self.client, &self.name);
        let permits = |permits: TryAcquire<Permits>| permits.map(Held::Permits).acquired();
        match client.kind() {
            Kind::Semaphore => {
                let semaphore = client.semaphore(name).with_replicas(replicas);
                semaphore.try_acquire_for(1, wait).await.map(permits)
            }
            Kind::Permits => {
                let semaphore = client.permit_semaphore(name).with_replicas(replicas);
                semaphore.try_acquire_for(1, wait).await.map(permits)
            }
            _ => {
                let lock = client.lock(name).with_replicas(replicas);
                Ok(lock.try_lock_for(wait).await?.map(Held::Guard).acquired())
            }
        }
    }

    /// Returns the remaining lease of its only holder, as the store reports it.
    pub(crate) async fn ttl(&self) -> Duration {
        let (client, name) = (self.client, &self.name);
        let seen = match client.kind() {
            Kind::Permits => client.permit_semaphore(name).inspect().await,
            _ => client.lock(name).inspect().await,
        };
        let seen = seen.expect("a reply");
        assert_eq!(seen.holders.len(), 1, "{seen:?}");
        seen.holders[0].ttl.or(seen.ttl).expect("a lease")
    }

    /// Returns `true` if the store reports no holder.
    pub(crate) async fn is_free(&self) -> bool {
        let (client, name) = (self.client, &self.name);
        match client.kind() {
            Kind::Semaphore => client.semaphore(name).available().await.expect("a reply") == 1,
            Kind::Permits => client.permit_semaphore(name).available().await.expect("a reply") == 1,
            _ => !client.lock(name).is_locked().await.expect("a reply"),
        }
    }
}
