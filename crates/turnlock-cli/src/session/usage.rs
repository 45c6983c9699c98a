//! Checks of arguments that clap cannot check.

use std::time::Duration;

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::arguments::{Arguments, StoreArguments};
use crate::lock_arguments::LockArguments;
use crate::store;

/// The longest `--at-least`: ten years.
const MAX_AT_LEAST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Checks the arguments that `run` and `hold` share, and returns the name of the lock.
pub(crate) fn check_lock<'a>(
    command: &str,
    store: &StoreArguments,
    arguments: &'a LockArguments,
) -> Result<&'a str, clap::Error> {
    if store::is_memory(store) {
        return Err(usage_error(
            command,
            "a lock in memory:// excludes no other process: use file:PATH for the processes of one machine, or redis:// \
             for many machines",
        ));
    }
    if arguments.at_least.is_some_and(|time| time > MAX_AT_LEAST) {
        return Err(usage_error(command, "--at-least is too long: give at most ten years"));
    }
    arguments.name.to_str().ok_or_else(|| {
        usage_error(
            command,
            "the name of the lock is not UTF-8: use another name, for example a digest of it (sha256sum)",
        )
    })
}

/// A usage error of this command.
pub(crate) fn usage_error(command: &str, text: &str) -> clap::Error {
    let mut program = Arguments::command();
    program.build();
    let command = program.find_subcommand_mut(command).expect("a subcommand");
    command.error(ErrorKind::ValueValidation, text)
}
