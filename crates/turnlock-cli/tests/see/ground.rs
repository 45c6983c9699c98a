use std::time::Duration;

use serde_json::Value;
use turnlock::{Client, OwnerId};
use turnlock_testkit::{RedisServer, TempDir, eventually};

use crate::program::{Ended, Program};
use crate::store::Store;

/// A store of its own for one case, and the program on it.
#[derive(Debug)]
pub(crate) struct Ground {
    url: String,
    server: Option<RedisServer>,
    _dir: TempDir,
}

impl Ground {
    pub(crate) async fn new(store: Store) -> Self {
        let dir = TempDir::new();
        let (url, server) = match store {
            Store::Redis => {
                let server = RedisServer::start().await;
                (server.url(), Some(server))
            }
            Store::File => (format!("file:{}", dir.path().join("locks").display()), None),
            Store::Nowhere => ("memory://".to_owned(), None),
        };
        Self { url, server, _dir: dir }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The server of a store that is one.
    pub(crate) fn server(&mut self) -> &mut RedisServer {
        self.server.as_mut().expect("a case for stores with a server")
    }

    /// A client of the store, in this process.
    pub(crate) async fn client(&self, label: &str) -> Client {
        Client::builder().label(label).connect(&self.url).await.unwrap()
    }

    /// Waits until the store knows who these are: a client says so in the background, when it first asks for a lock.
    pub(crate) async fn until_known(&self, clients: &[&Client]) {
        for client in clients {
            let owner = OwnerId::from_wire(&format!("{}:1", client.id()));
            eventually("a client says who it is", Duration::from_secs(10), || async {
                client.identities(std::slice::from_ref(&owner)).await.unwrap()[0].is_some()
            })
            .await;
        }
    }

    /// The program on this store, with these arguments.
    pub(crate) fn program(&self, arguments: &[&str]) -> Program {
        Program::new(arguments).with("TURNLOCK_STORE", &self.url)
    }

    /// Runs it to its end, without a terminal.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        self.program(arguments).run().await
    }

    /// Runs it, and reads its output as one JSON value a line.
    pub(crate) async fn objects(&self, arguments: &[&str]) -> Vec<Value> {
        let ended = self.run(arguments).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
