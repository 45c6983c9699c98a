//! The reply to a call that is under way.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::PeerError;

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
