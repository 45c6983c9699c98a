//! The page that a person reads.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::charts;
use super::figures::{Figures, KindFigures, Percentiles};
use super::spans::{Request, Spans};
use super::svg::{STYLE, escape, number, time_text};
use super::timeline::{self, Window};
use crate::history::{Event, What};

/// The most violations that are shown with their events.
const DETAILED: usize = 5;

/// The most events that are shown with a violation.
const EVENTS: usize = 60;

const PAGE_STYLE: &str = "\
:root { color-scheme: light dark; --text: #1f2328; --soft: #57606a; --page: #ffffff; --line: #d0d7de; --box: #f6f8fa; \
--good: #1a7f37; --bad: #d1242f; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --soft: #adbac7; --page: #0d1117; --line: #30363d; \
--box: #161b22; --good: #3fb950; --bad: #ff6b6b; } }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--page); color: var(--text); \
font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
p { margin: 0.5rem 0; } .soft { color: var(--soft); font-size: 0.875rem; }
.verdict { border-left: 0.4rem solid var(--good); background: var(--box); padding: 0.75rem 1rem; margin: 1rem 0; }
.verdict strong { font-size: 1.25rem; color: var(--good); }
.failed.verdict { border-color: var(--bad); } .failed strong { color: var(--bad); }
.scroll { overflow-x: auto; } .scroll svg { display: block; height: auto; max-width: 100%; min-width: 36rem; }
.scroll svg.wide { min-width: 54rem; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 1.25rem 0.25rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child, td.text, th.text { text-align: left; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
pre { background: var(--box); padding: 0.75rem; font-size: 0.75rem; overflow-x: auto; } .violation { overflow-wrap: anywhere; }";

/// Writes the page.
pub(super) fn page(events: &[Event], spans: &Spans<'_>, figures: &Figures<'_>) -> String {
    let mut out = String::new();
    _ = writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>turnlock: report of a fault campaign</title>\n<style>\n{PAGE_STYLE}\n{STYLE}\n</style>\n</head>\n<body>\n\
         <h1>Report of a fault campaign</h1>"
    );
    verdict(&mut out, figures);
    what_was_run(&mut out, spans, figures);
    violations(&mut out, events, spans, figures);
    heading(&mut out, "Timeline", "Each row is a process that uses the lock.");
    picture(&mut out, &timeline_of(spans, Window::of_interest(spans)));
    heading(&mut out, "Locks acquired per second", "Shaded: at least one fault is active.");
    picture(&mut out, &charts::rate(spans));
    requests(&mut out, figures);
    heading(
        &mut out,
        "Waits",
        "From the request to the grant. Bar: 10 % to 90 %, with the median. Line: to 99 %. Dot: the longest.",
    );
    picture(&mut out, &charts::waits(figures));
    times(&mut out, figures, |kind| kind.wait_us);
    heading(&mut out, "Holds", "From the grant to the end of the hold, as the holder knew it.");
    times(&mut out, figures, |kind| kind.hold_us);
    heading(&mut out, "Faults", "Their number, and how long they lasted in total.");
    picture(&mut out, &charts::faults(figures));
    counts(&mut out, "Lost holds", "reason", &figures.total.lost);
    counts(&mut out, "Failed requests", "error", &figures.total.errors);
    out.push_str("</body>\n</html>\n");
    out
}

fn heading(out: &mut String, title: &str, note: &str) {
    _ = writeln!(out, "<h2>{}</h2>", escape(title));
    if !note.is_empty() {
        _ = writeln!(out, "<p class=\"soft\">{}</p>", escape(note));
    }
}

fn picture(out: &mut String, svg: &str) {
    _ = writeln!(out, "<div class=\"scroll\">\n{svg}</div>");
}

fn timeline_of(spans: &Spans<'_>, window: Window) -> String {
    let picture = timeline::draw(spans, window).inline(&timeline::title(spans, window));
    picture.replacen("<svg ", "<svg class=\"wide\" ", 1)
}

fn verdict(out: &mut String, figures: &Figures<'_>) {
    let (class, text) = match figures.violations.len() {
        0 => ("", "Passed: no rule is broken".to_owned()),
        1 => ("failed ", "Failed: 1 violation".to_owned()),
        count => ("failed ", format!("Failed: {} violations", number(count))),
    };
    let faults: usize = figures.faults.values().map(|fault| fault.count).sum();
    let [granted, lost, faults] = [figures.total.granted, figures.total.lost_count(), faults].map(number);
    _ = writeln!(
        out,
        "<div class=\"{class}verdict\"><strong>{text}</strong><br>\n{granted} locks acquired and {lost} lost under {faults} \
         faults.</div>"
    );
    if figures.overlaps > 0 {
        _ = writeln!(
            out,
            "<p>{} overlapping holds, under faults for which exclusion is not promised.</p>",
            number(figures.overlaps)
        );
    }
}

fn what_was_run(out: &mut String, spans: &Spans<'_>, figures: &Figures<'_>) {
    heading(out, "What was run", "");
    let locks: Vec<_> = figures.locks.iter().map(|lock| lock.name.as_str()).collect();
    let promised = match (figures.promises_exclusion, figures.promises_rising_tokens) {
        (true, true) => "exclusion and rising tokens",
        (true, false) => "exclusion",
        (false, true) => "rising tokens, but not exclusion",
        (false, false) => "neither exclusion nor rising tokens",
    };
    let faults_until = spans.healed.map_or("the end".to_owned(), time_text);
    let rows = [
        ("seed", figures.seed.map_or("unknown".to_owned(), |seed| seed.to_string())),
        ("shape", figures.shape.to_owned()),
        ("commit", figures.commit.unwrap_or("unknown").to_owned()),
        ("duration", format!("{}, with faults until {faults_until}", time_text(figures.duration_us))),
        ("processes", number(figures.processes)),
        ("locks", locks.join(", ")),
        ("promised", promised.to_owned()),
        ("stalls", format!("of the machine, which excuse {} % of the time", figures.stalled_percent)),
    ];
    let rows = rows.map(|(name, text)| vec![name.to_owned(), text]);
    table(out, &[], true, &rows);
}

/// Writes a table. The first column is text, and the second one too if `is_text`.
fn table(out: &mut String, head: &[&str], is_text: bool, rows: &[Vec<String>]) {
    let class = |index: usize| if is_text && index == 1 { " class=\"text\"" } else { "" };
    _ = write!(out, "<div class=\"scroll\"><table>\n<tr>");
    for (index, cell) in head.iter().enumerate() {
        _ = write!(out, "<th{}>{}</th>", class(index), escape(cell));
    }
    for row in rows {
        _ = write!(out, "</tr>\n<tr>");
        for (index, cell) in row.iter().enumerate() {
            _ = write!(out, "<td{}>{}</td>", class(index), escape(cell));
        }
    }
    _ = writeln!(out, "</tr>\n</table></div>");
}

/// The figures of each kind, and of all kinds if there are several.
fn kinds<'a>(figures: &'a Figures<'_>) -> impl Iterator<Item = (String, &'a KindFigures)> {
    let kinds = figures.kinds.iter().map(|(kind, figures)| (kind.replace('_', " "), figures));
    kinds.chain((figures.kinds.len() > 1).then_some(("all".to_owned(), &figures.total)))
}

fn requests(out: &mut String, figures: &Figures<'_>) {
    heading(
        out,
        "Requests",
        "Unfinished: the process was killed meanwhile. Lost: also leases that ended as they should, see below.",
    );
    let head = ["kind", "requests", "granted", "busy", "cancelled", "failed", "unfinished", "lost"];
    let rows = kinds(figures).map(|(name, kind)| {
        let KindFigures { requests, granted, busy, cancelled, failed, unfinished, .. } = kind;
        let counts = [*requests, *granted, *busy, *cancelled, *failed, *unfinished, kind.lost_count()];
        std::iter::once(name).chain(counts.map(number)).collect()
    });
    table(out, &head, false, &rows.collect::<Vec<_>>());
}

fn times(out: &mut String, figures: &Figures<'_>, of: fn(&KindFigures) -> Option<Percentiles>) {
    let rows = kinds(figures).filter_map(|(name, kind)| {
        let Percentiles { p10, p50, p90, p99, max } = of(kind)?;
        Some(std::iter::once(name).chain([p10, p50, p90, p99, max].map(time_text)).collect())
    });
    table(out, &["kind", "10 %", "median", "90 %", "99 %", "longest"], false, &rows.collect::<Vec<_>>());
}

fn counts(out: &mut String, title: &str, what: &str, counts: &BTreeMap<String, usize>) {
    if counts.is_empty() {
        return;
    }
    heading(out, title, "");
    let rows: Vec<_> = counts.iter().map(|(text, count)| vec![number(*count), text.clone()]).collect();
    table(out, &["number", what], true, &rows);
}

fn violations(out: &mut String, events: &[Event], spans: &Spans<'_>, figures: &Figures<'_>) {
    if figures.violations.is_empty() {
        return;
    }
    heading(out, "Violations", "");
    for (index, violation) in figures.violations.iter().enumerate() {
        _ = writeln!(out, "<p class=\"violation\"><strong>{}.</strong> {}</p>", index + 1, escape(violation));
        let requests: Vec<_> = ops(violation).into_iter().filter_map(|op| spans.request(op)).collect();
        let Some(window) = Window::of_requests(&requests).filter(|_| index < DETAILED) else { continue };
        let lines: Vec<_> =
            events.iter().filter(|event| belongs(event, &requests, window)).map(Event::to_string).collect();
        let left_out = lines.len().saturating_sub(EVENTS);
        _ = writeln!(out, "<pre>{}</pre>", escape(&lines[left_out..].join("\n")));
        if left_out > 0 {
            _ = writeln!(out, "<p class=\"soft\">{left_out} earlier events are left out.</p>");
        }
        picture(out, &timeline_of(spans, window));
    }
}

/// The numbers of the requests that a violation names: `op 7`, or `(7, …`.
fn ops(violation: &str) -> Vec<u64> {
    let numbers =
        ["op ", "("].into_iter().flat_map(|before| violation.split(before).skip(1)).filter_map(|text| {
            let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().ok()
        });
    numbers.collect()
}

/// Returns `true` for the events of requests, and for the faults and processes in the window.
fn belongs(event: &Event, requests: &[&Request<'_>], window: Window) -> bool {
    let is_inside = (window.from..=window.to).contains(&event.t);
    match &event.what {
        What::Acquire { op, .. }
        | What::Granted { op, .. }
        | What::Busy { op }
        | What::Failed { op, .. }
        | What::Cancelled { op }
        | What::Count { op, .. }
        | What::Lost { op, .. }
        | What::Release { op, .. }
        | What::Released { op, .. }
        | What::ReentryFailed { op, .. } => requests.iter().any(|request| request.op == *op),
        What::Fault { .. } | What::Healed => is_inside,
        What::Process { .. } => is_inside && requests.iter().any(|request| request.process == event.process),
        _ => false,
    }
}
