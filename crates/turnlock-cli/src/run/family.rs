use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How often to look for processes that were started while others were being stopped.
const ROUNDS: usize = 16;

/// The descendants of a process, as far as the system shows them. Once seen, one is known even when its parent is gone,
/// and its number is not mistaken for that of another process.
#[derive(Default)]
pub(crate) struct Family {
    members: HashMap<i32, Member>,
}

struct Member {
    handle: OwnedFd,
    born: u64,
}

/// A line of the table of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    parent: i32,
    /// When it was started: with its number, what tells it from all others.
    born: u64,
    is_alive: bool,
}

impl Family {
    /// Looks for descendants of `root` and of those known already. How many are new.
    pub(crate) fn gather(&mut self, root: i32) -> usize {
        let table = table();
        let before = self.members.len();
        let mut heads: Vec<i32> = self.members.keys().copied().chain([root]).collect();
        while let Some(head) = heads.pop() {
            for (&pid, entry) in table.iter().filter(|(_, entry)| entry.parent == head && entry.is_alive) {
                if !self.members.contains_key(&pid)
                    && let Some(member) = Member::new(pid, entry.born)
                {
                    self.members.insert(pid, member);
                    heads.push(pid);
                }
            }
        }
        self.members.len() - before
    }

    /// Stops `root` and all its descendants, so that none of them starts another unseen.
    pub(crate) fn stop(&mut self, root: Pid) {
        let _ = rustix::process::kill_process(root, Signal::STOP);
        // First those that are known: to look for others takes time.
        self.signal(Signal::STOP);
        for _ in 0..ROUNDS {
            if self.gather(root.as_raw_nonzero().get()) == 0 {
                return;
            }
            self.signal(Signal::STOP);
        }
    }

    /// Sends a signal to all that are known, and not to the root.
    pub(crate) fn signal(&self, signal: Signal) {
        for member in self.members.values() {
            // One that has ended meanwhile needs none.
            let _ = pidfd_send_signal(&member.handle, signal);
        }
    }

    /// Whether one of them still runs.
    pub(crate) fn is_alive(&self) -> bool {
        let lives = |(pid, member): (&i32, &Member)| {
            entry_of(*pid).is_some_and(|entry| entry.is_alive && entry.born == member.born)
        };
        self.members.iter().any(lives)
    }
}

impl Member {
    fn new(pid: i32, born: u64) -> Option<Self> {
        let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // The number may have gone to another since the table was read.
        let is_the_same = entry_of(pid).is_some_and(|entry| entry.born == born);
        is_the_same.then_some(Self { handle, born })
    }
}

fn table() -> HashMap<i32, Entry> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, entry_of(pid)?))).collect()
}

fn entry_of(pid: i32) -> Option<Entry> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `PID (NAME) STATE PARENT …`, where the name may have spaces and parentheses in it.
fn parse(stat: &str) -> Option<Entry> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    Some(Entry {
        parent: fields.get(1)?.parse().ok()?,
        born: fields.get(19)?.parse().ok()?,
        is_alive: !matches!(*fields.first()?, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_whatever_the_process_is_called() {
        let stat = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 8899 1000 10";
        assert_eq!(parse(stat), Some(Entry { parent: 7, born: 8899, is_alive: true }));
        assert_eq!(parse("42 (a) Z 7"), None);
    }
}
