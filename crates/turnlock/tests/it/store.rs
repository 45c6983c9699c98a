//! The stores that cases run on.

use std::sync::OnceLock;
use std::time::Duration;

use turnlock::MemoryStore;
use turnlock_testkit::{ClusterSet, RedisServer, ReplicaSet, SentinelSet, ServerProgram, Shared, TlsServer};

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
    /// Servers of other versions and another maker.
    Redis62,
    Valkey9,
    ValkeyCluster,
}

/// How long a server of a set-up may be away before another takes its place: a case that wants that starts its own, and
/// the others are better off without, however busy the machine is.
const NO_FAIL_OVER: Duration = Duration::from_secs(20);

impl Store {
    /// Those that are only started for cases that do not want a server to themselves.
    const SHARED: [Self; 8] = [
        Self::Replica,
        Self::Sentinel,
        Self::Cluster,
        Self::Tls,
        Self::Acl,
        Self::Redis62,
        Self::Valkey9,
        Self::ValkeyCluster,
    ];

    /// Those of one server: one of each program.
    pub(crate) const SERVERS: [Self; 3] = [Self::Redis, Self::Redis62, Self::Valkey9];

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
            Self::Redis62 => ServerProgram::Redis62.name(),
            Self::Valkey9 => ServerProgram::Valkey9.name(),
            Self::ValkeyCluster => "valkey-cluster",
        }
    }

    /// What its servers run.
    pub(crate) fn program(self) -> ServerProgram {
        match self {
            Self::Redis62 => ServerProgram::Redis62,
            Self::Valkey9 | Self::ValkeyCluster => ServerProgram::Valkey9,
            _ => ServerProgram::Installed,
        }
    }

    pub(crate) fn missing(self) -> Option<String> {
        // Asked of a program, and once is enough for all cases.
        static SERVERS: [OnceLock<Option<String>>; ServerProgram::ALL.len()] =
            [const { OnceLock::new() }; ServerProgram::ALL.len()];
        static TLS: OnceLock<Option<String>> = OnceLock::new();
        match self {
            Self::Memory | Self::File => None,
            Self::Tls => TLS.get_or_init(TlsServer::missing).clone(),
            _ => SERVERS[self.program() as usize].get_or_init(|| self.program().missing()).clone(),
        }
    }

    /// The store, started if it is not yet there.
    pub(crate) async fn ground(self) -> Ground {
        match self.place() {
            Some(place) => Ground::Shared(place.get(async || self.start().await).await),
            None if self == Self::Memory => Ground::Memory(MemoryStore::new()),
            None if self == Self::File => Ground::File(FileStore::new()),
            None => self.own_server().await,
        }
    }

    /// A server of the same program, for one case.
    pub(crate) async fn own_server(self) -> Ground {
        Ground::Own(Box::new(RedisServer::start_of(self.program()).await))
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
            Self::Cluster | Self::ValkeyCluster => {
                let cluster = ClusterSet::start_of(self.program(), &[]).await;
                let time = NO_FAIL_OVER.as_millis().to_string();
                for node in cluster.nodes() {
                    let set = node.ask::<()>(&["CONFIG", "SET", "cluster-node-timeout", &time]).await;
                    set.expect("a setting that can be changed");
                }
                SetUp::Cluster(cluster)
            }
            Self::Tls => SetUp::Tls(TlsServer::start().await),
            Self::Acl => SetUp::with_least_rights().await,
            Self::Redis62 | Self::Valkey9 => SetUp::Single(RedisServer::start_of(self.program()).await),
            Self::Memory | Self::File | Self::Redis => unreachable!("each case has its own"),
        }
    }
}
