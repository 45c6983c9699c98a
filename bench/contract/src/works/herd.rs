use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::clock::monotonic_nanos;
use crate::order::Order;
use crate::participant::Participant;
use crate::stage::Orders;
use crate::tally::Tally;

/// Waiters that have gathered before the lock is given back.
pub(super) async fn perform<P: Participant>(participant: P, order: &Order) -> Result<(), String> {
    let mut orders = Orders::ready();
    orders.next().await;
    let lock = participant.lock(&order.lock);
    let held = participant.take(&lock).await?;
    let taken = Instant::now();
    let given_back_at = Arc::new(AtomicU64::new(u64::MAX));
    let mut running = JoinSet::new();
    for _ in 0..order.tasks {
        let lock = participant.lock(&order.lock);
        running.spawn(one_turn(participant.clone(), lock, Arc::clone(&given_back_at)));
    }
    tokio::time::sleep(Duration::from_millis(order.hold_ms).saturating_sub(taken.elapsed())).await;
    given_back_at.store(monotonic_nanos(), Ordering::SeqCst);
    let start = Instant::now();
    participant.give_back(&lock, held).await?;
    let mut tallies = Vec::with_capacity(order.tasks);
    let limit = tokio::time::sleep(order.time());
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
    orders.finish(&report).await;
    Ok(())
}

async fn one_turn<P: Participant>(participant: P, lock: P::Lock, given_back_at: Arc<AtomicU64>) -> Tally {
    let mut tally = Tally::default();
    match participant.take(&lock).await {
        Ok(held) => {
            tally.turns = 1;
            match monotonic_nanos().checked_sub(given_back_at.load(Ordering::SeqCst)) {
                Some(nanos) => tally.nanos.push(nanos),
                None => tally.error("granted while it was held".to_owned()),
            }
            if let Err(trouble) = participant.give_back(&lock, held).await {
                tally.error(trouble);
            }
        }
        Err(trouble) => tally.error(trouble),
    }
    tally
}
