use crate::clock::monotonic_nanos;
use crate::driver_io::{DriverInput, send};
use crate::participant::Participant;
use crate::settings::Settings;

/// One of two processes that pass a lock to each other.
pub(super) async fn run<P: Participant>(participant: P, settings: &Settings) -> Result<(), String> {
    let lock = participant.lock(&settings.lock);
    let mut held = None;
    let mut input = DriverInput::ready();
    while let Some(line) = input.next().await {
        match line.as_str() {
            "lock" => {
                held = Some(participant.acquire(&lock).await?);
                send("ok");
            }
            "unlock" => {
                let held = held.take().ok_or("`unlock` without a hold")?;
                let before = monotonic_nanos();
                participant.release(&lock, held).await?;
                send(&before.to_string());
            }
            "wait" => {
                send("waiting");
                let granted = participant.acquire(&lock).await?;
                let at = monotonic_nanos();
                participant.release(&lock, granted).await?;
                send(&at.to_string());
            }
            other => return Err(format!("unknown command {other:?}")),
        }
    }
    Ok(())
}
