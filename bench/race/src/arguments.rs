use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Measures turnlock, other lock libraries and the floor on one server, in one run.
#[derive(Clone, Debug, Parser)]
#[command(name = "bench/run")]
pub(crate) struct Arguments {
    /// About a minute in all: fewer turns, and each measurement once.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Only these participants.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) participants: Vec<String>,

    /// Only these works: W1 to W7, waiters, locks.
    #[arg(long, value_delimiter = ',', value_name = "W1,W3")]
    pub(crate) works: Vec<String>,

    /// Takes the participants as they were built before.
    #[arg(long)]
    pub(crate) no_build: bool,

    /// Lets the cores sleep when nobody works.
    #[arg(long)]
    pub(crate) no_spin: bool,

    /// Where results and plots are written. Unless this says otherwise, those of a whole run go to where they are kept, and
    /// those of any other to `bench/target/results`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes tables and plots again from the `results.json` of an earlier run.
    Redraw { results: PathBuf },
    /// Keeps a core awake for as long as the parent lives.
    #[command(hide = true)]
    Spin { parent: u32 },
}

impl Arguments {
    /// Whether everything is measured, for as long as it should be.
    pub(crate) fn is_whole(&self) -> bool {
        !self.quick && self.participants.is_empty() && self.works.is_empty()
    }

    pub(crate) fn wants_participant(&self, name: &str) -> bool {
        self.participants.is_empty() || self.participants.iter().any(|wanted| wanted == name)
    }

    pub(crate) fn wants_work(&self, id: &str) -> bool {
        self.works.is_empty() || self.works.iter().any(|wanted| wanted.eq_ignore_ascii_case(id))
    }
}
