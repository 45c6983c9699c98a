use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::arrival::{Acknowledged, Delivery, Landing};
use super::failure;
use super::link::{Link, Outcome, Wire};
use super::script_call::{By, ScriptCall};
use crate::backend::{Failure, FailureKind};
use crate::clock;

/// A connection for the calls that must be acknowledged by so many replicas.
///
/// `WAIT` speaks of the writes of its own connection, and blocks that connection while it waits. So these calls have one of
/// their own, and nobody else is stalled; and one `WAIT` is for all calls that have come together: those that come while it
/// waits are the next group.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) link: Arc<Link>,
    inbox: mpsc::UnboundedSender<Passenger>,
}

/// One call that waits for its group, or for the end of it.
struct Passenger {
    call: ScriptCall,
    asking: bool,
    /// How long to wait for the answers.
    limit: Duration,
    /// Until when it may be sent.
    until: Instant,
    /// How long it has waited for a connection.
    connecting: Duration,
    /// Whether the answer says that something was done that must be acknowledged.
    has_done: fn(&Value) -> bool,
    ticket: oneshot::Sender<Result<Landing, Failure>>,
}

/// How many calls go together at the most. As many are done in a round trip to the replicas; and a server runs them in a
/// fraction of the time that the shortest lease leaves for an answer.
const LARGEST_GROUP: usize = 1024;

impl Lane {
    /// A lane over a link of its own.
    pub(super) fn new(link: Link, replicas: u32) -> Self {
        let link = Arc::new(link);
        let (inbox, outbox) = mpsc::unbounded_channel();
        let driven = Arc::clone(&link);
        link.common.runtime.spawn(async move {
            tokio::select! {
                () = drive(Arc::clone(&driven), replicas, outbox) => {}
                () = driven.watch_role() => {}
            }
        });
        Self { link, inbox }
    }

    /// Runs a script, and has it acknowledged if its answer says that something was done. Waits for the limit at the most
    /// until its group is sent, not counting the time to connect, and as long for the answers. What is not sent in that
    /// time, or when its caller is gone, never is.
    pub(super) async fn run(
        &self,
        call: ScriptCall,
        asking: bool,
        Delivery { limit, has_done, .. }: Delivery,
    ) -> Result<Landing, Failure> {
        let came = clock::now();
        let (ticket, landing) = oneshot::channel();
        let until = Instant::now() + limit;
        // Fails only when the task is gone, which drops the ticket.
        let _ = self.inbox.send(Passenger {
            call,
            asking,
            limit,
            until,
            connecting: Duration::ZERO,
            has_done,
            ticket,
        });
        landing.await.unwrap_or_else(|_| Err(failure::abandoned(came)))
    }
}

/// The lane's task: one group after the other. Ends with the lane.
async fn drive(link: Arc<Link>, replicas: u32, mut inbox: mpsc::UnboundedReceiver<Passenger>) {
    let mut waiting = Vec::<Passenger>::new();
    loop {
        if waiting.is_empty() && inbox.recv_many(&mut waiting, usize::MAX).await == 0 {
            return;
        }
        let before = Instant::now();
        let limit = waiting.iter().map(|passenger| passenger.limit).min().unwrap_or_default();
        let wire = link.wire_within(limit).await;
        let connecting = before.elapsed();
        for passenger in &mut waiting {
            passenger.connecting += connecting;
            passenger.until += connecting;
        }
        while let Ok(passenger) = inbox.try_recv() {
            waiting.push(passenger);
        }
        match wire {
            Ok(wire) => {
                let group = next_group(&mut waiting);
                let forgotten = ride(&link, &wire, replicas, group, By::Hash).await;
                // The server forgot its scripts. It did nothing, so these are no resends.
                ride(&link, &wire, replicas, forgotten, By::Text).await;
            }
            Err(failure) => {
                // Of an attempt that goes on, only those hear that give it no more time.
                let has_failed = connecting < limit;
                let hears = |passenger: &mut Passenger| has_failed || passenger.connecting >= passenger.limit;
                for passenger in waiting.extract_if(.., hears) {
                    let _ = passenger.ticket.send(Err(failure.clone()));
                }
            }
        }
    }
}

/// Takes out those that go next: all that have the same limit as the first. The others would get less time than they gave, or
/// more. Those that are too late, or whose caller is gone, hear that they were not sent.
fn next_group(waiting: &mut Vec<Passenger>) -> Vec<Passenger> {
    let now = Instant::now();
    for unsent in waiting.extract_if(.., |passenger| passenger.until <= now || passenger.is_abandoned()) {
        let failure = if unsent.is_abandoned() {
            failure::caller_gone()
        } else {
            failure::timed_out("turn to be sent", unsent.limit, None)
        };
        let _ = unsent.ticket.send(Err(failure));
    }
    let Some(limit) = waiting.first().map(|first| first.limit) else { return Vec::new() };
    waiting.extract_if(.., |passenger| passenger.limit == limit).take(LARGEST_GROUP).collect()
}

/// Sends a group and one `WAIT` behind it, and tells each what became of it: at once, unless it is to be acknowledged. Gives
/// back those whose script the server did not know.
async fn ride(link: &Link, wire: &Wire, replicas: u32, group: Vec<Passenger>, by: By) -> Vec<Passenger> {
    let Some(limit) = group.first().map(|passenger| passenger.limit) else { return group };
    let dialect = link.common.dialect;
    let mut calls = redis::pipe();
    for Passenger { call, asking, .. } in &group {
        if *asking {
            calls.cmd("ASKING");
        }
        calls.add_command(match by {
            By::Hash => call.by_hash(dialect).into_owned(),
            By::Text => call.by_text(dialect),
        });
    }
    let (wait, patience) = wait_for(replicas, limit);
    let answering = async {
        let (mut to_acknowledge, mut forgotten) = (Vec::new(), Vec::new());
        let answers = link.send_all(wire, &calls, limit).await;
        for (passenger, outcome) in outcomes(link, wire, answers, group) {
            match outcome {
                Outcome::Refused(error) if by == By::Hash && failure::is_unknown_script(&error) => {
                    forgotten.push(passenger);
                }
                Outcome::Answered(value, sent) if (passenger.has_done)(&value) => {
                    to_acknowledge.push((passenger, Outcome::Answered(value, sent)));
                }
                outcome => passenger.land(outcome, None),
            }
        }
        (to_acknowledge, forgotten)
    };
    // Both are polled each time, in this order, and without the limit that tokio sets to the work of a task: so `WAIT` is
    // sent last. It would mean nothing before the writes that it is to wait for.
    let both = join(answering, link.send(wire, &wait, false, patience));
    let ((to_acknowledge, forgotten), waited) = unconstrained(Box::pin(both)).await;
    let acknowledged = acknowledged_by(waited);
    for (passenger, outcome) in to_acknowledge {
        passenger.land(outcome, Some(acknowledged.clone()));
    }
    forgotten
}

/// What became of each call of a group.
fn outcomes(link: &Link, wire: &Wire, answers: Outcome, group: Vec<Passenger>) -> Vec<(Passenger, Outcome)> {
    let (mut values, sent) = match answers {
        Outcome::Answered(Value::Array(values), sent) => (values.into_iter(), sent),
        // Of no single call.
        other => return group.into_iter().map(|passenger| (passenger, other.clone())).collect(),
    };
    let outcome = |passenger: Passenger| {
        let value = values.nth(usize::from(passenger.asking));
        let outcome = match value.unwrap_or(Value::Array(Vec::new())) {
            Value::ServerError(error) => link.judge(wire, error.into(), sent),
            value => Outcome::Answered(value, sent),
        };
        (passenger, outcome)
    };
    group.into_iter().map(outcome).collect()
}

/// How late a server may be to notice that a `WAIT` has lasted long enough: an idle one looks ten times a second.
const LATENESS: Duration = Duration::from_millis(150);

/// The `WAIT` of a group whose answers are waited for so long, and how long to wait for its own. It gives up early enough
/// for its answer to come in time, and that may be a little late: to learn that there were too few is better than to learn
/// nothing, and what is believed in counts from when it was sent.
fn wait_for(replicas: u32, limit: Duration) -> (Cmd, Duration) {
    let timeout = limit.saturating_sub(LATENESS).clamp(limit / 4, limit / 4 * 3);
    let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let mut cmd = redis::cmd("WAIT");
    // Zero would be without end.
    cmd.arg(replicas).arg(millis.max(1));
    (cmd, limit + LATENESS * 2)
}

/// How many replicas have acknowledged, or why nobody knows.
fn acknowledged_by(waited: Outcome) -> Acknowledged {
    match waited {
        Outcome::Answered(Value::Int(reached), _) => Ok(u32::try_from(reached).unwrap_or(0)),
        Outcome::Answered(other, _) => {
            let text = format!("the server answered WAIT with {other:?}");
            Err(FailureKind::Unavailable(Arc::new(io::Error::new(io::ErrorKind::InvalidData, text))))
        }
        Outcome::Refused(error) => Err(failure::from_error(error, None).kind),
        Outcome::Unanswered(failure) => Err(failure.kind),
    }
}

impl Passenger {
    /// Whether nobody waits for it.
    fn is_abandoned(&self) -> bool {
        self.call.caller.is_gone() || self.ticket.is_closed()
    }

    fn land(self, outcome: Outcome, acknowledged: Option<Acknowledged>) {
        // Fails when nobody is there to hear it.
        let _ = self.ticket.send(Ok(Landing { outcome, acknowledged }));
    }
}
