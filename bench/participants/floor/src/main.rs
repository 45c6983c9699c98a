//! The floor: the bare script pair over the same crate and with the same connection settings as turnlock, and no library.
//!
//! What a library adds shows as the distance to this, so this does not change when the library does: the scripts are the
//! leanest that keep Redisson's format. When a lock is contended it adds the least that can wait: one fair queue in the
//! process, so that only its head asks the server, and one standing subscription.

mod bare_lock;
mod floor;
mod scripts;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    contract::perform::<floor::Floor>().await
}
