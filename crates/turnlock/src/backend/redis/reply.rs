use std::time::Duration;

use redis::Value;
use turnlock_core::LockName;

use super::connection::Outcome;
use crate::backend::{FailureKind, Sent};

/// How to run a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallOptions {
    /// As in [`StepOptions`](crate::backend::StepOptions).
    pub(super) limit: Duration,
    pub(super) replicas: u32,
    /// The call extends the lease of a hold, so it must not queue behind acquires.
    pub(super) extends_lease: bool,
    /// Returns `true` for a reply that reports a write which replicas must acknowledge.
    pub(super) needs_ack: fn(&Value) -> bool,
    /// Not retried while its keys are on two nodes (`TRYAGAIN`): the caller splits the batch instead.
    pub(super) can_split: bool,
}

impl CallOptions {
    /// Options of a step that acquires.
    pub(super) fn new(limit: Duration, replicas: u32, needs_ack: fn(&Value) -> bool) -> Self {
        Self { limit, replicas, extends_lease: false, needs_ack, can_split: false }
    }

    /// Options of a step that extends the lease of a hold.
    pub(super) fn extending_lease(limit: Duration, replicas: u32, needs_ack: fn(&Value) -> bool) -> Self {
        Self { extends_lease: true, ..Self::new(limit, replicas, needs_ack) }
    }

    /// Options of a step that no replica must acknowledge.
    pub(super) fn unreplicated(limit: Duration) -> Self {
        Self::new(limit, 0, |_| false)
    }
}

/// The number of replicas that acknowledged, or why it is unknown.
pub(super) type Acknowledged = Result<u32, FailureKind>;

/// The outcome of a call and, if it wrote something, of the `WAIT` after it.
pub(super) struct ReplicatedReply {
    pub(super) outcome: Outcome,
    pub(super) acknowledged: Option<Acknowledged>,
}

/// The reply to a script.
pub(super) struct Reply {
    pub(super) value: Value,
    pub(super) sent: Sent,
    /// The number of replicas that acknowledged. 0 if none was required, or nothing was written.
    pub(super) replicas: u32,
    /// Why too few replicas acknowledged, if so.
    pub(super) shortfall: Option<FailureKind>,
}

impl Reply {
    pub(super) fn new(
        (value, sent): (Value, Sent),
        acknowledged: Option<Acknowledged>,
        name: &LockName,
        wanted: u32,
    ) -> Self {
        let (replicas, shortfall) = match acknowledged {
            None => (0, None),
            Some(Ok(reached)) if reached >= wanted => (reached, None),
            Some(Ok(reached)) => {
                let name = name.to_string();
                (reached, Some(FailureKind::NotEnoughReplicas { name, wanted, reached }))
            }
            Some(Err(kind)) => (0, Some(kind)),
        };
        Self { value, sent, replicas, shortfall }
    }
}
