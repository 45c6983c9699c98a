#[cfg(any(feature = "redis", all(feature = "file", unix)))]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::ClientId;
use turnlock_store::MemoryStore;

use super::client::Client;
use crate::config::Settings;
use crate::error::Error;
#[cfg(feature = "redis")]
use crate::{ClusterMessages, Tls};

/// The options of a blocking [`Client`]: those of [`turnlock::Builder`](crate::Builder).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// let client = turnlock::blocking::Client::builder()
///     .watchdog_timeout(Duration::from_secs(9))
///     .connect("memory://")?;
/// # drop(client);
/// # Ok::<(), turnlock::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    inner: crate::Builder,
}

/// Delegates a method to the async builder.
macro_rules! delegate {
    ($($summary:literal $method:ident($argument:ident: $type:ty);)*) => {$(
        #[doc = concat!($summary, ": [`turnlock::Builder::", stringify!($method), "`](crate::Builder::", stringify!($method), ").")]
        pub fn $method(self, $argument: $type) -> Self {
            Self { inner: self.inner.$method($argument) }
        }
    )*};
}

impl Builder {
    delegate! {
        "Sets the lease of renewed locks" watchdog_timeout(timeout: Duration);
        "Sets the time-out of a reply" response_timeout(timeout: Duration);
        "Sets the time-out of a connection" connect_timeout(timeout: Duration);
        "Sets how long a store that does not reply is retried" retry_for(time: Duration);
        "Sets the longest time between two polls of a waiter" poll_interval(interval: Duration);
        "Sets how long a lock passes between local waiters" hand_over_window(window: Duration);
        "Sets a prefix of every name on the store" key_prefix(prefix: impl Into<String>);
        "Sets the label of this client" label(label: impl Into<String>);
        "Sets how many replicas must acknowledge each grant" replicas(replicas: u32);
        "Sets whether long waits and holds are announced on the store" announce_waits(yes: bool);
        "Sets whether announcements have call sites" announce_call_sites(yes: bool);
        "Sets whether an acquire fails if it is in a deadlock" fail_on_deadlock(yes: bool);
    }

    #[cfg(feature = "redis")]
    delegate! {
        "Sets the user" user(name: impl Into<String>);
        "Sets the password" password(password: impl Into<String>);
        "Reads the password from a file" password_from_file(path: impl Into<PathBuf>);
        "Reads the password from an environment variable" password_from_env(variable: impl Into<String>);
        "Sets the user for sentinels" sentinel_user(name: impl Into<String>);
        "Sets the password for sentinels" sentinel_password(password: impl Into<String>);
        "Reads the password for sentinels from a file" sentinel_password_from_file(path: impl Into<PathBuf>);
        "Reads the password for sentinels from an environment variable" sentinel_password_from_env(variable: impl Into<String>);
        "Sets the database" database(number: u32);
        "Sets the name of the connections on the server" client_name(name: impl Into<String>);
        "Sets the TLS options" tls(tls: Tls);
        "Sets how releases are published in a cluster" cluster_messages(messages: ClusterMessages);
    }

    #[cfg(feature = "metrics")]
    delegate! {
        "Sets the group of each lock in the metrics" metrics_group(group: impl Fn(&str) -> Option<&str> + Send + Sync + 'static);
    }

    #[cfg(all(feature = "file", unix))]
    delegate! {
        "Accepts any file system for a file store" any_file_system(yes: bool);
    }

    /// Connects to the store of this URL: [`turnlock::Builder::connect`](crate::Builder::connect).
    pub fn connect(self, url: &str) -> Result<Client, Error> {
        let url = url.to_owned();
        Client::build(async move || self.inner.connect(&url).await)
    }

    /// Connects to the store of the settings: [`turnlock::Builder::open`](crate::Builder::open).
    pub fn open(self) -> Result<Client, Error> {
        Client::build(async move || self.inner.open().await)
    }

    /// Connects through sentinels: [`turnlock::Builder::sentinel`](crate::Builder::sentinel).
    #[cfg(feature = "redis")]
    pub fn sentinel(self, master_name: &str, sentinels: &[impl AsRef<str>]) -> Result<Client, Error> {
        let (master_name, sentinels) = (master_name.to_owned(), owned(sentinels));
        Client::build(async move || self.inner.sentinel(&master_name, &sentinels).await)
    }

    /// Connects to a cluster: [`turnlock::Builder::cluster`](crate::Builder::cluster).
    #[cfg(feature = "redis")]
    pub fn cluster(self, seeds: &[impl AsRef<str>]) -> Result<Client, Error> {
        let seeds = owned(seeds);
        Client::build(async move || self.inner.cluster(&seeds).await)
    }

    /// Opens a file store: [`turnlock::Builder::file`](crate::Builder::file).
    #[cfg(all(feature = "file", unix))]
    pub fn file(self, path: impl Into<PathBuf>) -> Result<Client, Error> {
        let path = path.into();
        Client::build(async move || self.inner.file(path).await)
    }

    /// Uses a memory store: [`turnlock::Builder::memory`](crate::Builder::memory).
    pub fn memory(self, store: &MemoryStore) -> Result<Client, Error> {
        let store = store.clone();
        Client::build(async move || self.inner.memory(&store))
    }

    /// Uses a store of another crate: [`turnlock::Builder::store`](crate::Builder::store).
    pub fn store(
        self,
        open: impl FnOnce(ClientId) -> Arc<dyn turnlock_store::Store> + Send + 'static,
    ) -> Result<Client, Error> {
        Client::build(async move || self.inner.store(open))
    }
}

/// Uses the options of an async builder.
impl From<crate::Builder> for Builder {
    fn from(inner: crate::Builder) -> Self {
        Self { inner }
    }
}

/// Starts from these settings. The methods of the builder replace them.
impl From<Settings> for Builder {
    fn from(settings: Settings) -> Self {
        Self { inner: settings.into() }
    }
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

    /// Connects to the store of the settings: [`turnlock::Client::from_settings`](crate::Client::from_settings).
    pub fn from_settings(settings: Settings) -> Result<Self, Error> {
        Builder::from(settings).open()
    }
}

#[cfg(feature = "redis")]
fn owned(texts: &[impl AsRef<str>]) -> Vec<String> {
    texts.iter().map(|text| text.as_ref().to_owned()).collect()
}
