use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal, kill_process, setpgid};
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::process_tree::ProcessTree;
use super::spawn::spawn;

/// The running command and its descendants.
pub(crate) struct RunningCommand {
    /// Receives the pid.
    forked: pipe::Receiver,
    /// Known before the command is executed.
    pid: Option<Pid>,
    /// Signals from before the pid was known.
    unsent: Vec<Signal>,
    spawned: oneshot::Receiver<io::Result<Child>>,
    /// Known once the command is executed.
    child: Option<Child>,
    process_tree: ProcessTree,
    /// Lets the spawning thread end when it is dropped.
    _running: mpsc::Sender<()>,
}

/// A change of the command.
#[derive(Debug)]
pub(crate) enum Change {
    /// It is executed, with this pid.
    Started(Pid),
    /// It cannot be executed.
    SpawnFailed(io::Error),
    /// It has exited, or was killed before it was executed.
    Exited(io::Result<ExitStatus>),
}

impl RunningCommand {
    /// Spawns the command with inherited standard streams. A variable without a value is removed.
    ///
    /// A thread of its own spawns it: an exec may take long, on a file system that does not reply, and meanwhile the lock
    /// is renewed and can be lost. The thread lives as long as the command, which the kernel kills with it.
    pub(crate) fn start(
        command_line: Vec<OsString>,
        variables: Vec<(&'static str, Option<String>)>,
    ) -> io::Result<Self> {
        let (pid_pipe, forked) = pipe::pipe()?;
        let pid_pipe = pid_pipe.into_nonblocking_fd()?;
        let (sender, spawned) = oneshot::channel();
        let (running, ended) = mpsc::channel::<()>();
        let runtime = Handle::current();
        let run = move || {
            let child = {
                let _entered = runtime.enter();
                spawn(&command_line, &variables, pid_pipe)
            };
            let _ = sender.send(child);
            let _ = ended.recv();
        };
        thread::Builder::new().name("command".to_owned()).spawn(run)?;
        Ok(Self {
            forked,
            pid: None,
            unsent: Vec::new(),
            spawned,
            child: None,
            process_tree: ProcessTree::default(),
            _running: running,
        })
    }

    /// The pid, once it is known.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// Waits until the command is executed, and then until it exits. Cancel safe.
    ///
    /// Also sends signals that could not be sent before.
    pub(crate) async fn next(&mut self) -> Change {
        if let Some(child) = &mut self.child {
            return Change::Exited(child.wait().await);
        }
        if self.pid.is_none() {
            self.pid = read_pid(&self.forked).await;
            for signal in std::mem::take(&mut self.unsent) {
                self.signal(signal);
            }
        }
        match (&mut self.spawned).await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(child) => {
                let child = self.child.insert(child);
                match self.pid.filter(|pid| is_executed(*pid)) {
                    Some(pid) => Change::Started(pid),
                    None => Change::Exited(child.wait().await),
                }
            }
            Err(error) => Change::SpawnFailed(error),
        }
    }

    /// Sends a signal to the command alone, or to the process that will execute it, as soon as its pid is known.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if let Some(pid) = self.live_pid() {
            // It may have exited meanwhile. Its pid is not reused before it is waited for: by `next`, or by `spawn` if it
            // cannot execute the command.
            let _ = kill_process(pid, signal);
        } else if self.pid.is_none() {
            self.unsent.push(signal);
        }
    }

    /// Sends TERM to the command and its descendants.
    pub(crate) fn terminate(&mut self) {
        if let Some(pid) = self.live_pid() {
            self.process_tree.scan(pid.as_raw_nonzero().get());
        }
        self.signal_all(Signal::TERM);
    }

    /// Sends KILL to the command and its descendants.
    pub(crate) fn kill(&mut self) {
        if let Some(pid) = self.live_pid() {
            self.process_tree.stop(pid);
        }
        self.signal_all(Signal::KILL);
    }

    fn signal_all(&mut self, signal: Signal) {
        self.signal(signal);
        self.process_tree.signal(signal);
    }

    /// Returns `true` if a known descendant is running.
    pub(crate) fn has_descendants(&self) -> bool {
        self.process_tree.is_alive()
    }

    /// The pid, if the command was not waited for yet.
    fn live_pid(&self) -> Option<Pid> {
        self.pid.filter(|_| self.child.as_ref().is_none_or(|child| child.id().is_some()))
    }
}

/// Waits for the pid that the forked process writes. `None` if it cannot be forked. Cancel safe.
async fn read_pid(forked: &pipe::Receiver) -> Option<Pid> {
    let mut pid = [0; size_of::<i32>()];
    loop {
        forked.readable().await.ok()?;
        match forked.try_read(&mut pid) {
            // Written as a whole.
            Ok(length) => return Pid::from_raw(i32::from_ne_bytes(pid)).filter(|_| length == pid.len()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

/// Returns `true` if a spawned child has executed the command, and `false` if it was killed before.
fn is_executed(pid: Pid) -> bool {
    // The process group of a child can be set only before it executes a program.
    setpgid(Some(pid), None).is_err()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_signal_from_before_the_fork_reaches_the_command_and_no_other_child() {
        for (end, signal) in
            [(RunningCommand::terminate as fn(&mut _), Signal::TERM), (RunningCommand::kill, Signal::KILL)]
        {
            let mut other = std::process::Command::new("sleep").arg("300").spawn().unwrap();
            let mut command = RunningCommand::start(vec!["sleep".into(), "300".into()], Vec::new()).unwrap();
            end(&mut command);
            let exited = async {
                loop {
                    if let Change::Exited(status) = command.next().await {
                        break status.unwrap();
                    }
                }
            };
            let status = tokio::time::timeout(Duration::from_secs(60), exited).await;
            let other_exited = other.try_wait().unwrap();
            other.kill().unwrap();
            other.wait().unwrap();
            assert_eq!(status.unwrap().signal(), Some(signal.as_raw()));
            assert_eq!(other_exited, None);
        }
    }
}
