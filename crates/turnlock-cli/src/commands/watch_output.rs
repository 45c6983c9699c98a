use std::io::{self, Write};
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::change_tracker::ChangeTracker;
use super::lock_view::LockView;
use super::screen::{self, Screen};
use super::table::{Table, cut};
use crate::escape::{escape, escape_message, json_line};
use crate::timestamp::rfc_3339;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const FAINT: Style = Style::new().dimmed();

/// The output of `watch`: a table that is redrawn on a terminal, else a line per change.
#[derive(Debug)]
pub(super) struct WatchOutput {
    format: Format,
    /// The last known locks, which are shown during an outage.
    last: Vec<LockView>,
    changes: ChangeTracker,
    is_unavailable: bool,
}

#[derive(Debug)]
enum Format {
    Table(Screen),
    Lines,
    Json,
}

/// A change, as printed with `--json`.
#[derive(Serialize)]
struct Change<'a> {
    at: String,
    #[serde(flatten)]
    lock: &'a LockView,
}

impl WatchOutput {
    /// Opens the output: JSON, a live table on a terminal, or lines.
    pub(super) fn open(as_json: bool) -> io::Result<Self> {
        let format =
            if as_json { Format::Json } else { Screen::open()?.map_or(Format::Lines, Format::Table) };
        Ok(Self { format, last: Vec::new(), changes: ChangeTracker::default(), is_unavailable: false })
    }

    /// Shows the current locks, or prints what has changed.
    pub(super) fn show(&mut self, current: Vec<LockView>, is_complete: bool) -> anyhow::Result<()> {
        let now = SystemTime::now();
        if let Format::Table(screen) = &self.format {
            let count = match (current.len(), is_complete) {
                (0, _) => "no locks".to_owned(),
                (count, true) => count.to_string(),
                (count, false) => format!("{count}, incomplete"),
            };
            draw(screen, &format!("{FAINT}{}  {count}{FAINT:#}", second(now)), &current, now)?;
            self.last = current;
            return Ok(());
        }
        if std::mem::take(&mut self.is_unavailable) {
            writeln!(anstream::stderr(), "turnlock: the store is available again")?;
        }
        let mut out = anstream::stdout().lock();
        for lock in self.changes.changes(&current, is_complete) {
            match self.format {
                Format::Json => {
                    writeln!(out, "{}", json_line(&Change { at: rfc_3339(now), lock: &lock })?)?;
                }
                _ => writeln!(out, "{}  {}", second(now), state_line(&lock, now))?,
            }
        }
        out.flush()?;
        Ok(())
    }

    /// Restores the terminal while the process is stopped.
    pub(super) fn suspend(&self, stop: impl FnOnce()) -> io::Result<()> {
        let Format::Table(screen) = &self.format else {
            stop();
            return Ok(());
        };
        screen.leave()?;
        stop();
        screen.enter()?;
        draw(screen, "", &self.last, SystemTime::now())
    }

    /// Reports that the store is unavailable. A table keeps showing the last known locks.
    pub(super) fn show_unavailable(&mut self, error: &turnlock::Error) -> io::Result<()> {
        let text = escape_message(&turnlock_core::error_chain(error));
        if let Format::Table(screen) = &self.format {
            let now = SystemTime::now();
            let text = cut(&format!("{}  {text}", second(now)), screen::width().unwrap_or(80));
            return draw(screen, &format!("{ERROR}{text}{ERROR:#}"), &self.last, now);
        }
        // Once per outage, not once per query.
        if !std::mem::replace(&mut self.is_unavailable, true) {
            writeln!(anstream::stderr(), "turnlock: {text}; will retry")?;
        }
        Ok(())
    }
}

fn draw(screen: &Screen, header: &str, locks: &[LockView], now: SystemTime) -> io::Result<()> {
    let mut lines = vec![header.to_owned()];
    if !locks.is_empty() {
        lines.extend(Table::new(locks, now).lines(screen::width()));
    }
    screen.draw(&lines)
}

/// The state of a lock in one line.
fn state_line(lock: &LockView, now: SystemTime) -> String {
    let name = escape(&lock.name);
    let holders = lock.holders.iter().map(|holder| holder.line(now)).collect::<Vec<_>>().join(", ");
    let state = match lock.holders.first() {
        None => "free".to_owned(),
        Some(first) if first.kept_until.is_some() => holders,
        Some(_) => format!("held by {holders}"),
    };
    match lock.queue.len() {
        0 => format!("{name}: {state}"),
        waiting => format!("{name}: {state}; {waiting} in the queue"),
    }
}

fn second(time: SystemTime) -> humantime::Rfc3339Timestamp {
    humantime::format_rfc3339_seconds(time)
}

#[cfg(test)]
mod tests {
    use super::super::lock_view::WaiterView;
    use super::super::lock_view::tests::{held, kept};
    use super::*;

    #[test]
    fn a_line_shows_holders_and_queue() {
        let now = SystemTime::UNIX_EPOCH;
        assert_eq!(state_line(&kept("a\nb"), now), r"a\nb: kept until 00:03:20Z (deploy.sh)");
        let mut lock = held("a\nb");
        assert_eq!(state_line(&lock, now), r"a\nb: held by web-1:42 (deploy.sh) 07070707…:12");
        lock.queue = vec![WaiterView { owner: "x".into(), host: None, pid: None, label: None }];
        assert!(state_line(&lock, now).ends_with("; 1 in the queue"));
        assert_eq!(state_line(&lock.released(), now), r"a\nb: free");
    }
}
