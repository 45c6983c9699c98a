//! A master and its replicas, with nobody who watches over them.

use crate::server_plan::ServerPlan;
use crate::{FaultProxy, RedisServer, ServerProgram};

use super::replication::Replication;
use super::until;

/// A `redis-server` with replicas of it. Dropping it ends all of them.
#[derive(Debug)]
pub struct ReplicaSet {
    // Replicas are dropped before their master, so that they do not look for it in vain.
    replicas: Vec<RedisServer>,
    proxies: Vec<FaultProxy>,
    master: RedisServer,
}

impl ReplicaSet {
    /// Why none can be run on this machine, or `None` when one can.
    pub fn missing() -> Option<String> {
        RedisServer::missing()
    }

    /// Starts a master with this many replicas, and returns once all of them are up to date.
    pub async fn start(replicas: usize) -> Self {
        Self::start_with(replicas, &[]).await
    }

    /// The same with servers of this program.
    pub async fn start_of(program: ServerProgram, replicas: usize) -> Self {
        Self::run(program, replicas, &[], false).await
    }

    /// The same with further arguments for all servers.
    pub async fn start_with(replicas: usize, args: &[&str]) -> Self {
        Self::run(ServerProgram::Installed, replicas, args, false).await
    }

    /// The same where each replica reaches the master through a proxy, which can cut it off: see [`proxy`](Self::proxy).
    ///
    /// The proxies live in the runtime that this is called in.
    pub async fn start_behind_proxies(replicas: usize, args: &[&str]) -> Self {
        Self::run(ServerProgram::Installed, replicas, args, true).await
    }

    async fn run(program: ServerProgram, replicas: usize, args: &[&str], with_proxies: bool) -> Self {
        let start =
            |args: &[&str]| RedisServer::start_as(ServerPlan { program, ..ServerPlan::with_args(args) });
        // Without the delay a replica that comes alone does not wait five seconds for others to come along.
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

    /// The address of the master: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.master.url()
    }

    /// The server that was started as the master.
    pub fn master(&self) -> &RedisServer {
        &self.master
    }

    /// The same, to be stopped or restarted.
    pub fn master_mut(&mut self) -> &mut RedisServer {
        &mut self.master
    }

    /// The servers that were started as replicas.
    pub fn replicas(&self) -> &[RedisServer] {
        &self.replicas
    }

    /// One of them, to be stopped or restarted.
    pub fn replica_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.replicas[number]
    }

    /// What stands between the master and a replica, in a set that was started so.
    pub fn proxy(&self, number: usize) -> &FaultProxy {
        &self.proxies[number]
    }

    /// Waits until all replicas that run follow the master and are up to date.
    pub async fn wait_online(&self) {
        let running: Vec<_> = self.replicas.iter().filter(|replica| replica.is_running()).collect();
        let is_complete = async || Replication::is_complete(&self.master, &running).await;
        until("the replicas are online", is_complete).await;
    }

    /// Makes a replica a master by hand. What was the master stays one, and the other replicas stay with it.
    pub async fn promote(&self, number: usize) {
        let outcome = self.replicas[number].ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        outcome.expect("a replica can become a master");
    }
}
