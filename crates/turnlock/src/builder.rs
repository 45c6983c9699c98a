use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use turnlock_core::Lease;
use url::Url;

use crate::backend::Backend;
use crate::backend::memory::{Memory, MemoryStore};
use crate::backend::redis::Redis;
use crate::client::Client;
use crate::engine::Engine;
use crate::error::Error;
use crate::settings::Settings;

/// The settings of a client. Made by [`Client::builder`]; what is wrong is reported when connecting.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = turnlock::Client::builder()
///     .watchdog(Duration::from_secs(9))
///     .key_prefix("billing:")
///     .connect("memory://")
///     .await?;
/// # drop(client);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    watchdog: Option<Duration>,
    response_timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
    retry_for: Option<Duration>,
    poll: Option<Duration>,
    key_prefix: String,
}

impl Builder {
    /// The lease of locks that are renewed: how long such a lock stays held when its process dies. Renewed every third of
    /// it. 30 s when not set, as in Redisson.
    pub fn watchdog(mut self, lease: Duration) -> Self {
        self.watchdog = Some(lease);
        self
    }

    /// How long to wait for the store's answer. Must be below a third of every lease. When not set: a second, and a
    /// quarter of the lease where that is shorter.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = Some(timeout);
        self
    }

    /// How long connecting may take. 5 s when not set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
        self
    }

    /// How long a lock or an unlock goes on asking a store that does not answer, before it is an error. 30 s when not set.
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.retry_for = Some(time);
        self
    }

    /// The longest time between two looks of a waiter: what a lost message can cost. A second when not set.
    ///
    /// With one of more than a second, a waiter of a fair lock may need a second more to come forward when the one before it
    /// has died.
    pub fn poll(mut self, time: Duration) -> Self {
        self.poll = Some(time);
        self
    }

    /// Text in front of every name on the store. To share locks with Redisson, the Java side must use the same whole name.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Connects to the store that `url` names: `redis://…` or `memory://`.
    ///
    /// The client lives on the runtime on which this is called.
    ///
    /// # Panics
    ///
    /// On a runtime that was built without timers.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let parsed = Url::parse(url).map_err(|error| {
            Error::bad_setting(
                "url",
                format!("not a URL ({error}); write for example redis://127.0.0.1:6379"),
            )
        })?;
        match parsed.scheme() {
            "memory" => match parsed.host_str() {
                None | Some("") => self.memory(&MemoryStore::new()),
                Some(name) => self.memory(&MemoryStore::named(name)),
            },
            "redis" | "redis+unix" | "unix" => {
                // The text of this error comes without the URL, which may hold a password.
                let client =
                    redis::Client::open(url).map_err(|error| Error::bad_setting("url", error.to_string()))?;
                self.redis(client).await
            }
            "rediss" | "redis+sentinel" | "redis+cluster" | "file" => Err(Error::Unsupported(format!(
                "stores of the kind {}: are not in this version",
                parsed.scheme()
            ))),
            other => Err(Error::bad_setting(
                "url",
                format!("unknown kind of store {other:?}; known are redis:// and memory://"),
            )),
        }
    }

    /// Connects to the server of an existing `redis::Client`. Two connections are made: one for commands, one for messages.
    ///
    /// # Panics
    ///
    /// On a runtime that was built without timers.
    pub async fn redis(self, client: redis::Client) -> Result<Client, Error> {
        let settings = self.settings()?;
        on_a_runtime()?;
        let info = client.get_connection_info().clone();
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let server = info.addr().to_string();
        let client = redis::Client::open(info.set_tcp_settings(tcp))
            .map_err(|error| Error::bad_setting("redis", error.to_string()))?;
        let backend = Redis::connect(client, settings.connect_timeout)
            .await
            .map_err(|failure| failure.into_error(|| format!("a connection to {server}")))?;
        Ok(start(Arc::new(backend), settings))
    }

    /// A client of a store in memory. Must be called on a tokio runtime.
    ///
    /// # Panics
    ///
    /// On a runtime that was built without timers.
    pub fn memory(self, store: &MemoryStore) -> Result<Client, Error> {
        let settings = self.settings()?;
        on_a_runtime()?;
        Ok(start(Arc::new(Memory::new(store.clone())), settings))
    }

    fn settings(self) -> Result<Settings, Error> {
        let defaults = Settings::default();
        let settings = Settings {
            watchdog: match self.watchdog {
                None => defaults.watchdog,
                Some(lease) => {
                    Lease::new(lease).map_err(|error| Error::bad_setting("watchdog", error.to_string()))?
                }
            },
            response_timeout: positive("response_timeout", self.response_timeout)?,
            connect_timeout: positive("connect_timeout", self.connect_timeout)?
                .unwrap_or(defaults.connect_timeout),
            retry_for: positive("retry_for", self.retry_for)?.unwrap_or(defaults.retry_for),
            poll: positive("poll", self.poll)?.unwrap_or(defaults.poll),
            key_prefix: self.key_prefix,
        };
        settings.patience(settings.watchdog)?;
        Ok(settings)
    }
}

fn start(backend: Arc<dyn Backend>, settings: Settings) -> Client {
    Client::new(Engine::start(backend, settings))
}

fn positive(setting: &'static str, time: Option<Duration>) -> Result<Option<Duration>, Error> {
    match time {
        Some(time) if time.is_zero() => Err(Error::bad_setting(setting, "zero leaves no time for anything")),
        time => Ok(time),
    }
}

fn on_a_runtime() -> Result<(), Error> {
    let reason = "an async client is made on a tokio runtime; or use turnlock::blocking";
    Handle::try_current().map_err(|_| Error::bad_setting("runtime", reason))?;
    // Panics here, with tokio's own words, rather than in a task of ours where nobody would see it.
    drop(tokio::time::sleep(Duration::ZERO));
    Ok(())
}
