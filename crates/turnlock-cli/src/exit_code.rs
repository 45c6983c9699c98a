//! What the program's exit codes mean.

use std::io::{self, Write};
use std::process::ExitCode;

use turnlock::Error;

use crate::visible::harmless;

/// Wrong usage: `EX_USAGE`.
pub(crate) const USAGE: u8 = 64;
/// The key holds something that is no lock: `EX_DATAERR`.
pub(crate) const FOREIGN: u8 = 65;
/// The store cannot be reached: `EX_UNAVAILABLE`.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A fault of ours, or of the system: `EX_SOFTWARE`.
pub(crate) const FAULT: u8 = 70;
/// The store refuses: `EX_NOPERM`.
pub(crate) const DENIED: u8 = 77;
/// The lock was lost while the command ran, or before it was started.
pub(crate) const LOST: u8 = 79;
/// The command is there and cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;

/// Says what is wrong with the command line, or prints the help that was asked for.
pub(crate) fn of_usage(error: &clap::Error) -> ExitCode {
    // A reader that went away is no error of ours.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// Says what went wrong.
pub(crate) fn of_error(error: &anyhow::Error) -> ExitCode {
    // Whoever read our output has enough of it.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    let _ = writeln!(anstream::stderr(), "turnlock: {}", harmless(&words_of(error)));
    ExitCode::from(code_of(error))
}

/// What went wrong, and why. Some errors say why themselves, which once is enough.
pub(crate) fn words_of(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.ends_with(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// The exit code for what went wrong.
pub(crate) fn code_of(error: &anyhow::Error) -> u8 {
    error.chain().find_map(|cause| cause.downcast_ref::<Error>()).map_or(FAULT, code_of_ours)
}

fn code_of_ours(error: &Error) -> u8 {
    match error {
        Error::Unavailable { .. } | Error::NotEnoughReplicas { .. } | Error::InDoubt { .. } => UNAVAILABLE,
        Error::Denied { .. } => DENIED,
        Error::Corrupt { .. } => FOREIGN,
        Error::Lost { .. } => LOST,
        Error::BadName(_) | Error::BadLease(_) | Error::BadConfiguration { .. } | Error::Unsupported(_) => {
            USAGE
        }
        _ => FAULT,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let source = std::sync::Arc::new(io::Error::other("nobody is there"));
        let error = Error::Unavailable { what: "a search".to_owned(), source };
        let expected = "the store cannot serve a search now: nobody is there";
        assert_eq!(words_of(&error.clone().into()), expected);
        let error = Err::<(), _>(error).context("in vain").unwrap_err();
        assert_eq!(words_of(&error), format!("in vain: {expected}"));
    }
}
