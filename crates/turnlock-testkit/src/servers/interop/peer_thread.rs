//! A thread of a driven program.

use std::sync::Arc;
use std::time::Duration;

use super::driver_pipe::DriverPipe;
use super::{PeerError, PendingReply};
use crate::within;

/// The limit for [`PeerThread::call`].
const LIMIT: Duration = Duration::from_secs(60);

/// A named thread of a driven program, created on its first use.
///
/// A thread runs its calls in order; different threads run concurrently. In Redisson and redis-py, threads
/// own locks.
#[derive(Clone, Debug)]
pub struct PeerThread {
    pipe: Arc<DriverPipe>,
    name: String,
}

impl PeerThread {
    pub(crate) fn new(pipe: Arc<DriverPipe>, name: String) -> Self {
        Self { pipe, name }
    }

    /// Sends a request, such as `lock orders tryLock 2000 -1`, and waits for its reply.
    ///
    /// Panics after a minute. If the future is dropped, the call continues.
    #[track_caller]
    pub fn call(&self, request: &str) -> impl Future<Output = Result<String, PeerError>> + Send {
        within(LIMIT, request, self.begin(request))
    }

    /// Sends a request and returns at once. The reply may be awaited later, or never.
    ///
    /// Requests are sent in the order of these calls.
    pub fn begin(&self, request: &str) -> PendingReply {
        assert!(!request.contains('\n'), "{request:?} must be one line");
        self.pipe.send(&self.name, request)
    }
}
