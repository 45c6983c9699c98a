use std::fmt;
use std::future::ready;
use std::time::Duration;

use futures_util::future::BoxFuture;
use turnlock_core::{Lease, LockName};

/// What a store may do for operators: examine itself for what endangers its locks.
///
/// No lock depends on it. By default, there are no checks.
pub trait Examination: Send + Sync {
    /// Makes all checks, and returns at least one finding, also if the store does not reply.
    ///
    /// Changes no setting. Probes have owners of a client id of their own and names that begin with the
    /// [prefix](ClientProfile::name_prefix), and are removed; what cannot be removed expires.
    fn examine<'a>(
        &'a self,
        _client: &'a ClientProfile,
        _messages: &'a dyn ReleaseMessages,
    ) -> BoxFuture<'a, Vec<Finding>> {
        let finding = Finding::new(Level::Unknown, Topic::Server, "This store has no checks.");
        Box::pin(ready(vec![finding]))
    }
}

/// What a store must know of its client to examine itself.
#[derive(Clone, Debug)]
pub struct ClientProfile {
    /// The key prefix of the client.
    pub key_prefix: String,
    /// The beginning of the names of probes, if the caller chose one.
    pub name_prefix: Option<String>,
    /// The lease of a renewed lock.
    pub lease: Lease,
    /// How long the client waits for a reply about a lock with this lease.
    pub response_timeout: Duration,
    /// How long it waits for a reply that concerns no such lock. For probes.
    pub limit: Duration,
    /// How many replicas must acknowledge a grant.
    pub replicas: u32,
}

/// The messages about releases, as the waiters of the client receive them.
pub trait ReleaseMessages: Send + Sync {
    /// [Subscribes](crate::Store::subscribe) to releases of `name`; waits at most `limit` for it.
    ///
    /// The returned future is ready after the next message. Dropping it ends the subscription.
    fn subscribe<'a>(&'a self, name: &'a LockName, limit: Duration) -> BoxFuture<'a, BoxFuture<'static, ()>>;
}

/// One observation about the store: what, why it matters to locks, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The subject.
    pub topic: Topic,
    /// The address of the server, if the finding is about one server.
    pub server: Option<String>,
    /// The observation, the reason and the remedy, as sentences.
    pub text: String,
}

/// The severity of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// No action is needed.
    Fine,
    /// The check could not be made.
    Unknown,
    /// In some event a lock can have two holders, be lost, or be granted late.
    Warning,
    /// In an expected event a lock has two holders or is lost; or an operation fails.
    Danger,
}

/// The subject of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Topic {
    /// Reachability and version of the server.
    Server,
    /// Which locks survive a restart.
    Persistence,
    /// Which locks survive a fail-over.
    Replication,
    /// Eviction of locks when memory runs out.
    Eviction,
    /// The clocks of the servers and of this machine.
    Clock,
    /// How long a reply takes.
    Latency,
    /// What the ACL allows the user.
    Rights,
    /// Delivery of release messages to waiters.
    Messages,
    /// Closing of idle connections by the server.
    Connections,
}

impl Finding {
    /// Creates a finding about the store as a whole.
    pub fn new(level: Level, topic: Topic, text: impl Into<String>) -> Self {
        Self { level, topic, server: None, text: text.into() }
    }

    /// Makes it a finding about the server at this address.
    #[must_use]
    pub fn at(self, server: &str) -> Self {
        Self { server: Some(server.to_owned()), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.level, self.topic)?;
        if let Some(server) = &self.server {
            write!(f, " of {server}")?;
        }
        write!(f, ". {}", self.text)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fine => "fine",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Danger => "DANGER",
        })
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Persistence => "persistence",
            Self::Replication => "replication",
            Self::Eviction => "eviction",
            Self::Clock => "clock",
            Self::Latency => "latency",
            Self::Rights => "rights",
            Self::Messages => "messages",
            Self::Connections => "connections",
        })
    }
}
