//! The program `turnlock`: runs a command under a lock, and inspects locks.

mod arguments;
mod bench_arguments;
mod commands;
mod completers;
mod completion;
#[cfg(feature = "dashboard")]
mod dashboard_arguments;
mod duration;
mod escape;
mod exit_code;
mod flock_arguments;
mod hold;
mod hold_arguments;
mod list_arguments;
mod lock_arguments;
mod manual;
mod run;
mod run_arguments;
mod session;
mod status_arguments;
mod store;
mod system_store;
mod timestamp;
mod value;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::{CommandFactory, FromArgMatches};

fn main() -> ExitCode {
    if let Some(code) = completion::reply() {
        return code;
    }
    let arguments = match parse().and_then(store::select) {
        Ok(arguments) => arguments,
        Err(error) if is_status() => return exit_code::report_usage_as(&error, commands::STATUS_UNKNOWN),
        Err(error) => return exit_code::report_usage(&error),
    };
    // Single-threaded: a command waits for one thing at a time.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit_code::report_error(&error.into()),
    };
    let outcome = runtime.block_on(dispatch(arguments));
    // Does not wait for a host name that is still looked up.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|error| exit_code::report_error(&error))
}

fn parse() -> Result<Arguments, clap::Error> {
    // Else `--wait -1` is an unknown option `-1`, and the error does not name `--wait`.
    let with_negative_numbers = |argument: clap::Arg| {
        let takes_value = argument.get_long().is_some() && argument.get_action().takes_values();
        argument.allow_negative_numbers(takes_value)
    };
    let command = Arguments::command().mut_subcommands(|command| command.mut_args(with_negative_numbers));
    Arguments::from_arg_matches(&command.try_get_matches()?)
}

/// Returns `true` if the arguments, although not valid, are those of `status`.
fn is_status() -> bool {
    let matches = Arguments::command().ignore_errors(true).try_get_matches();
    matches.is_ok_and(|matches| matches.subcommand_name() == Some("status"))
}

async fn dispatch(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { store, command } = arguments;
    match command {
        Command::Run(run) => run::run(&store, run).await,
        Command::Hold(hold) => hold::hold(&store, hold).await,
        Command::Ls(ls) => commands::ls(&store, ls).await,
        Command::Show(show) => commands::show(&store, show).await,
        Command::Watch(watch) => commands::watch(&store, watch).await,
        #[cfg(feature = "dashboard")]
        Command::Dashboard(dashboard) => commands::dashboard(&store, dashboard).await,
        Command::Unlock(unlock) => commands::unlock(&store, unlock).await,
        Command::Doctor(doctor) => commands::doctor(&store, doctor).await,
        Command::Status(status) => commands::status(&store, status).await,
        Command::Acl(acl) => commands::acl(&acl),
        Command::Bench(bench) => commands::bench(&store, bench).await,
        Command::Completions(completions) => commands::completions(&completions),
        Command::Man(_) => commands::man(),
    }
}
