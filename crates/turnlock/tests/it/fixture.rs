//! The fixtures of the conformance suite, on the stores of these tests.

use std::any::Any;
use std::ops::Deref;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use turnlock::Builder;
use turnlock_testkit::{RedisServer, conformance};

pub(crate) use turnlock_testkit::conformance::{
    Kind, KindClient, NO_POLL, ONE_POLL, PROMPT, ms, until_waiting,
};

use crate::file_store::FileStore;
use crate::store_kind::StoreKind;
use crate::test_store::TestStore;

/// A fixture of the suite that knows its server or file.
pub(crate) struct Fixture(conformance::Fixture);

impl Fixture {
    pub(crate) async fn new(store: StoreKind, kind: Kind) -> Self {
        Self(conformance::Fixture::new(Box::new(store.start_or_share().await), kind))
    }

    /// Creates a fixture with its own server, of the program that the store runs.
    pub(crate) async fn with_own_server(store: StoreKind, kind: Kind) -> Self {
        Self(conformance::Fixture::new(Box::new(store.own_server().await), kind))
    }

    /// Connects a client to the server at another address, such as that of a proxy.
    pub(crate) async fn client_at(&self, builder: Builder, url: &str) -> KindClient {
        KindClient::new(builder.connect(url).await.expect("the server is reachable"), self.kind)
    }

    /// The server that only this case uses.
    pub(crate) fn server(&self) -> &RedisServer {
        match self.test_store() {
            TestStore::Own(server) => server,
            _ => panic!("this case needs its own server"),
        }
    }

    pub(crate) fn server_mut(&mut self) -> &mut RedisServer {
        let store: &mut dyn Any = self.0.store_mut();
        match store.downcast_mut() {
            Some(TestStore::Own(server)) => server,
            _ => panic!("this case needs its own server"),
        }
    }

    /// The URL of the store. It has no credentials.
    pub(crate) fn url(&self) -> String {
        match self.test_store() {
            TestStore::File(store) => store.url(),
            TestStore::Own(server) => server.url(),
            TestStore::Shared(set_up) => set_up.url(),
            TestStore::Memory(_) => panic!("this case needs a store with a URL"),
        }
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.test_store(), TestStore::File(_))
    }

    /// The file that only this case uses.
    pub(crate) fn file(&self) -> &FileStore {
        match self.test_store() {
            TestStore::File(store) => store,
            _ => panic!("this case needs a file"),
        }
    }

    fn test_store(&self) -> &TestStore {
        let store: &dyn Any = self.0.store();
        store.downcast_ref().expect("a store of these tests")
    }

    /// Opens a Redis connection, to inspect and change keys directly.
    pub(crate) async fn raw_connection(&self) -> MultiplexedConnection {
        self.server().client().await
    }
}

impl Deref for Fixture {
    type Target = conformance::Fixture;

    fn deref(&self) -> &conformance::Fixture {
        &self.0
    }
}

/// Returns all keys of a server except the records of clients.
pub(crate) async fn lock_keys(connection: &mut MultiplexedConnection) -> Vec<String> {
    let mut keys: Vec<String> = connection.keys("*").await.expect("keys");
    keys.retain(|key| !key.starts_with("turnlock_client:") && key != "turnlock_waits");
    keys
}
