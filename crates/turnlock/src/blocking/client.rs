use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{ClientId, OwnerId};

use super::bridge::Bridge;
use super::builder::Builder;
use super::client_thread::ClientThread;
use super::latch::Latch;
use super::lock::Lock;
use super::permit_semaphore::PermitSemaphore;
use super::read_write_lock::ReadWriteLock;
use super::semaphore::Semaphore;
use crate::client::ShutdownReport;
use crate::doctor::Report;
use crate::error::Error;
use crate::found::Found;
use crate::identity::Identity;
use crate::inspection::Inspection;
use crate::kind::Kind;

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
    thread: Arc<ClientThread>,
}

impl Client {
    /// Connects to the store of this URL: [`turnlock::Client::connect`](crate::Client::connect).
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url)
    }

    /// Returns a [`Builder`] to set options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a handle to the lock of this name: [`turnlock::Client::lock`](crate::Client::lock).
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.lock(name), self.bridge())
    }

    /// Returns a handle to the fair lock of this name: [`turnlock::Client::fair_lock`](crate::Client::fair_lock).
    pub fn fair_lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.fair_lock(name), self.bridge())
    }

    /// Returns a handle to the fenced lock of this name: [`turnlock::Client::fenced_lock`](crate::Client::fenced_lock).
    pub fn fenced_lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.fenced_lock(name), self.bridge())
    }

    /// Returns a handle to the spin lock of this name: [`turnlock::Client::spin_lock`](crate::Client::spin_lock).
    pub fn spin_lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.spin_lock(name), self.bridge())
    }

    /// Returns a handle to the plain lock of this name: [`turnlock::Client::plain_lock`](crate::Client::plain_lock).
    pub fn plain_lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.plain_lock(name), self.bridge())
    }

    /// Returns a handle to the read-write lock: [`turnlock::Client::read_write_lock`](crate::Client::read_write_lock).
    pub fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        ReadWriteLock::new(self.inner.read_write_lock(name), self.bridge())
    }

    /// Returns a handle to the semaphore of this name: [`turnlock::Client::semaphore`](crate::Client::semaphore).
    pub fn semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(self.inner.semaphore(name), self.bridge())
    }

    /// Returns a handle to the semaphore with leases:
    /// [`turnlock::Client::permit_semaphore`](crate::Client::permit_semaphore).
    pub fn permit_semaphore(&self, name: &str) -> PermitSemaphore {
        PermitSemaphore::new(self.inner.permit_semaphore(name), self.bridge())
    }

    /// Returns a handle to the count-down latch of this name: [`turnlock::Client::latch`](crate::Client::latch).
    pub fn latch(&self, name: &str) -> Latch {
        Latch::new(self.inner.latch(name), self.bridge())
    }

    /// Returns the id of this client: [`turnlock::Client::id`](crate::Client::id).
    pub fn id(&self) -> ClientId {
        self.inner.id()
    }

    fn bridge(&self) -> Bridge {
        Bridge::new(self.inner.clone(), Arc::clone(&self.thread))
    }

    pub(super) fn build<F>(connect: F) -> Result<Self, Error>
    where
        F: AsyncFnOnce() -> Result<crate::Client, Error> + Send + 'static,
    {
        let (thread, inner) = ClientThread::build(connect)?;
        Ok(Self { inner, thread })
    }

    /// Finds held locks whose names match a pattern: [`turnlock::Client::find`](crate::Client::find).
    pub fn find(&self, pattern: &str, at_most: usize) -> Result<Found, Error> {
        self.thread.block_on(self.inner.find(pattern, at_most))
    }

    /// Inspects the key of this exact name, whatever its kind: [`turnlock::Client::inspect`](crate::Client::inspect).
    pub fn inspect(&self, name: &str) -> Result<Option<Inspection>, Error> {
        self.thread.block_on(self.inner.inspect(name))
    }

    /// Returns the identities of the clients of these owners:
    /// [`turnlock::Client::identities`](crate::Client::identities).
    pub fn identities(&self, owners: &[OwnerId]) -> Result<Vec<Option<Identity>>, Error> {
        self.thread.block_on(self.inner.identities(owners))
    }

    /// Releases a lock by force: [`turnlock::Client::force_unlock`](crate::Client::force_unlock).
    pub fn force_unlock(&self, kind: Kind, name: &str, owner: Option<&OwnerId>) -> Result<bool, Error> {
        self.thread.block_on(self.inner.force_unlock(kind, name, owner))
    }

    /// Checks the store, and returns a report: [`turnlock::Client::doctor`](crate::Client::doctor).
    pub fn doctor(&self) -> Report {
        self.thread.block_on(self.inner.doctor())
    }

    /// Checks the store, with probes whose names begin with `prefix`:
    /// [`turnlock::Client::doctor_with_prefix`](crate::Client::doctor_with_prefix).
    pub fn doctor_with_prefix(&self, prefix: &str) -> Report {
        self.thread.block_on(self.inner.doctor_with_prefix(prefix))
    }

    /// Stops acquiring, and waits until all locks are released:
    /// [`turnlock::Client::shutdown`](crate::Client::shutdown).
    pub fn shutdown(&self, limit: Duration) -> ShutdownReport {
        self.thread.block_on(self.inner.shutdown(limit))
    }
}
