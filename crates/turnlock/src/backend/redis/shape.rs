use std::fmt;

use super::access::Access;
use super::address::Address;

/// What stands behind a URL: which servers, and how they belong together.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// One server: alone, or the master of replicas that nobody promotes without telling us another address.
    Single(Address),
    /// A master that sentinels name, and replace when it fails.
    Sentinel {
        sentinels: Vec<Address>,
        /// The name that the sentinels know the master by.
        master: String,
        /// How to get in to the sentinels.
        access: Access,
    },
    /// Masters that share the slots; any of the seeds tells who has which.
    Cluster { seeds: Vec<Address>, messages: ClusterMessages },
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |addresses: &[Address]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Single(address) => address.fmt(f),
            Self::Sentinel { sentinels, master, .. } => {
                write!(f, "the master {master:?} of the sentinels {}", list(sentinels))
            }
            Self::Cluster { seeds, .. } => write!(f, "the cluster of {}", list(seeds)),
        }
    }
}

/// By which commands releases are told in a cluster. All clients of one cluster must do the same, Java's too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterMessages {
    /// Sharded if the servers can (Redis 7), as Redisson decides it.
    #[default]
    Auto,
    /// `SPUBLISH` and `SSUBSCRIBE`.
    Sharded,
    /// `PUBLISH` and `SUBSCRIBE`, which reach all nodes of the cluster.
    Plain,
}

/// All that is needed to connect.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) shape: Shape,
    pub(crate) access: Access,
}
