use std::time::Duration;

use super::latencies::Latencies;

/// Above this spread, the result of a part is noisy.
const NOISY: f64 = 0.3;

/// The samples of one part, from several slices of time.
#[derive(Debug)]
pub(super) struct Series {
    /// Empty for a part that is measured as a whole.
    pub(super) latencies: Latencies,
    pub(super) samples: u64,
    /// The time of all slices.
    time: Duration,
    /// The mean time of a sample in each slice, in seconds.
    means: Vec<f64>,
}

impl Series {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self { latencies: Latencies::new()?, samples: 0, time: Duration::ZERO, means: Vec::new() })
    }

    /// Adds a slice: this many samples took this long.
    pub(super) fn add_slice(&mut self, samples: u64, time: Duration) {
        self.samples += samples;
        self.time += time;
        self.means.push(time.as_secs_f64() / as_f64(samples.max(1)));
    }

    /// Samples per second.
    pub(super) fn rate(&self) -> f64 {
        as_f64(self.samples) / self.time.as_secs_f64()
    }

    /// The typical time of a sample in seconds: the median, or the mean if single samples were not measured.
    pub(super) fn typical(&self) -> f64 {
        if self.latencies.count() > 0 { self.latencies.median().as_secs_f64() } else { 1.0 / self.rate() }
    }

    /// How much the slices differ: the range of their means, relative to the middle one.
    pub(super) fn spread(&self) -> f64 {
        let mut means = self.means.clone();
        means.sort_by(f64::total_cmp);
        match means[..] {
            [lowest, .., highest] => (highest - lowest) / means[means.len() / 2],
            [] | [_] => 0.0,
        }
    }

    pub(super) fn is_noisy(&self) -> bool {
        self.spread() > NOISY
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of samples is far below 2^52")]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_differ_are_noisy() {
        let series = |slices: &[(u64, u64)]| {
            let mut series = Series::new().unwrap();
            for (samples, millis) in slices {
                series.add_slice(*samples, Duration::from_millis(*millis));
            }
            series
        };
        assert!(!series(&[]).is_noisy() && !series(&[(10, 1)]).is_noisy());
        let quiet = series(&[(100, 10), (110, 10), (100, 10), (95, 10), (100, 10)]);
        assert!(!quiet.is_noisy() && (quiet.rate() - 10_100.0).abs() < 1.0, "{quiet:?}");
        let noisy = series(&[(100, 10), (100, 10), (50, 10), (100, 10), (100, 10)]);
        assert!(noisy.is_noisy() && (noisy.spread() - 1.0).abs() < 1e-9, "{noisy:?}");
    }

    #[test]
    fn a_typical_time_is_the_median_or_else_the_mean() {
        let mut series = Series::new().unwrap();
        series.add_slice(4, Duration::from_millis(8));
        assert!((series.typical() - 0.002).abs() < 1e-9, "{series:?}");
        for micros in [10, 20, 9_000] {
            series.latencies.record(Duration::from_micros(micros));
        }
        assert!((series.typical() - 20e-6).abs() < 1e-7, "{series:?}");
    }
}
