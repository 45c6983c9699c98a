use std::sync::Arc;
use std::time::Duration;
#[cfg(any(feature = "redis", all(feature = "file", unix)))]
use std::{mem, path::PathBuf};

use tokio::runtime::Handle;
use turnlock_core::ClientId;
#[cfg(all(feature = "file", unix))]
use turnlock_file::{File, StorePath};
#[cfg(feature = "redis")]
use turnlock_redis::{ClusterMessages, Redis, Servers, Tls};
use turnlock_store::{Memory, MemoryStore, Secret, Store};

use super::Settings;
use super::store_url::{Location, StoreUrl};
use crate::client::Client;
use crate::clock;
use crate::engine::{CheckedSettings, Engine};
use crate::error::Error;
#[cfg(any(feature = "redis", all(feature = "file", unix)))]
use crate::error::IntoError;
use crate::identity::random_bytes;
use crate::metrics::Options;

/// The options of a client. [`Client::builder`] makes one.
///
/// A setting can be in the builder or in the URL. If it is in both, the values must be the same; otherwise, connecting
/// fails with an error that names the setting. All settings are checked when connecting. `{:?}` shows no password and
/// no key.
///
/// To read settings from a file, see [`Settings`].
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
    pub(super) settings: Settings,
    metrics: Options,
}

/// Declares methods that set one setting.
macro_rules! setters {
    ($($(#[$meta:meta])* pub fn $method:ident($argument:ident: $type:ty) => $($field:ident).+ = $value:expr;)*) => {
        impl Builder {$(
            $(#[$meta])*
            pub fn $method(mut self, $argument: $type) -> Self {
                self.settings.$($field).+ = Some($value);
                self
            }
        )*}
    };
}

setters! {
    /// Sets the lease of renewed locks. 30 s by default, as in Redisson.
    ///
    /// The lock of a process that dies is free after this time. Leases are renewed every third of it.
    ///
    /// Locks with a [fixed lease](crate::Lock::with_lease) are checked every third of this time or of their lease,
    /// whichever is shorter.
    pub fn watchdog_timeout(timeout: Duration) => watchdog_timeout = timeout;

    /// Sets the time-out of a reply. 1 s by default, less for leases under 4 s.
    ///
    /// Must be below a third of every lease. The default for a short lease is a quarter of it, rounded down.
    ///
    /// A request that needs a new connection waits for it this long, and then fails. The connection is completed in the
    /// background for the next request: see [`connect_timeout`](Builder::connect_timeout).
    pub fn response_timeout(timeout: Duration) => response_timeout = timeout;

    /// Sets the time-out of a new connection. 5 s by default.
    ///
    /// Only [`connect`](Builder::connect) and its like wait this long. Other requests wait for the
    /// [`response_timeout`](Builder::response_timeout).
    pub fn connect_timeout(timeout: Duration) => connect_timeout = timeout;

    /// Sets how long a store that does not reply is retried. 30 s by default.
    ///
    /// Then an acquire or a release fails. The time counts from the first request without a reply. The last request can
    /// take one response time-out more.
    pub fn retry_for(time: Duration) => retry_for = time;

    /// Sets the longest time between two polls of a waiter. 1 s by default.
    ///
    /// A lost message delays a waiter by at most this time. With more than 1 s, a waiter of a fair lock can move up
    /// 1 s later when the waiter ahead of it has died.
    pub fn poll_interval(interval: Duration) => poll_interval = interval;

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
    pub fn hand_over_window(window: Duration) => hand_over_window = window;

    /// Sets a prefix of every name on the store. Empty by default.
    ///
    /// To share locks with Redisson, the Java side must use the name with the prefix.
    pub fn key_prefix(prefix: impl Into<String>) => key_prefix = prefix.into();

    /// Sets the label of this client in its [`Identity`](crate::Identity). The program's file name by default.
    ///
    /// Cut to 100 characters.
    pub fn label(label: impl Into<String>) => label = label.into();

    /// Sets how many replicas must acknowledge each grant and renewal. 0 by default.
    ///
    /// The default of all handles: see [`Lock::with_replicas`](crate::Lock::with_replicas).
    pub fn replicas(replicas: u32) => replicas = replicas;

    /// Sets whether long waits and holds are announced on the store. They are by default.
    ///
    /// A wait is announced after a second, so that other clients can show who waits for whom:
    /// [`Client::waits`](crate::Client::waits), [`Client::deadlocks`](crate::Client::deadlocks). The client writes one
    /// record, in the background: about every 3 s while it waits, two or three times a second while a waiting task
    /// holds something, and every 20 s while it only holds. No acquire waits for it or fails with it.
    ///
    /// Without it, nothing is written, and the client is in no deadlock that anyone finds. It still logs its holds that seem
    /// to be stuck.
    pub fn announce_waits(yes: bool) => announce_waits = yes;

    /// Sets whether announcements have call sites, as `src/main.rs:7`. They have none by default.
    ///
    /// All users of the store can read them.
    pub fn announce_call_sites(yes: bool) => announce_call_sites = yes;

    /// Sets whether an acquire fails if it is in a deadlock. Off by default.
    ///
    /// The youngest waiter of a certain [`Deadlock`](crate::Deadlock) fails with
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), among those of clients with this setting. The others go
    /// on when it releases what it holds. It takes about two seconds to find a deadlock.
    ///
    /// An acquire can fail that would go on: if its task has moved a guard to another task, or has a time-out around `lock()`.
    /// That [cannot be told apart](crate::Deadlock::is_certain). It relies on what other clients announce. Do not use it on a
    /// store that you share with users whom you do not trust. Needs [`announce_waits`](Self::announce_waits).
    pub fn fail_on_deadlock(yes: bool) => fail_on_deadlock = yes;
}

#[cfg(feature = "redis")]
setters! {
    /// Sets the user. The server's default user by default. Needs a password.
    pub fn user(name: impl Into<String>) => redis.user = name.into();

    /// Sets the password. None by default.
    pub fn password(password: impl Into<String>) => redis.password = Secret::new(password);

    /// Reads the password from a file, once, when connecting.
    ///
    /// The password is the content of the file without its last line end.
    pub fn password_from_file(path: impl Into<PathBuf>) => redis.password_file = path.into();

    /// Reads the password from an environment variable, once, when connecting.
    pub fn password_from_env(variable: impl Into<String>) => redis.password_env = variable.into();

    /// Sets the user for sentinels. None by default. Needs a password.
    ///
    /// The credentials for the servers are not sent to sentinels.
    pub fn sentinel_user(name: impl Into<String>) => redis.sentinel_user = name.into();

    /// Sets the password for sentinels. None by default.
    pub fn sentinel_password(password: impl Into<String>) => redis.sentinel_password = Secret::new(password);

    /// Reads the password for sentinels from a file: [`password_from_file`](Builder::password_from_file).
    pub fn sentinel_password_from_file(path: impl Into<PathBuf>) => redis.sentinel_password_file = path.into();

    /// Reads the password for sentinels from an environment variable, once, when connecting.
    pub fn sentinel_password_from_env(variable: impl Into<String>) => redis.sentinel_password_env = variable.into();

    /// Sets the number of the database. 0 by default, the only one of a cluster.
    pub fn database(number: u32) => redis.database = number;

    /// Sets the name of the connections on the server (`CLIENT LIST`). None by default.
    ///
    /// Visible ASCII characters, without spaces.
    pub fn client_name(name: impl Into<String>) => redis.client_name = name.into();

    /// Sets how releases are published in a cluster. [`ClusterMessages::Auto`] by default.
    ///
    /// All clients of a cluster must use the same commands.
    pub fn cluster_messages(messages: ClusterMessages) => redis.messages = messages;
}

#[cfg(all(feature = "file", unix))]
setters! {
    /// Sets whether a file store can be on any file system. `false` by default.
    ///
    /// By default, a file system that is not known to be local is an error. Use `true` for directories that only this
    /// machine uses, such as those that a container, a virtual machine or WSL has from its host (9p, virtiofs and other
    /// FUSE file systems).
    ///
    /// **Risk.** If several machines use such a file, each of them takes the processes of the others for dead and
    /// releases their locks while they hold them. The file itself can be damaged.
    pub fn any_file_system(yes: bool) => file.any_file_system = yes;
}

impl Builder {
    /// Sets the group of each lock, the label `group` of its [metrics](crate::metrics). None by default.
    ///
    /// `group` returns a part of the name of a lock, or another text; with `None` or an empty text, the lock counts without the
    /// label. It is called twice for each acquire, so it should be fast, and it must not panic. A process has at most 64 groups: the locks of further ones, and
    /// of those longer than 128 bytes, count in the group `other`. The names of locks are never labels.
    ///
    /// # Examples
    ///
    /// ```
    /// let builder = turnlock::Client::builder()
    ///     .metrics_group(|name| name.split_once(':').map(|(group, _)| group)); // "orders" of "orders:42"
    /// # drop(builder);
    /// ```
    #[cfg(feature = "metrics")]
    pub fn metrics_group(mut self, group: impl Fn(&str) -> Option<&str> + Send + Sync + 'static) -> Self {
        self.metrics = self.metrics.with_group(group);
        self
    }

    /// Sets the TLS options. By default, the CAs of the system are trusted.
    ///
    /// For `rediss://`, `rediss+sentinel://` and `rediss+cluster://`. [`sentinel`](Builder::sentinel) and
    /// [`cluster`](Builder::cluster) connect with TLS if this was called.
    #[cfg(feature = "redis")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.settings.redis.tls_options = tls;
        self.settings.redis.tls = Some(());
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
        if self.settings.url.replace(Secret::new(url)).is_some_and(|set| set.reveal() != url) {
            let reason = "differs between the settings and the call; set it in one place only";
            return Err(Error::bad_setting("url", reason));
        }
        self.open().await
    }

    /// Connects to the store of the `url` in the [`Settings`] that the builder was made from.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Builder::connect).
    ///
    /// # Panics
    ///
    /// On a runtime without timers.
    #[cfg_attr(
        not(any(feature = "redis", all(feature = "file", unix))),
        expect(clippy::unused_async, reason = "a memory store needs no connection")
    )]
    pub async fn open(mut self) -> Result<Client, Error> {
        let Some(url) = self.settings.url.take() else {
            let reason = "not set; set the URL of a store, as redis://127.0.0.1:6379";
            return Err(Error::bad_setting("url", reason));
        };
        let StoreUrl { store, settings } = StoreUrl::parse(url.reveal())?;
        self.settings = self.settings.merge(settings)?;
        match store {
            Location::Memory { name } => self.memory(&MemoryStore::named(&name)),
            #[cfg(all(feature = "file", unix))]
            Location::File { path } => self.file(path).await,
            #[cfg(feature = "redis")]
            Location::Redis { servers, use_tls } => self.redis(servers, use_tls).await,
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
    #[cfg(feature = "redis")]
    pub async fn sentinel(
        self,
        master_name: &str,
        sentinels: &[impl AsRef<str> + Sync],
    ) -> Result<Client, Error> {
        let use_tls = self.settings.redis.tls.is_some();
        self.redis(Servers::sentinels(master_name, sentinels)?, use_tls).await
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
    #[cfg(feature = "redis")]
    pub async fn cluster(self, seeds: &[impl AsRef<str> + Sync]) -> Result<Client, Error> {
        let use_tls = self.settings.redis.tls.is_some();
        self.redis(Servers::cluster(seeds)?, use_tls).await
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
        let path = StorePath::new(&path.into(), &mem::take(&mut self.settings.file))?;
        let settings = self.check("a file store", "file", false)?;
        let what = format!("a store in {path}");
        let client = new_client_id();
        let store = File::open(path, client, settings.connect_timeout)
            .await
            .map_err(|error| error.into_error(|| what))?;
        Ok(Client::new(Engine::start(Arc::new(store), client, settings)))
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
        self.start("a memory store", "memory", |client| {
            clock::follow_if_paused();
            Arc::new(Memory::new(store.clone(), client))
        })
    }

    /// Uses a store of another crate. Must be called on a tokio runtime.
    ///
    /// `open` returns the store for a new client of this id. A store implements the trait of the crate `turnlock-store`,
    /// with the types of `turnlock-core`: both may change with every version before 1.0. A connection that the store
    /// needs is opened before, or with the first step.
    ///
    /// # Errors
    ///
    /// Those of [`memory`](Builder::memory).
    ///
    /// # Panics
    ///
    /// On a runtime without timers.
    pub fn store(
        self,
        open: impl FnOnce(ClientId) -> Arc<dyn turnlock_store::Store>,
    ) -> Result<Client, Error> {
        self.start("a store of another crate", "custom", open)
    }

    /// Starts a client on a store that is opened without waiting.
    fn start(
        self,
        store: &str,
        scheme: &'static str,
        open: impl FnOnce(ClientId) -> Arc<dyn Store>,
    ) -> Result<Client, Error> {
        let settings = self.check(store, scheme, false)?;
        let client = new_client_id();
        Ok(Client::new(Engine::start(open(client), client, settings)))
    }

    /// Checks that a client with these settings can be started on such a store, here.
    fn check(self, store: &str, scheme: &'static str, has_replicas: bool) -> Result<CheckedSettings, Error> {
        let mut settings = self.settings.check(store, has_replicas)?;
        settings.metrics = self.metrics.for_store(scheme);
        Handle::try_current().map_err(|_| {
            let reason =
                "connecting outside a tokio runtime; call it on a runtime, or use turnlock::blocking";
            Error::Unsupported(reason.to_owned())
        })?;
        // Without timers, this panics here with tokio's message, and not later in a background task.
        drop(tokio::time::sleep(Duration::ZERO));
        Ok(settings)
    }

    #[cfg(feature = "redis")]
    async fn redis(mut self, servers: Servers, use_tls: bool) -> Result<Client, Error> {
        let redis = mem::take(&mut self.settings.redis);
        let scheme = super::store_url::scheme_of(&servers, use_tls);
        let settings = self.check("a Redis store", scheme, true)?;
        let target = redis.target(servers, use_tls, settings.connect_timeout).await;
        let target = target.map_err(|error| error.into_error(|| "a connection".to_owned()))?;
        let what = format!("a connection to {}", target.servers);
        let store = Redis::connect(target).await.map_err(|failure| failure.into_error(|| what))?;
        Ok(Client::new(Engine::start(Arc::new(store), new_client_id(), settings)))
    }
}

impl From<Settings> for Builder {
    /// Starts from these settings. The methods of the builder replace them.
    fn from(settings: Settings) -> Self {
        Self { settings, metrics: Options::default() }
    }
}

fn new_client_id() -> ClientId {
    ClientId::from_random(random_bytes())
}

#[cfg(all(test, feature = "redis"))]
#[path = "tests/builder.rs"]
mod tests;
