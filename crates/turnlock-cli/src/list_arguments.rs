#![allow(clippy::doc_markdown, reason = "--help shows these comments as they are")]

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

use crate::{duration, value};

/// Which locks a list has, and in which order.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArguments {
    /// List at most N locks
    #[arg(long, value_name = "N", default_value = "1000", value_parser = value::at_least_one)]
    pub(crate) limit: usize,
    /// Order of the list: the longest held first, by name, the shortest lease first, or the most waiters first
    #[arg(long, value_name = "BY", value_enum, default_value_t = SortBy::Name)]
    pub(crate) sort: SortBy,
    /// Only locks with a holder whose host, host:pid, label or owner id contains this text
    #[arg(long, value_name = "TEXT", value_parser = value::text())]
    pub(crate) holder: Option<String>,
    /// Only locks that are held for longer than this
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) older_than: Option<Duration>,
    /// Only locks of this kind
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(KIND_NAMES))]
    pub(crate) kind: Option<String>,
}

/// The kinds that a list can have, as it names them.
pub(crate) const KIND_NAMES: [&str; 9] = [
    "lock",
    "fair-lock",
    "fenced-lock",
    "spin-lock",
    "plain-lock",
    "read-write-lock",
    "permit-semaphore",
    "semaphore",
    "latch",
];

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    Age,
    Name,
    Ttl,
    Waiters,
}
