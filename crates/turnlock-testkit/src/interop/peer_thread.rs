//! A thread of a driven program.

use std::sync::Arc;
use std::time::Duration;

use super::line::Line;
use super::{Answer, PeerError};
use crate::within;

/// How long a call may take that is awaited on the spot.
const LIMIT: Duration = Duration::from_secs(60);

/// A named thread of a driven program, made on its first use.
///
/// What it is asked to do it does one thing after the other; different threads work at once. In Redisson and redis-py
/// the thread is what owns a lock.
#[derive(Clone, Debug)]
pub struct PeerThread {
    line: Arc<Line>,
    name: String,
}

impl PeerThread {
    pub(crate) fn new(line: Arc<Line>, name: String) -> Self {
        Self { line, name }
    }

    /// Sends a request, such as `lock orders tryLock 2000 -1`, and waits for its answer.
    ///
    /// Panics when that takes more than a minute. Cancelling it leaves the call running.
    #[track_caller]
    pub fn call(&self, request: &str) -> impl Future<Output = Result<String, PeerError>> + Send {
        within(LIMIT, request, self.begin(request))
    }

    /// Sends a request and returns at once; the answer may be awaited later, or never.
    ///
    /// Requests are sent in the order of these calls.
    pub fn begin(&self, request: &str) -> Answer {
        assert!(!request.contains('\n'), "{request:?} must be one line");
        self.line.send(&self.name, request)
    }
}
