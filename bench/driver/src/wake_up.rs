//! Wake-up latency: the time from a release in one process to the grant in another.

use std::time::{Duration, Instant};

use contract::{Settings, Workload};

use crate::harness::{Harness, prepare, unique_name};
use crate::measurement::Measurement;
use crate::percentile::percentile;
use crate::snapshot::Snapshot;
use crate::variant::Variant;
use crate::worker_process::{MeasureError, WorkerProcess};

/// The limit for each step.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// The limit for all rounds together.
const TOTAL_LIMIT: Duration = Duration::from_secs(25);
/// The number of rounds after which polling is detected.
const DETECTION_ROUNDS: usize = 20;
/// A median above this, in nanoseconds, means that the library polls.
const POLLING: u64 = 10_000_000;

impl Harness {
    /// Measures `rounds` rounds, or fewer if they take long.
    pub(crate) async fn measure_wake_up(
        &self,
        variant: &Variant,
        rounds: usize,
    ) -> Result<Measurement, MeasureError> {
        let begun = Instant::now();
        prepare(&self.server).await?;
        let settings = Settings {
            port: self.server.ports()[0],
            lock: unique_name(),
            warm_up: variant.warm_up(200, self.quick),
            kind: variant.kind.clone(),
            ..Settings::new(Workload::WakeUp)
        };
        let mut holder = WorkerProcess::start(&variant.program, &settings)?;
        let mut waiter = WorkerProcess::start(&variant.program, &settings)?;
        holder.ready(STEP_LIMIT).await?;
        waiter.ready(STEP_LIMIT).await?;

        let mut hold_ms = 5..20;
        let mut nanos = Vec::new();
        let mut early = 0;
        let before = Snapshot::take(&self.server, &self.busy_loops, &[&holder, &waiter]).await?;
        let start = Instant::now();
        while nanos.len() < rounds && start.elapsed() < TOTAL_LIMIT {
            holder.send("lock").await?;
            holder.line(STEP_LIMIT).await?;
            waiter.send("wait").await?;
            waiter.line(STEP_LIMIT).await?;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(hold_ms.clone()))).await;
            holder.send("unlock").await?;
            let released = number(&holder.line(STEP_LIMIT).await?)?;
            let granted = number(&waiter.line(STEP_LIMIT).await?)?;
            match granted.checked_sub(released) {
                Some(time) => nanos.push(time),
                None => early += 1,
            }
            if nanos.len() == DETECTION_ROUNDS && hold_ms.end == 20 {
                let mut sorted = nanos.clone();
                sorted.sort_unstable();
                if percentile(&sorted, 50) > Some(POLLING) {
                    // The release has to fall anywhere between two polls.
                    hold_ms = 10..310;
                    nanos.clear();
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let after = Snapshot::take(&self.server, &self.busy_loops, &[&holder, &waiter]).await?;
        holder.end().await;
        waiter.end().await;

        let mut measurement =
            Measurement { turns: nanos.len() as u64, seconds, errors: early, ..Measurement::default() };
        if early > 0 {
            "granted while it was held".clone_into(&mut measurement.first_error);
        }
        measurement.set_times(nanos);
        after.since(&before, &[], &mut measurement);
        measurement.whole_seconds = begun.elapsed().as_secs_f64();
        Ok(measurement)
    }
}

fn number(line: &str) -> Result<u64, MeasureError> {
    line.trim().parse().map_err(|_| MeasureError::Failed(format!("sent {line:?} instead of a time")))
}
