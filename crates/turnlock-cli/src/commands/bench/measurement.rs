use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::latencies::{Bar, Latencies, Percentiles};

const FIELD_STYLE: Style = Style::new().bold();
const BAR_STYLE: Style = AnsiColor::Cyan.on_default();
/// Length of the longest bar, in characters.
const MAX_BAR_LEN: u64 = 40;

/// The results of a benchmark. Serializes to the object of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Measurement {
    serial: Serial,
    concurrent: Concurrent,
    hand_over: HandOver,
    /// Latency of a pair in the serial part.
    latency: Percentiles,
    histogram: Vec<Bar>,
}

/// Results of the serial part.
#[derive(Debug, Serialize)]
pub(super) struct Serial {
    pub(super) pairs: u64,
    pub(super) pairs_per_second: f64,
}

/// Results of the concurrent part.
#[derive(Debug, Serialize)]
pub(super) struct Concurrent {
    pub(super) tasks: usize,
    pub(super) pairs: u64,
    pub(super) pairs_per_second: f64,
}

/// Times from the unlock of one client to the grant of another.
#[derive(Debug, Serialize)]
pub(super) struct HandOver {
    pub(super) times: u64,
    #[serde(flatten)]
    pub(super) took: Percentiles,
}

impl Measurement {
    pub(super) fn new(
        serial: Serial,
        concurrent: Concurrent,
        hand_over: HandOver,
        latency: &Latencies,
    ) -> Self {
        Self { serial, concurrent, hand_over, latency: latency.percentiles(), histogram: latency.bars() }
    }

    /// Writes the results as text.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Concurrent { tasks, pairs_per_second, .. } = self.concurrent;
        field(out, "serial", &format!("{:.0} pairs/s", self.serial.pairs_per_second))?;
        field(out, "concurrent", &format!("{pairs_per_second:.0} pairs/s, {tasks} tasks"))?;
        field(out, "hand-over", &percentiles(&self.hand_over.took))?;
        field(out, "pair", &percentiles(&self.latency))?;
        writeln!(out, "\nlatency of a pair:")?;
        let (highest, total) = self
            .histogram
            .iter()
            .fold((1, 0), |(highest, total), bar| (bar.count.max(highest), total + bar.count));
        for bar in &self.histogram {
            let label = match bar.to {
                Some(to) => format!("to {}", time(to)),
                None => "above".to_owned(),
            };
            let blocks = blocks(bar.count, highest);
            #[expect(clippy::cast_precision_loss, reason = "a count of pairs is far below 2^52")]
            let share = 100.0 * bar.count as f64 / total as f64;
            writeln!(out, "{label:>12}  {BAR_STYLE}{blocks}{BAR_STYLE:#} {share:.1} %")?;
        }
        Ok(())
    }
}

fn field(out: &mut impl Write, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{FIELD_STYLE}{name:12}{FIELD_STYLE:#}{text}")
}

fn percentiles(percentiles: &Percentiles) -> String {
    let named = [
        ("p50", percentiles.p50),
        ("p90", percentiles.p90),
        ("p99", percentiles.p99),
        ("p99.9", percentiles.p99_9),
        ("max", percentiles.max),
    ];
    named.map(|(name, nanos)| format!("{name} {}", time(nanos))).join(", ")
}

/// Formats nanoseconds with about three significant digits.
fn time(nanos: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "an hour of nanoseconds is far below 2^52")]
    let nanos = nanos as f64;
    let (number, unit) = match nanos {
        ..1e3 => (nanos, "ns"),
        1e3..1e6 => (nanos / 1e3, "µs"),
        1e6..1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    let digits = match number {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {unit}")
}

/// Draws a bar in eighths of a character. A count above zero is always visible.
fn blocks(count: u64, highest: u64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (count * MAX_BAR_LEN * 8).div_ceil(highest.max(1));
    let whole = usize::try_from(eighths / 8).unwrap_or_default();
    let part = usize::try_from(eighths % 8).unwrap_or_default();
    format!("{}{}", "█".repeat(whole), PARTS[part])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_bars_are_formatted() {
        assert_eq!(
            [3, 1_500, 45_600, 999_000, 12_340_000, 2_000_000_000].map(time),
            ["3.00 ns", "1.50 µs", "45.6 µs", "999 µs", "12.3 ms", "2.00 s"]
        );
        assert_eq!(blocks(0, 10), "");
        assert_eq!(blocks(1, 1_000_000), "▏");
        assert_eq!(blocks(10, 10), "█".repeat(40));
    }
}
