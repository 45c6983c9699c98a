//! A program that a test drives.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::PeerThread;
use super::driver_pipe::DriverPipe;
use crate::servers::process::Process;
use crate::within;

/// How long a program may take to start on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running program with the line protocol of `interop/README.md`. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Driver {
    /// `None` once killed.
    process: Option<Process>,
    pipe: Arc<DriverPipe>,
}

impl Driver {
    /// Starts the program and returns once it is ready.
    pub(crate) async fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(command);
        let (stdin, stdout) = process.pipes();
        let pipe = Arc::new(DriverPipe::new(stdin));
        let (ready, is_ready) = oneshot::channel();
        let reader = Arc::clone(&pipe);
        // A thread and not a task: the program may outlive the runtime of the test that started it.
        std::thread::spawn(move || reader.read(stdout, ready));
        let outcome = within(START_LIMIT, "the program is ready", is_ready).await;
        outcome.unwrap_or_else(|_| panic!("{command:?} did not print `ready` first"));
        Self { process: Some(process), pipe }
    }

    pub(crate) fn thread(&self, name: &str) -> PeerThread {
        assert!(!name.is_empty() && !name.contains(char::is_whitespace), "{name:?} must be one word");
        PeerThread::new(Arc::clone(&self.pipe), name.to_owned())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("the program has not been killed").id()
    }

    pub(crate) async fn kill(&mut self) {
        let process = self.process.take();
        // Dropping blocks; and in its own task it completes even if the caller is cancelled.
        let ended = tokio::task::spawn_blocking(move || drop(process));
        ended.await.expect("the program can be killed");
    }
}
