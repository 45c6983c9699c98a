use std::collections::HashMap;
use std::time::{Duration, Instant};

use turnlock_store::{Finding, Level, Topic, clock};

use super::server_probe::{ProbeError, ServerProbe};

/// The facts that were read from one server.
///
/// An error is the reason why a fact could not be read.
#[derive(Clone, Debug)]
pub(super) struct ServerFacts {
    pub(super) address: String,
    /// The reply to `INFO`.
    pub(super) info: Result<Fields, String>,
    /// The values of [`SETTINGS`].
    pub(super) config: Result<Fields, String>,
    pub(super) clock: Result<ClockSample, String>,
    /// How long each of several requests took.
    pub(super) round_trips: Result<Vec<Duration>, String>,
}

/// The offset of a server's clock from this machine's.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockSample {
    pub(super) ahead_micros: i64,
    /// The error of the measurement: half the round trip.
    pub(super) doubt_micros: i64,
}

/// The settings that are read with `CONFIG GET`.
const SETTINGS: [&str; 5] =
    ["save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag", "timeout"];

/// How many round trips are measured.
const ROUND_TRIPS: usize = 20;

/// How often the clock is read; the sample with the shortest round trip counts.
const CLOCK_SAMPLES: usize = 5;

impl ServerFacts {
    pub(super) async fn read(server: &ServerProbe) -> Self {
        Self {
            address: server.address.clone(),
            info: server.read(&redis::cmd("INFO")).await.map(|text: String| Fields::parse(&text)),
            config: config(server).await,
            clock: clock(server).await,
            round_trips: round_trips(server).await,
        }
    }

    /// Reports the facts that could not be read.
    pub(super) fn unread(&self) -> Vec<Finding> {
        let unread = |why: Option<&String>, topic, what: &str, right: &str| {
            let text = format!(
                "{what} could not be read: {}. Grant {right}, or ask the server's administrator.",
                why?
            );
            Some(Finding::new(Level::Unknown, topic, text))
        };
        let info = self.info.as_ref().err();
        let config = self.config.as_ref().err();
        let clock = self.clock.as_ref().err();
        [
            unread(info, Topic::Server, "Version, persistence, replication and eviction", "+info"),
            unread(
                config,
                Topic::Server,
                "Settings of persistence, replication and connections",
                "+config|get",
            ),
            unread(clock, Topic::Clock, "The clock", "+time"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

async fn config(server: &ServerProbe) -> Result<Fields, String> {
    let mut config = Fields::default();
    // One by one: only Redis 7 and later accept several at once.
    for setting in SETTINGS {
        let pairs: Vec<(String, String)> = server.read(redis::cmd("CONFIG").arg("GET").arg(setting)).await?;
        config.0.extend(pairs);
    }
    Ok(config)
}

async fn clock(server: &ServerProbe) -> Result<ClockSample, String> {
    let mut best: Option<ClockSample> = None;
    for _ in 0..CLOCK_SAMPLES {
        let before = clock::wall_micros();
        let start = Instant::now();
        let (seconds, micros): (i64, i64) = server.read(&redis::cmd("TIME")).await?;
        let doubt_micros = i64::try_from((start.elapsed() / 2).as_micros()).unwrap_or(i64::MAX);
        let here = i64::try_from(before).unwrap_or(i64::MAX).saturating_add(doubt_micros);
        let there = seconds.saturating_mul(1_000_000).saturating_add(micros);
        let sample = ClockSample { ahead_micros: there.saturating_sub(here), doubt_micros };
        if best.is_none_or(|best| sample.doubt_micros < best.doubt_micros) {
            best = Some(sample);
        }
    }
    best.ok_or_else(|| "the clock was not read".to_owned())
}

async fn round_trips(server: &ServerProbe) -> Result<Vec<Duration>, String> {
    let mut round_trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        match server.send(&redis::cmd("PING")).await {
            // An error reply measures the round trip as well.
            Ok(_) | Err(ProbeError::Denied(_) | ProbeError::Refused(_)) => {
                round_trips.push(start.elapsed());
            }
            Err(ProbeError::NoReply(text)) => return Err(text),
        }
    }
    Ok(round_trips)
}

/// Names and values from `INFO` or `CONFIG GET`.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(HashMap<String, String>);

impl Fields {
    /// Parses lines of `name:value`, and skips headings.
    pub(super) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

#[cfg(test)]
impl ServerFacts {
    /// The facts of a server with these replies to `INFO` and `CONFIG GET`.
    pub(super) fn with(info: &str, settings: &[(&str, &str)]) -> Self {
        let config = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self {
            address: "server:6379".to_owned(),
            info: Ok(Fields::parse(info)),
            config: Ok(Fields(config.collect())),
            clock: Ok(ClockSample { ahead_micros: 0, doubt_micros: 0 }),
            round_trips: Ok(vec![Duration::from_millis(1); 20]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_read_is_reported_with_the_right_to_grant() {
        let mut facts = ServerFacts::with("", &[]);
        assert_eq!(facts.unread(), []);
        facts.config = Err("NOPERM".to_owned());
        let [finding] = &facts.unread()[..] else { panic!("one finding") };
        assert_eq!(finding.level, Level::Unknown);
        assert!(finding.text.contains("could not be read: NOPERM. Grant +config|get"), "{finding}");
    }

    #[test]
    fn lines_of_info_are_parsed_and_headings_skipped() {
        let info = Fields::parse(
            "# Server\r\nredis_version:7.0.15\r\n\r\n# Memory\r\nmaxmemory:0\r\nexecutable:a:b\r\n",
        );
        assert_eq!(info.get("redis_version"), Some("7.0.15"));
        assert_eq!(info.number("maxmemory"), Some(0));
        assert_eq!(info.get("executable"), Some("a:b"));
        assert_eq!(info.number("redis_version"), None);
    }
}
