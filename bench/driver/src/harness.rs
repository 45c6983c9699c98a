use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use contract::{Settings, Workload};
use tokio::sync::OnceCell;

use crate::busy_loops::BusyLoops;
use crate::cpu;
use crate::measurement::Measurement;
use crate::server::Server;
use crate::snapshot::Snapshot;
use crate::variant::Variant;
use crate::worker_process::{MeasureError, WorkerProcess};

/// The limit to connect and warm up, which includes acquiring many locks.
const READY_LIMIT: Duration = Duration::from_secs(300);
/// The time that a process may take beyond its duration.
const GRACE: Duration = Duration::from_secs(60);

/// The server and the settings that all measurements share.
pub(crate) struct Harness {
    pub(crate) server: Server,
    /// Started by the first measurement that needs it: idle servers use the processor too.
    pub(crate) cluster: OnceCell<Server>,
    pub(crate) busy_loops: BusyLoops,
    /// `true` for a rough, short run.
    pub(crate) quick: bool,
}

impl Harness {
    /// Measures a workload of processes that start at the same time.
    pub(crate) async fn measure(
        &self,
        variants: &[&Variant],
        settings: &Settings,
        on_cluster: bool,
    ) -> Result<Measurement, MeasureError> {
        let begun = Instant::now();
        let server = if on_cluster {
            let cluster = self.cluster.get_or_try_init(Server::start_cluster).await;
            cluster.map_err(MeasureError::Failed)?
        } else {
            &self.server
        };
        prepare(server).await?;
        let counter = Counter::new()?;
        let settings = Settings {
            port: server.ports()[0],
            cluster: if on_cluster { server.ports() } else { Vec::new() },
            lock: unique_name(),
            counter: counter.path.clone(),
            ..settings.clone()
        };
        let mut processes = Vec::new();
        for variant in variants {
            let settings = Settings {
                warm_up: variant.warm_up(settings.warm_up, self.quick),
                kind: variant.kind.clone(),
                ..settings.clone()
            };
            processes.push(WorkerProcess::start(&variant.program, &settings)?);
        }
        for process in &mut processes {
            process.ready(READY_LIMIT).await?;
        }
        let before = self.snapshot(server, &processes).await?;
        for process in &mut processes {
            process.send("go").await?;
        }
        let limit = settings.time() + Duration::from_millis(settings.hold_ms) + GRACE;
        let mut reports = Vec::new();
        for (process, variant) in processes.iter_mut().zip(variants) {
            reports.push((variant.title(), process.report(limit).await?));
        }
        let after = self.snapshot(server, &processes).await?;

        let direct: Vec<String> = reports.iter().flat_map(|(_, report)| report.direct.clone()).collect();
        let mut measurement = Measurement::of(reports);
        after.since(&before, &direct, &mut measurement);
        for (now, peak) in processes.iter().filter_map(|process| cpu::memory(process.id())) {
            measurement.memory_kb += now;
            measurement.peak_memory_kb += peak;
        }
        match settings.workload {
            Workload::Contend => {
                let updates = counter.read()?;
                measurement.lost_updates = Some(measurement.turns.cast_signed() - updates.cast_signed());
            }
            Workload::Hold => {
                let names: Vec<String> =
                    (0..settings.locks).map(|lock| format!("{}:{lock}", settings.lock)).collect();
                let existing = server.count_existing(&names).await.map_err(MeasureError::Failed)?;
                measurement.locks_lost = Some((settings.locks as u64).saturating_sub(existing));
            }
            Workload::Pairs | Workload::Herd | Workload::WakeUp => {}
        }
        for process in processes {
            process.end().await;
        }
        measurement.whole_seconds = begun.elapsed().as_secs_f64();
        Ok(measurement)
    }

    async fn snapshot(&self, server: &Server, processes: &[WorkerProcess]) -> Result<Snapshot, MeasureError> {
        Snapshot::take(server, &self.busy_loops, &processes.iter().collect::<Vec<_>>()).await
    }
}

/// Removes all traces of the measurement before.
pub(crate) async fn prepare(server: &Server) -> Result<(), MeasureError> {
    server.until_disconnected().await;
    server.flush().await.map_err(MeasureError::Failed)
}

/// A lock name that no earlier measurement has used.
pub(crate) fn unique_name() -> String {
    format!("bench:{:08x}", fastrand::u32(..))
}

/// The file with the counter that the lock protects.
struct Counter {
    file: File,
    path: PathBuf,
}

impl Counter {
    fn new() -> Result<Self, MeasureError> {
        // In memory where possible, so that the disk does not affect the measurement.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = dir.join(format!("turnlock-bench-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|error| MeasureError::Failed(format!("{}: {error}", path.display())))?;
        let counter = Self { file, path };
        counter.file.write_all_at(&[0; 8], 0).map_err(|error| MeasureError::Failed(error.to_string()))?;
        Ok(counter)
    }

    fn read(&self) -> Result<u64, MeasureError> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0).map_err(|error| MeasureError::Failed(error.to_string()))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
