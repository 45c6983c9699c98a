//! All exclusive primitives behind one type.

use std::time::Duration;

use crate::conformance::{Fixture, Kind, PROMPT};
use turnlock::{
    Error, Guard, Inspection, Lock, MultiGuard, MultiLock, PermitSemaphore, Permits, RedLock, Semaphore,
};

/// A lock of any kind, a `MultiLock`, a `RedLock`, or a semaphore with one permit.
#[derive(Clone)]
pub(crate) enum Mutex {
    Lock(Lock),
    Semaphore(Semaphore),
    Permits(PermitSemaphore),
    Multi(MultiLock),
    Red(RedLock),
}

/// The guard or permits of a held [`Mutex`].
pub(crate) enum Held {
    Guard(Guard),
    Permits(Permits),
    Multi(MultiGuard),
}

impl Mutex {
    /// Creates the mutex of this name and of the case's kind, with its own client.
    pub(crate) async fn new(fixture: &Fixture, name: &str) -> Self {
        let client = fixture.client().await;
        match fixture.kind {
            Kind::Semaphore => {
                let semaphore = client.semaphore(name);
                semaphore.try_set_permits(1).await.expect("a reply");
                Self::Semaphore(semaphore)
            }
            Kind::Permits => {
                let semaphore = client.permit_semaphore(name);
                semaphore.try_set_permits(1).await.expect("a reply");
                Self::Permits(semaphore)
            }
            Kind::Multi => Self::Multi(MultiLock::new([client.reentrant(name)]).expect("one lock")),
            Kind::Red => {
                // Three names on one store represent three servers.
                let clients = [client, fixture.client().await, fixture.client().await];
                let locks = [0, 1, 2].map(|server| clients[server].reentrant(&format!("{name}:{server}")));
                // All servers are reachable here, but the machine may be busy.
                Self::Red(RedLock::new(locks).expect("three locks").with_node_timeout(PROMPT))
            }
            _ => Self::Lock(client.lock(name)),
        }
    }

    /// Returns the same mutex with a fixed lease.
    ///
    /// # Panics
    ///
    /// For a plain semaphore, which has no leases.
    pub(crate) fn with_lease(&self, lease: Duration) -> Self {
        match self {
            Self::Lock(lock) => Self::Lock(lock.with_lease(lease)),
            Self::Permits(semaphore) => Self::Permits(semaphore.with_lease(lease)),
            Self::Multi(locks) => Self::Multi(locks.with_lease(lease)),
            Self::Red(locks) => Self::Red(locks.with_lease(lease)),
            Self::Semaphore(_) => panic!("permits of a plain semaphore have no lease"),
        }
    }

    pub(crate) async fn lock(&self) -> Result<Held, Error> {
        match self {
            Self::Lock(lock) => lock.lock().await.map(Held::Guard),
            Self::Semaphore(semaphore) => semaphore.acquire(1).await.map(Held::Permits),
            Self::Permits(semaphore) => semaphore.acquire(1).await.map(Held::Permits),
            Self::Multi(locks) => locks.lock().await.map(Held::Multi),
            Self::Red(locks) => locks.lock().await.map(Held::Multi),
        }
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.try_lock().await?.map(Held::Guard).acquired(),
            Self::Semaphore(semaphore) => semaphore.try_acquire(1).await?.map(Held::Permits).acquired(),
            Self::Permits(semaphore) => semaphore.try_acquire(1).await?.map(Held::Permits).acquired(),
            Self::Multi(locks) => locks.try_lock().await?.map(Held::Multi).acquired(),
            Self::Red(locks) => locks.try_lock().await?.map(Held::Multi).acquired(),
        })
    }

    pub(crate) async fn try_lock_for(&self, wait: Duration) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.try_lock_for(wait).await?.map(Held::Guard).acquired(),
            Self::Semaphore(semaphore) => {
                semaphore.try_acquire_for(1, wait).await?.map(Held::Permits).acquired()
            }
            Self::Permits(semaphore) => {
                semaphore.try_acquire_for(1, wait).await?.map(Held::Permits).acquired()
            }
            Self::Multi(locks) => locks.try_lock_for(wait).await?.map(Held::Multi).acquired(),
            Self::Red(locks) => locks.try_lock_for(wait).await?.map(Held::Multi).acquired(),
        })
    }

    /// Returns how many tasks of this client wait for it.
    pub(crate) async fn waiting_here(&self) -> Result<usize, Error> {
        Ok(self.inspect().await?.iter().map(|seen| seen.waiting_here).sum())
    }

    /// Returns `true` if the store reports no holder and no waiter.
    pub(crate) async fn is_free(&self) -> Result<bool, Error> {
        let is_free = |seen: &Inspection| {
            let all_available = seen.available.is_none_or(|available| available == 1);
            seen.holders.is_empty() && seen.queue.is_empty() && all_available
        };
        Ok(self.inspect().await?.iter().all(is_free))
    }

    async fn inspect(&self) -> Result<Vec<Inspection>, Error> {
        let seen = match self {
            Self::Lock(lock) => lock.inspect().await,
            Self::Semaphore(semaphore) => semaphore.inspect().await,
            Self::Permits(semaphore) => semaphore.inspect().await,
            Self::Multi(locks) => return locks.inspect().await,
            Self::Red(locks) => return locks.inspect().await.into_iter().collect(),
        };
        Ok(vec![seen?])
    }
}

impl Held {
    pub(crate) async fn unlock(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.unlock().await,
            Self::Permits(permits) => permits.release().await,
            Self::Multi(guard) => guard.unlock().await,
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Guard(guard) => guard.is_valid(),
            Self::Permits(permits) => permits.is_valid(),
            Self::Multi(guard) => guard.is_valid(),
        }
    }
}
