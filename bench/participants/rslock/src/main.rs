//! rslock as a participant of the benchmark.

mod rs_lock;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    contract::run::<rs_lock::RsLock>().await
}
