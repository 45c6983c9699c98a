use std::fmt;

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
    /// Clients that wait for each other.
    Waits,
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
            Self::Waits => "waits",
        })
    }
}
