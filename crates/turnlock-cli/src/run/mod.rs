//! `turnlock run`: runs a command under a lock.

mod locked_run;
mod metrics_file;
#[cfg_attr(not(target_os = "linux"), path = "no_process_tree.rs")]
mod process_tree;
mod running_command;
mod spawn;
mod supervisor;

use std::borrow::Cow;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use crate::arguments::StoreArguments;
use crate::run_arguments::RunArguments;
use crate::session::lock_session::LockSession;
use crate::session::reporter::Reporter;
use crate::session::run_lease::RunLease;
use crate::session::usage::{check_lock, usage_error};
use crate::{exit_code, flock_arguments};
use locked_run::LockedRun;
use metrics_file::{MetricsFile, RunOutcome};

/// Runs a command under a lock and returns the exit code.
pub(crate) async fn run(store: &StoreArguments, mut arguments: RunArguments) -> anyhow::Result<ExitCode> {
    arguments.expand_shell_command();
    let name = match check(store, &arguments) {
        Ok(name) => name,
        Err(error) => return Ok(exit_code::report_usage(&error)),
    };
    let reporter = Reporter::new(name, &arguments.lock);
    let label = label(&arguments);
    let started = SystemTime::now();
    let metrics_file = match arguments.metrics_file.as_deref().map(MetricsFile::prepare).transpose() {
        Ok(file) => file,
        Err(error) => return Ok(exit_code::report_error(&error)),
    };
    let session = LockSession::new(name, &arguments.lock, &label, &reporter);
    let run = LockedRun::new(session, &arguments);
    let (code, without_lock) = match run.perform(store).await {
        Ok(code) => (code, RunOutcome::NotAcquired),
        Err(error) => {
            reporter.report_error(&error);
            (exit_code::code_of(&error), RunOutcome::Failed)
        }
    };
    if let Some(file) = metrics_file {
        let report = run.report(code, without_lock, started);
        if let Err(error) = file.write(&report) {
            reporter.warn(&format!("cannot write the metrics file: {error}"));
        }
    }
    reporter.finish().await;
    Ok(ExitCode::from(code))
}

/// Checks the arguments that clap cannot check, and returns the name of the lock.
fn check<'a>(store: &StoreArguments, arguments: &'a RunArguments) -> Result<&'a str, clap::Error> {
    let error = |text: &str| usage_error("run", text);
    arguments.flock.check().map_err(error)?;
    if arguments.command.is_empty() {
        return Err(error(&flock_arguments::without_command(&arguments.lock.name.to_string_lossy())));
    }
    let name = check_lock("run", store, &arguments.lock)?;
    RunLease::of(&arguments.lock).check(arguments).map_err(|text| error(&text))?;
    Ok(name)
}

/// The name of the command. Without its arguments, which may be confidential.
fn label(arguments: &RunArguments) -> Cow<'_, str> {
    let program = Path::new(&arguments.command[0]);
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy()
}
