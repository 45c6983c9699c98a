//! A master and its replicas, without sentinels.

use crate::servers::server_config::ServerConfig;
use crate::{FaultProxy, RedisServer, ServerProgram};

use super::replication::Replication;
use super::until;

/// A master with replicas. Dropping the set ends all servers.
#[derive(Debug)]
pub struct ReplicaSet {
    // Dropped before the master, so that they do not try to reconnect.
    replicas: Vec<RedisServer>,
    proxies: Vec<FaultProxy>,
    master: RedisServer,
}

impl ReplicaSet {
    /// Returns the reason why servers cannot run on this machine; `None` if they can.
    pub fn missing() -> Option<String> {
        RedisServer::missing()
    }

    /// Starts a master with this many replicas and returns once all are up to date.
    pub async fn start(replicas: usize) -> Self {
        Self::start_with(replicas, &[]).await
    }

    /// Starts a set with servers of this program.
    pub async fn start_of(program: ServerProgram, replicas: usize) -> Self {
        Self::run(program, replicas, &[], false).await
    }

    /// Starts a set with further arguments for all servers.
    pub async fn start_with(replicas: usize, args: &[&str]) -> Self {
        Self::run(ServerProgram::Installed, replicas, args, false).await
    }

    /// Starts a set in which each replica connects to the master through a [`proxy`](Self::proxy).
    ///
    /// The proxies run in the caller's runtime.
    pub async fn start_behind_proxies(replicas: usize, args: &[&str]) -> Self {
        Self::run(ServerProgram::Installed, replicas, args, true).await
    }

    async fn run(program: ServerProgram, replicas: usize, args: &[&str], with_proxies: bool) -> Self {
        let start =
            |args: &[&str]| RedisServer::start_as(ServerConfig { program, ..ServerConfig::with_args(args) });
        // By default the master waits five seconds for further replicas before a sync.
        let args = [&["--repl-diskless-sync-delay", "0"], args].concat();
        let master = start(&args).await;
        let mut set = Self { replicas: Vec::new(), proxies: Vec::new(), master };
        for _ in 0..replicas {
            let mut port = set.master.port();
            if with_proxies {
                let proxy = FaultProxy::start(port).await;
                port = proxy.port();
                set.proxies.push(proxy);
            }
            let port = port.to_string();
            let args = [args.as_slice(), &["--replicaof", "127.0.0.1", &port]].concat();
            set.replicas.push(start(&args).await);
        }
        set.wait_online().await;
        set
    }

    /// Returns the URL of the master: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.master.url()
    }

    /// Returns the server that was started as the master.
    pub fn master(&self) -> &RedisServer {
        &self.master
    }

    /// Returns the master, to stop or restart it.
    pub fn master_mut(&mut self) -> &mut RedisServer {
        &mut self.master
    }

    /// Returns the servers that were started as replicas.
    pub fn replicas(&self) -> &[RedisServer] {
        &self.replicas
    }

    /// Returns a replica, to stop or restart it.
    pub fn replica_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.replicas[number]
    }

    /// Returns the proxy between the master and a replica.
    ///
    /// Panics if the set was started without proxies.
    pub fn proxy(&self, number: usize) -> &FaultProxy {
        &self.proxies[number]
    }

    /// Waits until all running replicas follow the master and are up to date.
    pub async fn wait_online(&self) {
        let running: Vec<_> = self.replicas.iter().filter(|replica| replica.is_running()).collect();
        let is_complete = async || Replication::is_complete(&self.master, &running).await;
        until("the replicas are online", is_complete).await;
    }

    /// Makes a replica a master. The old master stays one, and keeps the other replicas.
    pub async fn promote(&self, number: usize) {
        let outcome = self.replicas[number].query::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        outcome.expect("a replica can become a master");
    }
}
