use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use super::exec_helper;
use super::process_tree::ProcessTree;

/// The running command and its descendants.
pub(crate) struct RunningCommand {
    child: Child,
    pid: u32,
    process_tree: ProcessTree,
}

impl RunningCommand {
    /// Spawns the command with inherited standard streams. A variable without a value is removed.
    ///
    /// Must be called on the main thread: the parent-death signal is sent when the spawning thread exits.
    pub(crate) fn start(command_line: &[OsString], variables: &[(&str, Option<String>)]) -> io::Result<Self> {
        let mut command = exec_helper::command(command_line);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // The command must not run on without its lock if this program fails.
        let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let pid = child.id().unwrap_or_default();
        Ok(Self { child, pid, process_tree: ProcessTree::default() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the command exits. Cancel safe.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends a signal to the command alone.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.live_pid() {
            // It may have exited meanwhile. Its pid is not reused before it is waited for.
            let _ = kill_process(pid, signal);
        }
    }

    /// Sends TERM to the command and its descendants.
    pub(crate) fn terminate(&mut self) {
        if let Some(pid) = self.live_pid() {
            self.process_tree.scan(pid.as_raw_nonzero().get());
        }
        self.signal(Signal::TERM);
        self.process_tree.signal(Signal::TERM);
    }

    /// Sends KILL to the command and its descendants.
    pub(crate) fn kill(&mut self) {
        if let Some(pid) = self.live_pid() {
            self.process_tree.stop(pid);
        }
        self.signal(Signal::KILL);
        self.process_tree.signal(Signal::KILL);
    }

    /// Returns `true` if a known descendant is running.
    pub(crate) fn has_descendants(&self) -> bool {
        self.process_tree.is_alive()
    }

    fn live_pid(&self) -> Option<Pid> {
        self.child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?))
    }
}
