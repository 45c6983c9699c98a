use std::fmt;
use std::panic::Location;
use std::thread::{self, ThreadId};

use tokio::runtime::Handle;
use tokio::task;

/// The code that calls acquire, and the task that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSite {
    pub(crate) location: CallLocation,
    /// `None` if it is not known: outside of tokio.
    runner: Option<Runner>,
}

/// What runs the caller. A future in tokio's `block_on` has no task id, but stays on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    Task(task::Id),
    Thread(ThreadId),
}

impl CallSite {
    /// Must be called while the caller is polled.
    pub(crate) fn new(location: CallLocation) -> Self {
        let thread = || Handle::try_current().ok().map(|_| Runner::Thread(thread::current().id()));
        Self { location, runner: task::try_id().map(Runner::Task).or_else(thread) }
    }

    pub(crate) fn is_same_task(&self, other: &Self) -> bool {
        self.runner.is_some() && self.runner == other.runner
    }
}

/// A location in the caller's code.
pub(crate) type CallLocation = &'static Location<'static>;

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.location.fmt(f)
    }
}
