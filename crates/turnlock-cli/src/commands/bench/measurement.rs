use serde::Serialize;

use super::bench_run::BenchRun;
use super::latencies::{Bar, Percentiles};
use super::series::Series;
use crate::commands::server_view::ServerView;

/// The results of a benchmark. Serializes to the object of `--json`.
///
/// Every field must be documented in `docs/program-json.md`.
#[derive(Debug, Serialize)]
pub(super) struct Measurement<'a> {
    store: &'a str,
    servers: &'a [ServerView],
    ping: Option<Samples>,
    serial: Serial,
    concurrent: Concurrent,
    hand_over: Samples,
    /// Latency of a pair in the serial part.
    latency: Percentiles,
    histogram: Vec<Bar>,
    noisy: bool,
    ratio_to_first: Option<Ratios>,
}

/// Results of the pings, or of the hand-overs.
#[derive(Debug, Serialize)]
struct Samples {
    times: u64,
    #[serde(flatten)]
    took: Percentiles,
    #[serde(flatten)]
    quality: Quality,
}

/// Results of the serial part.
#[derive(Debug, Serialize)]
struct Serial {
    pairs: u64,
    pairs_per_second: f64,
    #[serde(flatten)]
    quality: Quality,
}

/// Results of the concurrent part.
#[derive(Debug, Serialize)]
struct Concurrent {
    tasks: usize,
    pairs: u64,
    pairs_per_second: f64,
    #[serde(flatten)]
    quality: Quality,
}

/// What every part has.
#[derive(Debug, Serialize)]
struct Quality {
    spread: f64,
    ratio_to_ping: Option<f64>,
}

/// The figures of a store, relative to those of the first.
#[derive(Debug, Serialize)]
struct Ratios {
    ping: Option<f64>,
    serial: f64,
    concurrent: f64,
    hand_over: f64,
    latency: f64,
}

impl<'a> Measurement<'a> {
    /// Summarizes a run. `first` is the run of the store to compare it with.
    pub(super) fn new(run: &'a BenchRun, first: Option<&BenchRun>) -> Self {
        let quality = |series: &Series| Quality {
            spread: series.spread(),
            ratio_to_ping: run.ping.as_ref().map(|ping| series.typical() / ping.typical()),
        };
        let samples = |series: &Series| Samples {
            times: series.samples,
            took: series.latencies.percentiles(),
            quality: quality(series),
        };
        let BenchRun { serial, concurrent, .. } = run;
        Self {
            store: &run.store,
            servers: &run.servers,
            ping: run.ping.as_ref().map(samples),
            serial: Serial {
                pairs: serial.samples,
                pairs_per_second: serial.rate(),
                quality: quality(serial),
            },
            concurrent: Concurrent {
                tasks: run.tasks,
                pairs: concurrent.samples,
                pairs_per_second: concurrent.rate(),
                quality: quality(concurrent),
            },
            hand_over: samples(&run.hand_over),
            latency: serial.latencies.percentiles(),
            histogram: serial.latencies.bars(),
            noisy: run.series().any(|(_, series)| series.is_noisy()),
            ratio_to_first: first.map(|first| Ratios::new(run, first)),
        }
    }
}

impl Ratios {
    fn new(run: &BenchRun, first: &BenchRun) -> Self {
        let ping = run.ping.as_ref().zip(first.ping.as_ref());
        Self {
            ping: ping.map(|(ping, first)| ping.typical() / first.typical()),
            serial: run.serial.rate() / first.serial.rate(),
            concurrent: run.concurrent.rate() / first.concurrent.rate(),
            hand_over: run.hand_over.typical() / first.hand_over.typical(),
            latency: run.serial.typical() / first.serial.typical(),
        }
    }
}
