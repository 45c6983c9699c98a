//! The store that one case runs on.

use std::sync::Arc;

use redis::AsyncCommands;
use turnlock::{Builder, Client, Error, MemoryStore, blocking};
use turnlock_testkit::RedisServer;

use crate::file_store::FileStore;
use crate::set_up::{SetUp, forbid_channels};

/// The store of one case, its own or shared.
pub(crate) enum TestStore {
    Memory(MemoryStore),
    File(FileStore),
    Own(Box<RedisServer>),
    Shared(Arc<SetUp>),
}

impl TestStore {
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
            Self::Memory(store) => blocking::Builder::from(builder).memory(store),
            Self::File(store) => blocking::Builder::from(builder).connect(&store.url()),
            Self::Own(server) => blocking::Builder::from(builder).connect(&server.url()),
            Self::Shared(set_up) => blocking::Builder::from(set_up.log_in(builder)).connect(&set_up.url()),
        }
    }

    /// Connects a client whose releases send no message. `user` must be a new user name.
    pub(crate) async fn mute_client(&self, builder: Builder, user: &str) -> Result<Client, Error> {
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
                forbid_channels(server, user).await;
                builder.user(user).password("pass").connect(&server.url()).await
            }
            Self::Shared(set_up) => set_up.log_in_mute(builder, user).await.connect(&set_up.url()).await,
        }
    }

    /// Returns the server that has this key.
    ///
    /// # Panics
    ///
    /// On a store without servers.
    pub(crate) async fn owner_of(&self, key: &str) -> &RedisServer {
        match self {
            Self::Memory(_) | Self::File(_) => panic!("this case needs Redis"),
            Self::Own(server) => server,
            Self::Shared(set_up) => set_up.owner_of(key).await,
        }
    }

    /// Deletes all keys whose names contain this text, or all data if only this case uses the store.
    pub(crate) async fn lose_data(&self, text: &str) {
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
            let keys: Vec<Vec<u8>> = connection.keys(format!("*{text}*")).await.expect("keys");
            // One by one, because one DEL cannot name keys of different slots.
            for key in keys {
                let _: () = connection.del(key).await.expect("deleted");
            }
        }
    }
}
