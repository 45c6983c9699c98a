//! turnlock as a participant of the benchmark.

mod ours;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    contract::perform::<ours::Ours>().await
}
