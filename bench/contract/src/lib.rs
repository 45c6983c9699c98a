//! What a participant of the benchmark does, for those written in Rust.
//!
//! A participant is a program that connects to a server, says `ready`, does one [`Work`] and prints one [`Report`]. Who
//! implements [`Participant`] has all works by calling [`perform`] from an asynchronous `main`. The contract in words, for
//! other languages, stands in the benchmark's README.

mod clock;
mod order;
mod participant;
mod report;
mod stage;
mod tally;
mod work;
mod works;

use std::process::ExitCode;

pub use order::Order;
pub use participant::{Participant, Refusal};
pub use report::{Refused, Report};
pub use work::Work;

/// Does what the command line asks for.
pub async fn perform<P: Participant>() -> ExitCode {
    let order = match Order::from_words(std::env::args().skip(1)) {
        Ok(order) => order,
        Err(trouble) => return failed(&trouble),
    };
    match P::connect(&order).await {
        Ok(participant) => match works::perform(participant, &order).await {
            // Nothing is cleaned up: what is still held stays held, as the contract wants it.
            Ok(()) => std::process::exit(0),
            Err(trouble) => failed(&trouble),
        },
        Err(Refusal::Cannot(why)) => {
            stage::refuse(why);
            ExitCode::SUCCESS
        }
        Err(Refusal::Failed(trouble)) => failed(&trouble),
    }
}

fn failed(trouble: &str) -> ExitCode {
    eprintln!("{trouble}");
    ExitCode::FAILURE
}
