//! How the values of arguments are completed in a shell.
//!
//! Completers run while a shell waits for one word, and never in another command.

use std::cell::Cell;
use std::ffi::OsStr;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};

/// The beginnings of a store's URL.
const STORES: [&str; 7] = [
    "file:",
    "redis://",
    "rediss://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "redis+cluster://",
    "rediss+cluster://",
];

/// A value that the engine of clap cannot complete by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The name of a lock of the store.
    LockName,
    /// A command with its arguments, which the shell completes.
    Command,
}

thread_local! {
    static WANTED: Cell<Option<Wanted>> = const { Cell::new(None) };
}

/// Completes the name of a lock.
pub(crate) fn lock_name() -> ArgValueCompleter {
    ArgValueCompleter::new(|_: &OsStr| want(Wanted::LockName))
}

/// Completes a command and its arguments.
pub(crate) fn command() -> ArgValueCompleter {
    ArgValueCompleter::new(|_: &OsStr| want(Wanted::Command))
}

/// Completes the URL of a store: its scheme, or the path of a file.
pub(crate) fn store() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let current = current.to_string_lossy();
        if let Some(path) = current.strip_prefix("file:") {
            let paths = PathCompleter::any().complete(OsStr::new(path));
            return paths.into_iter().map(|path| path.add_prefix("file:")).collect();
        }
        let schemes = STORES.iter().filter(|scheme| scheme.starts_with(&*current));
        schemes.map(|scheme| CompletionCandidate::new(*scheme)).collect()
    })
}

/// Returns what the last completion asked for, and forgets it.
pub(crate) fn take_wanted() -> Option<Wanted> {
    WANTED.take()
}

fn want(wanted: Wanted) -> Vec<CompletionCandidate> {
    WANTED.set(Some(wanted));
    Vec::new()
}
