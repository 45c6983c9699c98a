use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use redis::{RedisError, Value};
use turnlock_core::Moment;
use turnlock_store::Sent;

use crate::sync::Mutex;

/// Where the outcome of a request arrives.
///
/// A request that is sent on another connection, after a redirect or because it was not sent, uses its slot again: the
/// connection before has removed the request by then. A request that timed out is never sent again.
#[derive(Default)]
pub(crate) struct ReplySlot(Mutex<State>);

#[derive(Default)]
enum State {
    /// No caller waits: not sent yet, or the outcome was taken, or the caller was dropped.
    #[default]
    Idle,
    Waiting {
        deadline: Moment,
        waker: Option<Waker>,
    },
    Ended(Outcome),
}

/// The outcome of a request, before it is classified.
pub(crate) enum Outcome {
    /// The reply, which may be an error of the server.
    Replied(Value, Sent),
    /// No reply until the deadline.
    TimedOut(Sent),
    /// The connection broke after the request was sent.
    Broken(RedisError, Sent),
    /// The master changed after the request was sent.
    Demoted(Sent),
    /// It was not sent, and will not be.
    Unsent(Unsent),
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// The connection is closed. Another one can send it.
    Closed,
    /// It was queued until its deadline.
    Late,
    /// Its caller was dropped.
    Abandoned,
}

impl ReplySlot {
    /// Starts to wait for a reply until `deadline`.
    pub(crate) fn begin(&self, deadline: Moment) {
        *self.0.lock() = State::Waiting { deadline, waker: None };
    }

    /// Passes the outcome to the caller, if one waits.
    pub(crate) fn end(&self, outcome: Outcome) {
        if let Some(waker) = self.set(outcome) {
            waker.wake();
        }
    }

    /// As [`end`](Self::end), but returns the waker of the caller: for code that has locked something.
    pub(crate) fn set(&self, outcome: Outcome) -> Option<Waker> {
        let mut state = self.0.lock();
        let State::Waiting { waker, .. } = &mut *state else { return None };
        let waker = waker.take();
        *state = State::Ended(outcome);
        waker
    }

    /// Returns the deadline, if a caller waits.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match &*self.0.lock() {
            State::Waiting { deadline, .. } => Some(*deadline),
            _ => None,
        }
    }

    /// Returns the outcome when it arrives. If the future is dropped, no caller waits any more.
    pub(crate) fn outcome(&self) -> OutcomeFuture<'_> {
        OutcomeFuture { slot: self, is_taken: false }
    }
}

/// Waits for the outcome of a request.
pub(crate) struct OutcomeFuture<'a> {
    slot: &'a ReplySlot,
    is_taken: bool,
}

impl Future for OutcomeFuture<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.slot.0.lock();
        match &mut *state {
            State::Waiting { waker: Some(waker), .. } => waker.clone_from(context.waker()),
            State::Waiting { waker, .. } => *waker = Some(context.waker().clone()),
            State::Idle | State::Ended(_) => {
                // Never idle: only this future takes the outcome.
                if let State::Ended(outcome) = mem::take(&mut *state) {
                    drop(state);
                    self.is_taken = true;
                    return Poll::Ready(outcome);
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for OutcomeFuture<'_> {
    fn drop(&mut self) {
        if !self.is_taken {
            *self.slot.0.lock() = State::Idle;
        }
    }
}
