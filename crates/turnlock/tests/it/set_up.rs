//! Servers that several cases use at a time.

use turnlock::Builder;
use turnlock::acl::{AclRule, Primitive};
use turnlock_testkit::{ClusterSet, RedisServer, ReplicaSet, SentinelSet, TlsServer};

use crate::rig::Rig;

/// A password, which the rules of other users leave open.
const PASSWORD: &str = "pass";

/// Servers and how they belong together.
#[derive(Debug)]
pub(crate) enum SetUp {
    Replica(ReplicaSet),
    Sentinel(SentinelSet),
    Cluster(ClusterSet),
    Tls(TlsServer),
    Acl(RedisServer),
    /// A server of a version of its own.
    Single(RedisServer),
}

impl SetUp {
    /// A server with a user who has the rights for all primitives, on names as a rig gives them, and no others.
    pub(crate) async fn with_least_rights() -> Self {
        let server = RedisServer::start().await;
        let rule = AclRule::new(&Primitive::ALL, Rig::NAMES).with_finding().for_user(Self::USER);
        // A name with a brace in it is used as it is, and one in braces begins with one.
        let rule = rule.and_names(&format!("{}{{*", Rig::NAMES)).and_names(&format!("{{{}", Rig::NAMES));
        let words = rule.to_string().replace(">PASSWORD", &format!(">{PASSWORD}"));
        let words: Vec<_> = words.split(' ').collect();
        server.ask::<()>(&words).await.expect("a rule that the server understands");
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

    /// A builder for clients that come as everybody comes here.
    pub(crate) fn log_in(&self, builder: Builder) -> Builder {
        match self {
            Self::Acl(_) => builder.user(Self::USER).password(PASSWORD),
            _ => builder,
        }
    }

    /// A builder for clients that may do everything, but tell nobody of it.
    pub(crate) async fn log_in_mute(&self, builder: Builder, user: &str) -> Builder {
        for server in self.servers() {
            forbid_channels(server, user).await;
        }
        builder.user(user).password(PASSWORD)
    }

    /// The master that has this key.
    pub(crate) async fn owner_of(&self, key: &str) -> &RedisServer {
        match self {
            Self::Cluster(set) => &set.nodes()[set.owner_of(set.slot_of(key).await).await],
            _ => self.masters().await[0],
        }
    }

    /// All servers that keys can be on.
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

    /// All servers that a client may talk to.
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

/// Makes a user who may do everything but publish and subscribe.
pub(crate) async fn forbid_channels(server: &RedisServer, user: &str) {
    let password = format!(">{PASSWORD}");
    let rule = ["ACL", "SETUSER", user, "reset", "on", &password, "~*", "+@all", "resetchannels"];
    server.ask::<()>(&rule).await.expect("a user");
}
