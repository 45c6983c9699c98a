use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::driver_io::DriverInput;
use crate::participant::Participant;
use crate::settings::Settings;
use crate::tally::Tally;

/// How long tasks that wait when the time is over may still wait for the lock.
const GRACE: Duration = Duration::from_secs(20);

/// Tasks that contend for one lock.
pub(super) async fn run<P: Participant>(participant: P, settings: &Settings) -> Result<(), String> {
    let counter = File::options().read(true).write(true).open(&settings.counter);
    let counter = counter.map_err(|error| format!("{}: {error}", settings.counter.display()))?;
    let mut input = DriverInput::ready();
    input.next().await;
    let start = Instant::now();
    let shared = Arc::new(Shared {
        counter,
        granted: AtomicU64::new(0),
        attempts: AtomicU64::new(0),
        turns: if settings.turns == 0 { u64::MAX } else { settings.turns },
        end: start + settings.time(),
    });
    let mut running = JoinSet::new();
    for _ in 0..settings.tasks.max(1) {
        let lock = participant.lock(&settings.lock);
        running.spawn(take_turns(participant.clone(), lock, Arc::clone(&shared)));
    }
    let mut tallies = Vec::with_capacity(settings.tasks);
    let grace = tokio::time::sleep(settings.time() + GRACE);
    tokio::pin!(grace);
    let mut seconds = 0.0;
    while let Some(tally) = tokio::select! {
        joined = running.join_next() => joined,
        () = &mut grace => None,
    } {
        tallies.push(tally.map_err(|error| error.to_string())?);
        seconds = start.elapsed().as_secs_f64();
    }
    let gave_up = running.len() as u64;
    if gave_up > 0 {
        running.shutdown().await;
        seconds = start.elapsed().as_secs_f64();
    }
    let mut report = Tally::report(tallies, P::DIRECT);
    // Includes the earlier grants of tasks that gave up.
    report.turns = shared.granted.load(Ordering::SeqCst);
    (report.seconds, report.gave_up) = (seconds, gave_up);
    input.finish(&report).await;
    Ok(())
}

struct Shared {
    counter: File,
    /// Grants.
    granted: AtomicU64,
    /// Attempts.
    attempts: AtomicU64,
    turns: u64,
    end: Instant,
}

impl Shared {
    fn continues(&self) -> bool {
        Instant::now() < self.end && self.attempts.fetch_add(1, Ordering::Relaxed) < self.turns
    }

    /// Increments the counter without atomicity: with two holders at once, increments are lost.
    async fn increment(&self) -> std::io::Result<()> {
        let mut bytes = [0; 8];
        self.counter.read_exact_at(&mut bytes, 0)?;
        tokio::task::yield_now().await;
        let next = u64::from_le_bytes(bytes) + 1;
        self.counter.write_all_at(&next.to_le_bytes(), 0)?;
        self.granted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

async fn take_turns<P: Participant>(participant: P, lock: P::Lock, shared: Arc<Shared>) -> Tally {
    let mut tally = Tally::default();
    while shared.continues() {
        let start = Instant::now();
        match participant.acquire(&lock).await {
            Ok(held) => {
                tally.time(start.elapsed());
                tally.turns += 1;
                if let Err(error) = shared.increment().await {
                    tally.error(format!("counter: {error}"));
                }
                if let Err(error) = participant.release(&lock, held).await {
                    tally.error(error);
                }
            }
            Err(error) => tally.error(error),
        }
    }
    tally
}
