use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use turnlock_testkit::{ClusterSet, RedisServer, SentinelSet, Shared, eventually};

/// How long it may take until somebody listens. After a fail-over, Java asks a cluster every five seconds who is where, and
/// gives up what fails only after some tries.
const LISTENS: Duration = Duration::from_secs(30);

/// What the look takes by which a waiter makes sure that it missed nothing before it listened.
const LAST_LOOK: Duration = Duration::from_millis(50);

/// How long a server of a shared set may be silent. Nobody stops one, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the servers of a house stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    Sentinel,
    Cluster,
}

impl Shape {
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

/// The servers of a house.
pub(super) enum Site {
    Single(RedisServer),
    Sentinel(Arc<SentinelSet>),
    Cluster(Arc<ClusterSet>),
}

impl Site {
    /// A server of its own, or the set that all cases of this process share.
    pub(super) async fn of(shape: Shape) -> Self {
        match shape {
            Shape::Single => Self::Single(RedisServer::start().await),
            Shape::Sentinel => {
                let start = async || SentinelSet::start_with(PATIENCE, None, &[]).await;
                Self::Sentinel(SENTINELS.get(start).await)
            }
            Shape::Cluster => Self::Cluster(CLUSTER.get(patient_cluster).await),
        }
    }

    /// Servers that a case may kill, and that notice quickly.
    pub(super) async fn to_be_killed(shape: Shape) -> Self {
        match shape {
            Shape::Single => Self::Single(RedisServer::start().await),
            Shape::Sentinel => Self::Sentinel(Arc::new(SentinelSet::start().await)),
            Shape::Cluster => Self::Cluster(Arc::new(ClusterSet::start().await)),
        }
    }

    /// Ends the sets that were shared.
    pub(super) fn close_all() {
        SENTINELS.close();
        CLUSTER.close();
    }

    pub(super) fn shape(&self) -> Shape {
        match self {
            Self::Single(_) => Shape::Single,
            Self::Sentinel(_) => Shape::Sentinel,
            Self::Cluster(_) => Shape::Cluster,
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Single(server) => server.url(),
            Self::Sentinel(set) => set.url(),
            Self::Cluster(set) => set.url(),
        }
    }

    /// The only server, where there is only one.
    pub(super) fn server(&self) -> &RedisServer {
        let Self::Single(server) = self else { panic!("this case is for a single server") };
        server
    }

    /// The server that can write this key.
    pub(super) async fn master_of(&self, key: &str) -> &RedisServer {
        match self {
            Self::Single(server) => server,
            Self::Sentinel(set) => &set.servers()[set.master().await],
            Self::Cluster(set) => &set.nodes()[set.owner_of(set.slot_of(key).await).await],
        }
    }

    /// Kills the master of a key, and comes back when another has its place and the killed one follows that. Gives the
    /// addresses of the two masters.
    pub(super) async fn fail_over(&mut self, key: &str) -> [SocketAddr; 2] {
        let before = self.master_of(key).await.addr();
        match self {
            Self::Single(_) => panic!("nobody could take its place"),
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

    /// Comes back when all replicas of a key's master have what was written there until now.
    pub(super) async fn until_replicated(&self, key: &str) {
        let replicas = if self.shape() == Shape::Cluster { 1 } else { 2 };
        let master = self.master_of(key).await;
        // It speaks of what its own connection has written, and of all before that.
        let mut plain = master.client().await;
        let mut marked = redis::pipe();
        marked.cmd("SET").arg(format!("{{{key}}}:marker")).arg(1).ignore();
        marked.cmd("WAIT").arg(replicas).arg(5_000);
        let (reached,): (usize,) = marked.query_async(&mut plain).await.expect("an answer");
        assert_eq!(reached, replicas, "all replicas have it");
    }

    /// How many clients listen to what is told of a name, at its master; each waiter of a fair lock has a channel of its own.
    /// In a cluster only those count that listen to its sharded channels.
    ///
    /// After a fail-over Java may listen for a while where the old master was, and moves later: what is told meanwhile it
    /// hears late, or not at all.
    async fn listeners(&self, name: &str) -> usize {
        let [channels, counts] = match self.shape() {
            Shape::Cluster => ["SHARDCHANNELS", "SHARDNUMSUB"],
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

    /// Waits until so many clients listen. A release before that would be found by the look that follows, and not by the
    /// message. Ours listen on for a moment after they were served, so Java has to be the first to wait for a name.
    pub(super) async fn until_listening(&self, name: &str, count: usize) {
        eventually("it listens", LISTENS, async || self.listeners(name).await >= count).await;
        // Nothing tells when that last look is over. If this is too short, less is shown, and nothing fails.
        tokio::time::sleep(LAST_LOOK).await;
    }
}

async fn patient_cluster() -> ClusterSet {
    let set = ClusterSet::start().await;
    let millis = PATIENCE.as_millis().to_string();
    for node in set.nodes() {
        // Only now, since nodes that are to find each other hurry more with a short one.
        let set: Result<(), _> = node.ask(&["CONFIG", "SET", "cluster-node-timeout", &millis]).await;
        set.expect("a setting that can be changed");
    }
    set
}
