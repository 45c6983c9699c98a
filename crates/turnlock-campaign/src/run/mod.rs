//! The campaign on real servers: worker processes, faults, and their histories.
//!
//! ```text
//! RunOptions -> a Shape (single, sentinel, cluster, quorum, file), Workers
//! Injectors  -> faults of the servers, of the network and of the workers, two at a time
//! ```

mod cluster;
mod file;
mod injectors;
mod network;
mod options;
mod quorum;
mod redisson;
mod sentinel;
mod server;
mod shape;
mod single;
mod stalls;
pub(crate) mod worker;
mod workers;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use tokio::sync::Mutex;
use tokio::time::sleep;
use turnlock::Client;

use crate::checker;
use crate::history::{self, Available, Event, LockInfo, LockKind, ProcessState, What};
use crate::recorder::Recorder;
use injectors::Injectors;
pub(crate) use options::RunOptions;
use options::{ShapeName, WATCHDOG_MS};
use redisson::JavaWorkers;
use shape::{Shape, guarded};
use stalls::StallWatch;
use worker::WorkerConfig;
use workers::Workers;

/// What is reported if a run shows nothing because of its servers, and breaks no rule.
const NO_RECOVERY: &str = "the deployment does not recover";

/// How often servers may take too long to start or to recover.
const ATTEMPTS: u32 = 3;

/// Runs a campaign. Returns its history.
pub(crate) async fn run(options: &RunOptions) -> anyhow::Result<Vec<Event>> {
    options.validate()?;
    clear(&options.out).with_context(|| format!("cannot prepare {}", options.out.display()))?;
    let mut rng = Rng::with_seed(options.seed);
    let locks = options.lock_infos();
    // Held while the network is cut for one fault, so that no other fault mends it.
    let network = Arc::new(Mutex::new(()));
    let mut shape = start_again(options, &locks, &network).await?;
    let recorder = Arc::new(Recorder::new());
    let run = What::Run {
        seed: options.seed,
        shape: format!("{:?}, faults {:?}", options.shape, options.faults).to_lowercase(),
        promises: options.promises(),
        watchdog_ms: WATCHDOG_MS,
        locks: locks.clone(),
    };
    recorder.record(0, run);
    let watch = StallWatch::of_machine(&recorder);
    let counts = (options.redisson, options.tasks);
    let mut java = JavaWorkers::start(counts, &shape.urls()[0], &locks, &recorder, &mut rng).await?;
    let config = WorkerConfig {
        urls: shape.urls(),
        process: 0,
        seed: 0,
        tasks: options.tasks,
        locks: locks.clone(),
        replicas: shape.replicas(),
        watchdog_ms: WATCHDOG_MS,
        history: PathBuf::new(),
        start: recorder.start_micros(),
        long_holds: options.long_holds,
        nested: options.nested,
        bug: options.plant.clone(),
    };
    let mut workers = Workers::new(config, options, &*shape);
    for place in 1..=options.processes {
        workers.start(place, &mut rng).await?;
    }
    // Before the first fault, the permits of semaphores are set.
    sleep(Duration::from_secs(1)).await;
    let lasts = Duration::from_secs_f64(options.minutes * 60.0);
    let injectors = Injectors::new(&recorder, lasts, options, &network);
    let (of_servers, of_workers) = injectors.run(&mut *shape, &mut workers, &mut rng).await;
    let healed = heal(&mut *shape).await;
    recorder.record(0, What::Healed);
    let of_workers = of_workers.and(java.end().await).and(workers.end(&recorder).await);
    // The last leases, and requests that are late.
    sleep(Duration::from_secs(6)).await;
    let left = guarded(shape.left()).await;
    // After a loss of data, their number may be that of an older state.
    let available = if options.promises().exclusion {
        guarded(free_permits(&shape.urls()[0], &locks)).await
    } else {
        Ok(Vec::new())
    };
    let at_end = left.and_then(|left| Ok(What::End { left, available: available? }));
    let at_end = at_end.map(|end| recorder.record(0, end));
    drop(watch);
    let mut events = recorder.take();
    let is_kill = |event: &&Event| matches!(event.what, What::Process { is: ProcessState::Killed });
    let killed: HashMap<_, _> = events.iter().filter(is_kill).map(|event| (event.process, event.t)).collect();
    let is_failure = |event: &&Event| matches!(event.what, What::Process { is: ProcessState::Failed });
    let failed: HashSet<_> = events.iter().filter(is_failure).map(|event| event.process).collect();
    for (process, path) in &workers.histories {
        // A worker that was killed, or failed, may not have begun to write.
        let may_be_missing = killed.contains_key(process) || failed.contains(process);
        if path.exists() || !may_be_missing {
            events.extend(history::read_file(path)?);
        }
    }
    // What a process recorded between the call of kill and its end does not count.
    events.retain(|event| killed.get(&event.process).is_none_or(|killed| event.t <= *killed));
    // Of events at one time, those of the run itself come first.
    events.sort_by_key(|event| (event.t, event.process));
    history::write_file(&events, &options.out.join("history.jsonl"))?;
    if let Err(error) = of_servers.and(healed).and(at_end) {
        // Requests may fail then, and locks may be left. All other rules hold.
        let violations = checker::check_unfinished(&events).violations;
        anyhow::ensure!(violations.is_empty(), with_violations(&error, &violations));
        // Servers that do not recover are no reason for a worker to fail.
        of_workers?;
        return Err(error.context(NO_RECOVERY));
    }
    of_workers
        .map_err(|error| anyhow::anyhow!(with_violations(&error, &checker::check(&events).violations)))?;
    Ok(events)
}

/// Makes a directory for the histories, without those of the processes of an earlier run.
fn clear(out: &Path) -> io::Result<()> {
    fs::create_dir_all(out)?;
    for entry in fs::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("process-") && name.ends_with(".jsonl") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// The text of an error, and the rules that are broken in what there is of the history.
fn with_violations(error: &anyhow::Error, violations: &[String]) -> String {
    violations.iter().fold(format!("{error:#}"), |text, violation| format!("{text}\nVIOLATION {violation}"))
}

/// The free permits of all semaphores.
async fn free_permits(url: &str, locks: &[LockInfo]) -> anyhow::Result<Vec<Available>> {
    let client = Client::connect(url).await?;
    let mut free = Vec::new();
    for (lock, info) in locks.iter().enumerate() {
        let permits = match info.kind {
            LockKind::Semaphore => client.semaphore(&info.name).available().await?,
            LockKind::Permits => client.permit_semaphore(&info.name).available().await?,
            _ => continue,
        };
        free.push(Available { lock, permits });
    }
    Ok(free)
}

/// Starts the servers. On a busy machine, they may not agree in time: then they are started again.
async fn start_again(
    options: &RunOptions,
    locks: &[LockInfo],
    network: &Arc<Mutex<()>>,
) -> anyhow::Result<Box<dyn Shape>> {
    let mut outcome = guarded(start(options, locks, network)).await;
    for _ in 1..ATTEMPTS {
        if outcome.is_err() {
            outcome = guarded(start(options, locks, network)).await;
        }
    }
    outcome
}

/// Ends all faults.
async fn heal(shape: &mut dyn Shape) -> anyhow::Result<()> {
    let mut outcome = guarded(shape.heal()).await;
    for _ in 1..ATTEMPTS {
        if outcome.is_err() {
            outcome = guarded(shape.heal()).await;
        }
    }
    outcome
}

async fn start(
    options: &RunOptions,
    locks: &[LockInfo],
    network: &Arc<Mutex<()>>,
) -> anyhow::Result<Box<dyn Shape>> {
    let (program, level) = (options.server, options.faults);
    Ok(match options.shape {
        ShapeName::Single => Box::new(single::Single::start(level, options.redisson > 0).await?),
        ShapeName::Sentinel => Box::new(sentinel::Sentinel::start(program, level, Arc::clone(network)).await),
        ShapeName::Cluster => {
            let names = locks.iter().map(|lock| lock.name.clone()).collect();
            Box::new(cluster::Cluster::start(program, level, names).await)
        }
        ShapeName::Quorum => Box::new(quorum::Quorum::start().await),
        ShapeName::File => Box::new(file::FileStore::start(level)),
    })
}
