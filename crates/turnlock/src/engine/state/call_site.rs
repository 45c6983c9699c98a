use std::fmt;
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::panic::Location;
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

use tokio::runtime::Handle;
use tokio::task;

/// The code that calls acquire, and the task that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSite {
    pub(crate) location: CallLocation,
    /// `None` if it is not known: outside of tokio.
    polled: Option<Polled>,
    /// The number of the explicit owner, if it has one.
    pub(crate) explicit_owner: Option<NonZeroU32>,
    /// It is an acquire of one member of a group.
    pub(crate) is_in_group: bool,
}

/// What runs the caller. A future in tokio's `block_on` has no task id, but stays on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Runner {
    Task(task::Id),
    Thread(ThreadId),
}

/// A runner, and a part of the address that the waker of the caller has. In this form it takes little space.
///
/// The wakers differ between the tasks that another executor runs on one thread inside of tokio, and between the futures
/// of a `FuturesUnordered`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    Task(task::Id, u32),
    Thread(ThreadId, u32),
}

impl CallSite {
    /// Returns the call site of the caller that awaits this.
    pub(crate) fn current(location: CallLocation) -> impl Future<Output = Self> {
        poll_fn(move |context| Poll::Ready(Self::new(location, context.waker())))
    }

    /// Must be called while the caller is polled, with its waker.
    pub(crate) fn new(location: CallLocation, waker: &Waker) -> Self {
        // Allocations are 16 bytes apart.
        #[expect(clippy::cast_possible_truncation, reason = "a part is enough")]
        let waker = (waker.data().addr() >> 4) as u32;
        let thread = || Handle::try_current().ok().map(|_| Polled::Thread(thread::current().id(), waker));
        let polled = task::try_id().map(|id| Polled::Task(id, waker)).or_else(thread);
        Self { location, polled, explicit_owner: None, is_in_group: false }
    }

    /// Returns this call site as one of the task that runs `caller`.
    pub(crate) fn run_by(self, caller: &Self) -> Self {
        Self { polled: caller.polled, ..self }
    }

    pub(crate) fn in_group(self, is_in_group: bool) -> Self {
        Self { is_in_group, ..self }
    }

    pub(crate) fn is_same_task(&self, other: &Self) -> bool {
        self.polled.is_some() && self.polled == other.polled
    }

    /// Returns `true` if both are of one task, or of tasks that another executor runs on one thread.
    pub(crate) fn has_runner_of(&self, other: &Self) -> bool {
        self.polled.is_some() && self.runner() == other.runner()
    }

    pub(crate) fn runner(&self) -> Option<Runner> {
        Some(match self.polled? {
            Polled::Task(id, _) => Runner::Task(id),
            Polled::Thread(id, _) => Runner::Thread(id),
        })
    }

    /// Returns what a hold of the same task, or of the same explicit owner, has in common with this call site.
    ///
    /// If [`holds_for`](Self::holds_for) is not `None`, they have one of these in common.
    pub(crate) fn links(&self) -> [Option<Link>; 2] {
        [Some(Link::Runner(self.runner())), self.explicit_owner.map(Link::Owner)]
    }

    /// Returns the task or the thread, for people.
    pub(crate) fn task(&self) -> Option<String> {
        Some(match self.runner()? {
            Runner::Task(id) => format!("task {id}"),
            Runner::Thread(id) => {
                let digits = |text: String| text.chars().filter(char::is_ascii_digit).collect::<String>();
                format!("thread {}", digits(format!("{id:?}")))
            }
        })
    }

    /// Returns whether a hold that was acquired here may be one of the task that waits at `waiter`, and if so, whether
    /// it certainly is.
    ///
    /// Where no task is known, it may be. So it may with the same explicit owner, which several tasks can share.
    pub(crate) fn holds_for(&self, waiter: &Self) -> Option<bool> {
        let is_same_owner = self.explicit_owner.is_some() && self.explicit_owner == waiter.explicit_owner;
        let is_possible = self.runner() == waiter.runner() || is_same_owner;
        is_possible.then(|| self.is_same_task(waiter))
    }
}

/// What the call sites of a hold and of a wait can have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// `None` is shared by all whose task is not known.
    Runner(Option<Runner>),
    Owner(NonZeroU32),
}

/// A location in the caller's code.
pub(crate) type CallLocation = &'static Location<'static>;

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.location.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call_site(thread: Option<ThreadId>, waker: u32, owner: u32) -> CallSite {
        let here = CallSite::new(Location::caller(), Waker::noop());
        let polled = thread.map(|thread| Polled::Thread(thread, waker));
        CallSite { polled, explicit_owner: NonZeroU32::new(owner), ..here }
    }

    #[test]
    fn a_hold_is_certainly_of_a_waiter_only_if_their_task_is_known_to_be_the_same() {
        let here = Some(thread::current().id());
        let there = Some(thread::spawn(|| ()).thread().id());
        for (held, waits, expected) in [
            ((here, 1, 0), (here, 1, 0), Some(true)),
            ((here, 1, 5), (here, 1, 6), Some(true)),
            // Another task of another executor on the same thread, or another future of a set of futures.
            ((here, 1, 5), (here, 2, 5), Some(false)),
            ((here, 1, 0), (there, 1, 0), None),
            // An owner may be shared by tasks.
            ((here, 1, 5), (there, 1, 5), Some(false)),
            ((here, 1, 5), (None, 1, 5), Some(false)),
            ((None, 1, 5), (here, 1, 5), Some(false)),
            ((None, 1, 5), (here, 1, 6), None),
            ((None, 1, 5), (None, 1, 5), Some(false)),
            ((None, 1, 0), (None, 1, 0), Some(false)),
        ] {
            let of = |(thread, waker, owner)| call_site(thread, waker, owner);
            assert_eq!(of(held).holds_for(&of(waits)), expected, "{held:?} {waits:?}");
        }
    }
}
