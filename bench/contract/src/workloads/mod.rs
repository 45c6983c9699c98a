//! The workloads, each for any participant.

mod contend;
mod herd;
mod hold;
mod pairs;
mod wake_up;

use crate::participant::Participant;
use crate::settings::Settings;
use crate::workload::Workload;

/// Runs the workload, and returns when the driver closes the input.
pub(crate) async fn run<P: Participant>(participant: P, settings: &Settings) -> Result<(), String> {
    if settings.workload != Workload::Hold {
        warm_up(&participant, settings).await?;
    }
    match settings.workload {
        Workload::Pairs => pairs::run(participant, settings).await,
        Workload::Contend => contend::run(participant, settings).await,
        Workload::Herd => herd::run(participant, settings).await,
        Workload::WakeUp => wake_up::run(participant, settings).await,
        Workload::Hold => hold::run(participant, settings).await,
    }
}

async fn warm_up<P: Participant>(participant: &P, settings: &Settings) -> Result<(), String> {
    // Processes that warm up at the same time must not contend.
    let lock = participant.first_lock(&format!("{}:warm:{}", settings.lock, std::process::id()));
    for _ in 0..settings.warm_up {
        let held = participant.acquire(&lock).await?;
        participant.release(&lock, held).await?;
    }
    Ok(())
}
