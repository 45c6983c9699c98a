use std::fmt;

use turnlock_store::FromText;

use crate::access::{Access, Address};

/// Everything needed to connect.
#[derive(Clone, Debug)]
pub struct Target {
    /// The deployment.
    pub servers: Servers,
    /// How to connect to the servers that have locks.
    pub access: Access,
    /// How to connect to sentinels.
    pub sentinel_access: Access,
    /// How releases are published in a cluster.
    pub messages: ClusterMessages,
}

/// The kind of deployment that a URL names, with its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One server: standalone, or a master whose address never changes.
    One(Address),
    /// A master that sentinels monitor, and replace when it fails.
    Sentinels {
        /// Some of the sentinels, or all of them.
        sentinels: Vec<Address>,
        /// The name of the master in the configuration of the sentinels.
        master: String,
    },
    /// A cluster. Any of the seeds can name the owners of all slots.
    Cluster {
        /// Some of the nodes.
        seeds: Vec<Address>,
    },
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |addresses: &[Address]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::One(address) => address.fmt(f),
            Self::Sentinels { sentinels, master } => {
                write!(f, "the master {master:?} of the sentinels {}", list(sentinels))
            }
            Self::Cluster { seeds } => write!(f, "the cluster of {}", list(seeds)),
        }
    }
}

/// The commands that publish releases in a cluster.
///
/// All clients of one cluster must use the same commands, including those that use Redisson.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterMessages {
    /// `Sharded` if the servers support it (Redis 7), as in Redisson.
    #[default]
    Auto,
    /// `SPUBLISH` and `SSUBSCRIBE`.
    Sharded,
    /// `PUBLISH` and `SUBSCRIBE`, which reach all nodes of the cluster.
    Plain,
}

impl FromText for ClusterMessages {
    fn from_text(text: &str) -> Result<Self, &'static str> {
        match text {
            "auto" => Ok(Self::Auto),
            "sharded" => Ok(Self::Sharded),
            "plain" => Ok(Self::Plain),
            _ => Err("must be auto, sharded or plain"),
        }
    }
}
