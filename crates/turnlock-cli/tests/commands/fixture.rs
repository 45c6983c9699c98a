use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Child;
use turnlock::{Client, OwnerId};
use turnlock_testkit::{ClusterSet, RedisServer, TempDir, eventually, eventually_some};

use crate::program::{Ended, Program};
use crate::store::Store;

/// The store of one case, and the program on it.
#[derive(Debug)]
pub(crate) struct Fixture {
    url: String,
    server: Option<RedisServer>,
    _cluster: Option<Arc<ClusterSet>>,
    _dir: TempDir,
}

impl Fixture {
    pub(crate) async fn new(store: Store) -> Self {
        let dir = TempDir::new();
        let mut server = None;
        let url = match store {
            Store::Redis => server.insert(RedisServer::start().await).url(),
            Store::File => format!("file:{}", dir.path().join("locks").display()),
            Store::Memory => "memory://".to_owned(),
        };
        Self { url, server, _cluster: None, _dir: dir }
    }

    /// A case on a cluster, which other cases use after it.
    pub(crate) fn on_cluster(cluster: &Arc<ClusterSet>) -> Self {
        Self { url: cluster.url(), server: None, _cluster: Some(Arc::clone(cluster)), _dir: TempDir::new() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The server of the store.
    pub(crate) fn server(&mut self) -> &mut RedisServer {
        self.server.as_mut().expect("a case on Redis")
    }

    /// Starts `run` with a command that does not end, and waits until it holds the lock.
    pub(crate) async fn holding(&self, name: &str) -> Child {
        let child = self.program(&["run", name, "--", "sleep", "1000"]).start();
        let client = self.client("observer").await;
        eventually("the lock is held", Duration::from_secs(20), || async {
            client.inspect(name).await.unwrap().is_some()
        })
        .await;
        child
    }

    /// Runs `status --json` until the age of a lock is known. Returns the object.
    pub(crate) async fn status_with_age(&self, arguments: &[&str]) -> Value {
        let arguments = [&["status", "--json"], arguments].concat();
        eventually_some("the age of a lock is known", Duration::from_secs(30), async || {
            let status: Value = serde_json::from_str(&self.run(&arguments).await.out).unwrap();
            (!status["oldest"].is_null()).then_some(status)
        })
        .await
    }

    /// Connects a client in this process.
    pub(crate) async fn client(&self, label: &str) -> Client {
        Client::builder().label(label).connect(&self.url).await.unwrap()
    }

    /// Waits until the store has the identities of these clients.
    ///
    /// A client writes its identity in the background after its first acquire.
    pub(crate) async fn until_identified(&self, clients: &[&Client]) {
        for client in clients {
            let owner = OwnerId::from_wire(&format!("{}:1", client.id()));
            eventually("the client has written its identity", Duration::from_secs(10), || async {
                client.identities(std::slice::from_ref(&owner)).await.unwrap()[0].is_some()
            })
            .await;
        }
    }

    /// The program on this store, with these arguments.
    pub(crate) fn program(&self, arguments: &[&str]) -> Program {
        Program::new(arguments).with_env("TURNLOCK_STORE", &self.url)
    }

    /// Runs the program to its end, without a terminal.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        self.program(arguments).run().await
    }

    /// Runs the program until it prints what is wanted, and returns that output. What clients have announced is missing where
    /// the request for it takes too long.
    pub(crate) async fn output_with(&self, arguments: &[&str], is_wanted: impl Fn(&str) -> bool) -> String {
        eventually_some(&format!("{arguments:?} prints it"), Duration::from_secs(30), async || {
            let output = self.run(arguments).await.out;
            is_wanted(&output).then_some(output)
        })
        .await
    }

    /// Runs the program and parses its output as one JSON value per line.
    pub(crate) async fn objects(&self, arguments: &[&str]) -> Vec<Value> {
        let ended = self.run(arguments).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
