use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::batch::{self, Outcome, QueuedStep, Sharing};
use crate::connection::Connection;
use crate::failure;
use crate::script_call::ScriptCall;
use turnlock_store::clock;

/// Sends concurrent steps together, over one connection.
///
/// Steps wait in a queue. A task takes those that are queued, sends them, and passes each its own outcome. It is a
/// task, so that it is polled even if callers are dropped: a caller's future that sent for others could be dropped and
/// leave them without a reply. A step that waits too long, or whose caller was dropped, is never sent.
pub(crate) struct Batcher {
    pub(crate) connection: Arc<Connection>,
    sharing: Sharing,
    queue: mpsc::UnboundedSender<QueuedStep>,
    /// Steps in flight that were sent alone.
    alone: AtomicUsize,
    /// Steps in flight that went through the task.
    batched: AtomicUsize,
}

/// The number of steps that are sent alone at the same time, while none is batched.
///
/// For two steps, the detour through the task costs more than it saves.
const MAX_ALONE: usize = 2;

/// The number of steps in one script call.
const MAX_BATCH: usize = 32;

/// The number of batches in flight that share a call.
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

/// The number of steps that share one `WAIT`.
///
/// They share one round trip to the replicas, and a server runs them in a fraction of the time that the shortest lease
/// leaves for a reply.
const MAX_GROUP: usize = 1024;

impl Batcher {
    /// Starts the task. It ends when the batcher is dropped.
    pub(crate) fn start(connection: Arc<Connection>, sharing: Sharing) -> Self {
        let (queue, steps) = mpsc::unbounded_channel();
        let driven = Arc::clone(&connection);
        connection.common.runtime.spawn(async move {
            match sharing {
                Sharing::Call => run_calls(&driven, steps).await,
                Sharing::Wait(_) => tokio::select! {
                    () = run_groups(&driven, sharing, steps) => {}
                    () = driven.watch_role() => {}
                },
            }
        });
        Self { connection, sharing, queue, alone: AtomicUsize::new(0), batched: AtomicUsize::new(0) }
    }

    /// Counts a step that is sent alone, while the returned value exists. `None` if it must be batched.
    pub(crate) fn enter_alone(&self) -> Option<InFlight<'_>> {
        if self.batched.load(Ordering::Acquire) > 0 {
            return None;
        }
        let (in_flight, others) = InFlight::count(&self.alone);
        (others < MAX_ALONE).then_some(in_flight)
    }

    /// Runs a step together with others.
    ///
    /// Waits as long as [`limit`](QueuedStep::limit) says, plus the time to connect, which has the same limit.
    pub(crate) async fn call(&self, call: &ScriptCall, asking: bool, limit: Duration) -> Outcome {
        let _in_flight = InFlight::count(&self.batched);
        let queued_at = clock::now();
        let (reply_to, reply) = oneshot::channel();
        let deadline = Instant::now() + limit;
        let (step_call, connecting) = (call.clone(), Duration::ZERO);
        let step = QueuedStep { call: step_call, asking, limit, deadline, connecting, reply_to };
        if self.queue.send(step).is_err() && self.sharing == Sharing::Call {
            // The task has ended: with its runtime, or by a panic.
            return Box::pin(self.connection.call(call, asking, limit)).await;
        }
        reply.await.unwrap_or_else(|_| Err(failure::runtime_gone(queued_at)))
    }
}

/// Counts a step in flight until it is dropped.
pub(crate) struct InFlight<'a>(&'a AtomicUsize);

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

/// The task for steps that share a call: sends all queued steps each time that it may send.
async fn run_calls(connection: &Arc<Connection>, mut queue: mpsc::UnboundedReceiver<QueuedStep>) {
    let mut calls = FuturesUnordered::new();
    let mut steps = Vec::new();
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
            taken = queue.recv_many(&mut steps, MAX_BATCH) => match taken {
                0 => break,
                _ => calls.push(batch::run(connection, std::mem::take(&mut steps))),
            }
        }
    }
    while calls.next().await.is_some() {}
}

/// The task for steps that share a `WAIT`: sends one group after the other.
///
/// The steps of a group have the same limit, so that each waits as long as its own limit.
async fn run_groups(
    connection: &Arc<Connection>,
    sharing: Sharing,
    mut queue: mpsc::UnboundedReceiver<QueuedStep>,
) {
    let mut waiting = Vec::<QueuedStep>::new();
    loop {
        if waiting.is_empty() && queue.recv_many(&mut waiting, usize::MAX).await == 0 {
            return;
        }
        let live = batch::connect(connection, &mut waiting).await;
        while let Ok(step) = queue.try_recv() {
            waiting.push(step);
        }
        let Some(live) = live else { continue };
        batch::fail_unsent(&mut waiting);
        if let Some(limit) = waiting.first().map(|first| first.limit) {
            let group = waiting.extract_if(.., |step| step.limit == limit).take(MAX_GROUP).collect();
            batch::send(connection, &live, sharing, group).await;
        }
    }
}
