use std::sync::Arc;
use std::time::{Duration, Instant};

use super::info::Info;
use super::{Examinee, Finding, Level, Topic, Unanswered};
use crate::clock;

/// What was read of one server.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) address: String,
    /// What INFO says, or why it does not.
    pub(super) info: Result<Info, String>,
    /// What CONFIG GET says of [`SETTINGS`].
    pub(super) config: Result<Info, String>,
    pub(super) clock: Result<ClockSample, String>,
    /// How long each of some questions took.
    pub(super) round_trips: Result<Vec<Duration>, String>,
}

/// How far a server's clock is ahead of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockSample {
    pub(super) ahead_micros: i64,
    /// How far that may be wrong: half the round trip.
    pub(super) doubt_micros: i64,
}

/// The settings that are looked at.
const SETTINGS: [&str; 5] =
    ["save", "appendfsync", "min-replicas-to-write", "min-replicas-max-lag", "timeout"];

/// How often a round trip is measured.
const ROUND_TRIPS: usize = 20;

/// How often the clock is asked; the quickest answer tells it best.
const CLOCK_SAMPLES: usize = 5;

impl Reading {
    pub(super) async fn of(examinee: Arc<dyn Examinee>) -> Self {
        let examinee = &*examinee;
        Self {
            address: examinee.address().to_owned(),
            info: info(examinee).await,
            config: config(examinee).await,
            clock: clock(examinee).await,
            round_trips: round_trips(examinee).await,
        }
    }

    /// What could not be looked at.
    pub(super) fn gaps(&self) -> Vec<Finding> {
        let gap = |outcome: Option<&String>, topic, what: &str, remedy: &str| {
            let text = format!(
                "{what} could not be looked at: {}. Grant {remedy} or ask whoever runs the server.",
                outcome?
            );
            Some(Finding::new(Level::Unknown, topic, text))
        };
        let info = self.info.as_ref().err();
        let config = self.config.as_ref().err();
        let clock = self.clock.as_ref().err();
        [
            gap(info, Topic::Server, "Version, persistence, replication and eviction", "+info"),
            gap(config, Topic::Server, "Settings of persistence, replication and connections", "+config|get"),
            gap(clock, Topic::Clock, "The clock", "+time"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

async fn info(examinee: &dyn Examinee) -> Result<Info, String> {
    let answer = examinee.ask(redis::cmd("INFO")).await;
    let text = answer.map_err(|error| error.text().to_owned())?;
    redis::from_redis_value::<String>(text).map(|text| Info::parse(&text)).map_err(|error| error.to_string())
}

async fn config(examinee: &dyn Examinee) -> Result<Info, String> {
    let mut config = Info::default();
    // One by one: only Redis 7 takes several at once.
    for setting in SETTINGS {
        let mut cmd = redis::cmd("CONFIG");
        cmd.arg("GET").arg(setting);
        let answer = examinee.ask(cmd).await.map_err(|error| error.text().to_owned())?;
        let pairs: Vec<(String, String)> =
            redis::from_redis_value(answer).map_err(|error| error.to_string())?;
        for (name, value) in &pairs {
            config.set(name, value);
        }
    }
    Ok(config)
}

async fn clock(examinee: &dyn Examinee) -> Result<ClockSample, String> {
    let mut best: Option<ClockSample> = None;
    for _ in 0..CLOCK_SAMPLES {
        let before = clock::wall_micros();
        let begun = Instant::now();
        let answer = examinee.ask(redis::cmd("TIME")).await.map_err(|error| error.text().to_owned())?;
        let half = begun.elapsed() / 2;
        let (seconds, micros): (i64, i64) =
            redis::from_redis_value(answer).map_err(|error| error.to_string())?;
        let doubt_micros = i64::try_from(half.as_micros()).unwrap_or(i64::MAX);
        let here = i64::try_from(before).unwrap_or(i64::MAX).saturating_add(doubt_micros);
        let there = seconds.saturating_mul(1_000_000).saturating_add(micros);
        let sample = ClockSample { ahead_micros: there.saturating_sub(here), doubt_micros };
        if best.is_none_or(|best| sample.doubt_micros < best.doubt_micros) {
            best = Some(sample);
        }
    }
    best.ok_or_else(|| "it was not asked".to_owned())
}

async fn round_trips(examinee: &dyn Examinee) -> Result<Vec<Duration>, String> {
    let mut round_trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let begun = Instant::now();
        match examinee.ask(redis::cmd("PING")).await {
            // A refusal takes as long as an answer.
            Ok(_) | Err(Unanswered::Denied(_) | Unanswered::Refused(_)) => {
                round_trips.push(begun.elapsed());
            }
            Err(Unanswered::Silent(text)) => return Err(text),
        }
    }
    Ok(round_trips)
}

#[cfg(test)]
impl Reading {
    /// A server of which this is known: what INFO says, and what CONFIG says.
    pub(super) fn with(info: &str, settings: &[(&str, &str)]) -> Self {
        let mut config = Info::default();
        for (name, value) in settings {
            config.set(name, value);
        }
        Self {
            address: "server:6379".to_owned(),
            info: Ok(Info::parse(info)),
            config: Ok(config),
            clock: Ok(ClockSample { ahead_micros: 0, doubt_micros: 0 }),
            round_trips: Ok(vec![Duration::from_millis(1); 20]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allowed_is_said_with_the_right_to_grant() {
        let mut reading = Reading::with("", &[]);
        assert_eq!(reading.gaps(), []);
        reading.config = Err("NOPERM".to_owned());
        let [gap] = &reading.gaps()[..] else { panic!("one gap") };
        assert_eq!(gap.level, Level::Unknown);
        assert!(gap.text.contains("could not be looked at: NOPERM. Grant +config|get"), "{gap}");
    }
}
