use turnlock::{Client, Error, Guard, Lock, PermitSemaphore, Permits, Semaphore};

use super::LONG;
use crate::rig::{Kind, KindClient};

/// Something of ours that lets one in at a time: a lock, or a semaphore with one permit.
#[derive(Clone)]
pub(super) enum Gate {
    Lock(Lock),
    Semaphore(Semaphore),
    Permits(PermitSemaphore),
}

impl Gate {
    pub(super) fn new(client: &Client, kind: Kind, name: &str) -> Self {
        match kind {
            Kind::Semaphore => Self::Semaphore(client.semaphore(name)),
            Kind::Permits => Self::Permits(client.permit_semaphore(name)),
            _ => Self::Lock(KindClient::new(client.clone(), kind).lock(name)),
        }
    }

    /// The same for turns that nobody waits out: they have a long lease, where there are leases.
    pub(super) fn for_long(self) -> Self {
        match self {
            Self::Lock(lock) => Self::Lock(lock.lease(LONG)),
            Self::Permits(permits) => Self::Permits(permits.lease(LONG)),
            Self::Semaphore(_) => self,
        }
    }

    /// Makes it so that one can get in.
    pub(super) async fn open(&self) {
        let made = match self {
            Self::Lock(_) => return,
            Self::Semaphore(semaphore) => semaphore.try_set_permits(1).await,
            Self::Permits(permits) => permits.try_set_permits(1).await,
        };
        assert!(made.expect("an answer"), "nobody has made it before");
    }

    pub(super) async fn enter(&self) -> Result<Turn, Error> {
        Ok(match self {
            Self::Lock(lock) => Turn::Lock(lock.lock().await?),
            Self::Semaphore(semaphore) => Turn::Permit(semaphore.acquire(1).await?),
            Self::Permits(permits) => Turn::Permit(permits.acquire(1).await?),
        })
    }

    pub(super) async fn try_enter(&self) -> Result<Option<Turn>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.try_lock().await?.map(Turn::Lock),
            Self::Semaphore(semaphore) => semaphore.try_acquire(1).await?.map(Turn::Permit),
            Self::Permits(permits) => permits.try_acquire(1).await?.map(Turn::Permit),
        })
    }
}

/// What is held during a turn.
pub(super) enum Turn {
    Lock(Guard),
    Permit(Permits),
}

impl Turn {
    pub(super) async fn leave(self) {
        match self {
            Self::Lock(guard) => guard.unlock().await.expect("held"),
            Self::Permit(permit) => permit.release().await.expect("taken"),
        }
    }
}
