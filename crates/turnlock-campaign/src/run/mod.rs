//! The campaign on real servers: worker processes, faults, and their histories.

mod single;
pub(crate) mod worker;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fastrand::Rng;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};
use turnlock_store::clock;

use crate::history::{self, Event, LockInfo, LockKind, ProcessState, Promises, What};
use crate::recorder::Recorder;
use worker::WorkerConfig;

/// How a campaign is run.
#[derive(Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// How long faults are injected, in minutes
    #[arg(long, default_value_t = 1.0)]
    pub(crate) minutes: f64,
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Worker processes
    #[arg(long, default_value_t = 4)]
    pub(crate) processes: u32,
    /// Tasks in each process
    #[arg(long, default_value_t = 4)]
    pub(crate) tasks: u32,
    /// Where the histories and the report are written
    #[arg(long, default_value = "target/campaign", value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// The lease of a hold that is renewed.
const WATCHDOG_MS: u64 = 3_000;

/// How long workers may take to end after the last fault.
const LAST_TURNS: Duration = Duration::from_secs(200);

/// Runs a campaign. Returns its history.
pub(crate) async fn run(options: &RunOptions) -> anyhow::Result<Vec<Event>> {
    fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let mut rng = Rng::with_seed(options.seed);
    // Permits without a lease do not return from a killed process.
    let kinds = LockKind::ALL.into_iter().filter(|kind| !kind.is_unleased()).enumerate();
    let locks: Vec<_> = kinds
        .map(|(number, kind)| LockInfo {
            name: format!("{kind:?}-{number}").to_lowercase(),
            kind,
            permits: 2,
        })
        .collect();
    let recorder = Arc::new(Recorder::new());
    let run = What::Run {
        seed: options.seed,
        shape: "single".to_owned(),
        promises: Promises {
            exclusion: true,
            rising_tokens: true,
            data: true,
            order: false,
            delivery: false,
        },
        watchdog_ms: WATCHDOG_MS,
        locks: locks.clone(),
    };
    recorder.record(0, run);
    let mut deployment = single::Single::start().await;
    let config = WorkerConfig {
        url: deployment.url(),
        process: 0,
        seed: 0,
        tasks: options.tasks,
        locks,
        replicas: 0,
        watchdog_ms: WATCHDOG_MS,
        history: PathBuf::new(),
        start: clock::now().as_micros() - recorder.at(clock::now()),
    };
    let mut workers =
        Workers { config, out: options.out.clone(), next: 1, live: Vec::new(), histories: Vec::new() };
    for _ in 0..options.processes {
        workers.start(&mut rng).await?;
    }
    // Before the first fault, the permits of semaphores are set.
    sleep(Duration::from_secs(1)).await;
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    while Instant::now() < end {
        sleep(Duration::from_millis(rng.u64(50..1_500))).await;
        if rng.u8(..4) == 0 {
            workers.disturb(&recorder, &mut rng).await?;
        } else {
            deployment.disturb(&recorder, &mut rng).await;
        }
    }
    deployment.heal().await;
    recorder.record(0, What::Healed);
    workers.end().await?;
    // The last leases, and requests that are late.
    sleep(Duration::from_secs(5)).await;
    recorder.record(0, What::End { left: deployment.held().await, available: Vec::new() });
    let mut events = recorder.take();
    for path in &workers.histories {
        events.extend(history::read_file(path)?);
    }
    // Of events at one time, those of the run itself come first.
    events.sort_by_key(|event| (event.t, event.process));
    history::write_file(&events, &options.out.join("history.jsonl"))?;
    Ok(events)
}

/// The worker processes.
struct Workers {
    /// With the number, the seed and the history of no process.
    config: WorkerConfig,
    out: PathBuf,
    next: u32,
    live: Vec<Worker>,
    /// The histories of all processes, also of those that were killed.
    histories: Vec<PathBuf>,
}

struct Worker {
    number: u32,
    child: Child,
    /// The worker ends when this is closed.
    stdin: ChildStdin,
}

impl Workers {
    async fn start(&mut self, rng: &mut Rng) -> anyhow::Result<()> {
        use tokio::io::AsyncWriteExt as _;

        let number = self.next;
        self.next += 1;
        let history = self.out.join(format!("process-{number}.jsonl"));
        let config = WorkerConfig {
            process: number,
            seed: rng.u64(..),
            history: history.clone(),
            ..self.config.clone()
        };
        let program = std::env::current_exe().context("the path of this program")?;
        let mut child =
            Command::new(program).arg("worker").stdin(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut stdin = child.stdin.take().context("a pipe to the worker")?;
        stdin.write_all(format!("{}\n", serde_json::to_string(&config)?).as_bytes()).await?;
        self.histories.push(history);
        self.live.push(Worker { number, child, stdin });
        Ok(())
    }

    /// Stops one worker for a while, or kills it and starts another one.
    async fn disturb(&mut self, recorder: &Recorder, rng: &mut Rng) -> anyhow::Result<()> {
        let index = rng.usize(..self.live.len());
        let number = self.live[index].number;
        if rng.bool() {
            let lasts = Duration::from_millis(rng.u64(100..6_000));
            recorder.record(0, What::fault("stop", &format!("process {number}, {lasts:?}"), false));
            self.live[index].signal("-STOP").await?;
            recorder.record(number, What::Process { is: ProcessState::Stopped });
            sleep(lasts).await;
            recorder.record(number, What::Process { is: ProcessState::Continued });
            self.live[index].signal("-CONT").await?;
            recorder.record(0, What::fault("stop", &format!("process {number}"), true));
        } else {
            recorder.record(0, What::fault("kill", &format!("process {number}"), false));
            let mut worker = self.live.swap_remove(index);
            worker.child.kill().await?;
            recorder.record(number, What::Process { is: ProcessState::Killed });
            self.start(rng).await?;
            recorder.record(0, What::fault("kill", &format!("process {number}"), true));
        }
        Ok(())
    }

    /// Lets all workers end.
    async fn end(&mut self) -> anyhow::Result<()> {
        for Worker { number, mut child, stdin } in std::mem::take(&mut self.live) {
            drop(stdin);
            let status = timeout(LAST_TURNS, child.wait()).await;
            let status = status.with_context(|| format!("process {number} does not end"))??;
            anyhow::ensure!(status.success(), "process {number} failed: {status}");
        }
        Ok(())
    }
}

impl Worker {
    async fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let id = self.child.id().context("the worker has ended")?;
        let status = Command::new("kill").arg(signal).arg(id.to_string()).status().await?;
        anyhow::ensure!(status.success(), "kill {signal} {id}: {status}");
        Ok(())
    }
}
