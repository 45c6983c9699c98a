//! The stores that cases run on.

use std::sync::OnceLock;
use std::time::Duration;

use turnlock::MemoryStore;
use turnlock_testkit::{ClusterSet, RedisServer, ReplicaSet, SentinelSet, Shared, TlsServer};

use crate::file_store::FileStore;
use crate::ground::Ground;
use crate::set_up::SetUp;

/// A store, as the names of cases begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    /// A file for each case.
    File,
    /// A server for each case.
    Redis,
    /// A master with two replicas, for all cases. So are those below.
    Replica,
    Sentinel,
    Cluster,
    Tls,
    /// As a user who may do no more than the rule says that locks need.
    Acl,
}

/// How long a server of a set-up may be away before another takes its place: a case that wants that starts its own, and
/// the others are better off without, however busy the machine is.
const NO_FAIL_OVER: Duration = Duration::from_secs(20);

impl Store {
    /// Those that are only started for cases that do not want a server to themselves.
    const SHARED: [Self; 5] = [Self::Replica, Self::Sentinel, Self::Cluster, Self::Tls, Self::Acl];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
            Self::Redis => "redis",
            Self::Replica => "replica",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Tls => "tls",
            Self::Acl => "acl",
        }
    }

    pub(crate) fn missing(self) -> Option<String> {
        // Asked of a program, and once is enough for all cases.
        static SERVER: OnceLock<Option<String>> = OnceLock::new();
        static TLS: OnceLock<Option<String>> = OnceLock::new();
        match self {
            Self::Memory | Self::File => None,
            Self::Tls => TLS.get_or_init(TlsServer::missing).clone(),
            _ => SERVER.get_or_init(RedisServer::missing).clone(),
        }
    }

    /// The store, started if it is not yet there.
    pub(crate) async fn ground(self) -> Ground {
        match self.place() {
            Some(place) => Ground::Shared(place.get(async || self.start().await).await),
            None if self == Self::Memory => Ground::Memory(MemoryStore::new()),
            None if self == Self::File => Ground::File(FileStore::new()),
            None => Ground::Own(Box::new(RedisServer::start().await)),
        }
    }

    /// Ends all that was started for several cases.
    pub(crate) fn close_all() {
        Self::SHARED.into_iter().filter_map(Self::place).for_each(Shared::close);
    }

    /// Where that is which all cases share.
    fn place(self) -> Option<&'static Shared<SetUp>> {
        static PLACES: [Shared<SetUp>; Store::SHARED.len()] = [const { Shared::new() }; Store::SHARED.len()];
        Self::SHARED.iter().position(|store| *store == self).map(|number| &PLACES[number])
    }

    async fn start(self) -> SetUp {
        match self {
            Self::Replica => SetUp::Replica(ReplicaSet::start(2).await),
            Self::Sentinel => SetUp::Sentinel(SentinelSet::start_with(NO_FAIL_OVER, None, &[]).await),
            Self::Cluster => {
                let cluster = ClusterSet::start().await;
                let time = NO_FAIL_OVER.as_millis().to_string();
                for node in cluster.nodes() {
                    let set = node.ask::<()>(&["CONFIG", "SET", "cluster-node-timeout", &time]).await;
                    set.expect("a setting that can be changed");
                }
                SetUp::Cluster(cluster)
            }
            Self::Tls => SetUp::Tls(TlsServer::start().await),
            Self::Acl => SetUp::with_least_rights().await,
            Self::Memory | Self::File | Self::Redis => unreachable!("each case has its own"),
        }
    }
}
