//! A status as text.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use super::store_status::StoreStatus;
use crate::commands::table::cut;
use crate::status_arguments::StatusArguments;

/// Indentation of the lines after the first.
const INDENT: &str = "    ";

/// Formats a status in one line. It has no `|`, which would begin performance data.
pub(super) fn plain(status: &StoreStatus) -> String {
    text(status).replace('|', "\\u{7c}")
}

fn text(status: &StoreStatus) -> String {
    let items: Vec<_> = status.items.iter().map(|(_, text)| text.as_str()).collect();
    format!("{}: {}: {}", status.state, status.store, items.join(", "))
}

/// Formats the numbers of a status for the graphs of a monitoring system. Unknown ones are left out.
pub(super) fn performance_data(status: &StoreStatus, arguments: &StatusArguments) -> String {
    let mut data = String::new();
    if let Some(latency) = status.latency() {
        let _ = write!(data, " latency={:.3}ms;;;0", latency.as_secs_f64() * 1e3);
    }
    if let Some(locks) = status.locks {
        let _ = write!(data, " locks={locks};;;0");
    }
    if let Some(oldest) = &status.oldest {
        let seconds = |limit: Option<Duration>| limit.map(|limit| limit.as_secs_f64().to_string());
        let [warning, critical] = [arguments.warn_older_than, arguments.crit_older_than]
            .map(|limit| seconds(limit).unwrap_or_default());
        let _ = write!(data, " oldest={:.3}s;{warning};{critical};0", oldest.held.as_secs_f64());
    }
    if data.is_empty() { data } else { format!(" |{data}") }
}

/// Writes a status in lines of at most `width` columns, with colours.
pub(super) fn wrapped(out: &mut impl Write, status: &StoreStatus, width: usize) -> io::Result<()> {
    let style = status.state.style();
    let text = text(status);
    // The state is the first word.
    let (state, text) = text.split_once(' ').unwrap_or((&text, ""));
    write!(out, "{style}{state}{style:#}")?;
    let mut used = state.width();
    for word in text.split(' ') {
        let word = cut(word, width.saturating_sub(INDENT.width()));
        if used + 1 + word.width() > width {
            write!(out, "\n{INDENT}{word}")?;
            used = INDENT.width() + word.width();
        } else {
            write!(out, " {word}")?;
            used += 1 + word.width();
        }
    }
    writeln!(out)
}
