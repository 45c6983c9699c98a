use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::unconstrained;

use super::arrival::{Acknowledged, Landing};
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
    limit: Duration,
    /// Whether the answer says that something was done that must be acknowledged.
    has_done: fn(&Value) -> bool,
    ticket: oneshot::Sender<Result<Landing, Failure>>,
}

/// How many calls go together at the most.
const LARGEST_GROUP: usize = 64;

impl Lane {
    /// A lane over a link of its own.
    pub(super) fn new(link: Link, replicas: u32) -> Self {
        let link = Arc::new(link);
        let (inbox, outbox) = mpsc::unbounded_channel();
        link.common.runtime.spawn(drive(Arc::clone(&link), replicas, outbox));
        Self { link, inbox }
    }

    /// Runs a script, and has it acknowledged if its answer `has_done` something. Waits for the answers for `limit` at the
    /// most, not counting the time until its group is sent.
    pub(super) async fn run(
        &self,
        call: ScriptCall,
        asking: bool,
        limit: Duration,
        has_done: fn(&Value) -> bool,
    ) -> Result<Landing, Failure> {
        let came = clock::now();
        let (ticket, landing) = oneshot::channel();
        // Fails only when the task is gone, which drops the ticket.
        let _ = self.inbox.send(Passenger { call, asking, limit, has_done, ticket });
        landing.await.unwrap_or_else(|_| Err(failure::abandoned(came)))
    }
}

/// The lane's task: one group after the other. Ends with the lane.
async fn drive(link: Arc<Link>, replicas: u32, mut inbox: mpsc::UnboundedReceiver<Passenger>) {
    let mut group = Vec::new();
    while inbox.recv_many(&mut group, LARGEST_GROUP).await > 0 {
        let group = std::mem::take(&mut group);
        match link.wire().await {
            Ok(wire) => {
                let forgotten = ride(&link, &wire, replicas, group, By::Hash).await;
                if !forgotten.is_empty() {
                    // The server forgot its scripts. It did nothing, so these are no resends.
                    ride(&link, &wire, replicas, forgotten, By::Text).await;
                }
            }
            Err(failure) => {
                for passenger in group {
                    let _ = passenger.ticket.send(Err(failure.clone()));
                }
            }
        }
    }
}

/// Sends a group and one `WAIT` behind it, and tells each what became of it: at once, unless it is to be acknowledged. Gives
/// back those whose script the server did not know.
async fn ride(link: &Link, wire: &Wire, replicas: u32, group: Vec<Passenger>, by: By) -> Vec<Passenger> {
    let shortest = group.iter().map(|passenger| passenger.limit).min().unwrap_or_default();
    let (wait, patience) = wait_for(replicas, shortest);
    let dialect = link.common.dialect;
    let said = |Passenger { call, asking, limit, .. }: &Passenger| {
        let cmd = match by {
            By::Hash => call.by_hash(dialect).into_owned(),
            By::Text => call.by_text(dialect),
        };
        (cmd, *asking, *limit)
    };
    let calls: Vec<_> = group.iter().map(said).collect();
    let mut passengers: Vec<_> = group.into_iter().map(Some).collect();
    let mut sends: Vec<_> = calls
        .iter()
        .map(|(cmd, asking, limit)| Some(Box::pin(link.send(wire, cmd, *asking, *limit))))
        .collect();
    let mut waiting = Box::pin(link.send(wire, &wait, false, patience));
    let mut waited = None;
    let (mut to_acknowledge, mut forgotten) = (Vec::new(), Vec::new());
    // Each time all of them in their order, and without the limit that tokio sets to the work of a task: so they are sent in
    // this order, and `WAIT` is the last. It would mean nothing before the writes that it is to wait for.
    let all = poll_fn(|context| {
        for (place, passenger) in sends.iter_mut().zip(&mut passengers) {
            let Some(Poll::Ready(outcome)) = place.as_mut().map(|send| send.as_mut().poll(context)) else {
                continue;
            };
            *place = None;
            let Some(passenger) = passenger.take() else { continue };
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
        if waited.is_none()
            && let Poll::Ready(outcome) = waiting.as_mut().poll(context)
        {
            waited = Some(outcome);
        }
        if waited.is_some() && sends.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    });
    unconstrained(all).await;
    let acknowledged = waited.map_or(Ok(0), acknowledged_by);
    for (passenger, outcome) in to_acknowledge {
        passenger.land(outcome, Some(acknowledged.clone()));
    }
    forgotten
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
    fn land(self, outcome: Outcome, acknowledged: Option<Acknowledged>) {
        // Fails when nobody is there to hear it.
        let _ = self.ticket.send(Ok(Landing { outcome, acknowledged }));
    }
}
