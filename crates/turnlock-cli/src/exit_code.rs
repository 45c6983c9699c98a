//! Exit codes of the program.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use turnlock::Error;
use turnlock_core::error_chain;

use crate::escape::escape_message;

/// Usage error: `EX_USAGE`.
pub(crate) const USAGE: u8 = 64;
/// The key of the name holds data that is not a lock: `EX_DATAERR`.
pub(crate) const DATA_ERROR: u8 = 65;
/// The store cannot be reached: `EX_UNAVAILABLE`.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Internal error, or an error of the operating system: `EX_SOFTWARE`.
pub(crate) const INTERNAL_ERROR: u8 = 70;
/// The store denies access: `EX_NOPERM`.
pub(crate) const DENIED: u8 = 77;
/// The lock was lost while the command ran, or before it was started.
pub(crate) const LOST: u8 = 79;
/// The command exists and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The command does not exist.
const NOT_FOUND: u8 = 127;

/// An explained error whose exit code is [`DATA_ERROR`].
#[derive(Debug)]
pub(crate) struct DataError(pub(crate) String);

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DataError {}

/// Prints a usage error, or the help text that was requested.
pub(crate) fn report_usage(error: &clap::Error) -> ExitCode {
    report_usage_as(error, USAGE)
}

/// As [`report_usage`], with another exit code of a usage error.
pub(crate) fn report_usage_as(error: &clap::Error, code: u8) -> ExitCode {
    // A closed output is not an error.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(code) } else { ExitCode::SUCCESS }
}

/// Prints an error and returns its exit code.
pub(crate) fn report_error(error: &anyhow::Error) -> ExitCode {
    // The reader has closed our output.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    let _ = writeln!(anstream::stderr(), "turnlock: {}", escape_message(&error_chain(error.as_ref())));
    ExitCode::from(code_of(error))
}

/// The exit code for a command that cannot be executed, as in shells.
pub(crate) fn of_spawn_error(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// The exit code for an error.
pub(crate) fn code_of(error: &anyhow::Error) -> u8 {
    if error.is::<DataError>() {
        return DATA_ERROR;
    }
    let ours = error.chain().find_map(|cause| cause.downcast_ref::<Error>());
    ours.map_or(INTERNAL_ERROR, code_of_library_error)
}

fn code_of_library_error(error: &Error) -> u8 {
    match error {
        Error::Unavailable { .. } | Error::NotEnoughReplicas { .. } | Error::InDoubt { .. } => UNAVAILABLE,
        Error::Denied { .. } => DENIED,
        Error::NotALock { .. } | Error::WrongKind { .. } => DATA_ERROR,
        Error::Lost { .. } => LOST,
        Error::BadName(_)
        | Error::BadLease(_)
        | Error::BadArgument { .. }
        | Error::BadConfiguration { .. }
        | Error::Unsupported(_) => USAGE,
        _ => INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let source = std::sync::Arc::new(io::Error::other("connection refused"));
        let error = Error::Unavailable { what: "a search".to_owned(), source };
        let expected = "the store is not available for a search: connection refused";
        assert_eq!(error_chain(&error), expected);
        let error = Err::<(), _>(error).context("ls failed").unwrap_err();
        assert_eq!(error_chain(error.as_ref()), format!("ls failed: {expected}"));
    }
}
