#![allow(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "--help shows these comments as they are"
)]

use std::time::Duration;

use clap::Args;

use crate::{duration, value};

/// Measure the store: throughput, hand-over time, latency
///
/// Uses locks of its own, whose names begin with turnlock-bench: and which are removed at the end. A pair is one lock and its
/// unlock; a hand-over is the time from the unlock of one client to the grant of another client that waits; a ping is one round
/// trip without a lock. Each part is measured in slices, in turns with the others: if the slices differ much, the result is
/// marked as noisy.
#[derive(Args, Debug)]
pub(crate) struct BenchArguments {
    /// Duration of each of the four parts, at most an hour
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::up_to_an_hour)]
    pub(crate) time: Duration,
    /// Number of tasks in the concurrent part
    #[arg(long, value_name = "N", default_value = "64", value_parser = value::at_least_one)]
    pub(crate) tasks: usize,
    /// Prefix of the names that are locked, for a user that may access only these
    #[arg(long, value_name = "TEXT", default_value = "turnlock-bench:", value_parser = value::text())]
    pub(crate) names: String,
    /// Measure a second store too, in turns with the first, and compare them. --password-file and TURNLOCK_PASSWORD apply to
    /// the first store only: add ?password_file=FILE or ?password_env=VARIABLE to this URL
    #[arg(long, value_name = "URL", value_parser = value::text())]
    pub(crate) compare: Option<String>,
    /// Print one JSON object per store
    #[arg(long)]
    pub(crate) json: bool,
}
