//! Requests and replies under way between a client and the server.

use std::collections::VecDeque;

use turnlock_core::model::{Acquired, Released, Renewed};

/// A step that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    Acquire { target: u32 },
    Release { target: u32 },
    Renew,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReplyValue {
    Acquired(Acquired),
    Released(Released),
    Renewed(Renewed),
}

/// A step under way to the server. Its owner follows from the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Request {
    pub(crate) turn: u8,
    pub(crate) step: Step,
    /// `true` while the client waits for the reply.
    pub(crate) awaited: bool,
}

/// A reply under way to the client, with its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reply {
    pub(crate) request: Request,
    pub(crate) value: ReplyValue,
}

/// The current connection of a client. It preserves order in both directions.
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

    /// Returns `true` if an acquire of `turn` whose reply is not awaited has yet to reach the server.
    pub(crate) fn has_abandoned_acquire(&self, turn: u8) -> bool {
        self.requests
            .iter()
            .any(|request| request.turn == turn && !request.awaited && request.step.is_acquire())
    }

    /// The client stops waiting for replies to `turn`. Its requests stay under way.
    pub(crate) fn abandon_replies(&mut self, turn: u8) {
        for request in self.requests.iter_mut().filter(|request| request.turn == turn) {
            request.awaited = false;
        }
        self.replies.retain(|reply| reply.request.turn != turn);
    }

    /// Breaks the connection and opens the next one. Requests without a received reply become strays.
    pub(crate) fn break_off(&mut self) -> Vec<Stray> {
        let unreceived = self.replies.drain(..).map(|reply| Stray::delivered(reply.request));
        let undelivered = self.requests.drain(..).map(Stray::undelivered);
        let strays = unreceived.chain(undelivered).collect();
        self.number += 1;
        strays
    }

    /// Takes the requests of `turn` out of order with later ones. No correct client does that.
    pub(crate) fn detach_requests(&mut self, turn: u8) -> Vec<Stray> {
        self.abandon_replies(turn);
        let (detached, remaining) = self.requests.drain(..).partition(|request| request.turn == turn);
        self.requests = remaining;
        detached.into_iter().map(Stray::undelivered).collect()
    }
}

impl Step {
    pub(crate) fn is_acquire(self) -> bool {
        matches!(self, Self::Acquire { .. })
    }
}

/// A request of a broken connection. It may arrive at any time, in any order, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stray {
    pub(crate) request: Request,
    /// How many more times it may arrive.
    pub(crate) deliveries_left: u8,
    /// `true` if it arrived after the break.
    pub(crate) arrived_late: bool,
}

impl Stray {
    /// A request that the server may not have received yet, and that may arrive late.
    ///
    /// Acquires may arrive twice. A second copy of any other step changes nothing.
    fn undelivered(request: Request) -> Self {
        Self::new(request, if request.step.is_acquire() { 2 } else { 1 })
    }

    /// A request that the server has received: a later arrival is a duplicate.
    fn delivered(request: Request) -> Self {
        Self::new(request, 1)
    }

    fn new(request: Request, deliveries_left: u8) -> Self {
        Self { request: Request { awaited: false, ..request }, deliveries_left, arrived_late: false }
    }
}
