//! The report of a campaign: what a history and its verdict say, for programs and for readers.

mod charts;
mod figures;
mod html;
mod spans;
mod svg;
mod timeline;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use crate::checker::{self, Verdict};
use crate::history::{self, Event};
use figures::Figures;
use spans::Spans;
use timeline::Window;

/// Which history is reported.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportOptions {
    /// One event per line
    history: PathBuf,
    /// The directory that gets report.json and report.html
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The commit that was run, as it is to be named
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,
}

/// Which part of a history is drawn.
#[derive(Debug, clap::Args)]
pub(crate) struct TimelineOptions {
    /// One event per line
    history: PathBuf,
    /// The start, in seconds. Without it and `--to`, the time around a fault with losses, first of all a fail-over
    #[arg(long, value_name = "SECONDS")]
    from: Option<f64>,
    /// The end, in seconds
    #[arg(long, value_name = "SECONDS")]
    to: Option<f64>,
    /// Draws only this lock
    #[arg(long, value_name = "NAME")]
    lock: Option<String>,
    /// The picture
    #[arg(long, value_name = "FILE.svg")]
    out: PathBuf,
}

/// Reads a history, and writes its report. Returns the path of the page.
pub(crate) fn report_file(options: &ReportOptions) -> anyhow::Result<PathBuf> {
    let events = history::read_file(&options.history)?;
    write(&events, &checker::check(&events), options.commit.as_deref(), &options.out)
}

/// Writes report.json and report.html. Returns the path of the page.
pub(crate) fn write(
    events: &[Event],
    verdict: &Verdict,
    commit: Option<&str>,
    out: &Path,
) -> anyhow::Result<PathBuf> {
    let spans = Spans::new(events);
    let figures = Figures::new(&spans, verdict, commit);
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    write_file(&out.join("report.json"), &format!("{}\n", serde_json::to_string_pretty(&figures)?))?;
    let page = out.join("report.html");
    write_file(&page, &html::page(events, &spans, &figures))?;
    Ok(page)
}

/// Reads a history, and draws a part of it.
pub(crate) fn draw_timeline(options: &TimelineOptions) -> anyhow::Result<()> {
    let events = history::read_file(&options.history)?;
    let spans = Spans::new(&events);
    let mut window = Window::of_interest(&spans);
    if options.from.is_some() || options.to.is_some() {
        window.from = options.from.map_or(Ok(0), micros)?;
        window.to = options.to.map_or(Ok(spans.end), micros)?;
    }
    anyhow::ensure!(window.from < window.to, "the start of the timeline must be before its end");
    if let Some(name) = &options.lock {
        let lock = spans.locks.iter().position(|lock| lock.name == *name);
        window.lock = Some(lock.with_context(|| format!("the history has no lock {name:?}"))?);
    }
    write_file(&options.out, &timeline::draw(&spans, window).file(&timeline::title(&spans, window)))
}

/// The commit of this source, if it is known, and whether files differ from it.
pub(crate) fn commit() -> Option<String> {
    let arguments = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let output = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}

fn micros(seconds: f64) -> anyhow::Result<u64> {
    let time = Duration::try_from_secs_f64(seconds).context("a time must not be negative")?;
    u64::try_from(time.as_micros()).context("the time is too long")
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests;
