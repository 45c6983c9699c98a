use std::time::Instant;

use tokio::task::JoinSet;

use crate::driver_io::DriverInput;
use crate::participant::Participant;
use crate::settings::Settings;
use crate::tally::Tally;

/// Tasks that acquire and release a lock of their own.
pub(super) async fn run<P: Participant>(participant: P, settings: &Settings) -> Result<(), String> {
    let mut input = DriverInput::ready();
    input.next().await;
    let tasks = settings.tasks.max(1) as u64;
    let start = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let lock = participant.lock(&format!("{}:{task}", settings.lock));
        // The first tasks take the remainder.
        let turns = settings.turns / tasks + u64::from(task < settings.turns % tasks);
        running.spawn(run_pairs(participant.clone(), lock, turns, tasks == 1));
    }
    let tallies = running.join_all().await;
    let seconds = start.elapsed().as_secs_f64();
    let mut report = Tally::report(tallies, P::DIRECT);
    report.seconds = seconds;
    input.finish(&report).await;
    Ok(())
}

async fn run_pairs<P: Participant>(participant: P, lock: P::Lock, turns: u64, timed: bool) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..turns {
        let begun = timed.then(Instant::now);
        match participant.acquire(&lock).await {
            Ok(held) => {
                tally.turns += 1;
                if let Err(error) = participant.release(&lock, held).await {
                    tally.error(error);
                }
                if let Some(begun) = begun {
                    tally.time(begun.elapsed());
                }
            }
            Err(error) => tally.error(error),
        }
    }
    tally
}
