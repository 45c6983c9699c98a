//! The timeline: what each process does with each lock, and the faults meanwhile.

use std::collections::BTreeSet;

use super::figures::kind_name;
use super::spans::{Fault, Outcome, Request, Spans};
use super::svg::{Anchor, Axis, COLOURS, CROSS, DIAMOND, Svg, float, seconds, time_axis, time_text};
use crate::history::Mode;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = WIDTH - 20.0;
const ROW: f64 = 15.0;
/// The height of a hold.
const BAR: f64 = 9.0;
/// The most rows with names of faults.
const FAULT_ROWS: usize = 8;
/// The least time that is shown before and after the reason of a window.
const MARGIN: u64 = 1_500_000;
/// The longest window that is selected without being asked for.
const LONGEST: u64 = 15_000_000;
/// How long after the end of a fault a loss is taken as its effect.
const EFFECT: u64 = 5_000_000;

/// A part of a history: microseconds, and one lock or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) lock: Option<usize>,
}

impl Window {
    fn around(from: u64, to: u64) -> Self {
        let from = from.saturating_sub(MARGIN);
        Self { from, to: (to + MARGIN).min(from + LONGEST), lock: None }
    }

    /// The window around the first fail-over with a loss, or else the fault with the most losses.
    pub(super) fn of_interest(spans: &Spans<'_>) -> Self {
        let mut losses: Vec<_> = spans.requests.iter().filter_map(Request::lost_to_fault).collect();
        losses.sort_unstable();
        let losses_of = |fault: &Fault<'_>| {
            let from = losses.partition_point(|loss| *loss < fault.from);
            &losses[from..losses.partition_point(|loss| *loss <= fault.until + EFFECT)]
        };
        let fail_over = spans.faults.iter().find(|fault| is_fail_over(fault) && !losses_of(fault).is_empty());
        // Of equal ones the first.
        let worst = || spans.faults.iter().rev().max_by_key(|fault| losses_of(fault).len());
        fail_over
            .or_else(worst)
            .map_or(Self { from: 0, to: spans.end.clamp(1_000_000, 10_000_000), lock: None }, |fault| {
                Self::around(fault.from, fault.until.max(losses_of(fault).first().copied().unwrap_or(0)))
            })
    }

    /// The window around some requests, with the lock of the first one.
    pub(super) fn of_requests(requests: &[&Request<'_>]) -> Option<Self> {
        // The last outcome is where something went wrong.
        let from = requests.iter().map(|request| request.ended).max()?;
        let to = requests.iter().map(|request| request.last()).max()?;
        Some(Self { lock: requests.first().map(|request| request.lock), ..Self::around(from, to) })
    }

    fn has(&self, from: u64, to: u64) -> bool {
        from < self.to && to >= self.from
    }
}

/// Returns `true` if another server, or older data, takes over.
fn is_fail_over(fault: &Fault<'_>) -> bool {
    ["promotion", "split_brain", "fail_over", "failover", "demotion", "data_loss", "snapshot"]
        .iter()
        .any(|name| fault.name.contains(name))
}

/// The title of a timeline.
pub(super) fn title(spans: &Spans<'_>, window: Window) -> String {
    let run = spans.run.map_or(String::new(), |(seed, shape)| format!("{shape}, seed {seed}: "));
    format!("{run}{:.1} s to {:.1} s", seconds(window.from), seconds(window.to))
}

/// Draws a window of time.
pub(super) fn draw(spans: &Spans<'_>, window: Window) -> Svg {
    let shown = |request: &&Request<'_>| {
        window.has(request.began, request.last()) && window.lock.is_none_or(|lock| lock == request.lock)
    };
    let requests: Vec<_> = spans.requests.iter().filter(shown).collect();
    let rows: BTreeSet<_> = requests.iter().map(|request| (request.lock, request.process)).collect();
    let locks: BTreeSet<_> = rows.iter().map(|(lock, _)| *lock).collect();
    let x_axis = Axis { values: (seconds(window.from), seconds(window.to)), positions: (LEFT, RIGHT) };
    let faults: Vec<_> = spans.faults.iter().filter(|fault| window.has(fault.from, fault.until)).collect();

    let mut svg = Svg::new(WIDTH, 0.0);
    svg.text("strong", Anchor::Start, (10.0, 20.0), &title(spans, window));
    let fault_rows = draw_fault_names(&mut svg, &x_axis, &faults);
    let top = 34.0 + 14.0 * float(fault_rows);
    let bottom = top + ROW * float(rows.len()) + 24.0 * float(locks.len()) + 4.0;
    for fault in &faults {
        let (from, until) = (x_axis.at_time(fault.from), x_axis.at_time(fault.until));
        svg.rect("fault", (from, top), ((until - from).max(1.5), bottom - top), &fault_label(fault));
    }
    time_axis(&mut svg, &x_axis, (top, bottom));
    let mut y = top;
    let mut last_lock = None;
    for (lock, process) in rows {
        if last_lock.replace(lock) != Some(lock) {
            let info = &spans.locks[lock];
            svg.line("grid", (10.0, y), (RIGHT, y));
            let name = format!("{} ({})", info.name, kind_name(info.kind).replace('_', " "));
            svg.text("strong", Anchor::Start, (10.0, y + 17.0), &name);
            y += 24.0;
        }
        svg.text("", Anchor::End, (LEFT - 8.0, y + 11.0), &format!("process {process}"));
        let of_row = |request: &&&Request<'_>| (request.lock, request.process) == (lock, process);
        let row: Vec<_> = requests.iter().filter(of_row).copied().collect();
        let row = Row { y, process, requests: &row };
        row.draw(&mut svg, spans, window, &x_axis);
        y += ROW;
    }
    draw_legend(&mut svg, bottom + 40.0);
    svg.height = bottom + 54.0;
    svg
}

/// The name of a fault, with the process or client that it is about.
fn fault_label(fault: &Fault<'_>) -> String {
    // The picture shows how long it lasts.
    let is_time = |part: &&str| part.is_empty() || part.starts_with(|first: char| first.is_ascii_digit());
    let about = fault.detail.split(", ").filter(|part| !is_time(part));
    let label = about.fold(fault.name.replace('_', " "), |label, part| format!("{label}, {part}"));
    label.chars().take(40).collect()
}

/// Draws a bar and a name for each fault, side by side where they fit. Returns the number of rows.
fn draw_fault_names(svg: &mut Svg, x_axis: &Axis, faults: &[&Fault<'_>]) -> usize {
    let mut ends: Vec<f64> = Vec::new();
    for fault in faults {
        let label = fault_label(fault);
        let (from, until) = (x_axis.at_time(fault.from), x_axis.at_time(fault.until));
        let width = 6.2 * float(label.chars().count()) + 8.0;
        // A name that does not fit before the right edge is left of its start.
        let (start, anchor, x) = if from + width > RIGHT + 10.0 {
            (from - width, Anchor::End, from - 4.0)
        } else {
            (from, Anchor::Start, from + 4.0)
        };
        let row = ends.iter().position(|end| *end <= start).unwrap_or(ends.len());
        if row == FAULT_ROWS {
            continue;
        }
        let end = until.max(start + width);
        ends.resize(ends.len().max(row + 1), end);
        ends[row] = end;
        let y = 30.0 + 14.0 * float(row);
        svg.rect("fault", (from, y), ((until - from).max(1.5), 12.0), "");
        svg.rect("fault-bar", (from, y), (1.5, 12.0), "");
        svg.text("fault-name", anchor, (x, y + 10.0), &label);
    }
    ends.len()
}

/// What one process does with one lock.
struct Row<'a> {
    y: f64,
    process: u32,
    requests: &'a [&'a Request<'a>],
}

impl Row<'_> {
    fn draw(&self, svg: &mut Svg, spans: &Spans<'_>, window: Window, x_axis: &Axis) {
        let Self { y, process, requests } = *self;
        let colour = (process.max(1) - 1) % COLOURS;
        let middle = y + ROW / 2.0;
        for (from, to) in spans.processes.get(&process).into_iter().flatten() {
            if window.has(*from, *to) {
                let (from, to) = (x_axis.at_time(*from), x_axis.at_time(*to));
                svg.rect(
                    "stopped",
                    (from, y + 1.0),
                    (to - from, ROW - 2.0),
                    &format!("process {process} is stopped"),
                );
            }
        }
        for request in requests {
            let (from, to) = (x_axis.at_time(request.began), x_axis.at_time(request.ended));
            if to - from > 0.3 && request.ended >= window.from {
                svg.line(&format!("wait w{colour}"), (from, middle), (to, middle));
            }
        }
        for request in requests {
            let Some(until) = request.held_until.filter(|until| window.has(request.ended, *until)) else {
                continue;
            };
            let (from, to) = (x_axis.at_time(request.ended), x_axis.at_time(until));
            let shared = if request.mode == Mode::Shared { " shared" } else { "" };
            let lost = request.lost.map_or(String::new(), |(_, reason)| format!("; lost: {reason}"));
            let tip = format!(
                "process {process}, op {}: waited {}, held {}{lost}",
                request.op,
                time_text(request.ended - request.began),
                time_text(until - request.ended)
            );
            let class = format!("p{colour}{shared}");
            svg.rect(&class, (from, middle - BAR / 2.0), ((to - from - 0.6).max(0.8), BAR), &tip);
        }
        for request in requests {
            if let Outcome::Failed(error) = request.outcome
                && window.has(request.ended, request.ended)
            {
                svg.mark("cross", (x_axis.at_time(request.ended), middle), CROSS, error);
            }
            if let Some((at, reason)) = request.lost.filter(|(at, _)| window.has(*at, *at)) {
                let class = if request.lost_to_fault().is_some() { "lost" } else { "expired" };
                svg.mark(class, (x_axis.at_time(at), middle), DIAMOND, reason);
            }
        }
        for (_, at) in spans.kills.iter().filter(|(killed, at)| *killed == process && window.has(*at, *at)) {
            svg.mark("killed", (x_axis.at_time(*at), y), "v15", &format!("process {process} is killed"));
        }
    }
}

fn draw_legend(svg: &mut Svg, y: f64) {
    let entries: [(&str, &str); 9] = [
        ("p0", "held"),
        ("p0 shared", "held, shared"),
        ("wait w0", "waits"),
        ("lost", "lost"),
        ("expired", "lease ended"),
        ("cross", "failed"),
        ("stopped", "process stopped"),
        ("killed", "process killed"),
        ("fault", "fault"),
    ];
    let mut x = LEFT;
    for (class, text) in entries {
        match class {
            "wait w0" => svg.line(class, (x, y - 4.0), (x + 18.0, y - 4.0)),
            "lost" | "expired" => svg.mark(class, (x + 11.0, y - 4.0), DIAMOND, ""),
            "cross" => svg.mark(class, (x + 11.0, y - 4.0), CROSS, ""),
            "killed" => svg.mark(class, (x + 14.0, y - 10.0), "v13", ""),
            _ => svg.rect(class, (x, y - 4.0 - BAR / 2.0), (18.0, BAR), ""),
        }
        svg.text("", Anchor::Start, (x + 23.0, y), text);
        x += 41.0 + 6.4 * float(text.len());
    }
}
