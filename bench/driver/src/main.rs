//! The driver of the benchmark: starts the servers and the participants, measures them in turn, and writes the results.

mod arguments;
mod bench_run;
mod busy_loops;
mod cells;
mod columns;
mod commands;
mod cpu;
mod environment;
mod harness;
mod markdown;
mod measurement;
mod percentile;
mod plot;
mod registry;
mod report;
mod results;
mod scenario;
mod scenarios;
mod server;
mod snapshot;
mod summary;
mod targets;
mod variant;
mod wake_up;
mod worker_process;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::BusyLoop { parent }) = arguments.command {
        return busy_loops::run(parent);
    }
    if let Some(Command::Redraw { results }) = &arguments.command {
        return ended(report::redraw(results, &arguments));
    }
    // On a signal, the run is dropped, which ends all processes that it has started.
    let mut terminated = signal(SignalKind::terminate()).expect("signals can be listened for");
    let outcome = tokio::select! {
        outcome = bench_run::run(&arguments) => outcome,
        _ = tokio::signal::ctrl_c() => Err("\ninterrupted; --resume continues".to_owned()),
        _ = terminated.recv() => Err("\nterminated; --resume continues".to_owned()),
    };
    ended(outcome)
}

fn ended(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
