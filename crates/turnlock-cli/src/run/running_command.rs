use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use super::family::Family;
use super::starter;

/// The command, from its start to its end.
pub(crate) struct RunningCommand {
    child: Child,
    pid: u32,
    family: Family,
}

impl RunningCommand {
    /// Starts the command with our input and outputs. Must be called on the thread that lives as long as the program.
    /// A variable without a value is taken away.
    pub(crate) fn start(words: &[OsString], variables: &[(&str, Option<String>)]) -> io::Result<Self> {
        let mut command = starter::command(words);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // However this program ends, the command does not go on without its lock.
        let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let pid = child.id().unwrap_or_default();
        Ok(Self { child, pid, family: Family::default() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end. Cancelling: safe.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends a signal to the command alone.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.living() {
            // It may have ended meanwhile; its number is nobody else's until it is waited for.
            let _ = kill_process(pid, signal);
        }
    }

    /// Tells the command and its descendants to end.
    pub(crate) fn terminate(&mut self) {
        if let Some(pid) = self.living() {
            self.family.gather(pid.as_raw_nonzero().get());
        }
        self.signal(Signal::TERM);
        self.family.signal(Signal::TERM);
    }

    /// Ends the command and its descendants.
    pub(crate) fn kill(&mut self) {
        if let Some(pid) = self.living() {
            self.family.stop(pid);
        }
        self.signal(Signal::KILL);
        self.family.signal(Signal::KILL);
    }

    /// Whether descendants still run that were told to end.
    pub(crate) fn has_descendants(&self) -> bool {
        self.family.is_alive()
    }

    fn living(&self) -> Option<Pid> {
        self.child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?))
    }
}
