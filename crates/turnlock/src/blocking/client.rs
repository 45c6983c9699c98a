use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{Kind, OwnerId};

use super::bridge::Bridge;
use super::home::Home;
use super::latch::Latch;
use super::lock::Lock;
use super::permit_semaphore::PermitSemaphore;
use super::read_write_lock::ReadWriteLock;
use super::semaphore::Semaphore;
use crate::backend::memory::MemoryStore;
use crate::client::Leftovers;
use crate::doctor::Report;
use crate::error::Error;
use crate::found::Found;
use crate::identity::Identity;
use crate::inspection::Inspection;

/// As [`turnlock::Client`](crate::Client), for programs without a runtime.
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
    home: Arc<Home>,
}

impl Client {
    /// As [`turnlock::Client::connect`](crate::Client::connect).
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(crate::Client::builder()).connect(url)
    }

    /// A blocking client with the settings of an async one.
    ///
    /// ```
    /// use turnlock::{Client, blocking};
    ///
    /// let settings = Client::builder().key_prefix("billing:");
    /// let client = blocking::Client::builder(settings).connect("memory://")?;
    /// # drop(client);
    /// # Ok::<(), turnlock::Error>(())
    /// ```
    pub fn builder(settings: crate::Builder) -> Builder {
        Builder { settings }
    }

    /// The lock of this name.
    pub fn lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.lock(name), self.bridge())
    }

    /// The fair lock of this name. As [`turnlock::Client::fair_lock`](crate::Client::fair_lock).
    pub fn fair_lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.fair_lock(name), self.bridge())
    }

    /// The fenced lock of this name. As [`turnlock::Client::fenced_lock`](crate::Client::fenced_lock).
    pub fn fenced_lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.fenced_lock(name), self.bridge())
    }

    /// The spin lock of this name. As [`turnlock::Client::spin_lock`](crate::Client::spin_lock).
    pub fn spin_lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.spin_lock(name), self.bridge())
    }

    /// The plain lock of this name. As [`turnlock::Client::plain_lock`](crate::Client::plain_lock).
    pub fn plain_lock(&self, name: &str) -> Lock {
        Lock::new(self.inner.plain_lock(name), self.bridge())
    }

    /// The read-write lock of this name.
    pub fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        ReadWriteLock::new(self.inner.read_write_lock(name), self.bridge())
    }

    /// The semaphore of this name.
    pub fn semaphore(&self, name: &str) -> Semaphore {
        Semaphore::new(self.inner.semaphore(name), self.bridge())
    }

    /// The semaphore of this name whose permits have leases.
    pub fn permit_semaphore(&self, name: &str) -> PermitSemaphore {
        PermitSemaphore::new(self.inner.permit_semaphore(name), self.bridge())
    }

    /// The count-down latch of this name.
    pub fn latch(&self, name: &str) -> Latch {
        Latch::new(self.inner.latch(name), self.bridge())
    }

    fn bridge(&self) -> Bridge {
        Bridge::new(self.inner.clone(), Arc::clone(&self.home))
    }

    fn build<F>(connect: F) -> Result<Self, Error>
    where
        F: AsyncFnOnce() -> Result<crate::Client, Error> + Send + 'static,
    {
        let (home, inner) = Home::build(connect)?;
        Ok(Self { inner, home })
    }

    /// As [`turnlock::Client::find`](crate::Client::find).
    pub fn find(&self, pattern: &str, at_most: usize) -> Result<Found, Error> {
        self.home.block_on(self.inner.find(pattern, at_most))
    }

    /// As [`turnlock::Client::look_up`](crate::Client::look_up).
    pub fn look_up(&self, name: &str) -> Result<Option<Inspection>, Error> {
        self.home.block_on(self.inner.look_up(name))
    }

    /// As [`turnlock::Client::identities`](crate::Client::identities).
    pub fn identities(&self, owners: &[OwnerId]) -> Result<Vec<Option<Identity>>, Error> {
        self.home.block_on(self.inner.identities(owners))
    }

    /// As [`turnlock::Client::force_unlock`](crate::Client::force_unlock).
    pub fn force_unlock(&self, kind: Kind, name: &str, owner: Option<&OwnerId>) -> Result<bool, Error> {
        self.home.block_on(self.inner.force_unlock(kind, name, owner))
    }

    /// As [`turnlock::Client::doctor`](crate::Client::doctor).
    pub fn doctor(&self) -> Report {
        self.home.block_on(self.inner.doctor())
    }

    /// As [`turnlock::Client::doctor_for_names`](crate::Client::doctor_for_names).
    pub fn doctor_for_names(&self, beginning: &str) -> Report {
        self.home.block_on(self.inner.doctor_for_names(beginning))
    }

    /// As [`turnlock::Client::shutdown`](crate::Client::shutdown).
    pub fn shutdown(&self, limit: Duration) -> Leftovers {
        self.home.block_on(self.inner.shutdown(limit))
    }
}

/// Settings on their way to a blocking [`Client`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    settings: crate::Builder,
}

impl Builder {
    /// As [`turnlock::Builder::connect`](crate::Builder::connect).
    pub fn connect(self, url: &str) -> Result<Client, Error> {
        let url = url.to_owned();
        Client::build(async move || self.settings.connect(&url).await)
    }

    /// As [`turnlock::Builder::sentinel`](crate::Builder::sentinel).
    pub fn sentinel(self, master_name: &str, sentinels: &[impl AsRef<str>]) -> Result<Client, Error> {
        let (master_name, sentinels) = (master_name.to_owned(), owned(sentinels));
        Client::build(async move || self.settings.sentinel(&master_name, &sentinels).await)
    }

    /// As [`turnlock::Builder::cluster`](crate::Builder::cluster).
    pub fn cluster(self, seeds: &[impl AsRef<str>]) -> Result<Client, Error> {
        let seeds = owned(seeds);
        Client::build(async move || self.settings.cluster(&seeds).await)
    }

    /// As [`turnlock::Builder::redis`](crate::Builder::redis).
    pub fn redis(self, client: redis::Client) -> Result<Client, Error> {
        Client::build(async move || self.settings.redis(client).await)
    }

    /// As [`turnlock::Builder::memory`](crate::Builder::memory).
    pub fn memory(self, store: &MemoryStore) -> Result<Client, Error> {
        let store = store.clone();
        Client::build(async move || self.settings.memory(&store))
    }
}

fn owned(texts: &[impl AsRef<str>]) -> Vec<String> {
    texts.iter().map(|text| text.as_ref().to_owned()).collect()
}
