//! A program that a test drives.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::PeerThread;
use super::line::Line;
use crate::process::Process;
use crate::within;

/// How long a program may take to say that it is ready; a machine may be busy with several of them.
const START: Duration = Duration::from_secs(60);

/// A running program that understands the lines of `interop/README.md`. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Driver {
    /// `None` once killed.
    process: Option<Process>,
    line: Arc<Line>,
}

impl Driver {
    /// Starts the program and returns once it is ready.
    pub(crate) async fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(command);
        let (stdin, stdout) = process.pipes();
        let line = Arc::new(Line::new(stdin));
        let (ready, is_ready) = oneshot::channel();
        let reader = Arc::clone(&line);
        // A thread and not a task: a program may outlive the runtime of whoever started it.
        std::thread::spawn(move || reader.read(stdout, ready));
        let outcome = within(START, "the program is ready", is_ready).await;
        outcome.unwrap_or_else(|_| panic!("{command:?} ended, or said something else, before it was ready"));
        Self { process: Some(process), line }
    }

    pub(crate) fn thread(&self, name: &str) -> PeerThread {
        assert!(!name.is_empty() && !name.contains(char::is_whitespace), "{name:?} must be one word");
        PeerThread::new(Arc::clone(&self.line), name.to_owned())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("the program has not been killed").id()
    }

    pub(crate) async fn kill(&mut self) {
        let process = self.process.take();
        // A task of its own, since this waits, and finishes the work even when the caller gives up.
        let ended = tokio::task::spawn_blocking(move || drop(process));
        ended.await.expect("the program can be killed");
    }
}
