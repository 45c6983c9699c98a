//! The works, each for any participant.

mod contend;
mod hand;
mod herd;
mod keep;
mod pairs;

use crate::order::Order;
use crate::participant::Participant;
use crate::work::Work;

/// Does the order's work and returns when the driver has ended the conversation.
pub(crate) async fn perform<P: Participant>(participant: P, order: &Order) -> Result<(), String> {
    if order.work != Work::Keep {
        warm_up(&participant, order).await?;
    }
    match order.work {
        Work::Pairs => pairs::perform(participant, order).await,
        Work::Contend => contend::perform(participant, order).await,
        Work::Herd => herd::perform(participant, order).await,
        Work::Hand => hand::perform(participant, order).await,
        Work::Keep => keep::perform(participant, order).await,
    }
}

async fn warm_up<P: Participant>(participant: &P, order: &Order) -> Result<(), String> {
    // Processes that warm up at the same time must not wait for each other.
    let lock = participant.lock(&format!("{}:warm:{}", order.lock, std::process::id()));
    for _ in 0..order.warm_up {
        let held = participant.take(&lock).await?;
        participant.give_back(&lock, held).await?;
    }
    Ok(())
}
