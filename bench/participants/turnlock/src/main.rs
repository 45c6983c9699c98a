//! turnlock as a participant of the benchmark.

mod turnlock_client;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    contract::run::<turnlock_client::TurnlockClient>().await
}
