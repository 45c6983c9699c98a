use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// A histogram of latencies in nanoseconds, with three significant digits.
#[derive(Debug)]
pub(super) struct Latencies(Histogram<u64>);

/// Percentiles of latencies, in nanoseconds; serialized in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Percentiles {
    #[serde(rename = "p50_us", serialize_with = "micros")]
    pub(super) p50: u64,
    #[serde(rename = "p90_us", serialize_with = "micros")]
    pub(super) p90: u64,
    #[serde(rename = "p99_us", serialize_with = "micros")]
    pub(super) p99: u64,
    #[serde(rename = "p99_9_us", serialize_with = "micros")]
    pub(super) p99_9: u64,
    #[serde(rename = "max_us", serialize_with = "micros")]
    pub(super) max: u64,
}

/// One bar of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Bar {
    #[serde(rename = "from_us", serialize_with = "micros")]
    pub(super) from: u64,
    /// `None` for the last bar, which has no upper bound.
    #[serde(rename = "to_us", serialize_with = "optional_micros")]
    pub(super) to: Option<u64>,
    pub(super) count: u64,
}

/// Bounds of the bars in each power of ten, in about equal steps on a logarithmic scale.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];

impl Latencies {
    pub(super) fn new() -> anyhow::Result<Self> {
        const HOUR: u64 = 3_600_000_000_000;
        Ok(Self(Histogram::new_with_bounds(1, HOUR, 3)?))
    }

    pub(super) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(super) fn nanos_at(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    pub(super) fn median(&self) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(0.5))
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50: self.0.value_at_quantile(0.5),
            p90: self.0.value_at_quantile(0.9),
            p99: self.0.value_at_quantile(0.99),
            p99_9: self.0.value_at_quantile(0.999),
            max: self.0.max(),
        }
    }

    /// Bars from the minimum to the 99.9th percentile, and one bar for the rest.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let (min, p99_9) = (self.0.min(), self.0.value_at_quantile(0.999));
        let mut bars = Vec::new();
        let (mut from, mut counted) = (0, 0);
        for to in bounds() {
            let below = self.count_below(to);
            if to > min && below > 0 {
                bars.push(Bar { from, to: Some(to), count: below - counted });
            }
            (from, counted) = (to, below);
            if to > p99_9 {
                break;
            }
        }
        let rest = self.count() - counted;
        if rest > 0 {
            bars.push(Bar { from, to: None, count: rest });
        }
        bars
    }

    /// Number of values below `limit`, at the precision of the histogram.
    fn count_below(&self, limit: u64) -> u64 {
        self.0
            .iter_recorded()
            .filter(|value| value.value_iterated_to() < limit)
            .map(|value| value.count_at_value())
            .sum()
    }
}

/// The upper bounds of the bars, from 10 ns to more than an hour.
fn bounds() -> impl Iterator<Item = u64> {
    (0..13).flat_map(|power| STEPS.map(|step| step * 10_u64.pow(power)))
}

#[expect(clippy::cast_precision_loss, reason = "an hour of nanoseconds is far below 2^52")]
fn in_micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference to the field")]
fn micros<S: serde::Serializer>(nanos: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    in_micros(*nanos).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
fn optional_micros<S: serde::Serializer>(nanos: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    nanos.map(in_micros).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_one_bar() {
        let mut latencies = Latencies::new().unwrap();
        assert_eq!(latencies.bars(), []);
        for micros in 1..2_000 {
            latencies.record(Duration::from_micros(micros));
        }
        latencies.record(Duration::from_secs(2));
        let bars = latencies.bars();
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), 2_000);
        assert_eq!(bars.first().map(|bar| (bar.from, bar.to, bar.count)), Some((1_000, Some(1_500), 1)));
        assert_eq!(bars.last().map(|bar| (bar.to, bar.count)), Some((None, 1)), "{bars:?}");
        assert!(bars.windows(2).all(|pair| pair[0].to == Some(pair[1].from)), "{bars:?}");
        assert!(latencies.percentiles().p50.abs_diff(1_000_000) < 2_000);
    }

    #[test]
    fn a_single_value_has_a_histogram() {
        let mut latencies = Latencies::new().unwrap();
        latencies.record(Duration::from_nanos(1));
        assert_eq!(latencies.bars().iter().map(|bar| bar.count).sum::<u64>(), 1);
    }
}
