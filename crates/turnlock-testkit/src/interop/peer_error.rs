//! What a driven program answers when a call failed.

use std::fmt;

/// The exception of a call, as the program's own language has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerError {
    /// The exception's class without its package, such as `IllegalMonitorStateException`.
    pub name: String,
    /// Its message, on one line; where there is a cause, that stands at the end.
    pub message: String,
}

impl PeerError {
    /// The name that the end of the program has, which answers all calls that are then open.
    pub const ENDED: &str = "Ended";

    pub(crate) fn ended() -> Self {
        Self { name: Self::ENDED.to_owned(), message: "the program has ended".to_owned() }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl std::error::Error for PeerError {}
