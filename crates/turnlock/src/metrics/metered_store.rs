use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use ::metrics::{Counter, Histogram, counter, histogram};
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use turnlock_core::LockName;
use turnlock_core::model::{Reply, Step};
use turnlock_store::{
    Directory, Examination, Failure, FailureKind, ReplyFuture, Signals, StepOptions, StepReply, Store,
};

use super::catalogue::{REPLICA_ACKNOWLEDGEMENTS, STORE_CALL, STORE_CALLS};

/// A store whose calls are counted and timed.
///
/// Not counted are the calls of its directory, with the client and activity records, and of its examination.
pub(super) struct MeteredStore {
    inner: Arc<dyn Store>,
    calls: Arc<Calls>,
}

/// The handles for the calls, made when they are first used.
struct Calls {
    store: &'static str,
    operations: [OnceLock<OperationMetrics>; OPERATIONS.len()],
    acknowledgements: Counter,
}

struct OperationMetrics {
    /// By outcome. All exist from the first call on: a rate is unknown for a series that begins with one.
    calls: [Counter; OUTCOMES.len()],
    duration: Histogram,
}

/// The values of the label `operation`.
const OPERATIONS: [&str; 10] = [
    "acquire",
    "release",
    "renew",
    "set_lease",
    "heartbeat",
    "force_unlock",
    "perform",
    "forget",
    "inspect",
    SUBSCRIBE,
];

const SUBSCRIBE: &str = "subscribe";

/// The values of the label `outcome`.
const OUTCOMES: [&str; 5] = ["ok", "unavailable", "denied", "refused", "too_few_replicas"];

/// The index of a step in [`OPERATIONS`].
fn operation(step: &Step) -> usize {
    match step {
        Step::Acquire(..) => 0,
        Step::Release(_) => 1,
        Step::Renew(..) => 2,
        Step::SetLease { .. } => 3,
        Step::Heartbeat(..) => 4,
        Step::ForceUnlock(_) => 5,
        Step::Perform(..) => 6,
        Step::Forget(..) => 7,
        Step::Inspect(_) => 8,
    }
}

/// The index of an outcome in [`OUTCOMES`].
fn outcome(failure: Option<&Failure>) -> usize {
    match failure.map(|failure| &failure.kind) {
        None => 0,
        Some(FailureKind::Unavailable(_)) => 1,
        Some(FailureKind::Denied(_)) => 2,
        Some(FailureKind::NotALock { .. } | FailureKind::WrongKind { .. } | FailureKind::Unsupported(_)) => 3,
        Some(FailureKind::NotEnoughReplicas { .. }) => 4,
    }
}

impl Calls {
    /// Awaits a call that is counted with its outcome. A call that is dropped is not.
    ///
    /// A batch of which a part failed counts as failed.
    async fn count<T>(
        self: Arc<Self>,
        operation: usize,
        call: ReplyFuture<T>,
    ) -> Result<StepReply<T>, Failure> {
        let began = Instant::now();
        let reply = call.await;
        let failure = reply.as_ref().map_or_else(Some, |reply| reply.failure.as_deref());
        self.end(operation, outcome(failure), began);
        match &reply {
            Ok(StepReply { replicas, .. })
            | Err(Failure { kind: FailureKind::NotEnoughReplicas { reached: replicas, .. }, .. })
                if *replicas > 0 =>
            {
                self.acknowledgements.increment(u64::from(*replicas));
            }
            _ => {}
        }
        reply
    }

    fn end(&self, operation: usize, outcome: usize, began: Instant) {
        let (store, name) = (self.store, OPERATIONS[operation]);
        let metrics = self.operations[operation].get_or_init(|| OperationMetrics {
            calls: OUTCOMES.map(
                |outcome| counter!(STORE_CALLS, "store" => store, "operation" => name, "outcome" => outcome),
            ),
            duration: histogram!(STORE_CALL, "store" => store, "operation" => name),
        });
        metrics.calls[outcome].increment(1);
        metrics.duration.record(began.elapsed());
    }
}

impl MeteredStore {
    pub(super) fn new(inner: Arc<dyn Store>, store: &'static str) -> Self {
        let calls = Calls {
            store,
            operations: Default::default(),
            acknowledgements: counter!(REPLICA_ACKNOWLEDGEMENTS, "store" => store),
        };
        Self { inner, calls: Arc::new(calls) }
    }
}

impl Store for MeteredStore {
    fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<Reply> {
        let operation = operation(&step);
        Box::pin(Arc::clone(&self.calls).count(operation, self.inner.call(step, options)))
    }

    fn call_batch(&self, steps: Vec<Step>, options: StepOptions) -> ReplyFuture<Vec<Option<Reply>>> {
        let first = steps.first().map(operation);
        let call = self.inner.call_batch(steps, options);
        match first {
            Some(operation) => Box::pin(Arc::clone(&self.calls).count(operation, call)),
            None => call,
        }
    }

    fn subscribe(&self, name: &LockName) -> BoxFuture<'static, ()> {
        let (calls, subscribed) = (Arc::clone(&self.calls), self.inner.subscribe(name));
        Box::pin(async move {
            let began = Instant::now();
            // A store gives up silently, so the outcome is always `ok`.
            subscribed.await;
            calls.end(OPERATIONS.len() - 1, 0, began);
        })
    }

    fn shares_fair_subscriptions(&self) -> bool {
        self.inner.shares_fair_subscriptions()
    }

    fn unsubscribe(&self, name: &LockName) {
        self.inner.unsubscribe(name);
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        self.inner.attach(signals);
    }

    fn directory(&self) -> &dyn Directory {
        self.inner.directory()
    }

    fn examination(&self) -> &dyn Examination {
        self.inner.examination()
    }
}

impl fmt::Debug for MeteredStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
