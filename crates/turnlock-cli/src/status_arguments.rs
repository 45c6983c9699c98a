#![allow(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "--help shows these comments as they are"
)]

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use turnlock::doctor::Topic;

use crate::duration;

/// Show in one line whether the store works, for monitoring
///
/// Prints version, role, replicas, latency, the number of locks, the oldest hold and the worst finding of the checks of doctor
/// that only read. Changes no lock. Exits as a plugin of Nagios: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. A store
/// that does not reply, or denies access, is critical; a file that does not exist is unknown; a finding of doctor is critical if it is a danger. Usage errors exit
/// with 3.
#[derive(Args, Debug)]
pub(crate) struct StatusArguments {
    /// The stores; without any, the store of --store or --system. --password-file and TURNLOCK_PASSWORD apply to each store whose URL has
    /// no password of its own
    #[arg(value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// How long the check of a store may take, at most an hour
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::up_to_an_hour)]
    pub(crate) timeout: Duration,
    /// Warning if a lock is held for longer than this
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) warn_older_than: Option<Duration>,
    /// Critical if a lock is held for longer than this
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) crit_older_than: Option<Duration>,
    /// Ignore the findings of doctor about this topic. May be repeated
    #[arg(long, value_name = "TOPIC", value_parser = topic_parser())]
    pub(crate) ignore: Vec<Topic>,
    /// Print one JSON object per store
    #[arg(long)]
    pub(crate) json: bool,
}

/// The topics of the checks that only read.
const TOPICS: [Topic; 7] = [
    Topic::Server,
    Topic::Persistence,
    Topic::Replication,
    Topic::Eviction,
    Topic::Clock,
    Topic::Latency,
    Topic::Connections,
];

fn topic_parser() -> impl TypedValueParser<Value = Topic> {
    PossibleValuesParser::new(TOPICS.map(|topic| topic.to_string())).try_map(|text| {
        TOPICS.into_iter().find(|topic| topic.to_string() == text).ok_or("not a topic of doctor")
    })
}
