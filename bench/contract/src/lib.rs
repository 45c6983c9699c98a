//! The protocol between the driver and the participants of the benchmark, for participants in Rust.
//!
//! A participant is a program that connects to a server, prints `ready`, runs one [`Workload`] and prints one [`Report`]. It
//! implements [`Participant`] and calls [`run`] from an asynchronous `main`. The benchmark's README describes the protocol for
//! other languages.

mod clock;
mod driver_io;
mod participant;
mod report;
mod settings;
mod tally;
mod workload;
mod workloads;

use std::process::ExitCode;

pub use participant::{Participant, Refusal};
pub use report::{Report, Unsupported};
pub use settings::Settings;
pub use workload::Workload;

/// Runs the workload that the command line names.
pub async fn run<P: Participant>() -> ExitCode {
    let settings = match Settings::from_args(std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(error) => return failed(&error),
    };
    match P::connect(&settings).await {
        Ok(participant) => match workloads::run(participant, &settings).await {
            // Without cleaning up: locks that are held remain held, as the protocol requires.
            Ok(()) => std::process::exit(0),
            Err(error) => failed(&error),
        },
        Err(Refusal::Unsupported(why)) => {
            driver_io::send_unsupported(why);
            ExitCode::SUCCESS
        }
        Err(Refusal::Failed(error)) => failed(&error),
    }
}

fn failed(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}
