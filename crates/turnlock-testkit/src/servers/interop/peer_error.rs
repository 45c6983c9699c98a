//! The error of a call in a driven program.

use std::fmt;

/// The exception of a call, in terms of the program's language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerError {
    /// The exception's class without its package, such as `IllegalMonitorStateException`.
    pub name: String,
    /// The message, on one line; the cause, if there is one, is at the end.
    pub message: String,
}

impl PeerError {
    /// The name of the error of all calls that are open when the program ends.
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
