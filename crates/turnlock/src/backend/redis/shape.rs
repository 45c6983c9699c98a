use std::fmt;

use super::access::Access;
use super::address::Address;

/// The kind of deployment that a URL names, with its servers.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// One server: standalone, or a master whose address never changes.
    Single(Address),
    /// A master that sentinels monitor, and replace when it fails.
    Sentinel {
        sentinels: Vec<Address>,
        /// The name of the master in the configuration of the sentinels.
        master: String,
        /// Credentials and settings for connections to the sentinels.
        access: Access,
    },
    /// A cluster. Any of the seeds can name the owners of all slots.
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

/// Everything needed to connect.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) shape: Shape,
    pub(crate) access: Access,
}
