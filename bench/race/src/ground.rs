use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use contract::{Order, Work};

use crate::cpu;
use crate::entrant::Entrant;
use crate::measurement::Measurement;
use crate::player::{Player, Trouble};
use crate::server::Server;
use crate::snapshot::Snapshot;
use crate::spin::Spinners;

/// How long a process has to connect and warm up; many locks take their time.
const READY: Duration = Duration::from_secs(300);
/// How long it may take beyond the time that it was given.
const BEYOND: Duration = Duration::from_secs(60);

/// What every measurement happens on.
pub(crate) struct Ground {
    pub(crate) server: Server,
    pub(crate) spinners: Spinners,
    /// Whether it has to be over soon.
    pub(crate) quick: bool,
}

impl Ground {
    /// One work, done by processes that begin at the same time.
    pub(crate) async fn measure(&self, crew: &[&Entrant], order: &Order) -> Result<Measurement, Trouble> {
        let begun = Instant::now();
        self.prepare().await?;
        let counter = Counter::new()?;
        let order = Order {
            port: self.server.port(),
            lock: unique_name(),
            counter: counter.path.clone(),
            ..order.clone()
        };
        let mut players = Vec::new();
        for entrant in crew {
            let order = Order {
                warm_up: entrant.warm_up(order.warm_up, self.quick),
                kind: entrant.kind.clone(),
                ..order.clone()
            };
            players.push(Player::start(&entrant.program, &order)?);
        }
        for player in &mut players {
            player.ready(READY).await?;
        }
        let before = self.snapshot(&players).await?;
        for player in &mut players {
            player.tell("go").await?;
        }
        let limit = order.time() + Duration::from_millis(order.hold_ms) + BEYOND;
        let mut reports = Vec::new();
        for (player, entrant) in players.iter_mut().zip(crew) {
            reports.push((entrant.title(), player.report(limit).await?));
        }
        let after = self.snapshot(&players).await?;

        let direct: Vec<String> = reports.iter().flat_map(|(_, report)| report.direct.clone()).collect();
        let mut measurement = Measurement::of(reports);
        after.since(&before, &direct, &mut measurement);
        for (now, peak) in players.iter().filter_map(|player| cpu::memory(player.id())) {
            measurement.memory_kb += now;
            measurement.peak_memory_kb += peak;
        }
        match order.work {
            Work::Contend => {
                let updates = counter.read()?;
                measurement.lost_updates = Some(measurement.turns.cast_signed() - updates.cast_signed());
            }
            Work::Keep => {
                let names: Vec<String> =
                    (0..order.locks).map(|lock| format!("{}:{lock}", order.lock)).collect();
                let there = self.server.count(&names).await.map_err(Trouble::Failed)?;
                measurement.locks_lost = Some((order.locks as u64).saturating_sub(there));
            }
            Work::Pairs | Work::Herd | Work::Hand => {}
        }
        for player in players {
            player.end().await;
        }
        measurement.whole_seconds = begun.elapsed().as_secs_f64();
        Ok(measurement)
    }

    /// Leaves nothing of the measurement before.
    pub(crate) async fn prepare(&self) -> Result<(), Trouble> {
        self.server.settle().await;
        self.server.flush().await.map_err(Trouble::Failed)
    }

    async fn snapshot(&self, players: &[Player]) -> Result<Snapshot, Trouble> {
        Snapshot::take(&self.server, &self.spinners, &players.iter().collect::<Vec<_>>()).await
    }
}

/// A name that no measurement before has used.
pub(crate) fn unique_name() -> String {
    format!("race:{:08x}", fastrand::u32(..))
}

/// The file with the number that the lock protects.
struct Counter {
    file: File,
    path: PathBuf,
}

impl Counter {
    fn new() -> Result<Self, Trouble> {
        // In memory where there is such a place, so that no disk is measured.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = dir.join(format!("race-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|error| Trouble::Failed(format!("{}: {error}", path.display())))?;
        let counter = Self { file, path };
        counter.file.write_all_at(&[0; 8], 0).map_err(|error| Trouble::Failed(error.to_string()))?;
        Ok(counter)
    }

    fn read(&self) -> Result<u64, Trouble> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0).map_err(|error| Trouble::Failed(error.to_string()))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
