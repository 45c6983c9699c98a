//! The results as text, in lines of at most 80 columns.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};

use super::bench_run::BenchRun;
use super::glyphs::{Glyphs, three_digits};
use super::latencies::{Bar, Percentiles};
use super::series::{Series, as_f64};
use crate::commands::screen;
use crate::commands::server_view::describe;
use crate::commands::table::cut;

const HEADING_STYLE: Style = Style::new().bold();
const BAR_STYLE: Style = AnsiColor::Cyan.on_default();
const NOISE_STYLE: Style = AnsiColor::Yellow.on_default();
/// Length of the longest bar, in characters.
const MAX_BAR_LEN: u64 = 40;

/// Writes the results of one store.
pub(super) fn write_one(
    out: &mut impl Write,
    run: &BenchRun,
    time: Duration,
    glyphs: Glyphs,
) -> io::Result<()> {
    write_store(out, "store", run)?;
    heading(out, "part         samples       rate     p50     p90     p99   p99.9     max x ping")?;
    for (name, series) in run.series() {
        let ratio = run.ping.as_ref().map(|ping| three_digits(series.typical() / ping.typical()));
        let has_rate = name != "hand-over";
        let rate = if has_rate { format!("{:.0}/s", series.rate()) } else { "-".to_owned() };
        let times = times(series, glyphs).map(|time| format!(" {time:>7}")).concat();
        let ratio = ratio.unwrap_or_else(|| "-".to_owned());
        writeln!(out, "{name:10} {:>9} {rate:>10}{times} {ratio:>6}", series.samples)?;
    }
    writeln!(out)?;
    write_legend(out, run)?;
    writeln!(out, "\nlatency of a pair in the serial part:")?;
    write_bars(out, &run.serial.latencies.bars(), glyphs)?;
    write_noise(out, &[run], time)
}

/// Writes the results of two stores side by side.
pub(super) fn write_two(
    out: &mut impl Write,
    runs: [&BenchRun; 2],
    time: Duration,
    glyphs: Glyphs,
) -> io::Result<()> {
    let [a, b] = runs;
    write_store(out, "A", a)?;
    write_store(out, "B", b)?;
    heading(out, "                         A           B       B/A   samples A   samples B")?;
    let latency = |quantile: f64| move |series: &Series| as_f64(series.latencies.nanos_at(quantile));
    let mut row = |name: &str,
                   of: fn(&BenchRun) -> Option<&Series>,
                   figure: &dyn Fn(&Series) -> f64,
                   unit: &dyn Fn(f64) -> String| {
        let (Some(a), Some(b)) = (of(a), of(b)) else { return Ok(()) };
        let (one, other) = (figure(a), figure(b));
        let [first, second] = [one, other].map(unit);
        let ratio = three_digits(other / one);
        writeln!(out, "{name:14}{first:>12}{second:>12}{ratio:>10}{:>12}{:>12}", a.samples, b.samples)
    };
    let per_second = |rate: f64| format!("{rate:.0}/s");
    let in_time = |nanos: f64| glyphs.time(nanos);
    for (quantile, title) in [(0.5, "p50"), (0.99, "p99")] {
        row(&format!("ping {title}"), |run| run.ping.as_ref(), &latency(quantile), &in_time)?;
    }
    for (quantile, title) in [(0.5, "p50"), (0.99, "p99")] {
        row(&format!("pair {title}"), |run| Some(&run.serial), &latency(quantile), &in_time)?;
    }
    row("serial", |run| Some(&run.serial), &Series::rate, &per_second)?;
    row("concurrent", |run| Some(&run.concurrent), &Series::rate, &per_second)?;
    for (quantile, title) in [(0.5, "p50"), (0.99, "p99")] {
        row(&format!("hand-over {title}"), |run| Some(&run.hand_over), &latency(quantile), &in_time)?;
    }
    writeln!(out)?;
    write_legend(out, a)?;
    write_noise(out, &[a, b], time)
}

fn heading(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "{HEADING_STYLE}{text}{HEADING_STYLE:#}")
}

/// Writes the URL of a store and what is known of its servers.
fn write_store(out: &mut impl Write, name: &str, run: &BenchRun) -> io::Result<()> {
    let facts = describe(&run.servers, &run.store).join(", ");
    let facts = if facts.is_empty() { "in the memory of this process" } else { &facts };
    let room = screen::width().map_or(usize::MAX, |width| width.saturating_sub(8));
    writeln!(out, "{HEADING_STYLE}{name:7}{HEADING_STYLE:#} {}", cut(&run.store, room))?;
    writeln!(out, "        {}\n", cut(facts, room))
}

fn write_legend(out: &mut impl Write, run: &BenchRun) -> io::Result<()> {
    writeln!(out, "A pair is one lock and its unlock: in sequence, or concurrent by {} tasks.", run.tasks)?;
    let ping = match run.ping {
        Some(_) => "A ping is one round trip: a PING, or on a file an empty transaction.",
        None => "This store has no round trip to compare with.",
    };
    writeln!(out, "{ping}")
}

fn write_bars(out: &mut impl Write, bars: &[Bar], glyphs: Glyphs) -> io::Result<()> {
    let highest = bars.iter().map(|bar| bar.count).max().unwrap_or(1);
    let total: u64 = bars.iter().map(|bar| bar.count).sum();
    for bar in bars.iter().filter(|bar| bar.count > 0) {
        let label = match bar.to {
            Some(to) => format!("to {}", glyphs.time(as_f64(to))),
            None => "above".to_owned(),
        };
        let drawn = glyphs.bar(bar.count, highest, MAX_BAR_LEN);
        let share = 100.0 * as_f64(bar.count) / as_f64(total);
        writeln!(out, "{label:>12}  {BAR_STYLE}{drawn}{BAR_STYLE:#} {share:.1} %")?;
    }
    Ok(())
}

/// Writes which parts are noisy, and what helps.
fn write_noise(out: &mut impl Write, runs: &[&BenchRun], time: Duration) -> io::Result<()> {
    let noisy = |run: &BenchRun| {
        let noisy = run.series().filter(|(_, series)| series.is_noisy());
        noisy.map(|(name, series)| format!("{name} {:.0} %", series.spread() * 100.0)).collect::<Vec<_>>()
    };
    let noisy: Vec<_> = runs.iter().map(|run| noisy(run)).collect();
    if noisy.iter().all(Vec::is_empty) {
        return Ok(());
    }
    writeln!(out)?;
    for (name, parts) in ["A", "B"].iter().zip(&noisy).filter(|(_, parts)| !parts.is_empty()) {
        let of = if runs.len() > 1 { format!(" {name}") } else { String::new() };
        writeln!(out, "{NOISE_STYLE}noisy{of}{NOISE_STYLE:#}: {}", parts.join(", "))?;
    }
    writeln!(out, "These parts differ so much from one slice of the time to another.")?;
    let longer = (time * 4).as_secs().clamp(10, 60 * 60);
    writeln!(out, "Repeat on an idle machine, or measure for longer: --time {longer}s")
}

/// The percentiles of a series, or a dash for each if single samples were not measured.
fn times(series: &Series, glyphs: Glyphs) -> [String; 5] {
    if series.latencies.count() == 0 {
        return std::array::from_fn(|_| "-".to_owned());
    }
    let Percentiles { p50, p90, p99, p99_9, max } = series.latencies.percentiles();
    [p50, p90, p99, p99_9, max].map(|nanos| glyphs.time(as_f64(nanos)))
}
