use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use turnlock_core::LockName;

use crate::failure::{Failure, FailureKind, Sent};

/// The reply of the store to a step.
#[derive(Debug)]
pub struct StepReply<T> {
    /// The reply itself.
    pub value: T,
    /// When the step was sent.
    pub sent: Sent,
    /// How many replicas acknowledged the step, if that was requested.
    pub replicas: u32,
    /// How many clients were notified, this one included if it subscribes. `None` if unknown.
    pub notified: Option<u32>,
}

impl<T> StepReply<T> {
    /// A reply without replicas and notifications.
    pub fn new(value: T, sent: Sent) -> Self {
        Self { value, sent, replicas: 0, notified: None }
    }

    /// Converts the value of the reply.
    ///
    /// # Errors
    ///
    /// Those of `convert`.
    pub fn try_map<U>(self, convert: impl FnOnce(T) -> Result<U, Failure>) -> Result<StepReply<U>, Failure> {
        let Self { value, sent, replicas, notified } = self;
        Ok(StepReply { value: convert(value)?, sent, replicas, notified })
    }
}

impl<T> StepReply<Vec<Option<T>>> {
    /// Merges the replies to the parts of a batch, in order. A part that failed has no outcome.
    ///
    /// The result has the earliest moment of sending, from which all leases count, and the fewest replicas.
    ///
    /// # Errors
    ///
    /// The first failure, if there is no reply at all.
    pub fn merge(
        outcomes: impl IntoIterator<Item = Result<StepReply<Option<T>>, Failure>>,
    ) -> Result<Self, Failure> {
        let (mut values, mut least, mut failed) = (Vec::new(), None, None);
        for outcome in outcomes {
            match outcome {
                Ok(StepReply { value, sent, replicas, .. }) => {
                    values.push(value);
                    let (earliest, fewest): (Sent, u32) = least.unwrap_or((sent, replicas));
                    let earliest = if sent.at < earliest.at { sent } else { earliest };
                    least = Some((earliest, fewest.min(replicas)));
                }
                Err(failure) => {
                    values.push(None);
                    failed.get_or_insert(failure);
                }
            }
        }
        match (least, failed) {
            (Some((sent, replicas)), _) => Ok(Self { value: values, sent, replicas, notified: None }),
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(Self::new(values, Sent::never())),
        }
    }
}

/// The options of a step that grants or renews.
#[derive(Clone, Debug)]
pub struct StepOptions {
    /// The response time-out. With replicas, also the longest time until the step is sent.
    pub limit: Duration,
    /// How many replicas must acknowledge the grant or renewal for it to count.
    pub replicas: u32,
    /// The future that requested the step.
    pub caller: Caller,
}

impl StepOptions {
    /// For a step requested by the engine itself.
    pub fn of_engine(limit: Duration, replicas: u32) -> Self {
        Self { limit, replicas, caller: Caller::ENGINE }
    }

    /// Refuses a step that replicas must acknowledge, on a store that has none.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotEnoughReplicas`] if a replica is required.
    pub fn without_replicas(&self, name: &LockName) -> Result<(), Failure> {
        match self.replicas {
            0 => Ok(()),
            wanted => {
                let name = name.to_string();
                Err(Failure::refused(FailureKind::NotEnoughReplicas { name, wanted, reached: 0 }))
            }
        }
    }
}

/// The future that requested a step.
///
/// A step that was sent completes without it. A step that still waits to join a batch or a `WAIT` is not sent
/// after the caller was dropped.
#[derive(Clone, Debug)]
pub struct Caller(Option<Weak<()>>);

impl Caller {
    /// The engine itself, which is never dropped.
    pub const ENGINE: Self = Self(None);

    /// The owner of `alive`, until it is dropped.
    pub fn with(alive: &Arc<()>) -> Self {
        Self(Some(Arc::downgrade(alive)))
    }

    /// Returns `true` if the caller was dropped.
    pub fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|alive| alive.strong_count() == 0)
    }
}

/// A step under way.
///
/// It does nothing until it is polled. After that the step is completed, even if the future is dropped. It is polled on
/// the runtime of the client, so it can use its timers.
pub type ReplyFuture<T> = BoxFuture<'static, Result<StepReply<T>, Failure>>;
