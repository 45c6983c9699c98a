//! The program `turnlock`: runs a command under a lock, and shows who holds what.

mod arguments;
mod exit_code;
mod manual;
mod run;
mod run_arguments;
mod see;
mod store;
mod time_span;
mod visible;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;

fn main() -> ExitCode {
    if let Some(code) = run::take_over() {
        return code;
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit_code::of_usage(&error),
    };
    // One thread: the command must be started by the thread that lives as long as the program.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit_code::of_error(&error.into()),
    };
    let outcome = runtime.block_on(perform(arguments));
    outcome.unwrap_or_else(|error| exit_code::of_error(&error))
}

async fn perform(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { store, command } = arguments;
    match command {
        Command::Run(run) => run::run(&store, run).await,
        Command::Ls(ls) => see::ls(&store, ls).await,
        Command::Show(show) => see::show(&store, show).await,
        Command::Watch(watch) => see::watch(&store, watch).await,
        Command::Unlock(unlock) => see::unlock(&store, unlock).await,
        Command::Doctor(doctor) => see::doctor(&store, doctor).await,
        Command::Acl(acl) => see::acl(&acl),
        Command::Bench(bench) => see::bench(&store, bench).await,
        Command::Completions(completions) => see::completions(&completions),
        Command::Man(_) => see::man(),
    }
}
