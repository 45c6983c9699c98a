use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use turnlock::{Builder, Client, Guard, Lock, blocking};
use turnlock_testkit::{RedisServer, eventually};

use crate::file_store::FileStore;
use crate::set_up::SetUp;
use crate::store_kind::StoreKind;
use crate::test_store::TestStore;

/// The kind of primitive that a case runs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    Fair,
    Fenced,
    Spin,
    Plain,
    Write,
    Read,
    Semaphore,
    Permits,
    Latch,
    Multi,
    Red,
}

impl Kind {
    /// The kinds that the conformance suite runs on: every exclusive kind of the type `Lock`.
    pub(crate) const ALL: [Self; 6] =
        [Self::Lock, Self::Fair, Self::Fenced, Self::Spin, Self::Plain, Self::Write];

    /// The kinds that can be used as a mutex.
    pub(crate) const MUTEXES: [Self; 10] = [
        Self::Lock,
        Self::Fair,
        Self::Fenced,
        Self::Spin,
        Self::Plain,
        Self::Write,
        Self::Semaphore,
        Self::Permits,
        Self::Multi,
        Self::Red,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::Plain => "plain",
            Self::Write => "write",
            Self::Read => "read",
            Self::Semaphore => "semaphore",
            Self::Permits => "permits",
            Self::Latch => "latch",
            Self::Multi => "multi",
            Self::Red => "red",
        }
    }
}

/// A client whose `lock` returns a lock of the case's kind.
#[derive(Clone)]
pub(crate) struct KindClient {
    client: Client,
    kind: Kind,
}

impl KindClient {
    pub(crate) fn new(client: Client, kind: Kind) -> Self {
        Self { client, kind }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the same client for a kind that this kind excludes: writers for readers.
    pub(crate) fn rival(&self) -> Self {
        let kind = if self.kind == Kind::Read { Kind::Write } else { self.kind };
        Self { client: self.client.clone(), kind }
    }

    /// Returns the reentrant lock, for any kind of the case.
    pub(crate) fn reentrant(&self, name: &str) -> Lock {
        self.client.lock(name)
    }

    pub(crate) fn lock(&self, name: &str) -> Lock {
        match self.kind {
            Kind::Lock => self.client.lock(name),
            Kind::Fair => self.client.fair_lock(name),
            Kind::Fenced => self.client.fenced_lock(name),
            Kind::Spin => self.client.spin_lock(name),
            Kind::Plain => self.client.plain_lock(name),
            Kind::Write => self.client.read_write_lock(name).writer(),
            Kind::Read => self.client.read_write_lock(name).reader(),
            other => panic!("{} is not a lock", other.name()),
        }
    }
}

impl Deref for KindClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The blocking counterpart of [`KindClient`].
#[derive(Clone)]
pub(crate) struct BlockingKindClient {
    client: blocking::Client,
    kind: Kind,
}

impl BlockingKindClient {
    pub(crate) fn lock(&self, name: &str) -> blocking::Lock {
        match self.kind {
            Kind::Lock => self.client.lock(name),
            Kind::Fair => self.client.fair_lock(name),
            Kind::Fenced => self.client.fenced_lock(name),
            Kind::Spin => self.client.spin_lock(name),
            Kind::Plain => self.client.plain_lock(name),
            Kind::Write => self.client.read_write_lock(name).writer(),
            Kind::Read => self.client.read_write_lock(name).reader(),
            other => panic!("{} is not a lock", other.name()),
        }
    }
}

impl Deref for BlockingKindClient {
    type Target = blocking::Client;

    fn deref(&self) -> &blocking::Client {
        &self.client
    }
}

/// A poll interval longer than any test waits, so that only a message can wake a waiter in time.
pub(crate) const NO_POLL: Duration = Duration::from_secs(60);

/// Time limit of a message or a step on a busy machine.
///
/// Nothing else can have the same effect in this time: the poll comes after [`NO_POLL`], and a lease of 30 s
/// is renewed after 7.5 s at the earliest.
pub(crate) const PROMPT: Duration = Duration::from_secs(5);

/// Time limit of a waiter that depends on the default poll of one second, on a busy machine.
pub(crate) const ONE_POLL: Duration = Duration::from_secs(3);

/// The store of one case, clients of it, and names that no other case uses.
pub(crate) struct Fixture {
    pub(crate) kind: Kind,
    store: TestStore,
    /// The prefix of all names of this case.
    prefix: String,
    next_name: AtomicU64,
    /// Held while this case keeps a processor busy.
    busy_permit: OnceLock<SemaphorePermit<'static>>,
}

impl Fixture {
    /// Matches the names of every fixture.
    pub(crate) const NAME_PATTERN: &str = "case*";

    pub(crate) async fn new(store: StoreKind, kind: Kind) -> Self {
        Self::on(store.start_or_share().await, kind)
    }

    /// Creates a fixture with its own server, of the program that the store runs.
    pub(crate) async fn with_own_server(store: StoreKind, kind: Kind) -> Self {
        Self::on(store.own_server().await, kind)
    }

    fn on(store: TestStore, kind: Kind) -> Self {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("case{}:", CASES.fetch_add(1, Ordering::Relaxed));
        Self { kind, store, prefix, next_name: AtomicU64::new(0), busy_permit: OnceLock::new() }
    }

    /// Connects a client whose waiters are woken only by messages.
    pub(crate) async fn client(&self) -> KindClient {
        self.client_with(Client::builder().poll_interval(NO_POLL)).await
    }

    pub(crate) async fn client_with(&self, builder: Builder) -> KindClient {
        KindClient::new(self.store.client(builder).await.expect("the store is reachable"), self.kind)
    }

    /// Connects a client to the server at another address, such as that of a proxy.
    pub(crate) async fn client_at(&self, builder: Builder, url: &str) -> KindClient {
        KindClient { client: builder.connect(url).await.expect("the server is reachable"), kind: self.kind }
    }

    pub(crate) fn blocking_client(&self) -> BlockingKindClient {
        let client = self.store.blocking_client(Client::builder().poll_interval(NO_POLL));
        BlockingKindClient { client: client.expect("the store is reachable"), kind: self.kind }
    }

    /// Returns a new name that no other case uses.
    pub(crate) fn name(&self) -> String {
        format!("{}{}", self.prefix, self.next_name.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the name with this suffix, the same each time. No other case uses it.
    pub(crate) fn named(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix)
    }

    /// Returns how many rounds of a race to run on this store, of `all` in memory.
    ///
    /// A file, whose steps are those of the memory store, runs a third; an own server half. Shared servers
    /// run a tenth: they differ in the way to the store, not in the order of steps.
    ///
    /// Such a case keeps a processor busy. At most two of them run at a time: this waits for a permit, which
    /// the fixture holds until it is dropped.
    ///
    /// # Panics
    ///
    /// When a case calls it twice.
    pub(crate) async fn rounds(&self, all: usize) -> usize {
        static BUSY: Semaphore = Semaphore::const_new(2);
        let permit = BUSY.acquire().await.expect("never closed");
        assert!(self.busy_permit.set(permit).is_ok(), "a case calls `rounds` once");
        match self.store {
            TestStore::Shared(_) => all / 10,
            TestStore::File(_) => all / 3,
            TestStore::Own(_) => all / 2,
            TestStore::Memory(_) => all,
        }
    }

    /// Deletes all data of this case, without a message.
    pub(crate) async fn lose_data(&self) {
        self.store.lose_data(&self.prefix).await;
    }

    /// Ends a hold without a message to waiters.
    pub(crate) async fn release_without_message(&self, guard: Guard) {
        match &self.store {
            TestStore::Memory(store) => {
                store.lose_messages(true);
                guard.unlock().await.expect("held");
                store.lose_messages(false);
                return;
            }
            TestStore::File(store) => store.delete(guard.name()),
            _ => {
                let _: () =
                    self.raw_connection_for(guard.name()).await.del(guard.name()).await.expect("deleted");
            }
        }
        assert!(guard.unlock().await.is_err());
    }

    /// Connects a client whose releases send no message.
    pub(crate) async fn mute_client(&self) -> KindClient {
        let user = format!("mute-{}", self.name().replace(':', "-"));
        let client = self.store.mute_client(Client::builder().poll_interval(NO_POLL), &user).await;
        KindClient::new(client.expect("the store is reachable"), self.kind)
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.store, TestStore::Memory(_))
    }

    /// Returns `true` if the store has no server.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self.store, TestStore::Memory(_) | TestStore::File(_))
    }

    /// Returns `true` if keys are distributed over servers by slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(&self.store, TestStore::Shared(set_up) if matches!(**set_up, SetUp::Cluster(_)))
    }

    /// The server that only this case uses.
    pub(crate) fn server(&self) -> &RedisServer {
        match &self.store {
            TestStore::Own(server) => server,
            _ => panic!("this case needs its own server"),
        }
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.store, TestStore::File(_))
    }

    /// The file that only this case uses.
    pub(crate) fn file(&self) -> &FileStore {
        match &self.store {
            TestStore::File(store) => store,
            _ => panic!("this case needs a file"),
        }
    }

    pub(crate) fn server_mut(&mut self) -> &mut RedisServer {
        match &mut self.store {
            TestStore::Own(server) => server,
            _ => panic!("this case needs its own server"),
        }
    }

    /// Opens a Redis connection, to inspect and change keys directly.
    pub(crate) async fn raw_connection(&self) -> MultiplexedConnection {
        self.server().client().await
    }

    /// Opens a Redis connection to the server that has `key`, also in a cluster.
    pub(crate) async fn raw_connection_for(&self, key: &str) -> MultiplexedConnection {
        self.store.owner_of(key).await.client().await
    }
}

/// Returns all keys of a server except client records.
pub(crate) async fn lock_keys(connection: &mut MultiplexedConnection) -> Vec<String> {
    let mut keys: Vec<String> = connection.keys("*").await.expect("keys");
    keys.retain(|key| !key.starts_with("turnlock_client:"));
    keys
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `count` tasks of the lock's client wait for it.
pub(crate) async fn until_waiting(lock: &Lock, count: usize) {
    let waiting = async || lock.inspect().await.is_ok_and(|seen| seen.waiting_here == count);
    eventually("the tasks wait", ms(20_000), waiting).await;
}

/// Returns the output of a task, and resumes its panic.
///
/// The panic payload stays the same, so that a [`TooSlow`](turnlock_testkit::TooSlow) is still recognized.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => panic!("{error}"),
    })
}
