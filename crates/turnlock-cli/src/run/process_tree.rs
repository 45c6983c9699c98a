use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The most scans for processes that are started while others are being stopped.
const MAX_SCANS: usize = 16;

/// The descendants of a process, found in `/proc`.
///
/// A descendant that was found once stays known after its parent exits. It is identified by a pidfd and its start time, so a
/// reused pid is not mistaken for it.
#[derive(Default)]
pub(crate) struct ProcessTree {
    descendants: HashMap<i32, Descendant>,
}

struct Descendant {
    pidfd: OwnedFd,
    start_time: u64,
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    parent: i32,
    /// Start time in clock ticks since boot. With the pid, it identifies the process.
    start_time: u64,
    is_alive: bool,
}

impl ProcessTree {
    /// Finds descendants of `root` and of the known descendants. Returns the number of new ones.
    pub(crate) fn scan(&mut self, root: i32) -> usize {
        let processes = all_processes();
        let before = self.descendants.len();
        let mut parents: Vec<i32> = self.descendants.keys().copied().chain([root]).collect();
        while let Some(parent) = parents.pop() {
            for (&pid, stat) in processes.iter().filter(|(_, stat)| stat.parent == parent && stat.is_alive) {
                if !self.descendants.contains_key(&pid)
                    && let Some(descendant) = Descendant::open(pid, stat.start_time)
                {
                    self.descendants.insert(pid, descendant);
                    parents.push(pid);
                }
            }
        }
        self.descendants.len() - before
    }

    /// Sends STOP to `root` and all its descendants, so that none of them starts another one.
    pub(crate) fn stop(&mut self, root: Pid) {
        let _ = rustix::process::kill_process(root, Signal::STOP);
        // The known descendants first: a scan takes time.
        self.signal(Signal::STOP);
        for _ in 0..MAX_SCANS {
            if self.scan(root.as_raw_nonzero().get()) == 0 {
                return;
            }
            self.signal(Signal::STOP);
        }
    }

    /// Sends a signal to all known descendants, but not to the root.
    pub(crate) fn signal(&self, signal: Signal) {
        for descendant in self.descendants.values() {
            // Fails if the process has exited meanwhile.
            let _ = pidfd_send_signal(&descendant.pidfd, signal);
        }
    }

    /// Returns `true` if a known descendant is running.
    pub(crate) fn is_alive(&self) -> bool {
        let is_running = |(pid, descendant): (&i32, &Descendant)| {
            read_stat(*pid).is_some_and(|stat| stat.is_alive && stat.start_time == descendant.start_time)
        };
        self.descendants.iter().any(is_running)
    }
}

impl Descendant {
    fn open(pid: i32, start_time: u64) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // The pid may have been reused since the scan.
        let is_same_process = read_stat(pid).is_some_and(|stat| stat.start_time == start_time);
        is_same_process.then_some(Self { pidfd, start_time })
    }
}

fn all_processes() -> HashMap<i32, ProcessStat> {
    let files = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = files.filter_map(|file| file.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, read_stat(pid)?))).collect()
}

fn read_stat(pid: i32) -> Option<ProcessStat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `PID (NAME) STATE PARENT …`. The name may contain spaces and parentheses.
fn parse(stat: &str) -> Option<ProcessStat> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    Some(ProcessStat {
        parent: fields.get(1)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
        is_alive: !matches!(*fields.first()?, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_parsed_for_any_process_name() {
        let stat = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 8899 1000 10";
        assert_eq!(parse(stat), Some(ProcessStat { parent: 7, start_time: 8899, is_alive: true }));
        assert_eq!(parse("42 (a) Z 7"), None);
    }
}
