use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use turnlock::{Builder, Client, Guard, Lock, MemoryStore, blocking};
use turnlock_testkit::{RedisServer, eventually};

/// What a case is about.
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
    /// The kinds that the conformance suite runs on: all that are the one type `Lock`, and exclude alone.
    pub(crate) const ALL: [Self; 6] =
        [Self::Lock, Self::Fair, Self::Fenced, Self::Spin, Self::Plain, Self::Write];

    /// Everything that can be used so that one at a time has it.
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

/// A client whose `lock` is of the kind that the case is run for.
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

    /// The reentrant lock, whatever kind the case is run for.
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
            Kind::Write => self.client.read_write_lock(name).write(),
            Kind::Read => self.client.read_write_lock(name).read(),
            other => panic!("{} is no lock", other.name()),
        }
    }
}

impl Deref for KindClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The same without a runtime.
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
            Kind::Write => self.client.read_write_lock(name).write(),
            Kind::Read => self.client.read_write_lock(name).read(),
            other => panic!("{} is no lock", other.name()),
        }
    }
}

impl Deref for BlockingKindClient {
    type Target = blocking::Client;

    fn deref(&self) -> &blocking::Client {
        &self.client
    }
}

/// The stores that the conformance suite runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Store {
    Memory,
    Redis,
}

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
        }
    }

    pub(crate) fn missing(self) -> Option<String> {
        // Asked of a program, and once is enough for all cases.
        static MISSING: OnceLock<Option<String>> = OnceLock::new();
        match self {
            Self::Memory => None,
            Self::Redis => MISSING.get_or_init(RedisServer::missing).clone(),
        }
    }
}

/// Longer than any test waits: a wake-up that comes in time came by the message, and not by the poll.
pub(crate) const NO_POLL: Duration = Duration::from_secs(60);

/// What a message may take.
pub(crate) const PROMPT: Duration = Duration::from_millis(300);

/// A store of its own for each case, and clients of it.
pub(crate) struct Rig {
    pub(crate) kind: Kind,
    store: Running,
    next: AtomicU64,
}

enum Running {
    Memory(MemoryStore),
    Redis(Box<RedisServer>),
}

impl Rig {
    pub(crate) async fn new(store: Store, kind: Kind) -> Self {
        let store = match store {
            Store::Memory => Running::Memory(MemoryStore::new()),
            Store::Redis => Running::Redis(Box::new(RedisServer::start().await)),
        };
        Self { kind, store, next: AtomicU64::new(0) }
    }

    /// A client whose waiters are woken by messages alone.
    pub(crate) async fn client(&self) -> KindClient {
        self.client_with(Client::builder().poll(NO_POLL)).await
    }

    pub(crate) async fn client_with(&self, builder: Builder) -> KindClient {
        let client = match &self.store {
            Running::Memory(store) => builder.memory(store),
            Running::Redis(server) => builder.connect(&server.url()).await,
        };
        KindClient::new(client.expect("a store that is there"), self.kind)
    }

    /// A client of the server at another address: behind a proxy.
    pub(crate) async fn client_at(&self, builder: Builder, url: &str) -> KindClient {
        KindClient { client: builder.connect(url).await.expect("a server behind it"), kind: self.kind }
    }

    pub(crate) fn blocking_client(&self) -> BlockingKindClient {
        let builder = blocking::Client::builder(Client::builder().poll(NO_POLL));
        let client = match &self.store {
            Running::Memory(store) => builder.memory(store),
            Running::Redis(server) => builder.connect(&server.url()),
        };
        BlockingKindClient { client: client.expect("a store that is there"), kind: self.kind }
    }

    /// A name that no other case uses.
    pub(crate) fn name(&self) -> String {
        format!("lock:{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Loses all data, without telling anybody.
    pub(crate) async fn lose_data(&self) {
        match &self.store {
            Running::Memory(store) => store.lose_data(),
            Running::Redis(server) => {
                let mut plain = server.client().await;
                let keys: Vec<String> = plain.keys("*").await.expect("keys");
                let _: () = plain.del(keys).await.expect("deleted");
            }
        }
    }

    /// Ends a hold so that nobody hears of it.
    pub(crate) async fn release_unheard(&self, guard: Guard) {
        match &self.store {
            Running::Memory(store) => {
                store.lose_signals(true);
                guard.unlock().await.expect("held");
                store.lose_signals(false);
            }
            Running::Redis(server) => {
                let _: () = server.client().await.del(guard.name()).await.expect("deleted");
                assert!(guard.unlock().await.is_err());
            }
        }
    }

    /// A client of whose releases nobody hears.
    pub(crate) async fn mute_client(&self) -> KindClient {
        let builder = Client::builder().poll(NO_POLL);
        match &self.store {
            Running::Memory(store) => {
                store.lose_signals(true);
                self.client_with(builder).await
            }
            Running::Redis(server) => {
                let mut cmd = redis::cmd("ACL");
                cmd.arg(&["SETUSER", "mute", "reset", "on", ">pass", "~*", "+@all", "resetchannels"]);
                let _: () = cmd.query_async(&mut server.client().await).await.expect("a user");
                let url = format!("redis://mute:pass@127.0.0.1:{}", server.port());
                self.client_at(builder, &url).await
            }
        }
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.store, Running::Memory(_))
    }

    pub(crate) fn server(&self) -> &RedisServer {
        match &self.store {
            Running::Redis(server) => server,
            Running::Memory(_) => panic!("this case is for Redis"),
        }
    }

    pub(crate) fn server_mut(&mut self) -> &mut RedisServer {
        match &mut self.store {
            Running::Redis(server) => server,
            Running::Memory(_) => panic!("this case is for Redis"),
        }
    }

    /// A client that knows nothing of locks, to look at keys.
    pub(crate) async fn plain(&self) -> MultiplexedConnection {
        self.server().client().await
    }
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `count` tasks of the lock's client wait for it.
pub(crate) async fn until_waiting(lock: &Lock, count: usize) {
    let waiting = async || lock.inspect().await.expect("an answer").waiting_here == count;
    eventually("it waits", ms(5_000), waiting).await;
}
