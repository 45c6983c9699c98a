use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::order::Order;
use crate::participant::Participant;
use crate::stage::Orders;
use crate::tally::Tally;

/// How long tasks that wait when time is over may still wait for their turn.
const LAST_TURNS: Duration = Duration::from_secs(20);

/// Tasks that take turns with one lock.
pub(super) async fn perform<P: Participant>(participant: P, order: &Order) -> Result<(), String> {
    let counter = File::options().read(true).write(true).open(&order.counter);
    let counter = counter.map_err(|error| format!("{}: {error}", order.counter.display()))?;
    let mut orders = Orders::ready();
    orders.next().await;
    let start = Instant::now();
    let shared = Arc::new(Shared {
        counter,
        granted: AtomicU64::new(0),
        claims: AtomicU64::new(0),
        turns: if order.turns == 0 { u64::MAX } else { order.turns },
        end: start + order.time(),
    });
    let mut running = JoinSet::new();
    for _ in 0..order.tasks.max(1) {
        let lock = participant.lock(&order.lock);
        running.spawn(take_turns(participant.clone(), lock, Arc::clone(&shared)));
    }
    let mut tallies = Vec::with_capacity(order.tasks);
    let last_turns = tokio::time::sleep(order.time() + LAST_TURNS);
    tokio::pin!(last_turns);
    let mut seconds = 0.0;
    while let Some(tally) = tokio::select! {
        joined = running.join_next() => joined,
        () = &mut last_turns => None,
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
    // What the tasks that gave up had before counts as well.
    report.turns = shared.granted.load(Ordering::SeqCst);
    (report.seconds, report.gave_up) = (seconds, gave_up);
    orders.finish(&report).await;
    Ok(())
}

struct Shared {
    counter: File,
    /// Turns that were had.
    granted: AtomicU64,
    /// Turns that were begun.
    claims: AtomicU64,
    turns: u64,
    end: Instant,
}

impl Shared {
    fn goes_on(&self) -> bool {
        Instant::now() < self.end && self.claims.fetch_add(1, Ordering::Relaxed) < self.turns
    }

    /// One more, in a way that loses counts as soon as two are at it.
    async fn count(&self) -> std::io::Result<()> {
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
    while shared.goes_on() {
        let asked = Instant::now();
        match participant.take(&lock).await {
            Ok(held) => {
                tally.time(asked.elapsed());
                tally.turns += 1;
                if let Err(error) = shared.count().await {
                    tally.error(format!("the counter: {error}"));
                }
                if let Err(trouble) = participant.give_back(&lock, held).await {
                    tally.error(trouble);
                }
            }
            Err(trouble) => tally.error(trouble),
        }
    }
    tally
}
