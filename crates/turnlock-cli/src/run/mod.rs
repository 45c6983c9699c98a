//! `turnlock run`: runs a command under a lock.

mod countdown;
mod event;
mod held_lock;
mod kind_conflict;
mod lock_target;
mod locked_run;
#[cfg_attr(not(target_os = "linux"), path = "no_process_tree.rs")]
mod process_tree;
mod reporter;
mod run_lease;
mod running_command;
mod signals;
mod spawn;
mod stderr_writer;
mod supervisor;
mod verbose;
mod waiting_line;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::arguments::{Arguments, StoreArguments};
use crate::run_arguments::RunArguments;
use crate::{exit_code, flock_arguments, store};
use locked_run::LockedRun;
use reporter::Reporter;
use run_lease::RunLease;

/// The longest `--at-least`: ten years.
const MAX_AT_LEAST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Runs a command under a lock and returns the exit code.
pub(crate) async fn run(store: &StoreArguments, mut arguments: RunArguments) -> anyhow::Result<ExitCode> {
    arguments.expand_shell_command();
    let name = match check(store, &arguments) {
        Ok(name) => name,
        Err(error) => return Ok(exit_code::report_usage(&error)),
    };
    let reporter = Reporter::new(name, &arguments);
    let run = LockedRun { name, arguments: &arguments, reporter: &reporter, started: Instant::now() };
    let code = run.perform(store).await.unwrap_or_else(|error| {
        reporter.report_error(&error);
        exit_code::code_of(&error)
    });
    reporter.finish().await;
    Ok(ExitCode::from(code))
}

/// Checks the arguments that clap cannot check, and returns the name of the lock.
fn check<'a>(store: &StoreArguments, arguments: &'a RunArguments) -> Result<&'a str, clap::Error> {
    let usage_error = |text: &str| {
        let mut program = Arguments::command();
        program.build();
        let run = program.find_subcommand_mut("run").expect("run is a subcommand");
        run.error(ErrorKind::ValueValidation, text)
    };
    if let Err(text) = arguments.flock.check() {
        return Err(usage_error(text));
    }
    if arguments.command.is_empty() {
        return Err(usage_error(&flock_arguments::without_command(&arguments.name.to_string_lossy())));
    }
    if store::is_memory(store) {
        return Err(usage_error(
            "a lock in memory:// excludes no other process: use file:PATH for the processes of one machine, or redis:// \
             for many machines",
        ));
    }
    if arguments.at_least.is_some_and(|time| time > MAX_AT_LEAST) {
        return Err(usage_error("--at-least is too long: give at most ten years"));
    }
    if let Err(text) = RunLease::of(arguments).check(arguments) {
        return Err(usage_error(&text));
    }
    arguments.name.to_str().ok_or_else(|| {
        usage_error(
            "the name of the lock is not UTF-8: use another name, for example a digest of it (sha256sum)",
        )
    })
}
