use std::fmt;
use std::time::Duration;

use crate::finding::Finding;

/// The servers of a store, and what is wrong with them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Overview {
    /// The servers that have locks: one, or all primaries of a cluster. Empty for a store without servers.
    pub servers: Vec<ServerOverview>,
    /// The findings of the checks that only read.
    pub findings: Vec<Finding>,
}

/// One server of an [`Overview`]. The file of a file store counts as a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerOverview {
    /// The address of the server, or the path of the file.
    pub address: String,
    /// The median round trip of a few requests, or why there was no reply.
    pub latency: Result<Duration, String>,
    /// The product and its version, as `Redis 7.0.15`. `None` if it could not be read.
    pub version: Option<String>,
    /// The role of the server. `None` if it has none, or if it could not be read.
    pub role: Option<ServerRole>,
    /// The number of connected replicas. `None` if the store has no replicas, or if it could not be read.
    pub replicas: Option<u64>,
}

/// The role of a server in replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerRole {
    /// It accepts writes.
    Primary,
    /// It refuses writes: no lock can be acquired there.
    Replica,
}

impl Overview {
    /// Creates an overview.
    pub fn new(servers: Vec<ServerOverview>, findings: Vec<Finding>) -> Self {
        Self { servers, findings }
    }
}

impl ServerOverview {
    /// Creates the overview of a server of which only the latency is known.
    pub fn new(address: impl Into<String>, latency: Result<Duration, String>) -> Self {
        Self { address: address.into(), latency, version: None, role: None, replicas: None }
    }
}

impl fmt::Display for ServerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
        })
    }
}
