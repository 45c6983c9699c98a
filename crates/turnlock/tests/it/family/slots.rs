//! The two kinds of semaphores as if they were one type.

use std::time::Duration;

use turnlock::{Error, Inspection, PermitSemaphore, Permits, Semaphore};

use crate::rig::{Kind, KindClient};

/// A semaphore whose permits have no leases, or one whose have.
#[derive(Clone)]
pub(super) enum Slots {
    Plain(Semaphore),
    Leased(PermitSemaphore),
}

/// The same call on either kind.
macro_rules! on_either {
    ($slots:expr, $call:ident($($argument:expr),*)) => {
        match $slots {
            Slots::Plain(semaphore) => semaphore.$call($($argument),*).await,
            Slots::Leased(semaphore) => semaphore.$call($($argument),*).await,
        }
    };
}

impl Slots {
    /// The semaphore of this name, of the kind that the case is run for.
    pub(super) fn new(client: &KindClient, name: &str) -> Self {
        match client.kind() {
            Kind::Semaphore => Self::Plain(client.semaphore(name)),
            Kind::Permits => Self::Leased(client.permit_semaphore(name)),
            other => panic!("{} is no semaphore", other.name()),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Plain(semaphore) => semaphore.name(),
            Self::Leased(semaphore) => semaphore.name(),
        }
    }

    pub(super) async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        on_either!(self, try_set_permits(permits))
    }

    pub(super) async fn add_permits(&self, difference: i32) -> Result<i64, Error> {
        on_either!(self, add_permits(difference))
    }

    pub(super) async fn acquire(&self, permits: u32) -> Result<Permits, Error> {
        on_either!(self, acquire(permits))
    }

    pub(super) async fn try_acquire(&self, permits: u32) -> Result<Option<Permits>, Error> {
        on_either!(self, try_acquire(permits))
    }

    pub(super) async fn try_acquire_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> Result<Option<Permits>, Error> {
        on_either!(self, try_acquire_for(permits, wait))
    }

    pub(super) async fn available(&self) -> Result<i64, Error> {
        on_either!(self, available())
    }

    pub(super) async fn delete(&self) -> Result<bool, Error> {
        on_either!(self, delete())
    }

    pub(super) async fn inspect(&self) -> Result<Inspection, Error> {
        on_either!(self, inspect())
    }
}
