use std::sync::Arc;
use std::time::Duration;

use super::home::Home;
use super::lock::Lock;
use crate::backend::memory::MemoryStore;
use crate::client::Leftovers;
use crate::error::Error;

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
        Lock::new(self.inner.lock(name), self.inner.clone(), Arc::clone(&self.home))
    }

    fn build<F>(connect: F) -> Result<Self, Error>
    where
        F: AsyncFnOnce() -> Result<crate::Client, Error> + Send + 'static,
    {
        let (home, inner) = Home::build(connect)?;
        Ok(Self { inner, home })
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
