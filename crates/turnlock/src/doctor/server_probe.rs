use std::pin::Pin;

use redis::{Cmd, Value};

/// A server to which the doctor can send commands.
pub(crate) trait ServerProbe: Send + Sync {
    /// The server's address, without a password.
    fn address(&self) -> &str;

    /// Sends one command and waits for its reply.
    fn send(&self, cmd: Cmd) -> Pin<Box<dyn Future<Output = Result<Value, ProbeError>> + Send + '_>>;
}

/// Why a command of a [`ServerProbe`] failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeError {
    /// The user lacks the right.
    Denied(String),
    /// The server replied with another error.
    Refused(String),
    /// There was no reply.
    NoReply(String),
}

impl ProbeError {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Denied(text) | Self::Refused(text) | Self::NoReply(text) => text,
        }
    }
}
