use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::clock::monotonic_nanos;
use crate::driver_io::DriverInput;
use crate::participant::Participant;
use crate::settings::Settings;
use crate::tally::Tally;

/// Many tasks that wait for a lock before it is released.
pub(super) async fn run<P: Participant>(participant: P, settings: &Settings) -> Result<(), String> {
    let mut input = DriverInput::ready();
    input.next().await;
    let lock = participant.first_lock(&settings.lock);
    let held = participant.acquire(&lock).await?;
    let acquired = Instant::now();
    let released_at = Arc::new(AtomicU64::new(u64::MAX));
    let mut running = JoinSet::new();
    for _ in 0..settings.tasks {
        let lock = participant.lock(&settings.lock);
        running.spawn(acquire_once(participant.clone(), lock, Arc::clone(&released_at)));
    }
    tokio::time::sleep(Duration::from_millis(settings.hold_ms).saturating_sub(acquired.elapsed())).await;
    released_at.store(monotonic_nanos(), Ordering::SeqCst);
    let start = Instant::now();
    participant.release(&lock, held).await?;
    let mut tallies = Vec::with_capacity(settings.tasks);
    let limit = tokio::time::sleep(settings.time());
    tokio::pin!(limit);
    while let Some(tally) = tokio::select! {
        joined = running.join_next() => joined,
        () = &mut limit => None,
    } {
        tallies.push(tally.map_err(|error| error.to_string())?);
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut report = Tally::report(tallies, P::DIRECT);
    (report.seconds, report.gave_up) = (seconds, running.len() as u64);
    input.finish(&report).await;
    Ok(())
}

async fn acquire_once<P: Participant>(participant: P, lock: P::Lock, released_at: Arc<AtomicU64>) -> Tally {
    let mut tally = Tally::default();
    match participant.acquire(&lock).await {
        Ok(held) => {
            tally.turns = 1;
            match monotonic_nanos().checked_sub(released_at.load(Ordering::SeqCst)) {
                Some(nanos) => tally.nanos.push(nanos),
                None => tally.error("granted while it was held".to_owned()),
            }
            if let Err(error) = participant.release(&lock, held).await {
                tally.error(error);
            }
        }
        Err(error) => tally.error(error),
    }
    tally
}
