//! What is held, of whatever kind: a lock or permits.

use std::time::Instant;

use turnlock::{Client, Error, Guard, LostReason, Permits};

use crate::rig::Kind;

pub(crate) enum Held {
    Guard(Guard),
    Permits(Permits),
}

impl Held {
    /// Takes a lock of this kind, acknowledged by so many replicas, or two of three permits.
    pub(crate) async fn take(client: &Client, kind: Kind, name: &str, replicas: u32) -> Self {
        let lock = match kind {
            Kind::Permits => {
                let semaphore = client.permit_semaphore(name);
                assert!(semaphore.try_set_permits(3).await.expect("an answer"), "a new semaphore");
                return Self::Permits(semaphore.acquire(2).await.expect("free"));
            }
            Kind::Lock => client.lock(name),
            Kind::Fair => client.fair_lock(name),
            Kind::Fenced => client.fenced_lock(name),
            Kind::Spin => client.spin_lock(name),
            Kind::Plain => client.plain_lock(name),
            Kind::Write => client.read_write_lock(name).write(),
            Kind::Read => client.read_write_lock(name).read(),
            other => panic!("{} is not held with a lease", other.name()),
        };
        Self::Guard(lock.acknowledged_by(replicas).lock().await.expect("free"))
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Guard(guard) => guard.name(),
            Self::Permits(permits) => permits.name(),
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

    pub(crate) async fn give_back(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.unlock().await,
            Self::Permits(permits) => permits.release().await,
        }
    }
}
