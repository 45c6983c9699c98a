//! The two kinds of semaphore behind one type.

use std::time::Duration;

use crate::conformance::{Kind, KindClient};
use turnlock::{Error, Inspection, PermitSemaphore, Permits, Semaphore, TryAcquire};

/// A semaphore whose permits have no lease, or one whose permits have.
#[derive(Clone, Debug)]
pub enum AnySemaphore {
    Plain(Semaphore),
    Leased(PermitSemaphore),
}

/// Makes the same call on either kind.
macro_rules! on_either {
    ($either:expr, $call:ident($($argument:expr),*)) => {
        match $either {
            AnySemaphore::Plain(semaphore) => semaphore.$call($($argument),*).await,
            AnySemaphore::Leased(semaphore) => semaphore.$call($($argument),*).await,
        }
    };
}

impl AnySemaphore {
    /// Returns the semaphore of this name and of the client's kind.
    pub fn new(client: &KindClient, name: &str) -> Self {
        match client.kind() {
            Kind::Semaphore => Self::Plain(client.semaphore(name)),
            Kind::Permits => Self::Leased(client.permit_semaphore(name)),
            other => panic!("{} is not a semaphore", other.name()),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Plain(semaphore) => semaphore.name(),
            Self::Leased(semaphore) => semaphore.name(),
        }
    }

    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        on_either!(self, try_set_permits(permits))
    }

    pub async fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        on_either!(self, add_permits(difference))
    }

    pub async fn acquire(&self, permits: u32) -> Result<Permits, Error> {
        on_either!(self, acquire(permits))
    }

    pub async fn try_acquire(&self, permits: u32) -> Result<TryAcquire<Permits>, Error> {
        on_either!(self, try_acquire(permits))
    }

    pub async fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<TryAcquire<Permits>, Error> {
        on_either!(self, try_acquire_for(permits, wait))
    }

    pub async fn available(&self) -> Result<i64, Error> {
        on_either!(self, available())
    }

    pub async fn delete(&self) -> Result<bool, Error> {
        on_either!(self, delete())
    }

    pub async fn inspect(&self) -> Result<Inspection, Error> {
        on_either!(self, inspect())
    }
}
