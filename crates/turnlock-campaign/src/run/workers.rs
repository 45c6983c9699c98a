//! The worker processes.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, timeout_at};
use turnlock_testkit::{Minority, NetworkNamespace};

use crate::history::{ProcessState, What};
use crate::recorder::Recorder;

use super::RunOptions;
use super::shape::{Injection, Shape};
use super::worker::WorkerConfig;

/// Stops one worker for a while, or kills it and starts another one.
pub(super) const FAULTS: [&str; 2] = ["stop_worker", "kill_worker"];

/// The worker processes of a run.
pub(super) struct Workers {
    /// With the number, the seed and the history of no process.
    config: WorkerConfig,
    out: PathBuf,
    /// How long they may take to end after the last fault.
    last_turns: Duration,
    /// Where every second process belongs.
    minority: Option<Minority>,
    /// Where every third process runs, with its URL of the store.
    namespace: Option<(Arc<NetworkNamespace>, String)>,
    next: u32,
    live: Vec<Worker>,
    /// The histories of all processes by their numbers, also of those that were killed.
    pub(super) histories: Vec<(u32, PathBuf)>,
}

struct Worker {
    number: u32,
    place: u32,
    child: Child,
    /// The worker ends when this is closed.
    stdin: ChildStdin,
}

impl Workers {
    /// Starts no process yet. The first one gets the number after those of Redisson.
    pub(super) fn new(config: WorkerConfig, options: &RunOptions, shape: &dyn Shape) -> Self {
        Self {
            config,
            out: options.out.clone(),
            last_turns: Duration::from_secs(options.last_turns),
            minority: shape.minority(),
            namespace: shape.namespace(),
            next: options.redisson + 1,
            live: Vec::new(),
            histories: Vec::new(),
        }
    }

    /// Starts a process at a place: every second one is with the minority, every third one in the other namespace.
    pub(super) async fn start(&mut self, place: u32, rng: &mut Rng) -> anyhow::Result<()> {
        let number = self.next;
        self.next += 1;
        let history = self.out.join(format!("process-{number}.jsonl"));
        let namespace = self.namespace.as_ref().filter(|_| place.is_multiple_of(3));
        let config = WorkerConfig {
            urls: namespace.map_or_else(|| self.config.urls.clone(), |(_, url)| vec![url.clone()]),
            process: number,
            seed: rng.u64(..),
            history: history.clone(),
            ..self.config.clone()
        };
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = match namespace {
            Some((namespace, _)) => Command::from(namespace.command(program.as_os_str())),
            None => Command::new(program),
        };
        let mut child = command.arg("worker").stdin(Stdio::piped()).kill_on_drop(true).spawn()?;
        if let Some((minority, pid)) = self.minority.as_ref().zip(child.id())
            && place.is_multiple_of(2)
        {
            minority.add(pid);
        }
        let mut stdin = child.stdin.take().context("a pipe to the worker")?;
        stdin.write_all(format!("{}\n", serde_json::to_string(&config)?).as_bytes()).await?;
        self.histories.push((number, history));
        self.live.push(Worker { number, place, child, stdin });
        Ok(())
    }

    /// Injects a fault of [`FAULTS`], and ends it.
    pub(super) async fn inject(
        &mut self,
        fault: &mut Injection<'_>,
        recorder: &Recorder,
    ) -> anyhow::Result<()> {
        let index = fault.rng.usize(..self.live.len());
        let number = self.live[index].number;
        fault.begin(&format!("process {number}"));
        if fault.name == "stop_worker" {
            self.live[index].signal("-STOP").await?;
            recorder.record(number, What::Process { is: ProcessState::Stopped });
            fault.last().await;
            recorder.record(number, What::Process { is: ProcessState::Continued });
            self.live[index].signal("-CONT").await?;
        } else {
            let mut worker = self.live.swap_remove(index);
            if let Some(status) = worker.child.try_wait()? {
                record_failure(recorder, number, status);
            } else {
                // Before it, since the store may notice the end earlier than this program.
                recorder.record(number, What::Process { is: ProcessState::Killed });
                worker.child.kill().await?;
            }
            self.start(worker.place, fault.rng).await?;
        }
        Ok(())
    }

    /// Lets all workers end, at the same time. Records and kills those that do not, and records those that fail.
    pub(super) async fn end(&mut self, recorder: &Recorder) -> anyhow::Result<()> {
        let limit = Instant::now() + self.last_turns;
        let mut ending = Vec::new();
        for Worker { number, child, stdin, .. } in std::mem::take(&mut self.live) {
            drop(stdin);
            ending.push((number, child));
        }
        for (number, mut child) in ending {
            let Ok(status) = timeout_at(limit, child.wait()).await else {
                recorder.record(number, What::Process { is: ProcessState::Stuck });
                child.kill().await?;
                continue;
            };
            let status = status?;
            if !status.success() {
                record_failure(recorder, number, status);
            }
        }
        Ok(())
    }
}

fn record_failure(recorder: &Recorder, number: u32, status: ExitStatus) {
    eprintln!("process {number} failed: {status}");
    recorder.record(number, What::Process { is: ProcessState::Failed });
}

impl Worker {
    async fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let id = self.child.id().context("the worker has ended")?;
        let status = Command::new("kill").arg(signal).arg(id.to_string()).status().await?;
        anyhow::ensure!(status.success(), "kill {signal} {id}: {status}");
        Ok(())
    }
}
