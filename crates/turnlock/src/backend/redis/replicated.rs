use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::connection::{Connection, LiveConnection, Outcome};
use super::failure;
use super::reply::{Acknowledged, CallOptions, ReplicatedReply};
use super::script_call::{By, ScriptCall};
use crate::backend::{Failure, FailureKind};
use crate::clock;

/// A connection for calls that a given number of replicas must acknowledge.
///
/// `WAIT` covers the writes of its own connection, and blocks that connection. So these calls have a connection of
/// their own, and delay no other call. One `WAIT` serves a group of calls; those that arrive meanwhile form the next
/// group.
#[derive(Debug)]
pub(super) struct ReplicatedPipeline {
    pub(super) connection: Arc<Connection>,
    queue: mpsc::UnboundedSender<ReplicatedStep>,
}

/// A call that waits to be sent with its group, or for the replies to it.
struct ReplicatedStep {
    call: ScriptCall,
    asking: bool,
    /// How long the caller waits for the replies.
    limit: Duration,
    /// After this it is not sent.
    deadline: Instant,
    /// The time spent waiting for a connection so far.
    connecting: Duration,
    /// Returns `true` for a reply that reports a write which replicas must acknowledge.
    needs_ack: fn(&Value) -> bool,
    reply_to: oneshot::Sender<Result<ReplicatedReply, Failure>>,
}

/// The number of calls in one group.
///
/// They share one round trip to the replicas, and a server runs them in a fraction of the time that the shortest lease
/// leaves for a reply.
const MAX_GROUP: usize = 1024;

impl ReplicatedPipeline {
    /// Starts a pipeline over its own connection.
    pub(super) fn new(connection: Connection, replicas: u32) -> Self {
        let connection = Arc::new(connection);
        let (queue, steps) = mpsc::unbounded_channel();
        let driven = Arc::clone(&connection);
        connection.common.runtime.spawn(async move {
            tokio::select! {
                () = run_groups(Arc::clone(&driven), replicas, steps) => {}
                () = driven.watch_role() => {}
            }
        });
        Self { connection, queue }
    }

    /// Runs a script, and waits for acknowledgements if its reply reports a write.
    ///
    /// Waits at most `limit` until its group is sent, plus the time to connect, and again at most `limit` for the
    /// replies. A call that is not sent in that time, or whose caller was dropped, is never sent.
    pub(super) async fn run(
        &self,
        call: ScriptCall,
        asking: bool,
        CallOptions { limit, needs_ack, .. }: CallOptions,
    ) -> Result<ReplicatedReply, Failure> {
        let queued_at = clock::now();
        let (reply_to, reply) = oneshot::channel();
        let deadline = Instant::now() + limit;
        // Fails only if the task has ended, which drops `reply_to`.
        let _ = self.queue.send(ReplicatedStep {
            call,
            asking,
            limit,
            deadline,
            connecting: Duration::ZERO,
            needs_ack,
            reply_to,
        });
        reply.await.unwrap_or_else(|_| Err(failure::runtime_gone(queued_at)))
    }
}

/// The task of a pipeline: sends one group after the other. Ends when the pipeline is dropped.
async fn run_groups(
    connection: Arc<Connection>,
    replicas: u32,
    mut queue: mpsc::UnboundedReceiver<ReplicatedStep>,
) {
    let mut waiting = Vec::<ReplicatedStep>::new();
    loop {
        if waiting.is_empty() && queue.recv_many(&mut waiting, usize::MAX).await == 0 {
            return;
        }
        let before = Instant::now();
        let limit = waiting.iter().map(|step| step.limit).min().unwrap_or_default();
        let live = connection.live_within(limit).await;
        let connecting = before.elapsed();
        for step in &mut waiting {
            step.connecting += connecting;
            step.deadline += connecting;
        }
        while let Ok(step) = queue.try_recv() {
            waiting.push(step);
        }
        match live {
            Ok(live) => {
                let group = next_group(&mut waiting);
                let unknown_script = send_group(&connection, &live, replicas, group, By::Hash).await;
                // The server lost its scripts and did nothing, so this does not repeat a step.
                send_group(&connection, &live, replicas, unknown_script, By::Text).await;
            }
            Err(failure) => {
                // An attempt that timed out here goes on: it fails only the steps whose own limit is over.
                let has_failed = connecting < limit;
                let gives_up = |step: &mut ReplicatedStep| has_failed || step.connecting >= step.limit;
                for step in waiting.extract_if(.., gives_up) {
                    let _ = step.reply_to.send(Err(failure.clone()));
                }
            }
        }
    }
}

/// Takes the next group: the steps that have the same limit as the first, so that each waits as long as its own limit.
///
/// Steps that are past their deadline, or whose caller was dropped, fail as not sent.
fn next_group(waiting: &mut Vec<ReplicatedStep>) -> Vec<ReplicatedStep> {
    let now = Instant::now();
    for unsent in waiting.extract_if(.., |step| step.deadline <= now || step.is_abandoned()) {
        let failure = if unsent.is_abandoned() {
            failure::caller_gone()
        } else {
            failure::send_timed_out(unsent.limit)
        };
        let _ = unsent.reply_to.send(Err(failure));
    }
    let Some(limit) = waiting.first().map(|first| first.limit) else { return Vec::new() };
    waiting.extract_if(.., |step| step.limit == limit).take(MAX_GROUP).collect()
}

/// Sends a group with one `WAIT` after it, and passes each step its outcome.
///
/// A step that needs no acknowledgement gets its outcome without waiting for `WAIT`. Returns the steps whose script the
/// server does not know.
async fn send_group(
    connection: &Connection,
    live: &LiveConnection,
    replicas: u32,
    group: Vec<ReplicatedStep>,
    by: By,
) -> Vec<ReplicatedStep> {
    let Some(limit) = group.first().map(|step| step.limit) else { return group };
    let server_mode = connection.common.server_mode;
    let mut calls = redis::pipe();
    for ReplicatedStep { call, asking, .. } in &group {
        if *asking {
            calls.cmd("ASKING");
        }
        calls.add_command(match by {
            By::Hash => call.by_hash(server_mode).into_owned(),
            By::Text => call.by_text(server_mode),
        });
    }
    let (wait, wait_limit) = wait_for(replicas, limit);
    let replying = async {
        let (mut to_acknowledge, mut unknown_script) = (Vec::new(), Vec::new());
        let replies = connection.send_pipeline(live, &calls, limit).await;
        for (step, outcome) in outcomes(connection, live, replies, group) {
            match outcome {
                Outcome::Refused(error) if by == By::Hash && failure::is_unknown_script(&error) => {
                    unknown_script.push(step);
                }
                Outcome::Replied(value, sent) if (step.needs_ack)(&value) => {
                    to_acknowledge.push((step, Outcome::Replied(value, sent)));
                }
                outcome => step.reply(outcome, None),
            }
        }
        (to_acknowledge, unknown_script)
    };
    // `join` polls both in this order each time, and without tokio's cooperative budget, so `WAIT` is sent last. Sent
    // before the writes, it would not cover them.
    let both = join(replying, connection.send(live, &wait, false, wait_limit));
    let ((to_acknowledge, unknown_script), waited) = unconstrained(Box::pin(both)).await;
    let acknowledged = acknowledging_replicas(waited);
    for (step, outcome) in to_acknowledge {
        step.reply(outcome, Some(acknowledged.clone()));
    }
    unknown_script
}

/// Assigns the replies of a pipeline to the steps of its group.
fn outcomes(
    connection: &Connection,
    live: &LiveConnection,
    replies: Outcome,
    group: Vec<ReplicatedStep>,
) -> Vec<(ReplicatedStep, Outcome)> {
    let (mut values, sent) = match replies {
        Outcome::Replied(Value::Array(values), sent) => (values.into_iter(), sent),
        // The outcome of the whole pipeline.
        other => return group.into_iter().map(|step| (step, other.clone())).collect(),
    };
    let outcome = |step: ReplicatedStep| {
        let value = values.nth(usize::from(step.asking));
        let outcome = match value.unwrap_or(Value::Array(Vec::new())) {
            Value::ServerError(error) => connection.classify(live, error.into(), sent),
            value => Outcome::Replied(value, sent),
        };
        (step, outcome)
    };
    group.into_iter().map(outcome).collect()
}

/// How late a server may end a `WAIT` that timed out: an idle one checks ten times a second.
const WAIT_OVERRUN: Duration = Duration::from_millis(150);

/// Returns the `WAIT` of a group with this limit, and the time limit for its reply.
///
/// The time-out of `WAIT` is shorter than `limit`, so that its reply arrives in time; but a late reply is accepted. To
/// know that too few replicas acknowledged is better than a doubt, and a hold is valid from the time it was sent.
fn wait_for(replicas: u32, limit: Duration) -> (Cmd, Duration) {
    let timeout = limit.saturating_sub(WAIT_OVERRUN).clamp(limit / 4, limit / 4 * 3);
    let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let mut cmd = redis::cmd("WAIT");
    // 0 would mean no time-out.
    cmd.arg(replicas).arg(millis.max(1));
    (cmd, limit + WAIT_OVERRUN * 2)
}

/// Decodes the outcome of `WAIT`.
fn acknowledging_replicas(waited: Outcome) -> Acknowledged {
    match waited {
        Outcome::Replied(Value::Int(reached), _) => Ok(u32::try_from(reached).unwrap_or(0)),
        Outcome::Replied(other, _) => {
            let text = format!("unexpected reply to WAIT: {other:?}");
            Err(FailureKind::Unavailable(Arc::new(io::Error::new(io::ErrorKind::InvalidData, text))))
        }
        Outcome::Refused(error) => Err(failure::from_error(error, None).kind),
        Outcome::NoReply(failure) => Err(failure.kind),
    }
}

impl ReplicatedStep {
    /// Returns `true` if no caller waits for this step.
    fn is_abandoned(&self) -> bool {
        self.call.caller.is_gone() || self.reply_to.is_closed()
    }

    fn reply(self, outcome: Outcome, acknowledged: Option<Acknowledged>) {
        // Fails if the caller was dropped.
        let _ = self.reply_to.send(Ok(ReplicatedReply { outcome, acknowledged }));
    }
}
