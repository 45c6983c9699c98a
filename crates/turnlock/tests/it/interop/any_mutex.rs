use turnlock::{Client, Error, Guard, Lock, PermitSemaphore, Permits, Semaphore};

use super::LONG_LEASE;
use crate::fixture::{Kind, KindClient};

/// A turnlock object with at most one holder: a lock, or a semaphore with one permit.
#[derive(Clone)]
pub(super) enum AnyMutex {
    Lock(Lock),
    Semaphore(Semaphore),
    Permits(PermitSemaphore),
}

impl AnyMutex {
    pub(super) fn new(client: &Client, kind: Kind, name: &str) -> Self {
        match kind {
            Kind::Semaphore => Self::Semaphore(client.semaphore(name)),
            Kind::Permits => Self::Permits(client.permit_semaphore(name)),
            _ => Self::Lock(KindClient::new(client.clone(), kind).lock(name)),
        }
    }

    /// The same with a lease that outlasts the case, where the kind has leases.
    pub(super) fn with_long_lease(self) -> Self {
        match self {
            Self::Lock(lock) => Self::Lock(lock.with_lease(LONG_LEASE)),
            Self::Permits(permits) => Self::Permits(permits.with_lease(LONG_LEASE)),
            Self::Semaphore(_) => self,
        }
    }

    /// Sets the number of permits of a semaphore to one.
    pub(super) async fn create(&self) {
        let created = match self {
            Self::Lock(_) => return,
            Self::Semaphore(semaphore) => semaphore.try_set_permits(1).await,
            Self::Permits(permits) => permits.try_set_permits(1).await,
        };
        assert!(created.expect("a reply"), "it did not exist before");
    }

    pub(super) async fn lock(&self) -> Result<AnyGuard, Error> {
        Ok(match self {
            Self::Lock(lock) => AnyGuard::Lock(lock.lock().await?),
            Self::Semaphore(semaphore) => AnyGuard::Permit(semaphore.acquire(1).await?),
            Self::Permits(permits) => AnyGuard::Permit(permits.acquire(1).await?),
        })
    }

    pub(super) async fn try_lock(&self) -> Result<Option<AnyGuard>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.try_lock().await?.map(AnyGuard::Lock).acquired(),
            Self::Semaphore(semaphore) => semaphore.try_acquire(1).await?.map(AnyGuard::Permit).acquired(),
            Self::Permits(permits) => permits.try_acquire(1).await?.map(AnyGuard::Permit).acquired(),
        })
    }
}

/// The guard of an [`AnyMutex`].
pub(super) enum AnyGuard {
    Lock(Guard),
    Permit(Permits),
}

impl AnyGuard {
    pub(super) async fn unlock(self) {
        match self {
            Self::Lock(guard) => guard.unlock().await.expect("held"),
            Self::Permit(permit) => permit.release().await.expect("held"),
        }
    }
}
