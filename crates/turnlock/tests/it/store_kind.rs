//! The stores that cases run on.

use std::sync::OnceLock;
use std::time::Duration;

use turnlock::MemoryStore;
use turnlock_testkit::{ClusterSet, RedisServer, ReplicaSet, SentinelSet, ServerProgram, Shared, TlsServer};

use crate::file_store::FileStore;
use crate::set_up::SetUp;
use crate::test_store::TestStore;

/// A kind of store. The names of trials begin with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Memory,
    /// Each case has its own file.
    File,
    /// Each case has its own server.
    Redis,
    /// A master with two replicas. All cases share them, as they share the servers of the kinds below.
    Replica,
    Sentinel,
    Cluster,
    Tls,
    /// A server whose user has only the rights that turnlock needs.
    Acl,
    /// Servers of other versions and projects.
    Redis62,
    Valkey9,
    ValkeyCluster,
}

/// The fail-over time-out of shared servers, long enough to prevent a fail-over on a busy machine.
///
/// A case that needs a fail-over starts its own servers.
const NO_FAIL_OVER: Duration = Duration::from_secs(20);

impl StoreKind {
    /// The kinds whose servers all cases share.
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

    /// The kinds with a single server, one per server program.
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

    /// Returns the program that its servers run.
    pub(crate) fn program(self) -> ServerProgram {
        match self {
            Self::Redis62 => ServerProgram::Redis62,
            Self::Valkey9 | Self::ValkeyCluster => ServerProgram::Valkey9,
            _ => ServerProgram::Installed,
        }
    }

    /// Returns the reason why this store cannot run here, if any.
    pub(crate) fn missing(self) -> Option<String> {
        // Cached, because it starts a program to find out.
        static SERVERS: [OnceLock<Option<String>>; ServerProgram::ALL.len()] =
            [const { OnceLock::new() }; ServerProgram::ALL.len()];
        static TLS: OnceLock<Option<String>> = OnceLock::new();
        match self {
            Self::Memory | Self::File => None,
            Self::Tls => TLS.get_or_init(TlsServer::missing).clone(),
            _ => SERVERS[self.program() as usize].get_or_init(|| self.program().missing()).clone(),
        }
    }

    /// Returns a new store, or the shared one, which is started first if necessary.
    pub(crate) async fn start_or_share(self) -> TestStore {
        match self.shared() {
            Some(shared) => TestStore::Shared(shared.get(async || self.start().await).await),
            None if self == Self::Memory => TestStore::Memory(MemoryStore::new()),
            None if self == Self::File => TestStore::File(FileStore::new()),
            None => self.own_server().await,
        }
    }

    /// Starts a server of the same program for one case.
    pub(crate) async fn own_server(self) -> TestStore {
        TestStore::Own(Box::new(RedisServer::start_of(self.program()).await))
    }

    /// Stops all shared servers.
    pub(crate) fn close_all() {
        Self::SHARED.into_iter().filter_map(Self::shared).for_each(Shared::close);
    }

    /// Returns the slot of the shared servers, or `None` for kinds that each case starts.
    fn shared(self) -> Option<&'static Shared<SetUp>> {
        static SETUPS: [Shared<SetUp>; StoreKind::SHARED.len()] =
            [const { Shared::new() }; StoreKind::SHARED.len()];
        Self::SHARED.iter().position(|store| *store == self).map(|number| &SETUPS[number])
    }

    async fn start(self) -> SetUp {
        match self {
            Self::Replica => SetUp::Replica(ReplicaSet::start(2).await),
            Self::Sentinel => SetUp::Sentinel(SentinelSet::start_with(NO_FAIL_OVER, None, &[]).await),
            Self::Cluster | Self::ValkeyCluster => {
                let cluster = ClusterSet::start_of(self.program(), &[]).await;
                let time = NO_FAIL_OVER.as_millis().to_string();
                for node in cluster.nodes() {
                    let set = node.query::<()>(&["CONFIG", "SET", "cluster-node-timeout", &time]).await;
                    set.expect("the setting can be changed");
                }
                SetUp::Cluster(cluster)
            }
            Self::Tls => SetUp::Tls(TlsServer::start().await),
            Self::Acl => SetUp::with_least_rights().await,
            Self::Redis62 | Self::Valkey9 => SetUp::Single(RedisServer::start_of(self.program()).await),
            Self::Memory | Self::File | Self::Redis => unreachable!("each case has its own store"),
        }
    }
}
