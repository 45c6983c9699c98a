//! One request to each server of a [`RedLock`](crate::RedLock), and what the replies decide.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use turnlock_core::tally::{Decision, Tally, Vote};

use super::group_lock::Refusal;
use crate::engine::{CallLocation, RunToCompletion, WaitLimit, time_out};
use crate::{Cause, Error, Guard, Lock, MultiHeld};

/// How many requests without a reply a server may have before it gets no more, so that they do not pile up.
const MAX_UNANSWERED: usize = 8;

/// Requests all servers but the one in hand, at the same time, and waits for the decision.
///
/// It is decided when the missing replies cannot change it. The engines finish the open requests; a late grant joins
/// `held`, or is released if that is closed.
///
/// The refusal has the first server that refused, or the error if too few replied.
pub(super) async fn request_all(
    held: &MultiHeld,
    members: &[Lock],
    in_hand: Option<(usize, Guard)>,
    timeout: Duration,
    location: CallLocation,
) -> Result<(), Refusal> {
    let (mut tally, mut failures) = (Tally::new(members.len()), Vec::new());
    if let Some((server, guard)) = in_hand {
        tally.record(server, grant(held, server, guard));
    }
    let granted = tally.first(Vote::Granted);
    let open = members.iter().enumerate().filter(|(server, _)| Some(*server) != granted);
    let (sender, mut votes) = mpsc::unbounded_channel();
    let requests = open.map(|(server, lock)| {
        let sender = sender.clone();
        // Fails only if the round is decided.
        let vote = move |vote| drop(sender.send((server, vote)));
        let request = request(held.clone(), server, lock.clone(), vote, timeout, location);
        RunToCompletion::boxed(&lock.named.engine.background, request)
    });
    let mut requests: Vec<_> = requests.collect();
    // All requests are sent before anything is decided, however fast the first replies are.
    let decision = poll_fn(|context| {
        requests.retain_mut(|request| Pin::new(request).poll(context).is_pending());
        while let Ok((server, vote)) = votes.try_recv() {
            tally.record(server, *vote.as_ref().unwrap_or(&Vote::NoReply));
            failures.extend(vote.err());
        }
        match tally.decision() {
            // The error lists every server: wait for all replies.
            Some(Decision::Unavailable) if tally.open() > 0 => Poll::Pending,
            Some(decision) => Poll::Ready(decision),
            None => Poll::Pending,
        }
    })
    .await;
    match (decision, tally.first(Vote::Refused)) {
        // The first grant may have expired since.
        (Decision::Granted, _) if held.is_valid() => Ok(()),
        (Decision::Refused, Some(member)) => Err(Refusal { member, error: None }),
        (_, refused) => {
            let error = Some(unavailable(&tally, failures, members, timeout));
            Err(Refusal { member: refused.unwrap_or_default(), error })
        }
    }
}

/// Sends one request, and votes by its reply. Continues after the time-out, for a late reply.
async fn request(
    held: MultiHeld,
    server: usize,
    lock: Lock,
    vote: impl Fn(Result<Vote, Error>),
    timeout: Duration,
    location: CallLocation,
) {
    let engine = &lock.named.engine;
    let request = async {
        let unanswered = Arc::strong_count(&engine.overdue_requests) - 1;
        // While an earlier request for this lock is open, this process would refuse another one, and the state of the
        // server would stay unknown.
        if unanswered >= MAX_UNANSWERED || (unanswered > 0 && lock.has_waiters_here()) {
            return vote(Ok(Vote::NoReply));
        }
        let mut acquire = pin!(lock.acquire(WaitLimit::None, location));
        let reply = if let Ok(reply) = tokio::time::timeout(timeout, &mut acquire).await {
            reply
        } else {
            vote(Ok(Vote::NoReply));
            let _unanswered = Arc::clone(&engine.overdue_requests);
            acquire.await
        };
        vote(reply.map(|granted| granted.map_or(Vote::Refused, |guard| grant(&held, server, guard))));
    };
    // On the runtime of its own client, which also finishes it.
    engine.on_runtime(request).await;
}

/// Adds the grant of a server. A grant whose lease has ended does not count.
fn grant(held: &MultiHeld, server: usize, guard: Guard) -> Vote {
    if !guard.is_valid() {
        return Vote::NoReply;
    }
    held.join(server, guard);
    Vote::Granted
}

fn unavailable(tally: &Tally, mut failures: Vec<Error>, members: &[Lock], timeout: Duration) -> Error {
    let (need, servers) = (tally.need(), members.len());
    let permanent = failures.iter().filter(|error| !error.is_retryable()).count();
    // Enough servers would fail again to prevent a majority.
    if permanent > servers - need
        && let Some(index) = failures.iter().position(|error| !error.is_retryable())
    {
        return failures.swap_remove(index);
    }
    let [granted, refused, silent] =
        [Vote::Granted, Vote::Refused, Vote::NoReply].map(|vote| tally.count(vote));
    let what = format!(
        "lock {:?} on {need} of {servers} servers (granted: {granted}, refused: {refused}, no reply: {silent})",
        members[0].name(),
    );
    let timed_out = || -> Cause { time_out(format!("no reply within {timeout:?}")) };
    let source = failures.pop().map_or_else(timed_out, |error| Arc::new(error));
    Error::Unavailable { what, source }
}
