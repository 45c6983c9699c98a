//! What one case stands on.

use std::sync::Arc;

use redis::AsyncCommands;
use turnlock::{Builder, Client, Error, MemoryStore, blocking};
use turnlock_testkit::RedisServer;

use crate::file_store::FileStore;
use crate::set_up::{SetUp, forbid_channels};

/// A store as one case has it: to itself, or with others.
pub(crate) enum Ground {
    Memory(MemoryStore),
    File(FileStore),
    Own(Box<RedisServer>),
    Shared(Arc<SetUp>),
}

impl Ground {
    pub(crate) async fn client(&self, builder: Builder) -> Result<Client, Error> {
        match self {
            Self::Memory(store) => builder.memory(store),
            Self::File(store) => builder.connect(&store.url()).await,
            Self::Own(server) => builder.connect(&server.url()).await,
            Self::Shared(set_up) => set_up.log_in(builder).connect(&set_up.url()).await,
        }
    }

    pub(crate) fn blocking_client(&self, builder: Builder) -> Result<blocking::Client, Error> {
        match self {
            Self::Memory(store) => blocking::Client::builder(builder).memory(store),
            Self::File(store) => blocking::Client::builder(builder).connect(&store.url()),
            Self::Own(server) => blocking::Client::builder(builder).connect(&server.url()),
            Self::Shared(set_up) => blocking::Client::builder(set_up.log_in(builder)).connect(&set_up.url()),
        }
    }

    /// A client of whose releases nobody hears. `user` is nobody else's name.
    pub(crate) async fn mute_client(&self, builder: Builder, user: &str) -> Result<Client, Error> {
        match self {
            Self::Memory(store) => {
                store.lose_signals(true);
                builder.memory(store)
            }
            Self::File(store) => {
                let client = builder.connect(&store.url()).await;
                store.lose_signals();
                client
            }
            Self::Own(server) => {
                forbid_channels(server, user).await;
                builder.user(user).password("pass").connect(&server.url()).await
            }
            Self::Shared(set_up) => set_up.log_in_mute(builder, user).await.connect(&set_up.url()).await,
        }
    }

    /// The server that has this key. Panics where there is none.
    pub(crate) async fn owner_of(&self, key: &str) -> &RedisServer {
        match self {
            Self::Memory(_) | Self::File(_) => panic!("this case is for Redis"),
            Self::Own(server) => server,
            Self::Shared(set_up) => set_up.owner_of(key).await,
        }
    }

    /// Forgets all keys whose names contain this text, or that of another case if the server is all ours.
    pub(crate) async fn lose_data(&self, text: &str) {
        let masters = match self {
            Self::Memory(store) => return store.lose_data(),
            Self::File(store) => return store.lose_data(),
            Self::Own(server) => {
                let outcome = server.ask::<()>(&["FLUSHALL"]).await;
                return outcome.expect("the server can forget");
            }
            Self::Shared(set_up) => set_up.masters().await,
        };
        for master in masters {
            let mut plain = master.client().await;
            let keys: Vec<Vec<u8>> = plain.keys(format!("*{text}*")).await.expect("keys");
            // One by one, since those of different slots cannot go together.
            for key in keys {
                let _: () = plain.del(key).await.expect("deleted");
            }
        }
    }
}
