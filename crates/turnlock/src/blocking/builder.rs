use std::path::PathBuf;
use std::time::Duration;

use super::client::Client;
use crate::backend::memory::MemoryStore;
use crate::backend::redis::ClusterMessages;
use crate::error::Error;
use crate::tls::Tls;

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
        "Sets how many replicas must acknowledge each grant" replicas(replicas: u32);
        "Accepts any file system for a file store" any_file_system(yes: bool);
    }

    /// Connects to the store of this URL: [`turnlock::Builder::connect`](crate::Builder::connect).
    pub fn connect(self, url: &str) -> Result<Client, Error> {
        let url = url.to_owned();
        Client::build(async move || self.inner.connect(&url).await)
    }

    /// Connects through sentinels: [`turnlock::Builder::sentinel`](crate::Builder::sentinel).
    pub fn sentinel(self, master_name: &str, sentinels: &[impl AsRef<str>]) -> Result<Client, Error> {
        let (master_name, sentinels) = (master_name.to_owned(), owned(sentinels));
        Client::build(async move || self.inner.sentinel(&master_name, &sentinels).await)
    }

    /// Connects to a cluster: [`turnlock::Builder::cluster`](crate::Builder::cluster).
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
}

/// Uses the options of an async builder.
impl From<crate::Builder> for Builder {
    fn from(inner: crate::Builder) -> Self {
        Self { inner }
    }
}

fn owned(texts: &[impl AsRef<str>]) -> Vec<String> {
    texts.iter().map(|text| text.as_ref().to_owned()).collect()
}
