use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::{Report, Settings, Unsupported};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::cpu;

/// The time that a process has to exit after its input is closed.
const EXIT_LIMIT: Duration = Duration::from_secs(5);
/// The most bytes of its stderr that are stored.
const STDERR_LIMIT: usize = 2_000;

/// A process of a participant. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    id: u32,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    stderr: Arc<Mutex<String>>,
}

/// Why there is no measurement.
#[derive(Clone, Debug)]
pub(crate) enum MeasureError {
    /// The library has no such feature.
    Unsupported(String),
    /// It should have worked, and failed.
    Failed(String),
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(why) => write!(f, "unsupported: {why}"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

impl WorkerProcess {
    pub(crate) fn start(program: &Path, settings: &Settings) -> Result<Self, MeasureError> {
        let mut command = Command::new(program);
        command
            .args(settings.args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn();
        let mut child = child.map_err(|error| {
            MeasureError::Failed(format!("{} cannot be executed: {error}", program.display()))
        })?;
        let stderr = Arc::default();
        let output = child.stdout.take().expect("piped");
        tokio::spawn(read_stderr(child.stderr.take().expect("piped"), Arc::clone(&stderr)));
        Ok(Self {
            id: child.id().expect("a running process"),
            input: child.stdin.take(),
            output: BufReader::new(output).lines(),
            child,
            stderr,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Processor time so far, in seconds.
    pub(crate) fn cpu(&self) -> f64 {
        cpu::of_process(self.id).unwrap_or(0.0)
    }

    /// Waits until the process is connected and warmed up.
    pub(crate) async fn ready(&mut self, limit: Duration) -> Result<(), MeasureError> {
        let line = self.line(limit).await?;
        if line == "ready" {
            return Ok(());
        }
        match serde_json::from_str::<Unsupported>(&line) {
            Ok(reply) => Err(MeasureError::Unsupported(reply.unsupported)),
            Err(_) => Err(MeasureError::Failed(format!("sent {line:?} instead of ready"))),
        }
    }

    /// The next line of its output.
    pub(crate) async fn line(&mut self, limit: Duration) -> Result<String, MeasureError> {
        match tokio::time::timeout(limit, self.output.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => {
                // Its stderr may arrive a moment later.
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(MeasureError::Failed(format!("ended early: {}", self.stderr())))
            }
            Ok(Err(error)) => Err(MeasureError::Failed(error.to_string())),
            Err(_) => Err(MeasureError::Failed(format!(
                "did not reply within {} s: {}",
                limit.as_secs(),
                self.stderr()
            ))),
        }
    }

    /// The report at the end.
    pub(crate) async fn report(&mut self, limit: Duration) -> Result<Report, MeasureError> {
        let line = self.line(limit).await?;
        serde_json::from_str(&line)
            .map_err(|error| MeasureError::Failed(format!("sent an invalid report: {error}")))
    }

    pub(crate) async fn send(&mut self, line: &str) -> Result<(), MeasureError> {
        let input = self.input.as_mut().expect("open until the end");
        let written = input.write_all(format!("{line}\n").as_bytes()).await;
        written.map_err(|error| MeasureError::Failed(format!("closed its input: {error}; {}", self.stderr())))
    }

    /// Closes its input, and waits until it exits.
    pub(crate) async fn end(mut self) {
        self.input = None;
        let _ = tokio::time::timeout(EXIT_LIMIT, self.child.wait()).await;
    }

    fn stderr(&self) -> String {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).trim().to_owned()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // After it was waited for, the id may belong to another process.
        if self.child.id().is_some()
            && let Some(group) = i32::try_from(self.id).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Stores the beginning of the stderr, and drains the pipe.
async fn read_stderr(mut pipe: ChildStderr, stderr: Arc<Mutex<String>>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
        let mut stderr = stderr.lock().unwrap_or_else(PoisonError::into_inner);
        if stderr.len() < STDERR_LIMIT {
            stderr.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    }
}
