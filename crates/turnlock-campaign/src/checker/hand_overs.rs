use std::collections::HashMap;

use super::holds::Holds;
use crate::history::{Event, HAND_OVER_WINDOW_MS, ProcessState, What};

/// Finds locks that pass between the tasks of a process for too long, while other processes wait.
///
/// A lock that is handed over has the same owner on the store.
#[derive(Debug, Default)]
pub(super) struct HandOvers {
    /// When the store granted a lock to an owner.
    granted: HashMap<String, u64>,
    /// When a process was last stopped: it learns of a grant when it continues.
    stopped: HashMap<u32, u64>,
}

impl HandOvers {
    /// Adds an event. Returns a violation.
    pub(super) fn add(&mut self, event: &Event, holds: &Holds) -> Option<String> {
        match &event.what {
            What::Process { is: ProcessState::Stopped } => {
                self.stopped.insert(event.process, event.t);
                None
            }
            // Groups are not handed over.
            What::Granted { op, owner, .. } if !owner.is_empty() && !holds.acquires.get(op)?.has_owner() => {
                let first = *self.granted.entry(owner.clone()).or_insert(event.t);
                let was_stopped = self.stopped.get(&event.process).is_some_and(|stopped| *stopped >= first);
                let is_late = event.t > first + HAND_OVER_WINDOW_MS * 1_000;
                (is_late && !was_stopped)
                    .then(|| format!("op {op} was handed a lock at {}, granted at {first}", event.t))
            }
            _ => None,
        }
    }
}
