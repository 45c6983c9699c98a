use std::time::Duration;

use redis::Value;
use turnlock_core::LockName;

use super::link::Outcome;
use crate::backend::{FailureKind, Sent};

/// How a script is to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    /// As in [`Care`](crate::backend::Care).
    pub(super) limit: Duration,
    pub(super) replicas: u32,
    /// Whether it prolongs a hold, so that it must not wait behind those that want one.
    pub(super) prolongs: bool,
    /// Whether an answer says that something was done that replicas must acknowledge.
    pub(super) has_done: fn(&Value) -> bool,
    /// Whether it is not repeated where its keys are on two nodes just now, since it can be taken apart instead.
    pub(super) is_divisible: bool,
}

impl Delivery {
    /// Of a step that wants a hold.
    pub(super) fn new(limit: Duration, replicas: u32, has_done: fn(&Value) -> bool) -> Self {
        Self { limit, replicas, prolongs: false, has_done, is_divisible: false }
    }

    /// Of a step that prolongs a hold.
    pub(super) fn prolonging(limit: Duration, replicas: u32, has_done: fn(&Value) -> bool) -> Self {
        Self { prolongs: true, ..Self::new(limit, replicas, has_done) }
    }

    /// One that asks no replicas.
    pub(super) fn plain(limit: Duration) -> Self {
        Self::new(limit, 0, |_| false)
    }
}

/// How many replicas have acknowledged, or why nobody knows.
pub(super) type Acknowledged = Result<u32, FailureKind>;

/// What became of a call and, where that says that something was done, of the `WAIT` behind it.
pub(super) struct Landing {
    pub(super) outcome: Outcome,
    pub(super) acknowledged: Option<Acknowledged>,
}

/// The answer to a script.
pub(super) struct Arrival {
    pub(super) value: Value,
    pub(super) sent: Sent,
    /// How many replicas have acknowledged what it did; 0 where nobody asked, or there was nothing to acknowledge.
    pub(super) replicas: u32,
    /// Why that is not enough.
    pub(super) shortfall: Option<FailureKind>,
}

impl Arrival {
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
