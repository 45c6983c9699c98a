use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Lets tasks that hold a lock wait for another one in one order at a time: for higher locks, or for lower ones.
///
/// So no deadlock is possible, but there are waits in both orders, and clients must see that they are at different times.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// How many tasks wait, by their processes.
    counts: HashMap<u32, usize>,
    is_for_lower: bool,
}

/// A task may wait for another lock, until this is dropped. With a process that is killed, it is not.
#[derive(Debug)]
pub(super) struct Passed {
    gate: Arc<Gate>,
    process: u32,
}

impl Gate {
    /// `None` while tasks wait in the other order.
    pub(super) fn pass(self: &Arc<Self>, process: u32, is_for_lower: bool) -> Option<Passed> {
        let mut waiting = self.0.lock();
        if !waiting.counts.is_empty() && waiting.is_for_lower != is_for_lower {
            return None;
        }
        *waiting.counts.entry(process).or_default() += 1;
        waiting.is_for_lower = is_for_lower;
        Some(Passed { gate: Arc::clone(self), process })
    }

    /// The tasks of a process wait no longer: it is killed.
    pub(crate) fn forget(&self, process: u32) {
        self.0.lock().counts.remove(&process);
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        let counts = &mut self.gate.0.lock().counts;
        if let Some(count) = counts.get_mut(&self.process) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.process);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_wait_for_higher_or_for_lower_locks_and_not_for_both() {
        let gate = Arc::new(Gate::default());
        let pass = |process, is_for_lower| gate.pass(process, is_for_lower);
        let [one, two, three] = [1, 1, 2].map(|process| pass(process, false).expect("the first ones"));
        assert!(pass(1, true).is_none());
        drop((one, three));
        assert!(pass(2, true).is_none(), "another one waits");
        drop(two);
        let lower = pass(1, true).expect("none waits");
        assert!(pass(1, false).is_none());
        drop(lower);
        assert!(pass(1, false).is_some());
    }

    #[test]
    fn a_task_of_a_killed_process_does_not_wait() {
        let gate = Arc::new(Gate::default());
        let killed = gate.pass(1, false).expect("the first one");
        gate.forget(1);
        let lower = gate.pass(2, true).expect("none waits");
        drop(killed);
        assert!(gate.pass(2, false).is_none());
        drop(lower);
        assert!(gate.pass(2, false).is_some());
    }
}
