//! One call for many steps: connects, sends the batch, and passes each step its own reply.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connection::{Connection, LiveConnection, Outcome};
use super::failure;
use super::script_call::{By, ScriptCall};
use crate::backend::Failure;

/// A step that waits to be sent in a batch.
pub(super) struct QueuedStep {
    pub(super) call: ScriptCall,
    /// How long its caller waits for the reply.
    pub(super) limit: Duration,
    /// When `limit` ends.
    pub(super) deadline: Instant,
    /// Closed if the caller was dropped. A step that is not sent yet is then never sent.
    pub(super) reply_to: oneshot::Sender<Result<Outcome, Failure>>,
}

impl QueuedStep {
    fn reply(self, outcome: Outcome) {
        // Fails if the caller was dropped.
        let _ = self.reply_to.send(Ok(outcome));
    }
}

/// Sends the steps and passes each its outcome.
pub(super) async fn run(connection: &Arc<Connection>, mut steps: Vec<QueuedStep>) {
    let before = Instant::now();
    let live = loop {
        let Some(first_deadline) = steps.iter().map(|step| step.deadline).min() else { return };
        match timeout_at(first_deadline, connection.live()).await {
            Ok(Ok(live)) => break live,
            Ok(Err(failure)) => {
                for step in steps {
                    let _ = step.reply_to.send(Err(failure.clone()));
                }
                return;
            }
            Err(_) => {
                let now = Instant::now();
                for late in steps.extract_if(.., |step| step.deadline <= now) {
                    let failure = failure::connect_timed_out(&connection.endpoint, late.limit);
                    let _ = late.reply_to.send(Err(failure));
                }
            }
        }
    };
    let now = Instant::now();
    let connecting = now - before;
    steps.retain_mut(|step| {
        step.deadline += connecting;
        !step.reply_to.is_closed()
    });
    for gone in steps.extract_if(.., |step| step.call.caller.is_gone()) {
        let _ = gone.reply_to.send(Err(failure::caller_gone()));
    }
    // Past their deadline: their callers learn that nothing was sent, and nothing will be.
    for late in steps.extract_if(.., |step| step.deadline <= now) {
        let _ = late.reply_to.send(Err(failure::send_timed_out(late.limit)));
    }
    if steps.len() < 2 {
        return run_each(connection, steps).await;
    }
    let mut pending: Vec<_> = steps.into_iter().map(Some).collect();
    let Some(mut outcome) = send_batch(connection, &live, &mut pending, By::Hash).await else { return };
    if matches!(&outcome, Outcome::Refused(error) if failure::is_unknown_script(error)) {
        // The server lost its scripts and did nothing, so this does not repeat a step.
        let Some(next) = send_batch(connection, &live, &mut pending, By::Text).await else { return };
        outcome = next;
    }
    match outcome {
        Outcome::Replied(Value::Array(values), sent) if values.len() == pending.len() => {
            for (step, value) in pending.into_iter().zip(values) {
                let outcome = match value {
                    Value::ServerError(error) => connection.classify(&live, error.into(), sent),
                    value => Outcome::Replied(value, sent),
                };
                if let Some(step) = step {
                    step.reply(outcome);
                }
            }
        }
        // Not a reply of the script.
        Outcome::Replied(value, sent) => {
            for step in pending.into_iter().flatten() {
                step.reply(Outcome::Replied(value.clone(), sent));
            }
        }
        // Nothing was done, maybe because of a single step: a key that this user may not access, or a cluster node
        // that does not have all keys. Sent alone, each step gets the reply that is its own.
        Outcome::Refused(_) => run_each(connection, pending.into_iter().flatten().collect()).await,
        Outcome::NoReply(failure) => {
            for step in pending.into_iter().flatten() {
                step.reply(Outcome::NoReply(failure.clone()));
            }
        }
    }
}

/// Sends all steps in one call.
///
/// A step whose deadline passes before the reply fails at once, and its entry becomes `None`. Returns `None` if that
/// happened to all.
async fn send_batch(
    connection: &Connection,
    live: &LiveConnection,
    pending: &mut Vec<Option<QueuedStep>>,
    by: By,
) -> Option<Outcome> {
    pending.retain(Option::is_some);
    let calls: Vec<_> = pending.iter().flatten().map(|step| &step.call).collect();
    let cmd = ScriptCall::batch(&calls, by);
    let sent = live.sent_now();
    let mut reply = pin!(connection.request(live, &cmd, false, sent));
    while let Some(first_deadline) = pending.iter().flatten().map(|step| step.deadline).min() {
        tokio::select! {
            biased;
            outcome = &mut reply => return Some(outcome),
            () = sleep_until(first_deadline) => {}
        }
        let now = Instant::now();
        for entry in pending.iter_mut() {
            if let Some(late) = entry.take_if(|step| step.deadline <= now) {
                let failure = connection.on_timeout(live, sent, late.limit);
                late.reply(Outcome::NoReply(failure));
            }
        }
    }
    None
}

/// Sends each step in its own call, in their order.
async fn run_each(connection: &Arc<Connection>, steps: Vec<QueuedStep>) {
    let calls = steps.into_iter().map(|step| async move {
        let limit = step.deadline.saturating_duration_since(Instant::now());
        let outcome = connection.call(&step.call, false, limit).await;
        let _ = step.reply_to.send(outcome);
    });
    unconstrained(join_all(calls)).await;
}
