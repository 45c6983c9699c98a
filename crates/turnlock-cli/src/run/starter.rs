//! The step between this program and the command, where the system has one: the same program, started anew, asks to be
//! killed when its parent dies, and becomes the command. So nothing has to run between fork and exec, and what is said
//! about a command that cannot be run comes from the place where it cannot.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

use crate::exit_code::{NOT_EXECUTABLE, NOT_FOUND};
use crate::visible::harmless;

/// The first argument of a start.
const START: &str = "__start";

/// Where the program that runs is to be found, whatever has become of its file.
const SELF: &str = "/proc/self/exe";

/// The command, as it is to be spawned by this process.
pub(crate) fn command(words: &[OsString]) -> std::process::Command {
    let (program, arguments) = words.split_first().expect("a command has a first word");
    if !(cfg!(target_os = "linux") && std::path::Path::new(SELF).exists()) {
        let mut command = std::process::Command::new(program);
        command.args(arguments);
        return command;
    }
    let mut command = std::process::Command::new(SELF);
    command.arg(START).arg(std::process::id().to_string()).args(words);
    command
}

/// Becomes the command, if this is a start: then it only comes back when that cannot be.
pub(crate) fn take_over() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != START {
        return None;
    }
    let (parent, program) = (words.next()?, words.next()?);
    if !is_guarded_by(&parent) {
        return Some(ExitCode::from(NOT_EXECUTABLE));
    }
    let error = become_command(&program, words);
    let (words, code) = refusal(&program, &error);
    let _ = writeln!(io::stderr(), "turnlock: {words}");
    Some(ExitCode::from(code))
}

#[cfg(target_os = "linux")]
fn is_guarded_by(parent: &OsStr) -> bool {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    // Where it is not to be had, the command runs without.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // A parent that died before that was asked would never be told of.
    let parent = parent.to_str().and_then(|parent| parent.parse().ok());
    parent.is_some_and(|parent: i32| getppid().is_some_and(|now| now.as_raw_nonzero().get() == parent))
}

#[cfg(not(target_os = "linux"))]
fn is_guarded_by(_parent: &OsStr) -> bool {
    true
}

fn become_command(program: &OsStr, arguments: impl Iterator<Item = OsString>) -> io::Error {
    use std::os::unix::process::CommandExt;
    std::process::Command::new(program).args(arguments).exec()
}

/// Why a command cannot be run, and the exit code for it, as shells have it.
pub(crate) fn refusal(program: &OsStr, error: &io::Error) -> (String, u8) {
    let words = harmless(&format!("cannot run {}: {error}", program.display()));
    (words, if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}
