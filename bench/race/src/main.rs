//! The driver of the benchmark: starts one server and the participants, measures them in turn, and writes what came out.

mod arguments;

mod columns;
mod course;
mod cpu;
mod entrant;
mod ground;
mod hand;
mod markdown;
mod measurement;
mod percentile;
mod player;
mod plot;
mod report;
mod results;
mod roster;
mod sent;
mod server;
mod snapshot;
mod spin;
mod targets;
mod work;
mod works;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;
use course::Course;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Spin { parent }) = arguments.command {
        return spin::spin(parent);
    }
    if let Some(Command::Redraw { results }) = &arguments.command {
        return ended(report::redraw(results, &arguments));
    }
    // Whoever ends this run ends with it everything that it has started, by dropping it.
    let mut terminated = signal(SignalKind::terminate()).expect("signals can be listened for");
    let outcome = tokio::select! {
        outcome = Course::run(&arguments) => outcome,
        _ = tokio::signal::ctrl_c() => Err("\ninterrupted".to_owned()),
        _ = terminated.recv() => Err("\nterminated".to_owned()),
    };
    ended(outcome)
}

fn ended(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}
