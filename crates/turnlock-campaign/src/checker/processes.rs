use std::collections::{HashMap, HashSet};

use crate::history::{Event, ProcessState, What};

/// When processes did not run, and which ones are not of turnlock.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// From when to when each was stopped, or did not run because the machine was busy.
    pauses: HashMap<u32, Vec<(u64, u64)>>,
    others: HashSet<u32>,
    /// When each one of turnlock recorded its first and its last event.
    lives: HashMap<u32, (u64, u64)>,
    /// From when to when each, or the machine, did not run without a fault.
    stalls: HashMap<u32, Vec<(u64, u64)>>,
}

impl Processes {
    pub(super) fn new(events: &[Event]) -> Self {
        let mut processes = Self::default();
        for Event { t, process, what } in events {
            let pauses = processes.pauses.entry(*process).or_default();
            processes.lives.entry(*process).or_insert((*t, *t)).1 = *t;
            match what {
                What::Process { is: ProcessState::Stopped } => pauses.push((*t, u64::MAX)),
                What::Process { is: ProcessState::Continued } => {
                    if let Some(pause) = pauses.iter_mut().find(|(_, to)| *to == u64::MAX) {
                        pause.1 = *t;
                    }
                }
                What::Stalled { us } => {
                    let stall = (t.saturating_sub(*us), *t);
                    // A worker that was stopped by a fault measures that too.
                    if pauses.iter().all(|(from, to)| *to <= stall.0 || stall.1 <= *from) {
                        processes.stalls.entry(*process).or_default().push(stall);
                    }
                    pauses.push(stall);
                }
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

    /// How much of the time of the processes is in a stall or less than `window` after one, in percent.
    pub(super) fn stalled_percent(&self, window: u64) -> u64 {
        let (mut stalled, mut total) = (0, 0);
        for (process, (from, to)) in &self.lives {
            if *process == 0 || self.is_other(*process) {
                continue;
            }
            let stalls = [process, &0].into_iter().filter_map(|process| self.stalls.get(process)).flatten();
            let mut stalls: Vec<_> = stalls.collect();
            stalls.sort();
            total += to - from;
            let mut counted = *from;
            for (begin, end) in stalls {
                let end = (end + window).min(*to);
                stalled += end.saturating_sub(counted.max(*begin));
                counted = counted.max(end);
            }
        }
        (stalled * 100).checked_div(total).unwrap_or(0)
    }

    /// Returns `true` if the process has clients of Redisson, which reports no loss.
    pub(super) fn is_other(&self, process: u32) -> bool {
        self.others.contains(&process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn the_time_that_stalls_excuse_is_counted_once() {
        // Processes 1 and 2 run for 100 s. A cause lasts for 5 s.
        let percent = |more: &[(u64, u32, What)]| {
            let started = What::Process { is: ProcessState::Started };
            let ends = [1, 2].into_iter().flat_map(|process| [(0, process), (100, process)]);
            let all = ends.map(|(t, process)| (t, process, started.clone())).chain(more.iter().cloned());
            let mut events: Vec<_> =
                all.map(|(t, process, what)| Event { t: t * SECOND, process, what }).collect();
            events.sort_by_key(|event| event.t);
            Processes::new(&events).stalled_percent(5 * SECOND)
        };
        let stalled = |t, process| (t, process, What::Stalled { us: SECOND });
        assert_eq!(percent(&[]), 0);
        assert_eq!(percent(&[stalled(20, 0)]), 6);
        assert_eq!(percent(&[stalled(20, 1)]), 3, "one of two");
        assert_eq!(percent(&[stalled(20, 0), stalled(20, 1), stalled(22, 2)]), 7);
        assert_eq!(percent(&[stalled(98, 0)]), 3, "until the end");
        let process = |t, is| (t, 1, What::Process { is });
        let stopped =
            [process(18, ProcessState::Stopped), process(20, ProcessState::Continued), stalled(20, 1)];
        assert_eq!(percent(&stopped), 0, "a fault");
    }
}
