//! `turnlock hold`: holds a lock until it is told to release it.

mod announcement;
mod lock_hold;
mod notify_socket;
mod stdin_watch;

use std::process::ExitCode;

use anyhow::Context;

use crate::arguments::StoreArguments;
use crate::exit_code;
use crate::hold_arguments::HoldArguments;
use crate::session::lock_session::LockSession;
use crate::session::reporter::Reporter;
use crate::session::usage::check_lock;
use lock_hold::LockHold;
use stdin_watch::StdinWatch;

/// The label that other clients see, unless `--label` is given.
const LABEL: &str = "hold";

/// Holds a lock and returns the exit code.
pub(crate) async fn hold(store: &StoreArguments, arguments: HoldArguments) -> anyhow::Result<ExitCode> {
    let name = match check_lock("hold", store, &arguments.lock) {
        Ok(name) => name,
        Err(error) => return Ok(exit_code::report_usage(&error)),
    };
    let stdin = StdinWatch::new().context("cannot watch standard input")?;
    let reporter = Reporter::new(name, &arguments.lock);
    let session = LockSession::new(name, &arguments.lock, LABEL, &reporter);
    let hold = LockHold { session, duration: arguments.duration, stdin };
    let code = hold.perform(store).await.unwrap_or_else(|error| {
        reporter.report_error(&error);
        exit_code::code_of(&error)
    });
    reporter.finish().await;
    Ok(ExitCode::from(code))
}
