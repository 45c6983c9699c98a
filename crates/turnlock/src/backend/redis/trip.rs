//! One call for many steps, from when it may be sent until all of them know what became of them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::failure;
use super::link::{Link, Outcome, Wire};
use super::script_call::{By, ScriptCall};
use crate::backend::Failure;

/// A step that goes together with others.
pub(super) struct Traveller {
    pub(super) call: ScriptCall,
    /// How long its caller waits, and until when.
    pub(super) limit: Duration,
    pub(super) until: Instant,
    /// Nobody holds the other end when the caller has gone. Then the step is not sent, if it was not yet.
    pub(super) ticket: oneshot::Sender<Result<Outcome, Failure>>,
}

impl Traveller {
    fn land(self, outcome: Outcome) {
        // Fails when nobody is there to hear it.
        let _ = self.ticket.send(Ok(outcome));
    }
}

/// Sends the steps, and tells each what became of it.
pub(super) async fn go(link: &Arc<Link>, mut travellers: Vec<Traveller>) {
    let before = Instant::now();
    let wire = loop {
        let Some(first_end) = travellers.iter().map(|traveller| traveller.until).min() else { return };
        match timeout_at(first_end, link.wire()).await {
            Ok(Ok(wire)) => break wire,
            Ok(Err(failure)) => {
                for traveller in travellers {
                    let _ = traveller.ticket.send(Err(failure.clone()));
                }
                return;
            }
            Err(_) => {
                let now = Instant::now();
                for late in travellers.extract_if(.., |traveller| traveller.until <= now) {
                    let failure = failure::timed_out("connection", late.limit, None);
                    let _ = late.ticket.send(Err(failure));
                }
            }
        }
    };
    let now = Instant::now();
    let connecting = now - before;
    travellers.retain_mut(|traveller| {
        traveller.until += connecting;
        !traveller.ticket.is_closed()
    });
    for gone in travellers.extract_if(.., |traveller| traveller.call.caller.is_gone()) {
        let _ = gone.ticket.send(Err(failure::caller_gone()));
    }
    // Too late: their callers hear that nothing was sent, and nothing will be.
    for late in travellers.extract_if(.., |traveller| traveller.until <= now) {
        let failure = failure::timed_out("turn to be sent", late.limit, None);
        let _ = late.ticket.send(Err(failure));
    }
    if travellers.len() < 2 {
        return each_alone(link, travellers).await;
    }
    let mut on_board: Vec<_> = travellers.into_iter().map(Some).collect();
    let Some(mut outcome) = ride(link, &wire, &mut on_board, By::Hash).await else { return };
    if matches!(&outcome, Outcome::Refused(error) if failure::is_unknown_script(error)) {
        // The server forgot its scripts. It did nothing, so this is no resend.
        let Some(next) = ride(link, &wire, &mut on_board, By::Text).await else { return };
        outcome = next;
    }
    match outcome {
        Outcome::Answered(Value::Array(values), sent) if values.len() == on_board.len() => {
            for (traveller, value) in on_board.into_iter().zip(values) {
                let outcome = match value {
                    Value::ServerError(error) => link.judge(&wire, error.into(), sent),
                    value => Outcome::Answered(value, sent),
                };
                if let Some(traveller) = traveller {
                    traveller.land(outcome);
                }
            }
        }
        // Nothing that the script answers.
        Outcome::Answered(value, sent) => {
            for traveller in on_board.into_iter().flatten() {
                traveller.land(Outcome::Answered(value.clone(), sent));
            }
        }
        // Nothing was done, for a reason that may lie with one of them: a key that this user may not touch, a node of a
        // cluster that does not have all keys. Each hears what it would have heard alone.
        Outcome::Refused(_) => each_alone(link, on_board.into_iter().flatten().collect()).await,
        Outcome::Unanswered(failure) => {
            for traveller in on_board.into_iter().flatten() {
                traveller.land(Outcome::Unanswered(failure.clone()));
            }
        }
    }
}

/// Sends all in one call. Those whose time is over before the answer is there are told so, and leave their place empty;
/// nothing comes back when all have left.
async fn ride(link: &Link, wire: &Wire, on_board: &mut Vec<Option<Traveller>>, by: By) -> Option<Outcome> {
    on_board.retain(Option::is_some);
    let calls: Vec<_> = on_board.iter().flatten().map(|traveller| &traveller.call).collect();
    let cmd = ScriptCall::together(&calls, by);
    let sent = wire.sends_now();
    let mut answer = pin!(link.answer(wire, &cmd, false, sent));
    while let Some(first_end) = on_board.iter().flatten().map(|traveller| traveller.until).min() {
        tokio::select! {
            biased;
            outcome = &mut answer => return Some(outcome),
            () = sleep_until(first_end) => {}
        }
        let now = Instant::now();
        for place in on_board.iter_mut() {
            if let Some(late) = place.take_if(|traveller| traveller.until <= now) {
                let failure = link.gives_up(wire, sent, late.limit);
                late.land(Outcome::Unanswered(failure));
            }
        }
    }
    None
}

/// Sends each in a call of its own, in their order.
async fn each_alone(link: &Arc<Link>, travellers: Vec<Traveller>) {
    let alone = travellers.into_iter().map(|traveller| async move {
        let limit = traveller.until.saturating_duration_since(Instant::now());
        let outcome = link.ask(&traveller.call, false, limit).await;
        let _ = traveller.ticket.send(outcome);
    });
    unconstrained(join_all(alone)).await;
}
