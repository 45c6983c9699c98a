//! From hand to hand: how long it takes from a release in one process to the grant in another.

use std::time::{Duration, Instant};

use contract::{Order, Work};

use crate::entrant::Entrant;
use crate::ground::{Ground, unique_name};
use crate::measurement::Measurement;
use crate::percentile::percentile;
use crate::player::{Player, Trouble};
use crate::snapshot::Snapshot;

/// How long any step of it may take.
const STEP: Duration = Duration::from_secs(60);
/// How long all rounds together may take.
const ALL: Duration = Duration::from_secs(25);
/// After so many rounds it is known whether somebody polls.
const FIRST_ROUNDS: usize = 20;
/// What only those take who poll, in nanoseconds.
const POLLED: u64 = 10_000_000;

impl Ground {
    /// `rounds` rounds, or fewer when they take long.
    pub(crate) async fn measure_hand(
        &self,
        entrant: &Entrant,
        rounds: usize,
    ) -> Result<Measurement, Trouble> {
        let begun = Instant::now();
        self.prepare().await?;
        let order = Order {
            port: self.server.port(),
            lock: unique_name(),
            warm_up: entrant.warm_up(200, self.quick),
            kind: entrant.kind.clone(),
            ..Order::new(Work::Hand)
        };
        let mut holder = Player::start(&entrant.program, &order)?;
        let mut waiter = Player::start(&entrant.program, &order)?;
        holder.ready(STEP).await?;
        waiter.ready(STEP).await?;

        let mut hold_ms = 5..20;
        let mut nanos = Vec::new();
        let mut early = 0;
        let before = Snapshot::take(&self.server, &self.spinners, &[&holder, &waiter]).await?;
        let start = Instant::now();
        while nanos.len() < rounds && start.elapsed() < ALL {
            holder.tell("lock").await?;
            holder.line(STEP).await?;
            waiter.tell("wait").await?;
            waiter.line(STEP).await?;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(hold_ms.clone()))).await;
            holder.tell("unlock").await?;
            let given_back = number(&holder.line(STEP).await?)?;
            let granted = number(&waiter.line(STEP).await?)?;
            match granted.checked_sub(given_back) {
                Some(time) => nanos.push(time),
                None => early += 1,
            }
            if nanos.len() == FIRST_ROUNDS && hold_ms.end == 20 {
                let mut sorted = nanos.clone();
                sorted.sort_unstable();
                if percentile(&sorted, 50) > Some(POLLED) {
                    // The release has to fall anywhere into the sleep between two looks.
                    hold_ms = 10..310;
                    nanos.clear();
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let after = Snapshot::take(&self.server, &self.spinners, &[&holder, &waiter]).await?;
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

fn number(line: &str) -> Result<u64, Trouble> {
    line.trim().parse().map_err(|_| Trouble::Failed(format!("said {line:?} where it should say a time")))
}
