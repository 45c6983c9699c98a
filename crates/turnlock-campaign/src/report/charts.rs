//! The charts of the report.

use super::figures::{Figures, Percentiles};
use super::spans::{Outcome, Spans};
use super::svg::{Anchor, Axis, Svg, float, number, seconds, time_axis, time_text};

const WIDTH: f64 = 720.0;
const LEFT: f64 = 112.0;
const ROW: f64 = 24.0;

/// The grants per second over time, with the periods of faults.
pub(super) fn rate(spans: &Spans<'_>) -> String {
    let granted = || spans.requests.iter().filter(|request| request.outcome == Outcome::Granted);
    let end = granted().map(|request| request.ended).max().unwrap_or(0).max(1_000_000);
    // Round intervals, about a hundred.
    let interval = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000]
        .map(|tenths| tenths * 100_000)
        .into_iter()
        .find(|interval| end / interval <= 120)
        .unwrap_or(10_000_000_000);
    let index = |t: u64| usize::try_from(t / interval).unwrap_or(0);
    let mut counts = vec![0_usize; index(end) + 1];
    for request in granted() {
        counts[index(request.ended)] += 1;
    }
    let rates: Vec<_> = counts.iter().map(|count| float(*count) / seconds(interval)).collect();
    let most = rates.iter().copied().fold(1.0, f64::max);

    let (top, bottom) = (38.0, 222.0);
    let mut svg = Svg::new(WIDTH, bottom + 26.0);
    let x_axis = Axis { values: (0.0, seconds(end)), positions: (48.0, WIDTH - 24.0) };
    let y_axis = Axis { values: (0.0, most), positions: (bottom, top) };
    // Periods that touch in the picture are one.
    let mut shaded: Vec<(f64, f64)> = Vec::new();
    for fault in spans.faults.iter().filter(|fault| fault.from < end) {
        let (from, until) = (x_axis.at_time(fault.from), x_axis.at_time(fault.until));
        match shaded.last_mut() {
            Some(last) if from <= last.1 + 0.5 => last.1 = last.1.max(until),
            _ => shaded.push((from, until.max(from + 1.0))),
        }
    }
    for (from, until) in shaded {
        svg.rect("fault", (from, top), (until - from, bottom - top), "");
    }
    time_axis(&mut svg, &x_axis, (top, bottom));
    let (ticks, step) = y_axis.ticks(5.0);
    let decimals = usize::from(step < 1.0);
    for tick in ticks {
        let y = y_axis.at(tick);
        svg.line("grid", (48.0, y), (WIDTH - 24.0, y));
        svg.text("", Anchor::End, (42.0, y + 4.0), &format!("{tick:.decimals$}"));
    }
    let mut points = Vec::new();
    for (index, rate) in rates.iter().enumerate() {
        let from = x_axis.at(seconds(interval) * float(index));
        let until = x_axis.at((seconds(interval) * float(index + 1)).min(seconds(end)));
        points.extend([(from, y_axis.at(*rate)), (until, y_axis.at(*rate))]);
    }
    svg.polyline("line", &points);
    if let Some(healed) = spans.healed.filter(|healed| *healed < end) {
        let x = x_axis.at_time(healed);
        svg.line("rule", (x, top - 4.0), (x, bottom));
        svg.text("", Anchor::Middle, (x.min(WIDTH - 50.0), top - 8.0), "no more faults");
    }
    svg.text("", Anchor::Start, (4.0, 12.0), &format!("per second, in intervals of {}", time_text(interval)));
    svg.inline("Locks acquired per second over time, with the periods of faults")
}

/// The waits of each kind, on a logarithmic axis.
pub(super) fn waits(figures: &Figures<'_>) -> String {
    let kinds: Vec<_> =
        figures.kinds.iter().filter_map(|(kind, figures)| Some((kind, figures.wait_us?))).collect();
    let bottom = 8.0 + ROW * float(kinds.len());
    let mut svg = Svg::new(WIDTH, bottom + 26.0);
    // Powers of ten, at least a tenth of a millisecond.
    let log = |t: u64| (seconds(t) * 1e6).max(100.0).log10();
    let first = kinds.iter().map(|(_, waits)| log(waits.p10).floor()).fold(6.0, f64::min);
    let last = kinds.iter().map(|(_, waits)| log(waits.max).ceil()).fold(first + 1.0, f64::max);
    let axis = Axis { values: (first, last), positions: (LEFT, WIDTH - 32.0) };
    for (power, t) in (0..).zip(std::iter::successors(Some(1_u64), |t| t.checked_mul(10))) {
        let power = f64::from(power);
        if (first..=last).contains(&power) {
            svg.line("grid", (axis.at(power), 4.0), (axis.at(power), bottom));
            svg.text("", Anchor::Middle, (axis.at(power), bottom + 15.0), &time_text(t));
        }
    }
    for (index, (kind, waits)) in kinds.into_iter().enumerate() {
        let y = 8.0 + ROW * (float(index) + 0.5);
        svg.text("", Anchor::End, (LEFT - 10.0, y + 4.0), &kind.replace('_', " "));
        let Percentiles { p10, p50, p90, p99, max } = waits;
        let [low, middle, high, higher, most] = [p10, p50, p90, p99, max].map(|t| axis.at(log(t).max(first)));
        let tip = format!("median {}, 99 % {}, longest {}", time_text(p50), time_text(p99), time_text(max));
        svg.line("range", (low, y), (higher, y));
        svg.rect("bar", (low, y - 6.0), ((high - low).max(1.0), 12.0), &tip);
        svg.line("mark", (middle, y - 6.0), (middle, y + 6.0));
        svg.mark("bar", (most, y), "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", &tip);
    }
    svg.inline("Waits for each kind of lock")
}

/// The number of faults of each kind.
pub(super) fn faults(figures: &Figures<'_>) -> String {
    let most = figures.faults.values().map(|fault| fault.count).max().unwrap_or(1);
    let mut svg = Svg::new(WIDTH, 8.0 + ROW * float(figures.faults.len()));
    let axis = Axis { values: (0.0, float(most)), positions: (LEFT, WIDTH - 150.0) };
    for (index, (name, fault)) in figures.faults.iter().enumerate() {
        let y = 4.0 + ROW * (float(index) + 0.5);
        svg.text("", Anchor::End, (LEFT - 10.0, y + 4.0), &name.replace('_', " "));
        let end = axis.at(float(fault.count));
        svg.rect("fault-bar", (LEFT, y - 7.0), (end - LEFT, 14.0), "");
        let lasted =
            if fault.total_us > 0 { format!(" · {}", time_text(fault.total_us)) } else { String::new() };
        let text = format!("{}{lasted}", number(fault.count));
        svg.text("", Anchor::Start, (end + 6.0, y + 4.0), &text);
    }
    svg.inline("Faults of each kind: their number and how long they lasted in total")
}
