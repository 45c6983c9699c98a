use std::time::Duration;

use turnlock_core::{ClientId, OwnerId};

use super::bridge::{Bridge, IntoBlocking};
use super::{Latch, Lock, PermitSemaphore, ReadWriteLock, Semaphore};
use crate::doctor::{Overview, Report};
use crate::{Deadlock, Error, Found, Identity, Inspection, Kind, ShutdownReport, Waits};

/// A client of a store, from which all locks are made: [`turnlock::Client`](crate::Client).
///
/// Cheap to clone. Its methods block the calling thread.
///
/// # Examples
///
/// ```
/// let client = turnlock::blocking::Client::connect("memory://")?;
/// let guard = client.lock("orders").lock()?;
/// drop(guard);
/// let report = client.shutdown(std::time::Duration::from_secs(5));
/// assert!(report.is_clean());
/// # Ok::<(), turnlock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
    bridge: Bridge,
}

impl Client {
    pub(super) fn build(
        connect: impl AsyncFnOnce() -> Result<crate::Client, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let (bridge, inner) = Bridge::connect(connect)?;
        Ok(Self { inner, bridge })
    }

    delegate! { Client:
        /// Returns a handle to the lock of this name.
        make lock(&self, name: &str) -> Lock;
        /// Returns a handle to the fair lock of this name.
        make fair_lock(&self, name: &str) -> Lock;
        /// Returns a handle to the fenced lock of this name.
        make fenced_lock(&self, name: &str) -> Lock;
        /// Returns a handle to the spin lock of this name.
        make spin_lock(&self, name: &str) -> Lock;
        /// Returns a handle to the plain lock of this name.
        make plain_lock(&self, name: &str) -> Lock;
        /// Returns a handle to the read-write lock.
        make read_write_lock(&self, name: &str) -> ReadWriteLock;
        /// Returns a handle to the semaphore of this name.
        make semaphore(&self, name: &str) -> Semaphore;
        /// Returns a handle to the semaphore with leases.
        make permit_semaphore(&self, name: &str) -> PermitSemaphore;
        /// Returns a handle to the count-down latch of this name.
        make latch(&self, name: &str) -> Latch;
        /// Returns the id of this client.
        get id(&self) -> ClientId;
        /// Finds what is held, and what clients wait for, by a pattern of names.
        block find(&self, pattern: &str, at_most: usize) -> Result<Found, Error>;
        /// Inspects the key of this exact name, whatever its kind.
        block inspect(&self, name: &str) -> Result<Option<Inspection>, Error>;
        /// Returns the identities of the clients of these owners.
        block identities(&self, owners: &[OwnerId]) -> Result<Vec<Option<Identity>>, Error>;
        /// Returns who waits on this store.
        block waits(&self) -> Result<Waits, Error>;
        /// Returns the tasks that wait for each other.
        block deadlocks(&self) -> Result<Vec<Deadlock>, Error>;
        /// Releases a lock by force.
        block force_unlock(&self, kind: Kind, name: &str, owner: Option<&OwnerId>) -> Result<bool, Error>;
        /// Checks the store, and returns a report.
        block doctor(&self) -> Report;
        /// Checks the store, with probes whose names begin with `prefix`.
        block doctor_with_prefix(&self, prefix: &str) -> Report;
        /// Describes the servers of the store.
        block overview(&self) -> Result<Overview, Error>;
        /// Makes one round trip to the store.
        block ping(&self) -> Result<(), Error>;
        /// Stops acquiring, and waits until all locks are released.
        block shutdown(&self, limit: Duration) -> ShutdownReport;
    }
}
