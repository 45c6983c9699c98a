//! What is on the way between a client and the server.

use std::collections::VecDeque;

use turnlock_core::model::{Acquired, Released, Renewed};

/// What a client asks of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    Acquire { target: u32 },
    Release { target: u32 },
    Renew,
}

/// What the server said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Acquired(Acquired),
    Released(Released),
    Renewed(Renewed),
}

/// A step on its way to the server. Which owner it names follows from the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Request {
    pub(crate) turn: u8,
    pub(crate) step: Step,
    /// Whether the client still listens for the answer.
    pub(crate) awaited: bool,
}

/// An answer on its way to the client, with the request that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reply {
    pub(crate) request: Request,
    pub(crate) answer: Answer,
}

/// The connection that a client uses now. It keeps the order, both ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) requests: VecDeque<Request>,
    pub(crate) replies: VecDeque<Reply>,
}

impl Connection {
    pub(crate) fn first() -> Self {
        Self { number: 1, requests: VecDeque::new(), replies: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.replies.is_empty()
    }

    /// Whether an acquire of `turn` that nobody waits for any more has yet to reach the server.
    pub(crate) fn has_abandoned_acquire(&self, turn: u8) -> bool {
        self.requests
            .iter()
            .any(|request| request.turn == turn && !request.awaited && request.step.is_acquire())
    }

    /// The client stops listening: the request travels on, its answer will go nowhere.
    pub(crate) fn stop_listening(&mut self, turn: u8) {
        for request in self.requests.iter_mut().filter(|request| request.turn == turn) {
            request.awaited = false;
        }
        self.replies.retain(|reply| reply.request.turn != turn);
    }

    /// The connection breaks, and the next one takes its place. What was not answered is astray from now on.
    pub(crate) fn break_off(&mut self) -> Vec<Stray> {
        let unheard = self.replies.drain(..).map(|reply| Stray::answered(reply.request));
        let unsent = self.requests.drain(..).map(Stray::unanswered);
        let strays = unheard.chain(unsent).collect();
        self.number += 1;
        strays
    }

    /// The requests of `turn` go on alone, no longer in order with what is sent after them. No correct client does it.
    pub(crate) fn let_overtake(&mut self, turn: u8) -> Vec<Stray> {
        self.stop_listening(turn);
        let (overtaken, kept) = self.requests.drain(..).partition(|request| request.turn == turn);
        self.requests = kept;
        overtaken.into_iter().map(Stray::unanswered).collect()
    }
}

impl Step {
    pub(crate) fn is_acquire(self) -> bool {
        matches!(self, Self::Acquire { .. })
    }
}

/// A request of a broken connection: it may reach the server at any time, in any order, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stray {
    pub(crate) request: Request,
    /// How many more times something on the way may deliver it.
    pub(crate) deliveries_left: u8,
    /// Whether it reached the server after the break.
    pub(crate) came_late: bool,
}

impl Stray {
    /// The server may not have seen it yet: it may come late. Acquires may come twice; a second copy of anything else
    /// only finds what the first one left.
    fn unanswered(request: Request) -> Self {
        Self::new(request, if request.step.is_acquire() { 2 } else { 1 })
    }

    /// The server has seen it, so whatever comes now is a replay.
    fn answered(request: Request) -> Self {
        Self::new(request, 1)
    }

    fn new(request: Request, deliveries_left: u8) -> Self {
        Self { request: Request { awaited: false, ..request }, deliveries_left, came_late: false }
    }
}
