//! A worker process: its tasks take turns until its standard input ends.

use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use turnlock::Client;
use turnlock_core::planted::Bug;

use crate::history::{LockInfo, ProcessState, What};
use crate::recorder::Recorder;
use crate::workload::{LAST_REQUESTS, Workload};

use super::stalls::StallWatch;

/// What a worker does, in one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerConfig {
    pub(crate) urls: Vec<String>,
    pub(crate) process: u32,
    pub(crate) seed: u64,
    pub(crate) tasks: u32,
    pub(crate) locks: Vec<LockInfo>,
    pub(crate) replicas: u32,
    pub(crate) watchdog_ms: u64,
    /// Where its history is written.
    pub(crate) history: PathBuf,
    /// The start of the run, in microseconds of the clock that all processes of the machine share.
    pub(crate) start: u64,
    /// How many of 100 holds last long.
    pub(crate) long_holds: u8,
    /// How many of 100 holders acquire another lock meanwhile.
    pub(crate) nested: u8,
    /// The bug to plant.
    pub(crate) bug: Option<String>,
}

/// How often a worker records how much memory it has.
const MEMORY_PERIOD: Duration = Duration::from_secs(10);

/// How often a worker looks for deadlocks.
const DEADLOCK_PERIOD: Duration = Duration::from_secs(1);

/// Runs a worker: reads its configuration from the first line of the standard input, and ends after the last one.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let config: WorkerConfig = serde_json::from_str(&line).context("the configuration of a worker")?;
    let (ending, is_ending) = watch::channel(false);
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        ending.send_replace(true);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(work(config, is_ending))
}

async fn work(config: WorkerConfig, is_ending: watch::Receiver<bool>) -> anyhow::Result<()> {
    let WorkerConfig {
        urls,
        process,
        seed,
        tasks,
        locks,
        replicas,
        watchdog_ms,
        history,
        start,
        long_holds,
        nested,
        bug,
    } = config;
    Bug::plant(bug.as_deref().and_then(Bug::named));
    let file = File::create(&history).with_context(|| format!("cannot write {}", history.display()))?;
    let recorder = Arc::new(Recorder::to_file(start, process, file));
    record_panics(&recorder, process);
    recorder.record(process, What::Process { is: ProcessState::Started });
    let builder = Client::builder().watchdog_timeout(Duration::from_millis(watchdog_ms));
    let mut clients = Vec::new();
    for url in urls {
        let client = loop {
            match builder.clone().connect(&url).await {
                Ok(client) => break client,
                // The server may be down.
                Err(_) if !*is_ending.borrow() => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        clients.push(client);
    }
    let owners = (0..2).map(|_| clients[0].owner()).collect();
    let workload = Workload {
        clients,
        owners,
        process,
        locks: locks.into(),
        recorder,
        replicas,
        watchdog_ms,
        long_holds,
        nested,
        gate: None,
        is_ending,
    };
    while workload.prepare().await.is_err() && !*workload.is_ending.borrow() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut rng = Rng::with_seed(seed);
    let tasks: Vec<_> =
        (0..tasks).map(|_| tokio::spawn(workload.clone().run(u32::MAX, rng.fork()))).collect();
    // The store may lose the number of permits.
    let preparing = tokio::spawn({
        let workload = workload.clone();
        async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let _ = workload.prepare().await;
            }
        }
    });
    let measuring = tokio::spawn({
        let recorder = Arc::clone(&workload.recorder);
        async move {
            loop {
                tokio::time::sleep(MEMORY_PERIOD).await;
                record_memory(&recorder, process);
            }
        }
    });
    let searching = tokio::spawn({
        let workload = workload.clone();
        async move {
            loop {
                tokio::time::sleep(DEADLOCK_PERIOD).await;
                workload.record_deadlocks().await;
            }
        }
    });
    let _watch = StallWatch::of_process(&workload.recorder, process);
    for task in tasks {
        task.await?;
    }
    workload.acquire_each().await;
    for task in [preparing, measuring, searching] {
        task.abort();
    }
    record_memory(&workload.recorder, process);
    workload.shut_down(LAST_REQUESTS).await;
    workload.recorder.record(process, What::Process { is: ProcessState::ShutDown });
    io::stdout().flush()?;
    Ok(())
}

/// Records panics, also those of tasks that are not awaited.
fn record_panics(recorder: &Arc<Recorder>, process: u32) {
    let (recorder, print) = (Arc::clone(recorder), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        recorder.record(process, What::Process { is: ProcessState::Panicked });
    }));
}

fn record_memory(recorder: &Recorder, process: u32) {
    if let Some(kib) = memory() {
        recorder.record(process, What::Memory { kib });
    }
}

/// The memory of this process in KiB. `None` where the system does not say.
fn memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
