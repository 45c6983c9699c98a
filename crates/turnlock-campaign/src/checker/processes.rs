use std::collections::{HashMap, HashSet};

use crate::history::{Event, ProcessState, What};

/// When processes did not run, and which ones are not of turnlock.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// From when to when each was stopped, or did not run because the machine was busy.
    pauses: HashMap<u32, Vec<(u64, u64)>>,
    others: HashSet<u32>,
}

impl Processes {
    pub(super) fn new(events: &[Event]) -> Self {
        let mut processes = Self::default();
        for Event { t, process, what } in events {
            let pauses = processes.pauses.entry(*process).or_default();
            match what {
                What::Process { is: ProcessState::Stopped } => pauses.push((*t, u64::MAX)),
                What::Process { is: ProcessState::Continued } => {
                    if let Some(pause) = pauses.iter_mut().find(|(_, to)| *to == u64::MAX) {
                        pause.1 = *t;
                    }
                }
                What::Stalled { us } => pauses.push((t.saturating_sub(*us), *t)),
                What::Process { is: ProcessState::RedissonStarted } => {
                    processes.others.insert(*process);
                }
                _ => {}
            }
        }
        processes
    }

    /// Returns when the last pause of a process ended, or will end, that began before `t`.
    pub(super) fn runs_since(&self, process: u32, t: u64) -> Option<u64> {
        // The run itself, as process zero, records when the whole machine was busy.
        let pauses = [process, 0].into_iter().filter_map(|process| self.pauses.get(&process)).flatten();
        pauses.filter(|(from, _)| *from <= t).map(|(_, to)| *to).max()
    }

    /// Returns `true` if the process has clients of Redisson, which reports no loss.
    pub(super) fn is_other(&self, process: u32) -> bool {
        self.others.contains(&process)
    }
}
