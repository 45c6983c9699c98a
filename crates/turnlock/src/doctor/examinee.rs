use std::pin::Pin;

use redis::{Cmd, Value};

/// A server that can be asked.
pub(crate) trait Examinee: Send + Sync {
    /// Where it is, without a password.
    fn address(&self) -> &str;

    /// Sends one command, and waits for its answer as long as the client waits for any.
    fn ask(&self, cmd: Cmd) -> Pin<Box<dyn Future<Output = Result<Value, Unanswered>> + Send + '_>>;
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The user may not.
    Denied(String),
    /// The server said something else than an answer.
    Refused(String),
    /// It said nothing.
    Silent(String),
}

impl Unanswered {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Denied(text) | Self::Refused(text) | Self::Silent(text) => text,
        }
    }
}
