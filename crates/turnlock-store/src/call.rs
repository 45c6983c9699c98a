use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use turnlock_core::LockName;
use turnlock_core::model::Reply;

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
    /// Why steps of a batch have no outcome: the first failure of a part of it.
    pub failure: Option<Box<Failure>>,
}

impl<T> StepReply<T> {
    /// A reply without replicas and notifications.
    pub fn new(value: T, sent: Sent) -> Self {
        Self { value, sent, replicas: 0, notified: None, failure: None }
    }

    /// Converts the value of the reply.
    ///
    /// # Errors
    ///
    /// Those of `convert`.
    pub fn try_map<U>(self, convert: impl FnOnce(T) -> Result<U, Failure>) -> Result<StepReply<U>, Failure> {
        let Self { value, sent, replicas, notified, failure } = self;
        Ok(StepReply { value: convert(value)?, sent, replicas, notified, failure })
    }
}

impl<T> StepReply<Vec<Option<T>>> {
    /// Merges the replies to the parts of a batch, in order. A part that failed has no outcome.
    ///
    /// The result has the earliest moment of sending, from which all leases count, the fewest replicas, and the first failure.
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
            (Some((sent, replicas)), failed) => {
                Ok(Self { replicas, failure: failed.map(Box::new), ..Self::new(values, sent) })
            }
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
pub struct Caller(Option<Arc<dyn Presence>>);

/// Knows whether the future of a caller was dropped.
pub trait Presence: fmt::Debug + Send + Sync {
    /// Returns `true` if the caller was dropped.
    fn is_gone(&self) -> bool;
}

/// `true` if the caller was dropped.
impl Presence for AtomicBool {
    fn is_gone(&self) -> bool {
        self.load(Ordering::Acquire)
    }
}

impl Caller {
    /// The engine itself, which is never dropped.
    pub const ENGINE: Self = Self(None);

    /// The caller whose presence this is.
    pub fn with(presence: Arc<dyn Presence>) -> Self {
        Self(Some(presence))
    }

    /// Returns `true` if the caller was dropped.
    pub fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|presence| presence.is_gone())
    }
}

/// A step under way.
///
/// It does nothing until it is polled. Once the step is sent, it is completed even if the future is dropped; a step that
/// was not sent yet need not be. It is polled on the runtime of the client, so it can use its timers.
pub type ReplyFuture<T> = BoxFuture<'static, Result<StepReply<T>, Failure>>;

/// A step under way whose reply is of a known type. Does nothing until it is polled, as [`ReplyFuture`].
pub struct TypedCall<T> {
    call: ReplyFuture<Reply>,
    /// Returns a reply of another type as it is.
    convert: fn(Reply) -> Result<T, Reply>,
}

impl<T> TypedCall<T> {
    pub(crate) fn new(call: ReplyFuture<Reply>, convert: fn(Reply) -> Result<T, Reply>) -> Self {
        Self { call, convert }
    }
}

impl<T> Future for TypedCall<T> {
    type Output = Result<StepReply<T>, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let convert = self.convert;
        self.call.as_mut().poll(context).map(|reply| {
            // Only a bug in a store gives a step the reply of another.
            let unexpected = |reply| Failure::unavailable(format!("unexpected reply to a step: {reply:?}"));
            reply?.try_map(|value| convert(value).map_err(unexpected))
        })
    }
}

impl<T> fmt::Debug for TypedCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedCall").finish_non_exhaustive()
    }
}
