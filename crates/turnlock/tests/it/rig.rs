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
use crate::ground::Ground;
use crate::set_up::SetUp;
use crate::store::Store;

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

    /// The same client for the kind that excludes this one: readers do not exclude readers.
    pub(crate) fn rival(&self) -> Self {
        let kind = if self.kind == Kind::Read { Kind::Write } else { self.kind };
        Self { client: self.client.clone(), kind }
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

/// Longer than any test waits: a wake-up that comes in time came by the message, and not by the poll.
pub(crate) const NO_POLL: Duration = Duration::from_secs(60);

/// What a message or a step may take, on a busy machine too. Nothing else could be its cause in this time: the poll comes after
/// [`NO_POLL`], and a lease of 30 s is renewed after 7.5 s at the soonest.
pub(crate) const PROMPT: Duration = Duration::from_secs(5);

/// What a waiter may take that looks by itself after a second, on a busy machine too.
pub(crate) const A_SECOND: Duration = Duration::from_secs(3);

/// A store and clients of it, with names that are this case's alone.
pub(crate) struct Rig {
    pub(crate) kind: Kind,
    ground: Ground,
    /// What all its names begin with.
    prefix: String,
    next: AtomicU64,
    /// Present while this case keeps a processor busy.
    turn: OnceLock<SemaphorePermit<'static>>,
}

impl Rig {
    /// What all names match that any rig gives.
    pub(crate) const NAMES: &str = "case*";

    pub(crate) async fn new(store: Store, kind: Kind) -> Self {
        Self::on(store.ground().await, kind)
    }

    /// One with a server to itself, of the program that the store runs.
    pub(crate) async fn alone(store: Store, kind: Kind) -> Self {
        Self::on(store.own_server().await, kind)
    }

    fn on(ground: Ground, kind: Kind) -> Self {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("case{}:", CASES.fetch_add(1, Ordering::Relaxed));
        Self { kind, ground, prefix, next: AtomicU64::new(0), turn: OnceLock::new() }
    }

    /// A client whose waiters are woken by messages alone.
    pub(crate) async fn client(&self) -> KindClient {
        self.client_with(Client::builder().poll(NO_POLL)).await
    }

    pub(crate) async fn client_with(&self, builder: Builder) -> KindClient {
        KindClient::new(self.ground.client(builder).await.expect("a store that is there"), self.kind)
    }

    /// A client of the server at another address: behind a proxy.
    pub(crate) async fn client_at(&self, builder: Builder, url: &str) -> KindClient {
        KindClient { client: builder.connect(url).await.expect("a server behind it"), kind: self.kind }
    }

    pub(crate) fn blocking_client(&self) -> BlockingKindClient {
        let client = self.ground.blocking_client(Client::builder().poll(NO_POLL));
        BlockingKindClient { client: client.expect("a store that is there"), kind: self.kind }
    }

    /// A name that no other case uses.
    pub(crate) fn name(&self) -> String {
        format!("{}{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A name with this end that no other case uses; the same each time.
    pub(crate) fn named(&self, end: &str) -> String {
        format!("{}{end}", self.prefix)
    }

    /// How often a case does again what goes wrong once in a thousand times. On a server of its own it is half of that, where other
    /// cases use the same servers a tenth: what is new there is the way to the store, and not the order of steps. On a file, whose
    /// steps are those of the store in memory, it is a third.
    ///
    /// Such a case keeps a processor busy, so from here to its end it is one of two.
    pub(crate) async fn times(&self, all: usize) -> usize {
        static BUSY: Semaphore = Semaphore::const_new(2);
        let turn = BUSY.acquire().await.expect("never closed");
        assert!(self.turn.set(turn).is_ok(), "a case asks once");
        match self.ground {
            Ground::Shared(_) => all / 10,
            Ground::File(_) => all / 3,
            Ground::Own(_) => all / 2,
            Ground::Memory(_) => all,
        }
    }

    /// Loses all data of this case, without telling anybody.
    pub(crate) async fn lose_data(&self) {
        self.ground.lose_data(&self.prefix).await;
    }

    /// Ends a hold so that nobody hears of it.
    pub(crate) async fn release_unheard(&self, guard: Guard) {
        match &self.ground {
            Ground::Memory(store) => {
                store.lose_signals(true);
                guard.unlock().await.expect("held");
                store.lose_signals(false);
                return;
            }
            Ground::File(store) => store.lose(guard.name()),
            _ => {
                let _: () = self.plain_at(guard.name()).await.del(guard.name()).await.expect("deleted");
            }
        }
        assert!(guard.unlock().await.is_err());
    }

    /// A client of whose releases nobody hears.
    pub(crate) async fn mute_client(&self) -> KindClient {
        let user = format!("mute-{}", self.name().replace(':', "-"));
        let client = self.ground.mute_client(Client::builder().poll(NO_POLL), &user).await;
        KindClient::new(client.expect("a store that is there"), self.kind)
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.ground, Ground::Memory(_))
    }

    /// Whether there is no server.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self.ground, Ground::Memory(_) | Ground::File(_))
    }

    /// Whether keys are spread over servers by their slots.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(&self.ground, Ground::Shared(set_up) if matches!(**set_up, SetUp::Cluster(_)))
    }

    /// The server of this case alone.
    pub(crate) fn server(&self) -> &RedisServer {
        match &self.ground {
            Ground::Own(server) => server,
            _ => panic!("this case is for a server of its own"),
        }
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.ground, Ground::File(_))
    }

    /// The file of this case alone.
    pub(crate) fn file(&self) -> &FileStore {
        match &self.ground {
            Ground::File(store) => store,
            _ => panic!("this case is for a file of its own"),
        }
    }

    pub(crate) fn server_mut(&mut self) -> &mut RedisServer {
        match &mut self.ground {
            Ground::Own(server) => server,
            _ => panic!("this case is for a server of its own"),
        }
    }

    /// A client that knows nothing of locks, to look at keys.
    pub(crate) async fn plain(&self) -> MultiplexedConnection {
        self.server().client().await
    }

    /// The same where the key may be on any of several servers.
    pub(crate) async fn plain_at(&self, key: &str) -> MultiplexedConnection {
        self.ground.owner_of(key).await.client().await
    }
}

/// All keys of a server, without those in which clients say who they are.
pub(crate) async fn keys_of_locks(plain: &mut MultiplexedConnection) -> Vec<String> {
    let mut keys: Vec<String> = plain.keys("*").await.expect("keys");
    keys.retain(|key| !key.starts_with("turnlock_client:"));
    keys
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `count` tasks of the lock's client wait for it.
pub(crate) async fn until_waiting(lock: &Lock, count: usize) {
    let waiting = async || lock.inspect().await.is_ok_and(|seen| seen.waiting_here == count);
    eventually("it waits", ms(20_000), waiting).await;
}

/// What a task comes to. Its panic goes on here as it was, so that one who was too slow is known as that.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => panic!("{error}"),
    })
}
