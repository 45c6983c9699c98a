//! Servers that several cases share.

use turnlock::Builder;
use turnlock::acl::{AclRule, Primitive};
use turnlock_testkit::conformance::Fixture;
use turnlock_testkit::{ClusterSet, RedisServer, ReplicaSet, SentinelSet, TlsServer};

/// The password of the users below.
const PASSWORD: &str = "pass";

/// Servers in one topology.
#[derive(Debug)]
pub(crate) enum SetUp {
    Replica(ReplicaSet),
    Sentinel(SentinelSet),
    Cluster(ClusterSet),
    Tls(TlsServer),
    Acl(RedisServer),
    /// A single server of another version.
    Single(RedisServer),
}

impl SetUp {
    /// A server with a user that has the least rights for all primitives, on the names of fixtures only.
    pub(crate) async fn with_least_rights() -> Self {
        let server = RedisServer::start().await;
        let rule = AclRule::new(&Primitive::ALL, Fixture::NAME_PATTERN).with_find().for_user(Self::USER);
        // A name that contains a brace is used as it is, and a name in braces begins with one.
        let rule = rule
            .with_names(&format!("{}{{*", Fixture::NAME_PATTERN))
            .with_names(&format!("{{{}", Fixture::NAME_PATTERN));
        let command = rule.to_string().replace(">PASSWORD", &format!(">{PASSWORD}"));
        let command: Vec<_> = command.split(' ').collect();
        server.query::<()>(&command).await.expect("a rule that the server understands");
        Self::Acl(server)
    }

    const USER: &str = "least";

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Replica(set) => set.url(),
            Self::Sentinel(set) => set.url(),
            Self::Cluster(set) => set.url(),
            Self::Tls(server) => server.url(),
            Self::Acl(server) | Self::Single(server) => server.url(),
        }
    }

    /// Adds the usual credentials of this set-up to a builder.
    pub(crate) fn log_in(&self, builder: Builder) -> Builder {
        match self {
            Self::Acl(_) => builder.user(Self::USER).password(PASSWORD),
            _ => builder,
        }
    }

    /// Creates a user that may not publish or subscribe, and adds its credentials to a builder.
    pub(crate) async fn log_in_mute(&self, builder: Builder, user: &str) -> Builder {
        for server in self.servers() {
            forbid_channels(server, user).await;
        }
        builder.user(user).password(PASSWORD)
    }

    /// The master of this key.
    pub(crate) async fn owner_of(&self, key: &str) -> &RedisServer {
        match self {
            Self::Cluster(set) => &set.nodes()[set.owner_of(set.slot_of(key).await).await],
            _ => self.masters().await[0],
        }
    }

    /// All masters.
    pub(crate) async fn masters(&self) -> Vec<&RedisServer> {
        match self {
            Self::Replica(set) => vec![set.master()],
            Self::Sentinel(set) => vec![&set.servers()[set.master().await]],
            Self::Cluster(set) => {
                set.masters().await.into_iter().map(|number| &set.nodes()[number]).collect()
            }
            Self::Tls(server) => vec![server.server()],
            Self::Acl(server) | Self::Single(server) => vec![server],
        }
    }

    /// All servers that a client may connect to.
    fn servers(&self) -> Vec<&RedisServer> {
        match self {
            Self::Replica(set) => vec![set.master()],
            Self::Sentinel(set) => set.servers().iter().collect(),
            Self::Cluster(set) => set.nodes().iter().collect(),
            Self::Tls(server) => vec![server.server()],
            Self::Acl(server) | Self::Single(server) => vec![server],
        }
    }
}

/// Creates a user with all rights except to publish and subscribe.
pub(crate) async fn forbid_channels(server: &RedisServer, user: &str) {
    let password = format!(">{PASSWORD}");
    let rule = ["ACL", "SETUSER", user, "reset", "on", &password, "~*", "+@all", "resetchannels"];
    server.query::<()>(&rule).await.expect("a user");
}
