//! A Redis cluster.

use std::net::Ipv4Addr;

use redis::RedisResult;

use crate::servers::server_config::ServerConfig;
use crate::{Front, Minority, RedisServer, ServerProgram};

use super::cluster_view::{ClusterView, Member};
use super::replication::Replication;
use super::{SlotMigration, until, until_found};

/// The number of masters, each with one replica.
const MASTERS: usize = 3;
const NODES: usize = 2 * MASTERS;
const SLOTS: u16 = 16_384;

/// A cluster of six nodes: three masters with a third of the slots each, and their replicas.
///
/// A node that is unreachable for a second counts as failed. Nodes are identified by number, independent of
/// their role. At the start, 0 to 2 are masters and 3 to 5 their replicas, in the same order. Dropping the
/// set ends all nodes.
#[derive(Debug)]
pub struct ClusterSet {
    nodes: Vec<RedisServer>,
    /// Empty if clients and replicas connect to the nodes' own ports.
    fronts: Vec<Front>,
}

impl ClusterSet {
    /// Returns the reason why a cluster cannot run on this machine; `None` if it can.
    pub fn missing() -> Option<String> {
        RedisServer::missing()
    }

    /// Starts all nodes and returns once every node sees a complete cluster.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a cluster with further arguments for all nodes.
    pub async fn start_with(args: &[&str]) -> Self {
        Self::start_of(ServerProgram::Installed, args).await
    }

    /// Starts a cluster with nodes of this program.
    pub async fn start_of(program: ServerProgram, args: &[&str]) -> Self {
        Self::run(program, args, Vec::new()).await
    }

    /// Starts a cluster whose clients and replicas reach the nodes through [`fronts`](Self::fronts).
    ///
    /// The nodes are of this program, and have a bus between them, which has no front. The fronts run in the caller's
    /// runtime.
    pub async fn start_behind_fronts(program: ServerProgram) -> Self {
        let sources: Vec<_> = (0..NODES).map(source).collect();
        let minority = Minority::default();
        let mut fronts = Vec::new();
        for _ in 0..NODES {
            fronts.push(Front::start(&sources, &minority).await);
        }
        Self::run(program, &[], fronts).await
    }

    async fn run(program: ServerProgram, args: &[&str], fronts: Vec<Front>) -> Self {
        let defaults = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            // A replica stays with its master after an outage, and may replace it however long that took.
            "--cluster-allow-replica-migration",
            "no",
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let mut config = ServerConfig { program, ..ServerConfig::with_args(&[&defaults, args].concat()) };
        // The default would be an ephemeral port.
        config.second_port = Some("--cluster-port");
        let mut nodes = Vec::new();
        for number in 0..NODES {
            let mut config = config.clone();
            if let Some(front) = fronts.get(number) {
                // Otherwise nodes learn the address of another one from where it connects from.
                config.args.extend(["--cluster-announce-ip".to_owned(), "127.0.0.1".to_owned()]);
                config.args.extend(["--cluster-announce-port".to_owned(), front.port().to_string()]);
                config.args.extend(["--replica-announce-port".to_owned(), front.port().to_string()]);
                config.args.extend(["--bind-source-addr".to_owned(), source(number).to_string()]);
            }
            let node = RedisServer::start_as(config).await;
            if let Some(front) = fronts.get(number) {
                front.lead_to(node.port());
            }
            nodes.push(node);
        }
        let set = Self { nodes, fronts };
        set.join().await;
        set
    }

    /// Returns the front of each node. Its sources are the clients and the nodes, in this order.
    ///
    /// Empty unless the cluster was started [behind fronts](Self::start_behind_fronts).
    pub fn fronts(&self) -> &[Front] {
        &self.fronts
    }

    /// Returns the port at which others know a node.
    fn known_port(&self, number: usize) -> u16 {
        self.fronts.get(number).map_or_else(|| self.nodes[number].port(), Front::port)
    }

    /// Joins the nodes to one cluster.
    async fn join(&self) {
        for (number, node) in (0..).zip(&self.nodes[..MASTERS]) {
            let (first, end) = (first_slot(number), first_slot(number + 1));
            execute(node, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(end - 1).to_string()]).await;
            execute(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]).await;
        }
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            let (port, bus) = (self.known_port(number).to_string(), node.second_port().to_string());
            execute(&self.nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
        }
        until("all nodes know each other", async || {
            self.views().await.is_some_and(|views| views.iter().all(knows_all))
        })
        .await;
        for number in MASTERS..NODES {
            let master: String =
                self.nodes[number - MASTERS].query(&["CLUSTER", "MYID"]).await.expect("an id");
            execute(&self.nodes[number], &["CLUSTER", "REPLICATE", &master]).await;
        }
        self.wait_healthy().await;
    }

    /// Returns the URL: `redis+cluster://HOST:PORT,…` with all nodes.
    pub fn url(&self) -> String {
        let nodes: Vec<_> =
            (0..NODES).map(|number| format!("127.0.0.1:{}", self.known_port(number))).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// Returns the six nodes.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns the slot of a key.
    pub async fn slot_of(&self, key: &str) -> u16 {
        let node = self.running().next().expect("a node that runs");
        node.query(&["CLUSTER", "KEYSLOT", key]).await.expect("a slot")
    }

    /// Returns the number of the master of this slot. If the nodes disagree, the highest epoch counts.
    pub async fn owner_of(&self, slot: u16) -> usize {
        until_found("a master has the slot", async || self.find_owner(slot).await).await
    }

    /// Returns the numbers of the running masters.
    pub async fn masters(&self) -> Vec<usize> {
        let mut masters = Vec::new();
        for (number, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_running()) {
            if Replication::of(node).await.is_ok_and(|replication| replication.is_master) {
                masters.push(number);
            }
        }
        masters
    }

    /// Returns the number of the other node of a master-replica pair.
    pub fn partner_of(&self, node: usize) -> usize {
        (node + MASTERS) % NODES
    }

    /// Kills a node (SIGKILL).
    pub async fn kill(&mut self, node: usize) {
        self.nodes[node].stop().await;
    }

    /// Starts a killed node again, and returns once the cluster is healthy.
    pub async fn restart(&mut self, node: usize) {
        self.nodes[node].restart().await;
        self.wait_healthy().await;
    }

    /// Promotes a replica with `CLUSTER FAILOVER`, and waits until all nodes know.
    pub async fn promote(&self, replica: usize) {
        execute(&self.nodes[replica], &["CLUSTER", "FAILOVER"]).await;
        self.wait_promoted(replica).await;
        self.wait_healthy().await;
    }

    /// Waits until a node is a writable master. A replica becomes one after its master is killed.
    pub async fn wait_promoted(&self, node: usize) {
        until("the node is a master", async || {
            let server = &self.nodes[node];
            let info = server.probe::<String>(&["CLUSTER", "INFO"]).await;
            let is_master = Replication::of(server).await.is_ok_and(|replication| replication.is_master);
            is_master && info.is_ok_and(|info| info.contains("cluster_state:ok"))
        })
        .await;
    }

    /// Waits until all running nodes agree on a complete cluster.
    ///
    /// Its running replicas are up to date then.
    pub async fn wait_healthy(&self) {
        until("the cluster is healthy", async || self.is_healthy().await.unwrap_or(false)).await;
    }

    /// Starts to move a slot to the master with this number: see [`SlotMigration`].
    pub async fn begin_migration(&self, slot: u16, to: usize) -> SlotMigration {
        let from = self.owner_of(slot).await;
        let [from_id, to_id] = [self.id(from).await, self.id(to).await];
        let number = slot.to_string();
        execute(&self.nodes[to], &["CLUSTER", "SETSLOT", &number, "IMPORTING", &from_id]).await;
        execute(&self.nodes[from], &["CLUSTER", "SETSLOT", &number, "MIGRATING", &to_id]).await;
        let mut others = Vec::new();
        for number in self.masters().await.into_iter().filter(|number| *number != from && *number != to) {
            others.push(self.nodes[number].client().await);
        }
        let (from, to_port) = (self.nodes[from].client().await, self.nodes[to].port());
        SlotMigration { slot, from, to: self.nodes[to].client().await, to_id, to_port, others }
    }

    /// Moves a slot with all its keys to the master with this number.
    pub async fn migrate(&self, slot: u16, to: usize) {
        self.begin_migration(slot, to).await.finish().await;
    }

    async fn id(&self, node: usize) -> String {
        self.nodes[node].query(&["CLUSTER", "MYID"]).await.expect("an id")
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.running_numbers().map(|number| &self.nodes[number])
    }

    fn running_numbers(&self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(|number| self.nodes[*number].is_running())
    }

    async fn views(&self) -> Option<Vec<ClusterView>> {
        let mut views = Vec::new();
        for node in self.running() {
            views.push(ClusterView::of(node).await.ok()?);
        }
        Some(views)
    }

    async fn find_owner(&self, slot: u16) -> Option<usize> {
        let mut best: Option<(u64, u16)> = None;
        for node in self.running() {
            // A node may not reply.
            let Ok(view) = ClusterView::of(node).await else { continue };
            let owner = view.owner_of(slot).map(|owner| (owner.epoch, owner.port));
            best = best.max(owner);
        }
        let (_, port) = best?;
        (0..NODES).find(|number| self.known_port(*number) == port)
    }

    async fn is_healthy(&self) -> RedisResult<bool> {
        let Some(views) = self.views().await else { return Ok(false) };
        let layout = views[0].layout();
        for (view, number) in views.iter().zip(self.running_numbers()) {
            let node = &self.nodes[number];
            let info: String = node.probe(&["CLUSTER", "INFO"]).await?;
            let is_known_healthy = |other: usize| {
                let member = view.at(self.known_port(other));
                member.is_some_and(|member| {
                    member.is_healthy() && (member.is_master() || member.master.is_some())
                })
            };
            if !info.contains("cluster_state:ok")
                || !info.contains(&format!("cluster_slots_ok:{SLOTS}"))
                || view.layout() != layout
                || view.0.iter().filter(|member| member.is_master() && member.is_healthy()).count() != MASTERS
                || !self.running_numbers().all(is_known_healthy)
            {
                return Ok(false);
            }
            let is_master = view.at(self.known_port(number)).is_some_and(Member::is_master);
            let replication = Replication::of(node).await?;
            let partner = self.partner_of(number);
            let is_complete = if is_master {
                !self.nodes[partner].is_running() || replication.online.contains(&self.known_port(partner))
            } else {
                replication.follows == Some(self.known_port(partner))
            };
            if replication.is_master != is_master || !is_complete {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the first slot of a master at the start.
fn first_slot(number: u16) -> u16 {
    let masters = u32::try_from(MASTERS).expect("a few");
    u16::try_from(u32::from(SLOTS) * u32::from(number) / masters).expect("not above all slots")
}

/// Returns the address that a node connects from.
fn source(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(number + 1).expect("a few"))
}

fn knows_all(view: &ClusterView) -> bool {
    view.0.len() == NODES && view.0.iter().all(Member::is_healthy)
}

async fn execute(node: &RedisServer, words: &[&str]) {
    let outcome = node.query::<()>(words).await;
    outcome.unwrap_or_else(|error| panic!("{}: {error}", words.join(" ")));
}
