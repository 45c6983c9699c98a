//! The store that one case runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use redis::AsyncCommands;
use turnlock::{Builder, Client, Error, Guard, MemoryStore, blocking};
use turnlock_testkit::RedisServer;
use turnlock_testkit::conformance::StoreUnderTest;

use crate::file_store::FileStore;
use crate::set_up::{SetUp, forbid_channels};

/// The store of one case, its own or shared.
pub(crate) enum TestStore {
    Memory(MemoryStore),
    File(FileStore),
    Own(Box<RedisServer>),
    Shared(Arc<SetUp>),
}

impl StoreUnderTest for TestStore {
    fn client(&self, builder: Builder) -> BoxFuture<'_, Result<Client, Error>> {
        Box::pin(async {
            match self {
                Self::Memory(store) => builder.memory(store),
                Self::File(store) => builder.connect(&store.url()).await,
                Self::Own(server) => builder.connect(&server.url()).await,
                Self::Shared(set_up) => set_up.log_in(builder).connect(&set_up.url()).await,
            }
        })
    }

    fn blocking_client(&self, builder: Builder) -> Result<blocking::Client, Error> {
        match self {
            Self::Memory(store) => blocking::Builder::from(builder).memory(store),
            Self::File(store) => blocking::Builder::from(builder).connect(&store.url()),
            Self::Own(server) => blocking::Builder::from(builder).connect(&server.url()),
            Self::Shared(set_up) => blocking::Builder::from(set_up.log_in(builder)).connect(&set_up.url()),
        }
    }

    /// Deletes all keys whose names contain this text, or all data if only this case uses the store.
    fn lose_data(&self, text: &str) -> BoxFuture<'_, ()> {
        let pattern = format!("*{text}*");
        Box::pin(async move {
            let masters = match self {
                Self::Memory(store) => return store.lose_data(),
                Self::File(store) => return store.lose_data(),
                Self::Own(server) => {
                    let outcome = server.query::<()>(&["FLUSHALL"]).await;
                    return outcome.expect("flushed");
                }
                Self::Shared(set_up) => set_up.masters().await,
            };
            for master in masters {
                let mut connection = master.client().await;
                let keys: Vec<Vec<u8>> = connection.keys(&pattern).await.expect("keys");
                // One by one, because one DEL cannot name keys of different slots.
                for key in keys {
                    let _: () = connection.del(key).await.expect("deleted");
                }
            }
        })
    }

    fn mute_client(&self, builder: Builder) -> BoxFuture<'_, Result<Client, Error>> {
        static USERS: AtomicU64 = AtomicU64::new(0);
        let user = format!("mute-{}", USERS.fetch_add(1, Ordering::Relaxed));
        Box::pin(async move {
            match self {
                Self::Memory(store) => {
                    store.lose_messages(true);
                    builder.memory(store)
                }
                Self::File(store) => {
                    let client = builder.connect(&store.url()).await;
                    store.lose_messages();
                    client
                }
                Self::Own(server) => {
                    forbid_channels(server, &user).await;
                    builder.user(user).password("pass").connect(&server.url()).await
                }
                Self::Shared(set_up) => set_up.log_in_mute(builder, &user).await.connect(&set_up.url()).await,
            }
        })
    }

    fn release_without_message(&self, guard: Guard) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let server = match self {
                Self::Memory(store) => {
                    store.lose_messages(true);
                    guard.unlock().await.expect("held");
                    return store.lose_messages(false);
                }
                Self::File(store) => {
                    store.delete(guard.name());
                    return assert!(guard.unlock().await.is_err());
                }
                Self::Own(server) => server,
                Self::Shared(set_up) => set_up.owner_of(guard.name()).await,
            };
            let _: () = server.client().await.del(guard.name()).await.expect("deleted");
            assert!(guard.unlock().await.is_err());
        })
    }

    /// A file, whose steps are those of the memory store, runs a third; an own server half. Shared servers
    /// run a tenth: they differ in the way to the store, not in the order of steps.
    fn rounds(&self, all: usize) -> usize {
        match self {
            Self::Shared(_) => all / 10,
            Self::File(_) => all / 3,
            Self::Own(_) => all / 2,
            Self::Memory(_) => all,
        }
    }

    fn replies_on_first_poll(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// On Redis, both are a number.
    fn has_untyped_counters(&self) -> bool {
        matches!(self, Self::Own(_) | Self::Shared(_))
    }

    /// Keys are distributed over servers by slot.
    fn refuses_single_braces(&self) -> bool {
        matches!(self, Self::Shared(set_up) if matches!(**set_up, SetUp::Cluster(_)))
    }
}
