use std::fmt;
use std::panic::Location;
use std::thread::{self, ThreadId};

use tokio::task;

/// The code that calls acquire, and the task that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSite {
    location: &'static Location<'static>,
    runner: Runner,
}

/// What runs the caller. A future in `block_on` has no task id, but stays on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    Task(task::Id),
    Thread(ThreadId),
}

impl CallSite {
    /// Must be called while the caller is polled.
    pub(crate) fn new(location: &'static Location<'static>) -> Self {
        let thread = || Runner::Thread(thread::current().id());
        Self { location, runner: task::try_id().map_or_else(thread, Runner::Task) }
    }

    pub(super) fn is_same_task(&self, other: &Self) -> bool {
        self.runner == other.runner
    }

    /// Identifies the place in the code, whatever task runs it.
    pub(super) fn place(&self) -> Place {
        self.location
    }
}

/// A place in the caller's code.
pub(super) type Place = &'static Location<'static>;

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.location.fmt(f)
    }
}
