use std::collections::HashMap;

use super::holds::Holds;
use crate::history::{Event, HAND_OVER_WINDOW_MS, ProcessState, What};

/// Finds locks that pass between the tasks of a process for too long: other processes must get their turn.
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
                (is_late && !was_stopped).then(|| {
                    format!("a late hand-over: op {op} was handed a lock at {}, granted at {first}", event.t)
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Mode, Wait};

    /// Two grants of one owner at these times, with another event between them.
    fn is_late(times: [u64; 2], owner_number: Option<usize>, between: Option<What>) -> bool {
        let (mut holds, mut hand_overs) = (Holds::new(1, true), HandOvers::default());
        let mut events = Vec::new();
        for (op, t) in (1..).zip(times) {
            let (mode, wait) = (Mode::Exclusive, Wait::Endless);
            let acquire = What::Acquire { op, lock: 0, mode, permits: 1, wait, lease_ms: None, owner_number };
            let granted = What::Granted { op, owner: "x:1".to_owned(), token: None, valid_until: t + 90 };
            events.extend([acquire, granted].map(|what| Event { t, process: 1, what }));
        }
        events.extend(between.map(|what| Event { t: times[0] + 1, process: 1, what }));
        events.sort_by_key(|event| event.t);
        let add = |event: &Event| {
            let violation = hand_overs.add(event, &holds);
            holds.add(event);
            violation
        };
        events.iter().filter_map(add).count() > 0
    }

    #[test]
    fn a_late_hand_over_is_found() {
        let window = HAND_OVER_WINDOW_MS * 1_000;
        assert!(!is_late([5, 5 + window], None, None));
        assert!(is_late([5, 6 + window], None, None));
        assert!(!is_late([5, 6 + window], Some(0), None), "an explicit owner acquires again");
        let stopped = What::Process { is: ProcessState::Stopped };
        assert!(!is_late([5, 6 + window], None, Some(stopped)), "it learned of it late");
    }
}
