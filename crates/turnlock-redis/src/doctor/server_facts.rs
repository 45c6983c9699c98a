use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use tokio::time::Instant;
use turnlock_store::{Failure, Finding, Level, Topic, clock};

use crate::failure::error_reply;
use crate::node::Node;

/// A server to which the doctor sends commands, over the connection that its locks use.
pub(super) struct ServerProbe {
    node: Arc<Node>,
    /// The server's address, without a password.
    pub(super) address: String,
    /// The time limit for a reply.
    limit: Duration,
}

impl ServerProbe {
    pub(super) async fn new(node: Arc<Node>, limit: Duration) -> Result<Self, Failure> {
        let address = node.address().await?.to_string();
        Ok(Self { node, address, limit })
    }

    /// Sends one command and waits for its reply.
    pub(super) async fn send(&self, cmd: &Cmd) -> Result<Value, Failure> {
        self.node.connection.command(cmd, self.limit).await.map(|reply| reply.value)
    }

    /// Sends one command and decodes its reply. The error is a text for a finding.
    pub(super) async fn read<T: FromRedisValue>(&self, cmd: &Cmd) -> Result<T, String> {
        let value = self.send(cmd).await.map_err(|failure| failure.to_string())?;
        redis::from_redis_value(value).map_err(|error| error.to_string())
    }
}

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
    /// Reads the facts. A server without a reply to the first request gets no others.
    pub(super) async fn read(server: &ServerProbe) -> Self {
        let (address, round_trips) = (server.address.clone(), round_trips(server).await);
        if let Err(why) = &round_trips {
            let [info, config] = [Err(why.clone()), Err(why.clone())];
            return Self { address, info, config, clock: Err(why.clone()), round_trips };
        }
        Self {
            address,
            info: server.read(&redis::cmd("INFO")).await.map(|text: String| Fields::parse(&text)),
            config: config(server).await,
            clock: clock(server).await,
            round_trips,
        }
    }

    /// Returns the product and its version, as in `Redis` and `7.0.15`.
    pub(super) fn version(&self) -> Option<(&'static str, &str)> {
        let info = self.info.as_ref().ok()?;
        let valkey = info.get("valkey_version").map(|version| ("Valkey", version));
        valkey.or_else(|| Some(("Redis", info.get("redis_version")?)))
    }

    /// Reports the facts that could not be read.
    pub(super) fn unread(&self) -> Vec<Finding> {
        let info = "Version, persistence, replication and eviction";
        let config = "Settings of persistence, replication and connections";
        let reads = [
            (self.info.as_ref().err(), Topic::Server, info, "+info"),
            (self.config.as_ref().err(), Topic::Server, config, "+config|get"),
            (self.clock.as_ref().err(), Topic::Clock, "The clock", "+time"),
        ];
        let unread = |(why, topic, what, right): (Option<&String>, Topic, &str, &str)| {
            let why = why?;
            let remedy = format!("Grant {right}, or ask the server's administrator.");
            Some(Finding::new(Level::Unknown, topic, format!("{what} could not be read: {why}. {remedy}")))
        };
        reads.into_iter().filter_map(unread).collect()
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
    let mut samples = Vec::new();
    for _ in 0..CLOCK_SAMPLES {
        let before = clock::wall_micros();
        let start = Instant::now();
        let (seconds, micros): (i64, i64) = server.read(&redis::cmd("TIME")).await?;
        let doubt_micros = i64::try_from((start.elapsed() / 2).as_micros()).unwrap_or(i64::MAX);
        let here = i64::try_from(before).unwrap_or(i64::MAX).saturating_add(doubt_micros);
        let there = seconds.saturating_mul(1_000_000).saturating_add(micros);
        samples.push(ClockSample { ahead_micros: there.saturating_sub(here), doubt_micros });
    }
    let best = samples.into_iter().min_by_key(|sample| sample.doubt_micros);
    best.ok_or_else(|| "the clock was not read".to_owned())
}

async fn round_trips(server: &ServerProbe) -> Result<Vec<Duration>, String> {
    let mut round_trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        match server.send(&redis::cmd("PING")).await {
            Err(failure) if error_reply(&failure).is_none() => return Err(failure.to_string()),
            // An error reply measures the round trip as well.
            Ok(_) | Err(_) => round_trips.push(start.elapsed()),
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
