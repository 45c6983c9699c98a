use std::fmt;
use std::time::{Duration, Instant};

/// The panic payload of a wait that exceeded its limit.
///
/// Only this panic can be caused by a stall of the machine. Any other panic of a case is final.
#[derive(Debug)]
pub struct TimedOut {
    message: String,
    began: Instant,
    limit: Duration,
}

impl TimedOut {
    /// Prints the message and panics with it.
    pub(crate) fn fail(began: Instant, limit: Duration, message: &str) -> ! {
        // The default panic hook prints only strings.
        eprintln!("{message}");
        std::panic::resume_unwind(Box::new(Self { message: message.to_owned(), began, limit }));
    }

    /// Returns when the wait began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Returns `true` if a stall explains the time-out: at least a quarter of the limit.
    pub(crate) fn is_explained_by(&self, stalled: Duration) -> bool {
        stalled >= self.limit / 4
    }
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
