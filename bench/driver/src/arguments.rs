use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Measures turnlock, other lock libraries and bare scripts on one server, in one run.
#[derive(Clone, Debug, Parser)]
#[command(name = "bench/run")]
pub(crate) struct Arguments {
    /// A rough run of about two minutes: fewer operations, and each measurement once.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Only these participants.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) participants: Vec<String>,

    /// Only these scenarios: W1 to W7, waiters, locks.
    #[arg(long, value_delimiter = ',', value_name = "W1,W3")]
    pub(crate) scenarios: Vec<String>,

    /// Uses the participants as they were built before.
    #[arg(long)]
    pub(crate) no_build: bool,

    /// Lets idle cores sleep.
    #[arg(long)]
    pub(crate) no_busy_loops: bool,

    /// The directory for results and plots. The default is `bench/results` and `docs/speed` for a complete run, and
    /// `bench/target/results` for any other.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes tables and plots again from the `results.json` of an earlier run.
    Redraw { results: PathBuf },
    /// Keeps a core busy for as long as the parent lives.
    #[command(hide = true)]
    BusyLoop { parent: u32 },
}

impl Arguments {
    /// Returns `true` if all is measured, with all rounds.
    pub(crate) fn is_complete(&self) -> bool {
        !self.quick && self.participants.is_empty() && self.scenarios.is_empty()
    }

    pub(crate) fn wants_participant(&self, name: &str) -> bool {
        self.participants.is_empty() || self.participants.iter().any(|wanted| wanted == name)
    }

    pub(crate) fn wants_scenario(&self, id: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|wanted| wanted.eq_ignore_ascii_case(id))
    }
}
