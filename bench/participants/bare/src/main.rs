//! The limit: bare scripts over the same crate and on the same runtime as turnlock, without a library.
//!
//! The distance to this is the cost of a library, so this does not change when turnlock does. The scripts have the fewest
//! commands that Redisson's format allows, and the connection the settings that cost the least here. For a contended lock it adds the least that can wait: one fair queue in the process,
//! of which only the head sends requests, and one permanent subscription.

mod bare_lock;
mod bare_scripts;
mod scripts;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    contract::run::<bare_scripts::BareScripts>().await
}
