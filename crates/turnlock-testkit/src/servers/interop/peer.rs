//! A thread of a driven program, its replies and errors.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::driver_pipe::DriverPipe;
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

/// The future reply to a request that was sent. Dropping it leaves the call running.
#[derive(Debug)]
#[must_use = "the call runs in any case, and its failure is reported only here"]
pub struct PendingReply(oneshot::Receiver<Result<String, PeerError>>);

impl PendingReply {
    pub(crate) fn new(receiver: oneshot::Receiver<Result<String, PeerError>>) -> Self {
        Self(receiver)
    }
}

impl Future for PendingReply {
    type Output = Result<String, PeerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|outcome| outcome.unwrap_or_else(|_| Err(PeerError::ended())))
    }
}

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
