use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::{Order, Refused, Report};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::cpu;

/// How long a process has to leave once it is told.
const LEAVE: Duration = Duration::from_secs(5);
/// How much of what it complains about is kept.
const COMPLAINT: usize = 2_000;

/// One process of a participant. Dropping it kills the process and what it has started.
#[derive(Debug)]
pub(crate) struct Player {
    child: Child,
    id: u32,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    complaint: Arc<Mutex<String>>,
}

/// Why there is no measurement.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The library has no such thing.
    Cannot(String),
    /// It should have worked.
    Failed(String),
}

impl Player {
    pub(crate) fn start(program: &Path, order: &Order) -> Result<Self, Trouble> {
        let mut command = Command::new(program);
        command
            .args(order.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn();
        let mut child = child
            .map_err(|error| Trouble::Failed(format!("{} cannot be run: {error}", program.display())))?;
        let complaint = Arc::default();
        let output = child.stdout.take().expect("a piped output");
        tokio::spawn(listen(child.stderr.take().expect("a piped output"), Arc::clone(&complaint)));
        Ok(Self {
            id: child.id().expect("a process that was not waited for"),
            input: child.stdin.take(),
            output: BufReader::new(output).lines(),
            child,
            complaint,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Processor time so far, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        cpu::of_process(self.id).unwrap_or(0.0)
    }

    /// Waits until it has warmed up.
    pub(crate) async fn ready(&mut self, limit: Duration) -> Result<(), Trouble> {
        let line = self.line(limit).await?;
        if line == "ready" {
            return Ok(());
        }
        match serde_json::from_str::<Refused>(&line) {
            Ok(refused) => Err(Trouble::Cannot(refused.cannot)),
            Err(_) => Err(Trouble::Failed(format!("said {line:?} where it should say ready"))),
        }
    }

    /// The next line that it says.
    pub(crate) async fn line(&mut self, limit: Duration) -> Result<String, Trouble> {
        match tokio::time::timeout(limit, self.output.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => {
                // What it has to say about it may come a moment later.
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(Trouble::Failed(format!("ended early: {}", self.complaint())))
            }
            Ok(Err(error)) => Err(Trouble::Failed(error.to_string())),
            Err(_) => Err(Trouble::Failed(format!(
                "did not answer within {} s: {}",
                limit.as_secs(),
                self.complaint()
            ))),
        }
    }

    /// How it went.
    pub(crate) async fn report(&mut self, limit: Duration) -> Result<Report, Trouble> {
        let line = self.line(limit).await?;
        serde_json::from_str(&line)
            .map_err(|error| Trouble::Failed(format!("said what is no report: {error}")))
    }

    pub(crate) async fn tell(&mut self, line: &str) -> Result<(), Trouble> {
        let input = self.input.as_mut().expect("an input that is open until the end");
        let told = input.write_all(format!("{line}\n").as_bytes()).await;
        told.map_err(|error| Trouble::Failed(format!("does not listen: {error}; {}", self.complaint())))
    }

    /// Lets it go, and sees that it goes.
    pub(crate) async fn end(mut self) {
        self.input = None;
        let _ = tokio::time::timeout(LEAVE, self.child.wait()).await;
    }

    fn complaint(&self) -> String {
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner).trim().to_owned()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // Only while it was not waited for is the number certainly its own.
        if self.child.id().is_some()
            && let Some(group) = i32::try_from(self.id).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Keeps the beginning of what is complained about, and lets no pipe fill up.
async fn listen(mut errors: ChildStderr, complaint: Arc<Mutex<String>>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = errors.read(&mut buffer).await {
        let mut complaint = complaint.lock().unwrap_or_else(PoisonError::into_inner);
        if complaint.len() < COMPLAINT {
            complaint.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    }
}
