use std::time::Instant;

use crate::driver_io::DriverInput;
use crate::participant::Participant;
use crate::report::Report;
use crate::settings::Settings;

/// Many locks that are held by automatic renewal.
pub(super) async fn run<P: Participant>(participant: P, settings: &Settings) -> Result<(), String> {
    let names = (0..settings.locks).map(|lock| format!("{}:{lock}", settings.lock)).collect();
    participant.hold_all(names).await?;
    let mut input = DriverInput::ready();
    input.next().await;
    let start = Instant::now();
    tokio::time::sleep(settings.time()).await;
    let report = Report {
        turns: settings.locks as u64,
        seconds: start.elapsed().as_secs_f64(),
        direct: P::DIRECT.iter().map(ToString::to_string).collect(),
        ..Report::default()
    };
    input.finish(&report).await;
    Ok(())
}
