//! The helper process between this program and the command, on Linux.
//!
//! The helper is this program, started again. It sets its parent-death signal to KILL and then replaces itself with the
//! command, so no code has to run between fork and exec. If the exec fails, the helper itself prints the error.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

use crate::escape::escape_message;
use crate::exit_code::{NOT_EXECUTABLE, NOT_FOUND};

/// First argument that makes this program a helper.
const HELPER_ARGUMENT: &str = "__start";

/// The running executable, even if its file was replaced or removed.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// The process to spawn for a command: the helper, or the command itself where there is no helper.
pub(crate) fn command(command_line: &[OsString]) -> std::process::Command {
    let (program, arguments) = command_line.split_first().expect("clap requires a command");
    if !(cfg!(target_os = "linux") && std::path::Path::new(OWN_EXECUTABLE).exists()) {
        let mut command = std::process::Command::new(program);
        command.args(arguments);
        return command;
    }
    let mut command = std::process::Command::new(OWN_EXECUTABLE);
    command.arg(HELPER_ARGUMENT).arg(std::process::id().to_string()).args(command_line);
    command
}

/// Replaces this process with the command if it was started as a helper.
///
/// Returns `None` in any other process, and an exit code if the command cannot be executed.
pub(crate) fn exec_if_helper() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != HELPER_ARGUMENT {
        return None;
    }
    let (parent, program) = (arguments.next()?, arguments.next()?);
    if !dies_with_parent(&parent) {
        return Some(ExitCode::from(NOT_EXECUTABLE));
    }
    let error = exec(&program, arguments);
    let (message, code) = spawn_error(&program, &error);
    let _ = writeln!(io::stderr(), "turnlock: {message}");
    Some(ExitCode::from(code))
}

/// Sets the parent-death signal. Returns `false` if the parent is already gone.
#[cfg(target_os = "linux")]
fn dies_with_parent(parent: &OsStr) -> bool {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    // Best effort: without it, the command runs anyway.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // A parent that died before the call above sends no signal.
    let parent = parent.to_str().and_then(|parent| parent.parse().ok());
    parent
        .is_some_and(|parent: i32| getppid().is_some_and(|current| current.as_raw_nonzero().get() == parent))
}

#[cfg(not(target_os = "linux"))]
fn dies_with_parent(_parent: &OsStr) -> bool {
    true
}

fn exec(program: &OsStr, arguments: impl Iterator<Item = OsString>) -> io::Error {
    use std::os::unix::process::CommandExt;
    std::process::Command::new(program).args(arguments).exec()
}

/// The message and the exit code for a command that cannot be executed, as in shells.
pub(crate) fn spawn_error(program: &OsStr, error: &io::Error) -> (String, u8) {
    let message = escape_message(&format!("cannot run {}: {error}", program.display()));
    (message, if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE })
}
