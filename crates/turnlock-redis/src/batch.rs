//! One batch: steps that are sent together, each with its own outcome.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until, timeout};
use turnlock_core::LockName;

use crate::connection::{Connection, LiveConnection};
use crate::failure;
use crate::reply::Reply;
use crate::script_call::{By, ScriptCall};
use turnlock_store::{Failure, FailureKind};

/// What the steps of a batch share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// One script call, on a server that has all keys.
    ///
    /// A call costs client and server more than the step in it, and a call of many steps costs little more than a call
    /// of one. A step that finds no other in flight is sent at once and alone, in the future of its caller.
    Call,
    /// One `WAIT` for this number of replicas, after the calls of all.
    ///
    /// `WAIT` covers the writes of its own connection, and blocks that connection. So these calls have a connection of
    /// their own, and delay no other call. Those that arrive during a `WAIT` form the next batch.
    Wait(u32),
}

/// A step that waits to be sent, or for its reply.
pub(crate) struct QueuedStep {
    pub(crate) call: ScriptCall,
    /// The call follows an `ASK` redirect.
    pub(crate) asking: bool,
    /// How long its caller waits; for a shared `WAIT` twice: until the step is sent, and then for the replies.
    pub(crate) limit: Duration,
    /// When `limit` ends, not counting the time to connect.
    pub(crate) deadline: Instant,
    /// The time spent waiting for a connection so far.
    pub(crate) connecting: Duration,
    /// Closed if the caller was dropped.
    pub(crate) reply_to: oneshot::Sender<Outcome>,
}

pub(crate) type Outcome = Result<Reply, Failure>;

impl QueuedStep {
    /// Returns `true` if no caller waits for this step.
    fn is_abandoned(&self) -> bool {
        self.call.caller.is_gone() || self.reply_to.is_closed()
    }

    fn reply(self, outcome: Outcome) {
        // Fails if the caller was dropped.
        let _ = self.reply_to.send(outcome);
    }
}

/// Sends a batch in one call, once there is a connection.
pub(crate) async fn run(connection: &Arc<Connection>, mut steps: Vec<QueuedStep>) {
    while !steps.is_empty() {
        if let Some(live) = connect(connection, &mut steps).await {
            fail_unsent(&mut steps);
            return match steps.len() {
                0 | 1 => send_each(connection, steps).await,
                _ => send(connection, &live, Sharing::Call, steps).await,
            };
        }
    }
}

/// Waits for a connection, until the first of the steps gives up. That step fails, or all if connecting failed.
pub(crate) async fn connect(
    connection: &Arc<Connection>,
    steps: &mut Vec<QueuedStep>,
) -> Option<Arc<LiveConnection>> {
    let before = Instant::now();
    let limit = steps.iter().map(|step| step.limit.saturating_sub(step.connecting)).min()?;
    let connected = timeout(limit, connection.live()).await;
    let connecting = before.elapsed();
    for step in &mut *steps {
        step.connecting += connecting;
        step.deadline += connecting;
    }
    match connected {
        Ok(Ok(live)) => return Some(live),
        Ok(Err(failure)) => steps.drain(..).for_each(|step| step.reply(Err(failure.clone()))),
        // The attempt goes on.
        Err(_) => {
            for late in steps.extract_if(.., |step| step.connecting >= step.limit) {
                let failure = failure::connect_timed_out(&connection.endpoint, late.limit);
                late.reply(Err(failure));
            }
        }
    }
    None
}

/// Fails the steps that are past their deadline, or whose caller was dropped: they are not sent, and never will be.
pub(crate) fn fail_unsent(steps: &mut Vec<QueuedStep>) {
    let now = Instant::now();
    for unsent in steps.extract_if(.., |step| step.deadline <= now || step.is_abandoned()) {
        let failure = if unsent.is_abandoned() {
            // Only the engine receives this.
            Failure::unavailable("the request was not sent, because its caller was dropped")
        } else {
            failure::send_timed_out(unsent.limit)
        };
        unsent.reply(Err(failure));
    }
}

/// Sends the steps together, and passes each its outcome.
pub(crate) async fn send(
    connection: &Arc<Connection>,
    live: &LiveConnection,
    sharing: Sharing,
    steps: Vec<QueuedStep>,
) {
    let mut unknown_script = steps;
    // By text only if the server lost its scripts and did nothing, so this does not repeat a step.
    for by in [By::Hash, By::Text] {
        if unknown_script.is_empty() {
            return;
        }
        unknown_script = match sharing {
            Sharing::Call => send_call(connection, live, unknown_script, by).await,
            Sharing::Wait(replicas) => send_group(connection, live, unknown_script, replicas, by).await,
        };
    }
}

/// Sends all steps in one call. Returns those whose script the server does not know.
///
/// A step whose deadline passes before the reply fails at once.
async fn send_call(
    connection: &Arc<Connection>,
    live: &LiveConnection,
    steps: Vec<QueuedStep>,
    by: By,
) -> Vec<QueuedStep> {
    let cmd = ScriptCall::batch(steps.iter().map(|step| &step.call), by);
    // `None` for a step that has failed.
    let mut pending: Vec<_> = steps.into_iter().map(Some).collect();
    let sent = live.sent_now();
    let mut reply = pin!(connection.request(live, &cmd));
    let outcome = loop {
        let deadlines = pending.iter().flatten().map(|step| step.deadline);
        let Some(first_deadline) = deadlines.min() else { return Vec::new() };
        tokio::select! {
            biased;
            outcome = &mut reply => break outcome,
            () = sleep_until(first_deadline) => {}
        }
        let now = Instant::now();
        for entry in &mut pending {
            if let Some(late) = entry.take_if(|step| step.deadline <= now) {
                let failure = connection.on_timeout(live, sent, late.limit);
                late.reply(Err(failure));
            }
        }
    };
    if is_unknown_script(&outcome, by) {
        return pending.into_iter().flatten().collect();
    }
    if outcome.as_ref().is_err_and(|failure| failure::error_reply(failure).is_some()) {
        // Nothing was done, maybe because of a single step: a key that this user may not access, or a cluster node
        // that does not have all keys. Sent alone, each step gets the reply that is its own.
        send_each(connection, pending.into_iter().flatten().collect()).await;
    } else {
        for (step, outcome) in outcomes(connection, live, outcome, pending) {
            step.reply(outcome);
        }
    }
    Vec::new()
}

/// Sends each step in its own call, in their order.
async fn send_each(connection: &Arc<Connection>, steps: Vec<QueuedStep>) {
    let calls = steps.into_iter().map(|step| async move {
        let limit = step.deadline.saturating_duration_since(Instant::now());
        let outcome = connection.call(&step.call, step.asking, limit).await;
        step.reply(outcome);
    });
    unconstrained(join_all(calls)).await;
}

/// Sends all steps with one `WAIT` after them. Returns those whose script the server does not know.
///
/// A step that needs no acknowledgement gets its outcome without waiting for `WAIT`.
async fn send_group(
    connection: &Connection,
    live: &LiveConnection,
    steps: Vec<QueuedStep>,
    replicas: u32,
    by: By,
) -> Vec<QueuedStep> {
    let limit = steps.iter().map(|step| step.limit).min().unwrap_or_default();
    let mut calls = redis::pipe();
    // One for each command: `None` for `ASKING`.
    let mut pending = Vec::new();
    for step in steps {
        if step.asking {
            calls.cmd("ASKING");
            pending.push(None);
        }
        calls.add_command(step.call.cmd(by, connection.common.server_mode).into_owned());
        pending.push(Some(step));
    }
    let (cmd, wait_limit) = wait_for(replicas, limit);
    let replying = async {
        let (mut to_acknowledge, mut unknown_script) = (Vec::new(), Vec::new());
        let replies = connection.send_pipeline(live, &calls, limit).await;
        for (step, outcome) in outcomes(connection, live, replies, pending) {
            match outcome {
                outcome if is_unknown_script(&outcome, by) => unknown_script.push(step),
                Ok(reply) if step.call.action().needs_ack(&reply.value) => to_acknowledge.push((step, reply)),
                outcome => step.reply(outcome),
            }
        }
        (to_acknowledge, unknown_script)
    };
    // `join` polls both in this order each time, and without tokio's cooperative budget, so `WAIT` is sent last. Sent
    // before the writes, it would not cover them.
    let both = join(replying, connection.send(live, &cmd, false, wait_limit));
    let ((to_acknowledge, unknown_script), wait) = unconstrained(Box::pin(both)).await;
    for (step, reply) in to_acknowledge {
        let replicas = acknowledged(&wait, replicas, &step.call.lock);
        step.reply(Ok(Reply { replicas, ..reply }));
    }
    unknown_script
}

/// Assigns the replies in a list to the steps, or the outcome of the whole request to each of them.
fn outcomes(
    connection: &Connection,
    live: &LiveConnection,
    outcome: Outcome,
    steps: Vec<Option<QueuedStep>>,
) -> Vec<(QueuedStep, Outcome)> {
    match outcome {
        Ok(Reply { value: Value::Array(values), sent, .. }) if values.len() == steps.len() => {
            let outcome = |value| match value {
                Value::ServerError(error) => Err(connection.classify(live, error.into(), sent)),
                value => Ok(Reply::new(value, sent)),
            };
            let pairs = steps.into_iter().zip(values);
            pairs.filter_map(|(step, value)| Some((step?, outcome(value)))).collect()
        }
        outcome => steps.into_iter().flatten().map(|step| (step, outcome.clone())).collect(),
    }
}

fn is_unknown_script(outcome: &Outcome, by: By) -> bool {
    by == By::Hash && outcome.as_ref().is_err_and(failure::is_unknown_script)
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
    // 0 would mean no time-out.
    let cmd = redis::cmd("WAIT").arg(replicas).arg(millis.max(1)).take();
    (cmd, limit + WAIT_OVERRUN * 2)
}

/// Returns the number of replicas that acknowledged a step, or why too few did.
fn acknowledged(wait: &Outcome, wanted: u32, name: &LockName) -> Result<u32, FailureKind> {
    match wait {
        Ok(Reply { value: Value::Int(reached), .. }) => {
            let reached = u32::try_from(*reached).unwrap_or(0);
            let too_few = || FailureKind::NotEnoughReplicas { name: name.to_string(), wanted, reached };
            if reached >= wanted { Ok(reached) } else { Err(too_few()) }
        }
        Ok(Reply { value, .. }) => Err(failure::unexpected_reply("WAIT", value).kind),
        Err(failure) => Err(failure.kind.clone()),
    }
}
