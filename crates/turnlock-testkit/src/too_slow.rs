use std::fmt;
use std::time::{Duration, Instant};

/// What a wait panics with that took longer than its limit.
///
/// Only this can be the fault of a machine that stood still. Any other panic of a case is final.
#[derive(Debug)]
pub struct TooSlow {
    message: String,
    began: Instant,
    limit: Duration,
}

impl TooSlow {
    /// Prints the message and panics with it.
    pub(crate) fn fail(began: Instant, limit: Duration, message: &str) -> ! {
        // The usual hook can print strings only.
        eprintln!("{message}");
        std::panic::resume_unwind(Box::new(Self { message: message.to_owned(), began, limit }));
    }

    /// When the wait began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Whether the machine stood still for so much of the wait that the wait shows nothing: a quarter of its limit.
    pub(crate) fn is_explained_by(&self, stood_still: Duration) -> bool {
        stood_still >= self.limit / 4
    }
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
