use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use turnlock_core::tally::{Decision, Tally, Word};

use crate::engine::{Engine, Errand};
use crate::error::{Cause, Error};
use crate::group::Group;
use crate::guard::Guard;
use crate::lock::Lock;

/// One question to all servers of a [`RedLock`](crate::RedLock), and what they say to it.
///
/// It is decided as soon as the words that are missing cannot change it. The questions that are open then are not given up:
/// their engines finish them, and what they bring joins the group, or is given back when the group is closed.
#[derive(Debug)]
pub(crate) struct RedRound {
    group: Arc<Group>,
    ballot: Mutex<Ballot>,
    timeout: Duration,
}

#[derive(Debug)]
struct Ballot {
    tally: Tally,
    failures: Vec<Error>,
}

/// What a round came to.
#[derive(Debug)]
pub(crate) enum RoundEnd {
    Granted,
    /// The first server, in their order, that refused.
    Refused(usize),
    /// Too few servers answered.
    Unavailable(Error),
}

/// So many questions may a server owe an answer to before it is not asked any more, until it answers one: while it is
/// away, they must not pile up.
const MOST_OWED: usize = 8;

impl RedRound {
    pub(crate) fn new(group: &Arc<Group>, servers: usize, timeout: Duration) -> Arc<Self> {
        let ballot = Mutex::new(Ballot { tally: Tally::new(servers), failures: Vec::new() });
        Arc::new(Self { group: Arc::clone(group), ballot, timeout })
    }

    fn ballot(&self) -> MutexGuard<'_, Ballot> {
        self.ballot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, server: usize, word: Word) {
        self.ballot().tally.say(server, word);
    }

    /// One server has granted. A grant that is over by now is none.
    pub(crate) fn grant(&self, server: usize, guard: Guard) {
        if guard.is_valid() {
            self.group.join(server, guard);
            self.say(server, Word::Granted);
        } else {
            self.say(server, Word::Silent);
        }
    }

    /// Asks all servers at once that have not granted yet, and waits for the decision.
    pub(crate) async fn ask_all(self: &Arc<Self>, members: &[Lock]) -> RoundEnd {
        let granted = self.ballot().tally.first(Word::Granted);
        let open = members.iter().enumerate().filter(|(server, _)| Some(*server) != granted);
        let mut asks: Vec<_> = open
            .map(|(server, lock)| {
                let errands = &lock.engine().shared.errands;
                Some(Errand::new(errands, Arc::clone(self).ask(server, lock.clone())))
            })
            .collect();
        // All are asked before anything is decided, however fast the first ones answer.
        let decision = poll_fn(|context| {
            for place in &mut asks {
                if place.as_mut().is_some_and(|ask| Pin::new(ask).poll(context).is_ready()) {
                    *place = None;
                }
            }
            let tally = &self.ballot().tally;
            match tally.decision() {
                // Who is told that there are too few servers wants to know about each.
                Some(Decision::Unavailable) if tally.open() > 0 => Poll::Pending,
                Some(decision) => Poll::Ready(decision),
                None => Poll::Pending,
            }
        })
        .await;
        drop(asks);
        self.end(decision, members)
    }

    /// Asks one server, and notes what it says. Goes on after the time-out, for the sake of a late answer.
    async fn ask(self: Arc<Self>, server: usize, lock: Lock) {
        // On the runtime of its own client, which is also the one that goes on with it.
        lock.engine().shared.on_runtime(self.ask_there(server, &lock)).await;
    }

    async fn ask_there(&self, server: usize, lock: &Lock) {
        let shared = &lock.engine().shared;
        let is_asked_here = || lock.checked_name().is_ok_and(|name| shared.rooms.waiting(name) > 0);
        let owed = shared.owed.load(Ordering::Relaxed);
        // Where an earlier question about this lock stands open, a further one would be refused by this process, and
        // nobody would know whether the server is there.
        if owed >= MOST_OWED || (owed > 0 && is_asked_here()) {
            return self.say(server, Word::Silent);
        }
        let mut answering = pin!(lock.try_lock());
        let answer = if let Ok(answer) = tokio::time::timeout(self.timeout, &mut answering).await {
            answer
        } else {
            self.say(server, Word::Silent);
            let _owing = Owing::new(lock.engine());
            answering.await
        };
        match answer {
            Ok(Some(guard)) => self.grant(server, guard),
            Ok(None) => self.say(server, Word::Refused),
            Err(error) => {
                let mut ballot = self.ballot();
                ballot.tally.say(server, Word::Silent);
                ballot.failures.push(error);
            }
        }
    }

    fn end(&self, decision: Decision, members: &[Lock]) -> RoundEnd {
        let mut ballot = self.ballot();
        match (decision, ballot.tally.first(Word::Refused)) {
            // Between the last grant and now, the first may have run out.
            (Decision::Granted, _) if self.group.is_valid() => RoundEnd::Granted,
            (Decision::Refused, Some(first)) => RoundEnd::Refused(first),
            _ => {
                let failures = std::mem::take(&mut ballot.failures);
                RoundEnd::Unavailable(self.unavailable(&ballot.tally, failures, members))
            }
        }
    }

    fn unavailable(&self, tally: &Tally, mut failures: Vec<Error>, members: &[Lock]) -> Error {
        let (need, servers) = (tally.need(), members.len());
        let lasting = failures.iter().filter(|error| !error.is_passing()).count();
        // So many would fail again that nothing else matters.
        if lasting > servers - need
            && let Some(place) = failures.iter().position(|error| !error.is_passing())
        {
            return failures.swap_remove(place);
        }
        let [granted, refused, silent] =
            [Word::Granted, Word::Refused, Word::Silent].map(|word| tally.count(word));
        let what = format!(
            "lock {:?} on {need} of {servers} servers (granted: {granted}, refused: {refused}, no answer: {silent})",
            members[0].name(),
        );
        let timed_out = || {
            let text = format!("no answer within {:?}", self.timeout);
            Arc::new(io::Error::new(io::ErrorKind::TimedOut, text)) as Cause
        };
        let source = failures.pop().map_or_else(timed_out, |error| Arc::new(error) as Cause);
        Error::Unavailable { what, source }
    }
}

/// Counts an answer that a server owes.
struct Owing(Arc<AtomicUsize>);

impl Owing {
    fn new(engine: &Engine) -> Self {
        let owed = Arc::clone(&engine.shared.owed);
        owed.fetch_add(1, Ordering::Relaxed);
        Self(owed)
    }
}

impl Drop for Owing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
