use std::time::Duration;

use redis::Value;
use turnlock_store::{FailureKind, Sent};

/// How to send a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    /// As in [`StepOptions`](turnlock_store::StepOptions).
    pub(crate) limit: Duration,
    /// As in [`StepOptions`](turnlock_store::StepOptions). Ignored for a call that writes nothing to acknowledge.
    pub(crate) replicas: u32,
    /// Not retried while its keys are on two nodes (`TRYAGAIN`): the caller splits the batch instead.
    pub(crate) can_split: bool,
}

impl CallOptions {
    /// Options of a call that no replica must acknowledge.
    pub(crate) fn unreplicated(limit: Duration) -> Self {
        Self { limit, replicas: 0, can_split: false }
    }
}

/// The reply of a server, before it is decoded.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) sent: Sent,
    /// The number of replicas that acknowledged, or why too few did. 0 if none was required, or nothing was written.
    pub(crate) replicas: Result<u32, FailureKind>,
}

impl Reply {
    /// A reply that no replica must acknowledge.
    pub(crate) fn new(value: Value, sent: Sent) -> Self {
        Self { value, sent, replicas: Ok(0) }
    }
}
