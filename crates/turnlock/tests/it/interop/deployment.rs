use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use turnlock_testkit::{ClusterSet, RedisServer, SentinelSet, Shared, eventually};

/// The limit for a client to subscribe. After a fail-over, Java refreshes the cluster topology every five seconds, and gives up a
/// failed request only after some retries.
const SUBSCRIBE_LIMIT: Duration = Duration::from_secs(30);

/// The time of the request that follows a subscription, to find a release that came before it.
const RECHECK: Duration = Duration::from_millis(50);

/// How long a server of a shared set may be unresponsive. No case stops one, but the machine may be busy.
const NODE_TIMEOUT: Duration = Duration::from_secs(20);

/// How the servers of a deployment are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    Single,
    Sentinel,
    Cluster,
}

impl Topology {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }
}

static SENTINELS: Shared<SentinelSet> = Shared::new();
static CLUSTER: Shared<ClusterSet> = Shared::new();

/// The servers of an environment.
pub(super) enum Deployment {
    Single(RedisServer),
    Sentinel(Arc<SentinelSet>),
    Cluster(Arc<ClusterSet>),
}

impl Deployment {
    /// A server of its own, or the set that all cases of this process share.
    pub(super) async fn shared(topology: Topology) -> Self {
        match topology {
            Topology::Single => Self::Single(RedisServer::start().await),
            Topology::Sentinel => {
                let start = async || SentinelSet::start_with(NODE_TIMEOUT, None, &[]).await;
                Self::Sentinel(SENTINELS.get(start).await)
            }
            Topology::Cluster => Self::Cluster(CLUSTER.get(slow_fail_over_cluster).await),
        }
    }

    /// Servers for one case that kills some of them, with a short node time-out.
    pub(super) async fn dedicated(topology: Topology) -> Self {
        match topology {
            Topology::Single => Self::Single(RedisServer::start().await),
            Topology::Sentinel => Self::Sentinel(Arc::new(SentinelSet::start().await)),
            Topology::Cluster => Self::Cluster(Arc::new(ClusterSet::start().await)),
        }
    }

    /// Stops the shared sets.
    pub(super) fn close_all() {
        SENTINELS.close();
        CLUSTER.close();
    }

    pub(super) fn topology(&self) -> Topology {
        match self {
            Self::Single(_) => Topology::Single,
            Self::Sentinel(_) => Topology::Sentinel,
            Self::Cluster(_) => Topology::Cluster,
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Single(server) => server.url(),
            Self::Sentinel(set) => set.url(),
            Self::Cluster(set) => set.url(),
        }
    }

    /// The server of a single-server deployment. Panics for others.
    pub(super) fn server(&self) -> &RedisServer {
        let Self::Single(server) = self else { panic!("this case is for a single server") };
        server
    }

    /// The master of this key.
    pub(super) async fn master_of(&self, key: &str) -> &RedisServer {
        match self {
            Self::Single(server) => server,
            Self::Sentinel(set) => &set.servers()[set.master().await],
            Self::Cluster(set) => &set.nodes()[set.owner_of(set.slot_of(key).await).await],
        }
    }

    /// Kills the master of a key. Returns when another is promoted and the killed one is back as its replica, with the addresses
    /// of the old and the new master.
    pub(super) async fn fail_over(&mut self, key: &str) -> [SocketAddr; 2] {
        let before = self.master_of(key).await.addr();
        match self {
            Self::Single(_) => panic!("there is no replica to promote"),
            Self::Sentinel(set) => {
                let set = Arc::get_mut(set).expect("a set of its own");
                let killed = set.kill_master().await;
                set.wait_for_new_master(killed).await;
                set.bring_back(killed).await;
            }
            Self::Cluster(set) => {
                let set = Arc::get_mut(set).expect("a set of its own");
                let killed = set.owner_of(set.slot_of(key).await).await;
                set.kill(killed).await;
                set.wait_promoted(set.partner_of(killed)).await;
                set.restart(killed).await;
            }
        }
        [before, self.master_of(key).await.addr()]
    }

    /// Waits until all replicas of a key's master have all that was written there so far.
    pub(super) async fn until_replicated(&self, key: &str) {
        let replicas = if self.topology() == Topology::Cluster { 1 } else { 2 };
        let master = self.master_of(key).await;
        // WAIT covers the last write of its own connection, and all writes before it.
        let mut plain = master.client().await;
        let mut marked = redis::pipe();
        marked.cmd("SET").arg(format!("{{{key}}}:marker")).arg(1).ignore();
        marked.cmd("WAIT").arg(replicas).arg(5_000);
        let (reached,): (usize,) = marked.query_async(&mut plain).await.expect("a reply");
        assert_eq!(reached, replicas, "all replicas have it");
    }

    /// The number of subscriptions to the channels of a name, at its master. Each waiter of a fair lock has a channel of its own.
    /// In a cluster, only sharded channels count.
    ///
    /// After a fail-over, Java may remain subscribed at the old master's node for a while: messages that are published meanwhile
    /// reach it late, or not at all.
    async fn subscribers(&self, name: &str) -> usize {
        let [channels, counts] = match self.topology() {
            Topology::Cluster => ["SHARDCHANNELS", "SHARDNUMSUB"],
            _ => ["CHANNELS", "NUMSUB"],
        };
        let mut plain = self.master_of(name).await.client().await;
        let mut cmd = redis::cmd("PUBSUB");
        cmd.arg(channels).arg(format!("*{name}*"));
        let found: Vec<String> = cmd.query_async(&mut plain).await.expect("channels");
        let mut cmd = redis::cmd("PUBSUB");
        cmd.arg(counts).arg(found);
        let found: Vec<(String, usize)> = cmd.query_async(&mut plain).await.expect("counts");
        found.into_iter().map(|(_, count)| count).sum()
    }

    /// Waits until at least `count` clients are subscribed. A release before that would be found by the request that follows the
    /// subscription, not by the message. Our subscriptions outlive their waiters for a moment, so Java has to be the first to
    /// wait for a name.
    pub(super) async fn until_subscribed(&self, name: &str, count: usize) {
        eventually("it is subscribed", SUBSCRIBE_LIMIT, async || self.subscribers(name).await >= count).await;
        // Nothing shows when that request is over. If this is too short, the case shows less, and does not fail.
        tokio::time::sleep(RECHECK).await;
    }
}

async fn slow_fail_over_cluster() -> ClusterSet {
    let set = ClusterSet::start().await;
    let millis = NODE_TIMEOUT.as_millis().to_string();
    for node in set.nodes() {
        // Only now, since nodes find each other faster with a short time-out.
        let set: Result<(), _> = node.query(&["CONFIG", "SET", "cluster-node-timeout", &millis]).await;
        set.expect("a setting that can be changed");
    }
    set
}
