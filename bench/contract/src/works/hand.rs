use crate::clock::monotonic_nanos;
use crate::order::Order;
use crate::participant::Participant;
use crate::stage::{Orders, say};

/// One of two processes between which a lock goes from hand to hand.
pub(super) async fn perform<P: Participant>(participant: P, order: &Order) -> Result<(), String> {
    let lock = participant.lock(&order.lock);
    let mut held = None;
    let mut orders = Orders::ready();
    while let Some(line) = orders.next().await {
        match line.as_str() {
            "lock" => {
                held = Some(participant.take(&lock).await?);
                say("ok");
            }
            "unlock" => {
                let held = held.take().ok_or("told to give back what is not held")?;
                let before = monotonic_nanos();
                participant.give_back(&lock, held).await?;
                say(&before.to_string());
            }
            "wait" => {
                say("waiting");
                let granted = participant.take(&lock).await?;
                let at = monotonic_nanos();
                participant.give_back(&lock, granted).await?;
                say(&at.to_string());
            }
            other => return Err(format!("told to do {other:?}, which is nothing known")),
        }
    }
    Ok(())
}
