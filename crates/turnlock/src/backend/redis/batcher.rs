use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::batched_call::{self, QueuedStep};
use super::connection::{Connection, Outcome};
use super::failure;
use super::script_call::ScriptCall;
use crate::backend::Failure;
use crate::clock;

/// Batches concurrent steps into one script call, on a server that has all keys.
///
/// A call costs client and server more than the step in it, and a call of many steps costs little more than a call
/// of one.
///
/// A step that finds no other in flight is sent at once and alone, in the future of its caller, without overhead. Later
/// steps go through a task, which sends all queued steps each time that it may send. It is a task, so that it is polled
/// even if callers are dropped: a caller's future that sent for others could be dropped and leave them without a reply.
#[derive(Debug)]
pub(super) struct Batcher {
    connection: Arc<Connection>,
    queue: mpsc::UnboundedSender<QueuedStep>,
    /// Steps in flight that were sent alone.
    unbatched: AtomicUsize,
    /// Steps in flight that went through the task.
    batched: AtomicUsize,
}

/// The number of steps that are sent alone at the same time, while none is batched.
///
/// For two steps, the detour through the task costs more than it saves.
const MAX_UNBATCHED: usize = 2;

/// The number of steps in one call.
const MAX_BATCH: usize = 32;

/// The number of calls of the task in flight.
///
/// With one, either the server or the client would be idle; with many, each would have few steps.
const MAX_CALLS: usize = 4;

/// How long the task waits for one of [`MAX_CALLS`] replies before it sends another call anyway.
///
/// On a slow network, steps are not held back for a whole round trip.
const MAX_DELAY: Duration = Duration::from_millis(1);

/// How often the task yields before it takes the queued steps.
///
/// A reply to a batch wakes as many callers, whose next steps arrive one by one.
const YIELDS: usize = 3;

impl Batcher {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        let (queue, steps) = mpsc::unbounded_channel();
        connection.common.runtime.spawn(run_batches(Arc::clone(connection), steps));
        Self {
            connection: Arc::clone(connection),
            queue,
            unbatched: AtomicUsize::new(0),
            batched: AtomicUsize::new(0),
        }
    }

    /// Runs the script of a step that [can be batched](ScriptCall::can_be_batched).
    ///
    /// Waits at most `limit` for the reply, from now on, plus the time to connect, which has the same limit.
    pub(super) async fn run(&self, call: &ScriptCall, limit: Duration) -> Result<Outcome, Failure> {
        if self.batched.load(Ordering::Acquire) == 0 {
            let (_in_flight, others) = InFlight::count(&self.unbatched);
            if others < MAX_UNBATCHED {
                // Boxed, so that the future of a batched step stays small.
                return Box::pin(self.connection.call(call, false, limit)).await;
            }
        }
        let _in_flight = InFlight::count(&self.batched);
        let queued_at = clock::now();
        let (reply_to, reply) = oneshot::channel();
        let step = QueuedStep { call: call.clone(), limit, deadline: Instant::now() + limit, reply_to };
        if self.queue.send(step).is_err() {
            // The task has ended: with its runtime, or by a panic.
            return Box::pin(self.connection.call(call, false, limit)).await;
        }
        reply.await.unwrap_or_else(|_| Err(failure::runtime_gone(queued_at)))
    }
}

/// Counts a step in flight until it is dropped.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    /// Increments the count. Returns also the number of others.
    fn count(count: &'a AtomicUsize) -> (Self, usize) {
        let others = count.fetch_add(1, Ordering::AcqRel);
        (Self(count), others)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The task of a batcher. Ends when the batcher is dropped.
async fn run_batches(connection: Arc<Connection>, mut queue: mpsc::UnboundedReceiver<QueuedStep>) {
    let mut calls = FuturesUnordered::new();
    let mut batch = Vec::new();
    loop {
        if calls.len() >= MAX_CALLS {
            let _ = timeout(MAX_DELAY, calls.next()).await;
        }
        for _ in 0..YIELDS {
            yield_now().await;
        }
        tokio::select! {
            biased;
            Some(()) = calls.next(), if !calls.is_empty() => {}
            taken = queue.recv_many(&mut batch, MAX_BATCH) => match taken {
                0 => break,
                _ => calls.push(batched_call::run(&connection, std::mem::take(&mut batch))),
            }
        }
    }
    while calls.next().await.is_some() {}
}
