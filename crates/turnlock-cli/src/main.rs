//! The program `turnlock`: runs a command under a lock, and inspects locks.

mod arguments;
mod commands;
mod duration;
mod escape;
mod exit_code;
mod manual;
mod run;
mod run_arguments;
mod store;
mod system_store;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse().and_then(store::select) {
        Ok(arguments) => arguments,
        Err(error) => return exit_code::report_usage(&error),
    };
    // Single-threaded: a command waits for one thing at a time.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit_code::report_error(&error.into()),
    };
    let outcome = runtime.block_on(dispatch(arguments));
    outcome.unwrap_or_else(|error| exit_code::report_error(&error))
}

async fn dispatch(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { store, command } = arguments;
    match command {
        Command::Run(run) => run::run(&store, run).await,
        Command::Ls(ls) => commands::ls(&store, ls).await,
        Command::Show(show) => commands::show(&store, show).await,
        Command::Watch(watch) => commands::watch(&store, watch).await,
        Command::Unlock(unlock) => commands::unlock(&store, unlock).await,
        Command::Doctor(doctor) => commands::doctor(&store, doctor).await,
        Command::Acl(acl) => commands::acl(&acl),
        Command::Bench(bench) => commands::bench(&store, bench).await,
        Command::Completions(completions) => commands::completions(&completions),
        Command::Man(_) => commands::man(),
    }
}
