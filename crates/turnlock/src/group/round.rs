use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use turnlock_core::tally::{Decision, Tally, Vote};

use super::group_hold::GroupHold;
use crate::engine::{CallLocation, RunToCompletion, WaitLimit};
use crate::{Cause, Error, Guard, Lock};

/// One request to each server of a [`RedLock`](crate::RedLock), and the replies.
///
/// The round is decided when the missing replies cannot change it. The engines finish the open requests; a late grant
/// joins the hold, or is released if the hold is closed.
#[derive(Debug)]
pub(crate) struct Round {
    hold: Arc<GroupHold>,
    ballot: Mutex<Ballot>,
    timeout: Duration,
}

#[derive(Debug)]
struct Ballot {
    tally: Tally,
    failures: Vec<Error>,
}

/// The outcome of a round.
#[derive(Debug)]
pub(crate) enum RoundEnd {
    Granted,
    /// The first server that refused.
    Refused(usize),
    /// Too few servers replied.
    Unavailable(Error),
}

/// How many requests without a reply a server may have before it gets no more, so that they do not pile up.
const MAX_UNANSWERED: usize = 8;

impl Round {
    pub(crate) fn new(hold: &Arc<GroupHold>, servers: usize, timeout: Duration) -> Arc<Self> {
        let ballot = Mutex::new(Ballot { tally: Tally::new(servers), failures: Vec::new() });
        Arc::new(Self { hold: Arc::clone(hold), ballot, timeout })
    }

    fn ballot(&self) -> MutexGuard<'_, Ballot> {
        self.ballot.lock()
    }

    fn record(&self, server: usize, vote: Vote) {
        self.ballot().tally.record(server, vote);
    }

    /// Adds the grant of a server. A grant whose lease has ended does not count.
    pub(crate) fn grant(&self, server: usize, guard: Guard) {
        if guard.is_valid() {
            self.hold.join(server, guard);
            self.record(server, Vote::Granted);
        } else {
            self.record(server, Vote::NoReply);
        }
    }

    /// Requests all servers that have not granted yet, at the same time, and waits for the decision.
    pub(crate) async fn request_all(self: &Arc<Self>, members: &[Lock], location: CallLocation) -> RoundEnd {
        let granted = self.ballot().tally.first(Vote::Granted);
        let open = members.iter().enumerate().filter(|(server, _)| Some(*server) != granted);
        let requests = open.map(|(server, lock)| {
            let request = Arc::clone(self).request(server, lock.clone(), location);
            Some(RunToCompletion::new(&lock.engine().shared.background, request))
        });
        let mut requests: Vec<_> = requests.collect();
        // All requests are sent before anything is decided, however fast the first replies are.
        let decision = poll_fn(|context| {
            for slot in &mut requests {
                if slot.as_mut().is_some_and(|request| Pin::new(request).poll(context).is_ready()) {
                    *slot = None;
                }
            }
            let tally = &self.ballot().tally;
            match tally.decision() {
                // The error lists every server: wait for all replies.
                Some(Decision::Unavailable) if tally.open() > 0 => Poll::Pending,
                Some(decision) => Poll::Ready(decision),
                None => Poll::Pending,
            }
        })
        .await;
        drop(requests);
        self.end(decision, members)
    }

    /// Sends one request, and records the reply. Continues after the time-out, for a late reply.
    async fn request(self: Arc<Self>, server: usize, lock: Lock, location: CallLocation) {
        // On the runtime of its own client, which also finishes it.
        lock.engine().shared.on_runtime(self.request_on_runtime(server, &lock, location)).await;
    }

    async fn request_on_runtime(&self, server: usize, lock: &Lock, location: CallLocation) {
        let shared = &lock.engine().shared;
        let unanswered = Arc::strong_count(&shared.overdue_requests) - 1;
        // While an earlier request for this lock is open, this process would refuse another one, and the state of the
        // server would stay unknown.
        if unanswered >= MAX_UNANSWERED || (unanswered > 0 && lock.has_waiters_here()) {
            return self.record(server, Vote::NoReply);
        }
        let mut acquire = pin!(lock.acquire(WaitLimit::None, location));
        let reply = if let Ok(reply) = tokio::time::timeout(self.timeout, &mut acquire).await {
            reply
        } else {
            self.record(server, Vote::NoReply);
            let _unanswered = Arc::clone(&shared.overdue_requests);
            acquire.await
        };
        match reply {
            Ok(Some(guard)) => self.grant(server, guard),
            Ok(None) => self.record(server, Vote::Refused),
            Err(error) => {
                let mut ballot = self.ballot();
                ballot.tally.record(server, Vote::NoReply);
                ballot.failures.push(error);
            }
        }
    }

    fn end(&self, decision: Decision, members: &[Lock]) -> RoundEnd {
        let mut ballot = self.ballot();
        match (decision, ballot.tally.first(Vote::Refused)) {
            // The first grant may have expired since.
            (Decision::Granted, _) if self.hold.is_valid() => RoundEnd::Granted,
            (Decision::Refused, Some(first)) => RoundEnd::Refused(first),
            _ => {
                let failures = std::mem::take(&mut ballot.failures);
                RoundEnd::Unavailable(self.unavailable(&ballot.tally, failures, members))
            }
        }
    }

    fn unavailable(&self, tally: &Tally, mut failures: Vec<Error>, members: &[Lock]) -> Error {
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
        let timed_out = || {
            let text = format!("no reply within {:?}", self.timeout);
            Arc::new(io::Error::new(io::ErrorKind::TimedOut, text)) as Cause
        };
        let source = failures.pop().map_or_else(timed_out, |error| Arc::new(error) as Cause);
        Error::Unavailable { what, source }
    }
}
