use std::time::Instant;

use tokio::task::JoinSet;

use crate::order::Order;
use crate::participant::Participant;
use crate::stage::Orders;
use crate::tally::Tally;

/// Tasks that take and give back locks which nobody else wants.
pub(super) async fn perform<P: Participant>(participant: P, order: &Order) -> Result<(), String> {
    let mut orders = Orders::ready();
    orders.next().await;
    let tasks = order.tasks.max(1) as u64;
    let start = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let lock = participant.lock(&format!("{}:{task}", order.lock));
        // The first tasks take what does not come out even.
        let turns = order.turns / tasks + u64::from(task < order.turns % tasks);
        running.spawn(some_pairs(participant.clone(), lock, turns, tasks == 1));
    }
    let tallies = running.join_all().await;
    let seconds = start.elapsed().as_secs_f64();
    let mut report = Tally::report(tallies, P::DIRECT);
    report.seconds = seconds;
    orders.finish(&report).await;
    Ok(())
}

async fn some_pairs<P: Participant>(participant: P, lock: P::Lock, turns: u64, timed: bool) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..turns {
        let asked = timed.then(Instant::now);
        match participant.take(&lock).await {
            Ok(held) => {
                tally.turns += 1;
                if let Err(trouble) = participant.give_back(&lock, held).await {
                    tally.error(trouble);
                }
                if let Some(asked) = asked {
                    tally.time(asked.elapsed());
                }
            }
            Err(trouble) => tally.error(trouble),
        }
    }
    tally
}
