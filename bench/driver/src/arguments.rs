use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};

/// Measures turnlock, other lock libraries and bare scripts in the same scenarios, in one run.
#[derive(Clone, Debug, Parser)]
#[command(name = "bench/run")]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of a command line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Continues the unfinished run, with its selection.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Discards the unfinished run.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) restart: bool,

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

/// What is measured.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Selection {
    /// A rough run of about three minutes: fewer operations, and each measurement once.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Also a million held locks: four minutes more.
    #[arg(long)]
    #[serde(default)]
    pub(crate) million: bool,

    /// Only these participants.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    #[serde(default)]
    pub(crate) participants: Vec<String>,

    /// Only these scenarios: W1 to W7, waiters, herds, locks, cluster.
    #[arg(long, value_delimiter = ',', value_name = "W1,W3")]
    #[serde(default)]
    pub(crate) scenarios: Vec<String>,
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
    /// The directories for tables and for plots.
    pub(crate) fn directories(&self, bench: &Path) -> (PathBuf, PathBuf) {
        match &self.out {
            Some(dir) => (dir.clone(), dir.clone()),
            None if self.selection.is_complete() => (bench.join("results"), bench.join("../docs/speed")),
            None => (bench.join("target/results"), bench.join("target/results")),
        }
    }

    /// The file with the cells of a run that is not finished.
    pub(crate) fn unfinished(&self, bench: &Path) -> PathBuf {
        self.out.clone().unwrap_or_else(|| bench.join("target/results")).join("unfinished.json")
    }
}

impl Selection {
    /// Returns `true` if all is measured, with all rounds.
    fn is_complete(&self) -> bool {
        !self.quick && self.participants.is_empty() && self.scenarios.is_empty()
    }

    pub(crate) fn wants_participant(&self, name: &str) -> bool {
        self.participants.is_empty() || self.participants.iter().any(|wanted| wanted == name)
    }

    pub(crate) fn wants_scenario(&self, id: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|wanted| wanted.eq_ignore_ascii_case(id))
    }
}
