use std::fmt;

/// One thing that was seen, why it matters to locks, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about.
    pub topic: Topic,
    /// The address of the server, where it is about one.
    pub server: Option<String>,
    /// The finding in plain words.
    pub text: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// As it should be.
    Fine,
    /// It could not be looked at.
    Unknown,
    /// A lock may be held twice, lost or late in some event.
    Warning,
    /// A lock will be held twice, or lost, in an event that is to be expected; or something does not work at all.
    Danger,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Topic {
    /// Whether the server can be looked at, and can do what is needed.
    Server,
    /// What is left of locks after a restart.
    Persistence,
    /// What is left of locks after a fail-over.
    Replication,
    /// Whether locks are thrown away for want of memory.
    Eviction,
    /// The clocks of the servers and of this machine.
    Clock,
    /// How long an answer takes.
    Latency,
    /// What the user may do.
    Rights,
    /// Whether waiters hear of releases.
    Messages,
    /// Connections that are closed by the server.
    Connections,
}

impl Finding {
    pub(super) fn new(level: Level, topic: Topic, text: impl Into<String>) -> Self {
        Self { level, topic, server: None, text: text.into() }
    }

    pub(super) fn at(self, server: &str) -> Self {
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
