use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use turnlock::{Builder, Client, Guard, Lock, MemoryStore, blocking};
use turnlock_testkit::{RedisServer, eventually};

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
        match self {
            Self::Memory => None,
            Self::Redis => RedisServer::missing(),
        }
    }
}

/// Longer than any test waits: a wake-up that comes in time came by the message, and not by the poll.
pub(crate) const NO_POLL: Duration = Duration::from_secs(60);

/// What a message may take.
pub(crate) const PROMPT: Duration = Duration::from_millis(300);

/// A store of its own for each case, and clients of it.
pub(crate) struct Rig {
    store: Running,
    next: AtomicU64,
}

enum Running {
    Memory(MemoryStore),
    Redis(Box<RedisServer>),
}

impl Rig {
    pub(crate) async fn new(store: Store) -> Self {
        let store = match store {
            Store::Memory => Running::Memory(MemoryStore::new()),
            Store::Redis => Running::Redis(Box::new(RedisServer::start().await)),
        };
        Self { store, next: AtomicU64::new(0) }
    }

    /// A client whose waiters are woken by messages alone.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(Client::builder().poll(NO_POLL)).await
    }

    pub(crate) async fn client_with(&self, builder: Builder) -> Client {
        let client = match &self.store {
            Running::Memory(store) => builder.memory(store),
            Running::Redis(server) => builder.connect(&server.url()).await,
        };
        client.expect("a store that is there")
    }

    pub(crate) fn blocking_client(&self) -> blocking::Client {
        let builder = blocking::Client::builder(Client::builder().poll(NO_POLL));
        let client = match &self.store {
            Running::Memory(store) => builder.memory(store),
            Running::Redis(server) => builder.connect(&server.url()),
        };
        client.expect("a store that is there")
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
