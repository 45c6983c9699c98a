use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use turnlock_core::{ClientId, Lease};

use crate::backend::Backend;
#[cfg(all(feature = "file", unix))]
use crate::backend::file::{File, StorePath};
use crate::backend::memory::{Memory, MemoryStore};
use crate::backend::redis::{Address, ClusterMessages, Redis, Secret};
use crate::client::Client;
use crate::clock;
use crate::connect_settings::{ConnectSettings, Servers};
use crate::engine::Engine;
use crate::error::Error;
use crate::settings::Settings;
use crate::store_url::{SENTINEL_PORT, SERVER_PORT, Store, StoreUrl, parse_address};
use crate::tls::Tls;

/// The options of a client. [`Client::builder`] makes one.
///
/// A setting can be in the builder or in the URL. If it is in both, the values must be the same. All settings are
/// checked when connecting. `{:?}` shows no password and no key.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = turnlock::Client::builder()
///     .watchdog_timeout(Duration::from_secs(9))
///     .key_prefix("billing:")
///     .connect("memory://")
///     .await?;
/// # drop(client);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    watchdog_timeout: Option<Duration>,
    retry_for: Option<Duration>,
    poll_interval: Option<Duration>,
    hand_over_window: Option<Duration>,
    key_prefix: String,
    label: Option<String>,
    connect: ConnectSettings,
}

impl Builder {
    /// Sets the lease of renewed locks. 30 s by default, as in Redisson.
    ///
    /// The lock of a process that dies is free after this time. Leases are renewed every third of it.
    ///
    /// Locks with a [fixed lease](crate::Lock::with_lease) are checked every third of this time or of their lease,
    /// whichever is shorter.
    pub fn watchdog_timeout(mut self, timeout: Duration) -> Self {
        self.watchdog_timeout = Some(timeout);
        self
    }

    /// Sets the time-out of a reply. 1 s by default, less for leases under 4 s.
    ///
    /// Must be below a third of every lease. The default for a short lease is a quarter of it, rounded down.
    ///
    /// A request that needs a new connection waits for it this long, and then fails. The connection is completed in the
    /// background for the next request: see [`connect_timeout`](Builder::connect_timeout).
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.connect.response_timeout = Some(timeout);
        self
    }

    /// Sets the time-out of a new connection. 5 s by default.
    ///
    /// Only [`connect`](Builder::connect) and its like wait this long. Other requests wait for the
    /// [`response_timeout`](Builder::response_timeout).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.connect_timeout = Some(timeout);
        self
    }

    /// Sets how long a store that does not reply is retried. 30 s by default.
    ///
    /// Then an acquire or a release fails. The time counts from the first request without a reply. The last request can
    /// take one response time-out more.
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.retry_for = Some(time);
        self
    }

    /// Sets the longest time between two polls of a waiter. 1 s by default.
    ///
    /// A lost message delays a waiter by at most this time. With more than 1 s, a waiter of a fair lock can move up
    /// 1 s later when the waiter ahead of it has died.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = Some(interval);
        self
    }

    /// Sets how long a lock passes between waiters of this client without a request. 10 ms by default.
    ///
    /// The time counts from the grant by the store. Under contention, the store gets one request per window instead of
    /// one per waiter. At the end of the window the lock is released. If clients of other processes subscribe to it,
    /// they are served first.
    ///
    /// At most a tenth of the [watchdog time-out](Builder::watchdog_timeout), which also limits the default. Zero turns
    /// hand-over off.
    ///
    /// Applies to [`Client::lock`] if the lock is renewed and has no [explicit owner](crate::Lock::with_owner). Other
    /// kinds, fixed leases and explicit owners send each request to the store.
    ///
    /// Within one window, all waiters have the same owner id on the store. After a forced unlock, or if the store loses
    /// its data, the lock can still pass between them until the window ends.
    pub fn hand_over_window(mut self, window: Duration) -> Self {
        self.hand_over_window = Some(window);
        self
    }

    /// Sets a prefix of every name on the store. Empty by default.
    ///
    /// To share locks with Redisson, the Java side must use the name with the prefix.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Sets the label of this client in its [`Identity`](crate::Identity). The program's file name by default.
    ///
    /// Cut to 100 characters.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the user. The server's default user by default. Needs a password.
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.connect.credentials.user = Some(name.into());
        self
    }

    /// Sets the password. None by default.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.connect.credentials.password = Some(Secret::new(password));
        self
    }

    /// Reads the password from a file, once, when connecting.
    ///
    /// The password is the content of the file without its last line end.
    pub fn password_from_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.connect.credentials.password_file = Some(path.into());
        self
    }

    /// Reads the password from an environment variable, once, when connecting.
    pub fn password_from_env(mut self, variable: impl Into<String>) -> Self {
        self.connect.credentials.password_env = Some(variable.into());
        self
    }

    /// Sets the user for sentinels. None by default. Needs a password.
    ///
    /// The credentials for the servers are not sent to sentinels.
    pub fn sentinel_user(mut self, name: impl Into<String>) -> Self {
        self.connect.sentinel_credentials.user = Some(name.into());
        self
    }

    /// Sets the password for sentinels. None by default.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.connect.sentinel_credentials.password = Some(Secret::new(password));
        self
    }

    /// Reads the password for sentinels from a file: [`password_from_file`](Builder::password_from_file).
    pub fn sentinel_password_from_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.connect.sentinel_credentials.password_file = Some(path.into());
        self
    }

    /// Reads the password for sentinels from an environment variable, once, when connecting.
    pub fn sentinel_password_from_env(mut self, variable: impl Into<String>) -> Self {
        self.connect.sentinel_credentials.password_env = Some(variable.into());
        self
    }

    /// Sets the number of the database. 0 by default, the only one of a cluster.
    pub fn database(mut self, number: u32) -> Self {
        self.connect.database = Some(number.into());
        self
    }

    /// Sets the name of the connections on the server (`CLIENT LIST`). None by default.
    ///
    /// Visible ASCII characters, without spaces.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.connect.client_name = Some(name.into());
        self
    }

    /// Sets the TLS options. By default, the CAs of the system are trusted.
    ///
    /// For `rediss://`, `rediss+sentinel://` and `rediss+cluster://`. [`sentinel`](Builder::sentinel) and
    /// [`cluster`](Builder::cluster) connect with TLS if this was called.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.connect.tls = Some(tls);
        self
    }

    /// Sets how releases are published in a cluster. [`ClusterMessages::Auto`] by default.
    ///
    /// All clients of a cluster must use the same commands.
    pub fn cluster_messages(mut self, messages: ClusterMessages) -> Self {
        self.connect.messages = Some(messages);
        self
    }

    /// Sets how many replicas must acknowledge each grant and renewal. 0 by default.
    ///
    /// The default of all handles: see [`Lock::with_replicas`](crate::Lock::with_replicas).
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.connect.replicas = Some(replicas);
        self
    }

    /// Sets whether a file store can be on any file system. `false` by default.
    ///
    /// By default, a file system that is not known to be local is an error. Use `true` for directories that only this
    /// machine uses, such as those that a container, a virtual machine or WSL has from its host (9p, virtiofs and other
    /// FUSE file systems).
    ///
    /// **Risk.** If several machines use such a file, each of them takes the processes of the others for dead and
    /// releases their locks while they hold them. The file itself can be damaged.
    pub fn any_file_system(mut self, yes: bool) -> Self {
        self.connect.any_file_system = Some(yes);
        self
    }

    /// Connects to the store of this URL. [`Client::connect`] lists the URLs.
    ///
    /// The client lives on the tokio runtime on which this is called.
    ///
    /// # Errors
    ///
    /// Those of [`Client::connect`], and [`Error::Unsupported`] outside a tokio runtime.
    ///
    /// # Panics
    ///
    /// On a runtime without timers.
    pub async fn connect(mut self, url: &str) -> Result<Client, Error> {
        let StoreUrl { store, settings } = StoreUrl::parse(url)?;
        self.connect = self.connect.merge(settings)?;
        match store {
            Store::Memory { name } => self.memory(&MemoryStore::named(name.as_deref().unwrap_or_default())),
            Store::File { path } => self.file(path).await,
            Store::Redis { servers, use_tls } => self.connect_to(servers, use_tls).await,
        }
    }

    /// Connects to the primary that sentinels know as `master_name`.
    ///
    /// After a fail-over, the client follows the sentinels to the new primary. An address is `host` or `host:port`; the
    /// default port is 26379.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Builder::connect).
    ///
    /// # Panics
    ///
    /// On a runtime without timers.
    pub async fn sentinel(
        self,
        master_name: &str,
        sentinels: &[impl AsRef<str> + Sync],
    ) -> Result<Client, Error> {
        let sentinels = parse_addresses("sentinels", sentinels, SENTINEL_PORT)?;
        let use_tls = self.connect.tls.is_some();
        self.connect_to(Servers::Sentinels { sentinels, master: master_name.to_owned() }, use_tls).await
    }

    /// Connects to a cluster, by the addresses of some of its nodes.
    ///
    /// The other nodes are discovered. An address is `host` or `host:port`; the default port is 6379.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Builder::connect).
    ///
    /// # Panics
    ///
    /// On a runtime without timers.
    pub async fn cluster(self, seeds: &[impl AsRef<str> + Sync]) -> Result<Client, Error> {
        let seeds = parse_addresses("seeds", seeds, SERVER_PORT)?;
        let use_tls = self.connect.tls.is_some();
        self.connect_to(Servers::Cluster { seeds }, use_tls).await
    }

    /// Opens a file store, and creates the file if it does not exist.
    ///
    /// It locks between the processes of one machine, without a server. An empty path is the default file of this user:
    /// see [`Client::connect`].
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Builder::connect).
    ///
    /// # Panics
    ///
    /// On a runtime without timers.
    #[cfg(all(feature = "file", unix))]
    pub async fn file(mut self, path: impl Into<PathBuf>) -> Result<Client, Error> {
        let any_file_system = self.connect.any_file_system.take().unwrap_or_default();
        self.connect.check_for_embedded("a file store")?;
        let settings = self.settings()?;
        require_runtime()?;
        let mut path = StorePath::of(&path.into())?;
        if any_file_system {
            path = path.on_any_file_system();
        }
        let client = new_client_id();
        let backend = File::open(path, client, settings.connect_timeout).await?;
        Ok(start(Arc::new(backend), client, settings))
    }

    #[cfg(not(all(feature = "file", unix)))]
    async fn file(self, _: PathBuf) -> Result<Client, Error> {
        let reason = "a file store needs the feature `file` and a Unix system";
        Err(Error::Unsupported(reason.to_owned()))
    }

    /// Uses a memory store. Must be called on a tokio runtime.
    ///
    /// [`MemoryStore::new`] is a store of its own. The URL `memory://` is one store per process.
    ///
    /// # Errors
    ///
    /// [`Error::BadConfiguration`] with the name of the setting. [`Error::Unsupported`] outside a tokio runtime.
    ///
    /// # Panics
    ///
    /// On a runtime without timers.
    pub fn memory(self, store: &MemoryStore) -> Result<Client, Error> {
        self.connect.check_for_embedded("a memory store")?;
        let settings = self.settings()?;
        require_runtime()?;
        clock::follow_if_paused();
        Ok(start(Arc::new(Memory::new(store.clone())), new_client_id(), settings))
    }

    async fn connect_to(self, servers: Servers, use_tls: bool) -> Result<Client, Error> {
        let connect = self.connect.clone();
        let settings = self.settings()?;
        require_runtime()?;
        let limit = settings.connect_timeout;
        // Reads passwords and certificates from files.
        let target = tokio::task::spawn_blocking(move || connect.target(servers, use_tls, limit));
        let target = target.await.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            Err(_) => Err(Error::ShuttingDown),
        })?;
        let what = format!("a connection to {}", target.shape);
        let backend = Redis::connect(target).await.map_err(|failure| failure.into_error(|| what))?;
        Ok(start(Arc::new(backend), new_client_id(), settings))
    }

    /// Checks the settings of the client, and fills in the defaults.
    fn settings(self) -> Result<Settings, Error> {
        let defaults = Settings::default();
        let watchdog = match self.watchdog_timeout {
            None => defaults.watchdog_timeout,
            Some(timeout) => Lease::new(timeout)
                .map_err(|error| Error::bad_setting("watchdog_timeout", error.to_string()))?,
        };
        let settings = Settings {
            watchdog_timeout: watchdog,
            hand_over_window: hand_over_window(self.hand_over_window, defaults.hand_over_window, watchdog)?,
            response_timeout: positive("response_timeout", self.connect.response_timeout)?,
            connect_timeout: positive("connect_timeout", self.connect.connect_timeout)?
                .unwrap_or(defaults.connect_timeout),
            retry_for: positive("retry_for", self.retry_for)?.unwrap_or(defaults.retry_for),
            poll_interval: positive("poll_interval", self.poll_interval)?.unwrap_or(defaults.poll_interval),
            key_prefix: self.key_prefix,
            label: self.label,
            replicas: self.connect.replicas.unwrap_or(defaults.replicas),
        };
        settings.response_limit(settings.watchdog_timeout)?;
        Ok(settings)
    }
}

fn start(backend: Arc<dyn Backend>, client: ClientId, settings: Settings) -> Client {
    Client::new(Engine::start(backend, client, settings))
}

fn new_client_id() -> ClientId {
    ClientId::from_random(uuid::Uuid::new_v4().into_bytes())
}

fn parse_addresses(
    setting: &'static str,
    texts: &[impl AsRef<str>],
    default_port: u16,
) -> Result<Vec<Address>, Error> {
    let parse = |text: &_| {
        let text: &str = AsRef::as_ref(text);
        parse_address(text, default_port).map_err(|reason| Error::bad_setting(setting, reason))
    };
    texts.iter().map(parse).collect()
}

fn positive(setting: &'static str, time: Option<Duration>) -> Result<Option<Duration>, Error> {
    match time {
        Some(time) if time.is_zero() => Err(Error::bad_setting(setting, "must be longer than zero")),
        time => Ok(time),
    }
}

/// Limits the hand-over window. Until it ends, no request checks that the store still has the hold.
fn hand_over_window(
    requested: Option<Duration>,
    default: Duration,
    watchdog: Lease,
) -> Result<Duration, Error> {
    let longest = watchdog.as_duration() / 10;
    match requested {
        None => Ok(default.min(longest)),
        Some(window) if window <= longest => Ok(window),
        Some(window) => Err(Error::bad_setting(
            "hand_over_window",
            format!(
                "{window:?} is more than a tenth of `watchdog_timeout`; use at most {longest:?}, or zero to turn it off"
            ),
        )),
    }
}

fn require_runtime() -> Result<(), Error> {
    Handle::try_current().map_err(|_| {
        let reason = "connecting outside a tokio runtime; call it on a runtime, or use turnlock::blocking";
        Error::Unsupported(reason.to_owned())
    })?;
    // Without timers, this panics here with tokio's message, and not later in a background task.
    drop(tokio::time::sleep(Duration::ZERO));
    Ok(())
}

#[cfg(test)]
mod tests;
