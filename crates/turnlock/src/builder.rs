use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionAddr;
use tokio::runtime::Handle;
use turnlock_core::{ClientId, Lease};

use crate::backend::Backend;
#[cfg(all(feature = "file", unix))]
use crate::backend::file::{File, Place};
use crate::backend::memory::{Memory, MemoryStore};
use crate::backend::redis::{Address, ClusterMessages, Redis, Secret};
use crate::client::Client;
use crate::connect_settings::{ConnectSettings, Servers};
use crate::engine::Engine;
use crate::error::Error;
use crate::settings::Settings;
use crate::store_url::{SENTINEL_PORT, SERVER_PORT, Store, StoreUrl, address};
use crate::tls::Tls;

/// The settings of a client. Made by [`Client::builder`]; what is wrong is reported when connecting.
///
/// What is said here and in the URL must be the same, or be said in one place only. A password is shown nowhere, also not by
/// `{:?}`.
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
    retry_for: Option<Duration>,
    poll: Option<Duration>,
    hand_over_window: Option<Duration>,
    key_prefix: String,
    label: Option<String>,
    connect: ConnectSettings,
}

impl Builder {
    /// The lease of locks that are renewed: how long such a lock stays held when its process dies. Renewed every third of
    /// it. 30 s when not set, as in Redisson.
    ///
    /// Locks with a [fixed lease](crate::Lock::lease) are looked at as often, or once in a third of their lease if that is
    /// more often.
    pub fn watchdog(mut self, lease: Duration) -> Self {
        self.watchdog = Some(lease);
        self
    }

    /// How long to wait for the store's answer. Must be below a third of every lease. When not set: a second, and a
    /// quarter of the lease, rounded down, where that is shorter.
    ///
    /// A step that needs a new connection waits as long for that. It fails then, and the connection is made in the background
    /// for the next one: see [`connect_timeout`](Builder::connect_timeout).
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.connect.response_timeout = Some(timeout);
        self
    }

    /// How long connecting may take. 5 s when not set. Only `connect` waits so long; a step waits for the
    /// [`response_timeout`](Builder::response_timeout).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.connect_timeout = Some(timeout);
        self
    }

    /// How long a lock or an unlock goes on asking a store that does not answer, before it is an error. 30 s when not set.
    ///
    /// Counts from the first request that is not answered. The last request may take a response time-out more.
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

    /// How long after its grant a lock passes from one waiter of this client to the next without a word to the store. 10 ms when
    /// not set, less for leases under 100 ms; zero turns it off.
    ///
    /// Under contention this is what makes turns cheap: the store is asked once a window, not once a turn. It concerns only
    /// locks made by [`Client::lock`] that are renewed and not [`owned_by`](crate::Lock::owned_by) somebody; other kinds, fixed
    /// leases and named owners always go by the store. When the window ends, the lock is given back, and if others listen for
    /// it, in other processes, they go first.
    ///
    /// **Limits.** The waiters that are served within one window appear on the store as one owner. When somebody unlocks by
    /// force, or the store loses its data, waiters of this client may still be served until the window ends. At most a tenth of
    /// the [watchdog's](Builder::watchdog) lease.
    pub fn hand_over_window(mut self, window: Duration) -> Self {
        self.hand_over_window = Some(window);
        self
    }

    /// Text in front of every name on the store. To share locks with Redisson, the Java side must use the same whole name.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// What this client calls itself to people who ask who holds a lock: see [`Identity`](crate::Identity). At most 100
    /// characters of it are told. The file name of the program when not set.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The user to connect as; the default user when not set. Needs a password.
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.connect.credentials.user = Some(name.into());
        self
    }

    /// The password.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.connect.credentials.password = Some(Secret::new(password));
        self
    }

    /// The password is the content of this file, without the end of its line. Read once, when connecting.
    pub fn password_from_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.connect.credentials.password_file = Some(path.into());
        self
    }

    /// The password is the value of this environment variable. Read once, when connecting.
    pub fn password_from_env(mut self, variable: impl Into<String>) -> Self {
        self.connect.credentials.password_env = Some(variable.into());
        self
    }

    /// The user to connect to sentinels as. Needs a password. What is meant for the servers is not told to sentinels.
    pub fn sentinel_user(mut self, name: impl Into<String>) -> Self {
        self.connect.sentinel_credentials.user = Some(name.into());
        self
    }

    /// The password of the sentinels.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.connect.sentinel_credentials.password = Some(Secret::new(password));
        self
    }

    /// As [`password_from_file`](Builder::password_from_file), for sentinels.
    pub fn sentinel_password_from_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.connect.sentinel_credentials.password_file = Some(path.into());
        self
    }

    /// As [`password_from_env`](Builder::password_from_env), for sentinels.
    pub fn sentinel_password_from_env(mut self, variable: impl Into<String>) -> Self {
        self.connect.sentinel_credentials.password_env = Some(variable.into());
        self
    }

    /// The number of the database; 0 when not set. A cluster has no other.
    pub fn database(mut self, number: u32) -> Self {
        self.connect.database = Some(number.into());
        self
    }

    /// The name that our connections have on the server (`CLIENT LIST`): visible ASCII characters without spaces.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.connect.client_name = Some(name.into());
        self
    }

    /// How servers prove who they are, and we to them. For `rediss://` and its like, and for [`sentinel`](Builder::sentinel)
    /// and [`cluster`](Builder::cluster), which connect by TLS if this was called.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.connect.tls = Some(tls);
        self
    }

    /// By which commands releases are told in a cluster. All clients of one cluster must do the same.
    pub fn cluster_messages(mut self, messages: ClusterMessages) -> Self {
        self.connect.messages = Some(messages);
        self
    }

    /// How many replicas must have acknowledged a lock, or permits, before they count as granted or renewed; 0, which asks for
    /// none, when not set. Each handle may say otherwise: see [`Lock::acknowledged_by`](crate::Lock::acknowledged_by) for
    /// what it promises.
    pub fn acknowledged_by(mut self, replicas: u32) -> Self {
        self.connect.replicas = Some(replicas);
        self
    }

    /// Whether a store in a file may be on a file system that is not known to be local; when not set, that is an error. It is for
    /// directories that only this machine uses, such as those that a container, a virtual machine or WSL has from its host (9p,
    /// virtiofs and others of FUSE).
    ///
    /// **Risk.** Where several machines use such a file, each takes the processes of the others for dead: it voids their locks
    /// while they hold them, and the file itself can be damaged.
    pub fn any_file_system(mut self, yes: bool) -> Self {
        self.connect.any_file_system = Some(yes);
        self
    }

    /// Connects to the store that `url` names. [`Client::connect`] has a table of what may stand in it.
    ///
    /// The client lives on the runtime on which this is called.
    ///
    /// # Panics
    ///
    /// On a runtime that was built without timers.
    pub async fn connect(mut self, url: &str) -> Result<Client, Error> {
        let StoreUrl { store, settings } = StoreUrl::parse(url)?;
        self.connect = self.connect.and(settings)?;
        match store {
            Store::Memory { name: None } => self.memory(&MemoryStore::new()),
            Store::Memory { name: Some(name) } => self.memory(&MemoryStore::named(&name)),
            Store::File { path } => self.file(path).await,
            Store::Redis { servers, by_tls } => self.reach(servers, by_tls).await,
        }
    }

    /// Connects to the master that these sentinels know by this name, and to whichever they name after it. Addresses are
    /// `host` or `host:port`; the port is 26379 when it is not said.
    ///
    /// # Panics
    ///
    /// On a runtime that was built without timers.
    pub async fn sentinel(
        self,
        master_name: &str,
        sentinels: &[impl AsRef<str> + Sync],
    ) -> Result<Client, Error> {
        let sentinels = addresses(sentinels, SENTINEL_PORT)?;
        let by_tls = self.connect.tls.is_some();
        self.reach(Servers::Sentinels { sentinels, master: master_name.to_owned() }, by_tls).await
    }

    /// Connects to a cluster, of which these are some servers; the others are found by asking them. Addresses are `host` or
    /// `host:port`; the port is 6379 when it is not said.
    ///
    /// # Panics
    ///
    /// On a runtime that was built without timers.
    pub async fn cluster(self, seeds: &[impl AsRef<str> + Sync]) -> Result<Client, Error> {
        let seeds = addresses(seeds, SERVER_PORT)?;
        let by_tls = self.connect.tls.is_some();
        self.reach(Servers::Cluster { seeds }, by_tls).await
    }

    /// Connects to the server of an existing `redis::Client`, with its user, password and database. Two connections of our own
    /// are made: one for commands, one for messages.
    ///
    /// One that connects by TLS is [`Error::Unsupported`], since its certificates cannot be read out: use `rediss://`.
    ///
    /// # Panics
    ///
    /// On a runtime that was built without timers.
    pub async fn redis(mut self, client: redis::Client) -> Result<Client, Error> {
        let info = client.get_connection_info();
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Address::tcp(host, *port),
            ConnectionAddr::Unix(path) => Address::unix(path),
            _ => {
                let advice = "a redis::Client with TLS, whose certificates cannot be read out; use rediss:// with \
                              `ca_file` and the like, or Builder::tls";
                return Err(Error::Unsupported(advice.to_owned()));
            }
        };
        let login = info.redis_settings();
        let mut theirs = ConnectSettings::default();
        theirs.credentials.user = login.username().map(str::to_owned);
        theirs.credentials.password = login.password().map(Secret::new);
        theirs.database = Some(login.db()).filter(|database| *database != 0);
        self.connect = self.connect.and(theirs)?;
        self.reach(Servers::One(address), false).await
    }

    /// Opens the store in this file, or makes it: locks between the processes of one machine, with no server. An empty path is
    /// this user's usual store. [`Client::connect`] says more.
    ///
    /// # Panics
    ///
    /// On a runtime that was built without timers.
    #[cfg(all(feature = "file", unix))]
    pub async fn file(mut self, path: impl Into<PathBuf>) -> Result<Client, Error> {
        let any_file_system = self.connect.any_file_system.take().unwrap_or_default();
        self.connect.check_for_embedded("a store in a file")?;
        let settings = self.settings()?;
        on_a_runtime()?;
        let mut place = Place::of(&path.into())?;
        if any_file_system {
            place = place.on_any_file_system();
        }
        let client = new_client_id();
        let backend = File::open(place, client, settings.connect_timeout).await?;
        Ok(start(Arc::new(backend), client, settings))
    }

    #[cfg(not(all(feature = "file", unix)))]
    async fn file(self, _: PathBuf) -> Result<Client, Error> {
        let reason = "a store in a file: it needs the feature `file`, and a system of the Unix family";
        Err(Error::Unsupported(reason.to_owned()))
    }

    /// A client of a store in memory. Must be called on a tokio runtime.
    ///
    /// # Panics
    ///
    /// On a runtime that was built without timers.
    pub fn memory(self, store: &MemoryStore) -> Result<Client, Error> {
        self.connect.check_for_embedded("a store in memory")?;
        let settings = self.settings()?;
        on_a_runtime()?;
        Ok(start(Arc::new(Memory::new(store.clone())), new_client_id(), settings))
    }

    async fn reach(self, servers: Servers, by_tls: bool) -> Result<Client, Error> {
        let connect = self.connect.clone();
        let settings = self.settings()?;
        on_a_runtime()?;
        let limit = settings.connect_timeout;
        // Passwords and certificates come from files.
        let target = tokio::task::spawn_blocking(move || connect.target(servers, by_tls, limit));
        let target = target.await.unwrap_or_else(|gone| match gone.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            Err(_) => Err(Error::ShuttingDown),
        })?;
        let what = format!("a connection to {}", target.shape);
        let backend = Redis::connect(target).await.map_err(|failure| failure.into_error(|| what))?;
        Ok(start(Arc::new(backend), new_client_id(), settings))
    }

    fn settings(self) -> Result<Settings, Error> {
        let defaults = Settings::default();
        let watchdog = match self.watchdog {
            None => defaults.watchdog,
            Some(lease) => {
                Lease::new(lease).map_err(|error| Error::bad_setting("watchdog", error.to_string()))?
            }
        };
        let settings = Settings {
            watchdog,
            hand_over_window: window(self.hand_over_window, defaults.hand_over_window, watchdog)?,
            response_timeout: positive("response_timeout", self.connect.response_timeout)?,
            connect_timeout: positive("connect_timeout", self.connect.connect_timeout)?
                .unwrap_or(defaults.connect_timeout),
            retry_for: positive("retry_for", self.retry_for)?.unwrap_or(defaults.retry_for),
            poll: positive("poll", self.poll)?.unwrap_or(defaults.poll),
            key_prefix: self.key_prefix,
            label: self.label,
            replicas: self.connect.replicas.unwrap_or(defaults.replicas),
        };
        settings.patience(settings.watchdog)?;
        Ok(settings)
    }
}

fn start(backend: Arc<dyn Backend>, client: ClientId, settings: Settings) -> Client {
    Client::new(Engine::start(backend, client, settings))
}

fn new_client_id() -> ClientId {
    ClientId::from_random(uuid::Uuid::new_v4().into_bytes())
}

fn addresses(texts: &[impl AsRef<str>], default_port: u16) -> Result<Vec<Address>, Error> {
    let parse = |text: &_| {
        let text: &str = AsRef::as_ref(text);
        address(text, default_port).map_err(|reason| Error::bad_setting("addresses", reason))
    };
    texts.iter().map(parse).collect()
}

fn positive(setting: &'static str, time: Option<Duration>) -> Result<Option<Duration>, Error> {
    match time {
        Some(time) if time.is_zero() => Err(Error::bad_setting(setting, "zero leaves no time for anything")),
        time => Ok(time),
    }
}

/// How long a lock may pass from waiter to waiter: for so long, nobody asks the store whether it is still held.
fn window(wanted: Option<Duration>, usual: Duration, lease: Lease) -> Result<Duration, Error> {
    let longest = lease.as_duration() / 10;
    match wanted {
        None => Ok(usual.min(longest)),
        Some(window) if window <= longest => Ok(window),
        Some(window) => Err(Error::bad_setting(
            "hand_over_window",
            format!(
                "{window:?} is more than a tenth of the watchdog's lease: at most {longest:?}, or zero to turn it off"
            ),
        )),
    }
}

fn on_a_runtime() -> Result<(), Error> {
    let reason = "an async client is made on a tokio runtime; or use turnlock::blocking";
    Handle::try_current().map_err(|_| Error::bad_setting("runtime", reason))?;
    // Panics here, with tokio's own words, rather than in a task of ours where nobody would see it.
    drop(tokio::time::sleep(Duration::ZERO));
    Ok(())
}

#[cfg(test)]
mod tests;
