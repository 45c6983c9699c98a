use std::time::Instant;

use crate::order::Order;
use crate::participant::Participant;
use crate::report::Report;
use crate::stage::Orders;

/// Many locks that are held for long.
pub(super) async fn perform<P: Participant>(participant: P, order: &Order) -> Result<(), String> {
    let names = (0..order.locks).map(|lock| format!("{}:{lock}", order.lock)).collect();
    participant.keep(names).await?;
    let mut orders = Orders::ready();
    orders.next().await;
    let start = Instant::now();
    tokio::time::sleep(order.time()).await;
    let report = Report {
        turns: order.locks as u64,
        seconds: start.elapsed().as_secs_f64(),
        direct: P::DIRECT.iter().map(ToString::to_string).collect(),
        ..Report::default()
    };
    orders.finish(&report).await;
    Ok(())
}
