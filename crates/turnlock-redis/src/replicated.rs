//! Calls that replicas must acknowledge. Those that wait share one `WAIT`.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use turnlock_core::LockName;
use turnlock_core::planted::Bug;

use crate::connection::{Commands, Connection, LiveConnection, Purpose};
use crate::failure;
use crate::reply::Reply;
use crate::resp;
use crate::script_call::{By, ScriptCall};
use turnlock_store::{Failure, FailureKind, clock};

/// Sends calls that a number of replicas must acknowledge, over one connection.
///
/// `WAIT` covers the writes of its own connection, and blocks that connection. So these calls have a connection of
/// their own, and delay no other call. Those that arrive during a `WAIT` form the next group. A task sends the groups,
/// so that it is polled even if callers are dropped. A call that waits too long, or whose caller was dropped, is never
/// sent.
pub(crate) struct ReplicatedCalls {
    pub(crate) connection: Arc<Connection>,
    queue: mpsc::UnboundedSender<QueuedCall>,
}

/// A call that waits to be sent, or for its acknowledgement.
struct QueuedCall {
    call: Arc<ScriptCall>,
    /// The call follows an `ASK` redirect.
    asking: bool,
    /// How long its caller waits: until the call is sent, and then as long for the replies.
    limit: Duration,
    /// When `limit` ends, not counting the time to connect.
    deadline: Instant,
    /// The time spent waiting for a connection so far.
    connecting: Duration,
    /// Closed if the caller was dropped.
    reply_to: oneshot::Sender<Outcome>,
}

type Outcome = Result<Reply, Failure>;

/// The number of calls that share one `WAIT`.
///
/// They share one round trip to the replicas, and a server runs them in a fraction of the time that the shortest lease
/// leaves for a reply.
const MAX_GROUP: usize = 1024;

/// How late a server may end a `WAIT` that timed out: an idle one checks ten times a second.
const WAIT_OVERRUN: Duration = Duration::from_millis(150);

impl ReplicatedCalls {
    /// Starts the task. It ends when the returned value is dropped.
    pub(crate) fn start(connection: Arc<Connection>, replicas: u32) -> Self {
        let (queue, calls) = mpsc::unbounded_channel();
        let driven = Arc::clone(&connection);
        connection.common.runtime.spawn(async move {
            tokio::select! {
                () = run(&driven, replicas, calls) => {}
                () = driven.watch_role() => {}
            }
        });
        Self { connection, queue }
    }

    /// Sends a call. Waits at most `limit` until it is sent, and for the replies, plus the time to connect.
    pub(crate) async fn call(&self, call: &Arc<ScriptCall>, asking: bool, limit: Duration) -> Outcome {
        let queued_at = clock::now();
        let (reply_to, reply) = oneshot::channel();
        let (deadline, connecting) = (Instant::now() + limit, Duration::ZERO);
        let call = QueuedCall { call: Arc::clone(call), asking, limit, deadline, connecting, reply_to };
        // Fails if the task has ended, with its runtime. Then there is no reply either.
        let _ = self.queue.send(call);
        reply.await.unwrap_or_else(|_| Err(failure::runtime_gone(queued_at)))
    }
}

impl QueuedCall {
    /// Returns `true` if no caller waits for this call.
    fn is_abandoned(&self) -> bool {
        self.call.caller.is_gone() || self.reply_to.is_closed()
    }

    fn reply(self, outcome: Outcome) {
        // Fails if the caller was dropped.
        let _ = self.reply_to.send(outcome);
    }
}

/// Sends one group after the other.
///
/// The calls of a group have the same limit, so that each waits as long as its own limit.
async fn run(connection: &Arc<Connection>, replicas: u32, mut queue: mpsc::UnboundedReceiver<QueuedCall>) {
    let mut waiting = Vec::<QueuedCall>::new();
    let elsewhere = Bug::WaitElsewhere.is_planted().then(|| another(connection));
    loop {
        if waiting.is_empty() && queue.recv_many(&mut waiting, usize::MAX).await == 0 {
            return;
        }
        let live = connect(connection, &mut waiting).await;
        while let Ok(call) = queue.try_recv() {
            waiting.push(call);
        }
        let Some(live) = live else { continue };
        fail_unsent(&mut waiting);
        if let Some(limit) = waiting.first().map(|first| first.limit) {
            let mut group = waiting.extract_if(.., |call| call.limit == limit).take(MAX_GROUP).collect();
            // By text only if the server lost its scripts and did nothing, so this does not repeat a step.
            for by in [By::Hash, By::Text] {
                fail_unsent(&mut group);
                let live_elsewhere = match &elsewhere {
                    Some(connection) => connection.live().await.ok(),
                    None => None,
                };
                let wait_on = live_elsewhere.as_ref().unwrap_or(&live);
                group = send_group(connection, (&live, wait_on), group, replicas, by).await;
            }
        }
    }
}

/// Waits for a connection, until the first of the calls gives up. That call fails, or all if connecting failed.
async fn connect(connection: &Arc<Connection>, calls: &mut Vec<QueuedCall>) -> Option<Arc<LiveConnection>> {
    let before = Instant::now();
    let limit = calls.iter().map(|call| call.limit.saturating_sub(call.connecting)).min()?;
    let connected = timeout(limit, connection.live()).await;
    let connecting = before.elapsed();
    for call in &mut *calls {
        call.connecting += connecting;
        call.deadline += connecting;
    }
    match connected {
        Ok(Ok(live)) => return Some(live),
        Ok(Err(failure)) => calls.drain(..).for_each(|call| call.reply(Err(failure.clone()))),
        // The attempt goes on.
        Err(_) => {
            for late in calls.extract_if(.., |call| call.connecting >= call.limit) {
                let failure = failure::connect_timed_out(&connection.endpoint, late.limit);
                late.reply(Err(failure));
            }
        }
    }
    None
}

/// Fails the calls that are past their deadline, or whose caller was dropped: they are not sent, and never will be.
fn fail_unsent(calls: &mut Vec<QueuedCall>) {
    let now = Instant::now();
    for unsent in calls.extract_if(.., |call| call.deadline <= now || call.is_abandoned()) {
        let is_abandoned = unsent.is_abandoned();
        let failure = if is_abandoned { failure::abandoned() } else { failure::send_timed_out(unsent.limit) };
        unsent.reply(Err(failure));
    }
}

/// Sends all calls with one `WAIT` after them. Returns those whose script the server does not know.
///
/// A call that needs no acknowledgement gets its outcome without waiting for `WAIT`.
async fn send_group(
    connection: &Connection,
    (live, wait_on): (&LiveConnection, &LiveConnection),
    group: Vec<QueuedCall>,
    replicas: u32,
    by: By,
) -> Vec<QueuedCall> {
    let Some(limit) = group.iter().map(|call| call.limit).min() else { return group };
    let mut packed = Vec::new();
    // One for each command: `None` for `ASKING`.
    let mut pending = Vec::new();
    for call in group {
        if call.asking {
            resp::encode_asking(&mut packed);
            pending.push(None);
        }
        call.call.encode(by, connection.common.server_mode, &mut packed);
        pending.push(Some(call));
    }
    let (wait, wait_limit) = wait_for(replicas, limit);
    // Sent in this order: `WAIT` covers the writes before it.
    let replies = connection.send(live, Commands::packed(packed, pending.len()), limit);
    let wait = connection.send(wait_on, Commands::one(&wait), wait_limit);
    let (mut to_acknowledge, mut unknown_script) = (Vec::new(), Vec::new());
    for (call, outcome) in outcomes(connection, live, replies.await, pending) {
        match outcome {
            Err(failure) if by == By::Hash && failure::is_unknown_script(&failure) => {
                unknown_script.push(call);
            }
            Ok(reply) if call.call.action().needs_ack(&reply.value) => to_acknowledge.push((call, reply)),
            outcome => call.reply(outcome),
        }
    }
    let wait = wait.await;
    for (call, reply) in to_acknowledge {
        let replicas = acknowledged(&wait, replicas, &call.call.lock);
        call.reply(Ok(Reply { replicas, ..reply }));
    }
    unknown_script
}

/// A connection that writes nothing, for [`Bug::WaitElsewhere`].
fn another(Connection { common, endpoint, .. }: &Connection) -> Arc<Connection> {
    Connection::new(common, endpoint.clone(), Purpose::ReplicatedScripts)
}

/// Assigns the replies in a list to the calls, or the outcome of the whole request to each of them.
fn outcomes(
    connection: &Connection,
    live: &LiveConnection,
    outcome: Outcome,
    calls: Vec<Option<QueuedCall>>,
) -> Vec<(QueuedCall, Outcome)> {
    match outcome {
        Ok(Reply { value: Value::Array(values), sent, .. }) if values.len() == calls.len() => {
            let outcome = |value| match value {
                Value::ServerError(error) => Err(connection.classify(live, error.into(), sent)),
                value => Ok(Reply::new(value, sent)),
            };
            let pairs = calls.into_iter().zip(values);
            pairs.filter_map(|(call, value)| Some((call?, outcome(value)))).collect()
        }
        outcome => calls.into_iter().flatten().map(|call| (call, outcome.clone())).collect(),
    }
}

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

/// Returns the number of replicas that acknowledged a call, or why too few did.
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
