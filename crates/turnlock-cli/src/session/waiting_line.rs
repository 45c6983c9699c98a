use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime};

use turnlock::{ClientId, Inspection};
use unicode_width::UnicodeWidthChar;

use super::stderr_writer::StderrWriter;
use crate::commands::LockHolders;
use crate::escape::escape;

/// Width to assume if the terminal does not report one.
const DEFAULT_WIDTH: usize = 80;

/// The line on the terminal during the wait. It is erased on drop.
pub(crate) struct WaitingLine<'a> {
    stderr_writer: &'a StderrWriter,
}

/// The state of the lock that the waiting line shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitStatus {
    pub(crate) name: String,
    /// The holders in one line, escaped. `None` if they are unknown.
    pub(crate) held_by: Option<String>,
    pub(crate) ttl: Option<Duration>,
    /// Our position in the fair queue, from 1, and the length of the queue.
    pub(crate) queue_position: Option<(usize, usize)>,
    pub(crate) waited: Duration,
}

impl WaitStatus {
    pub(crate) fn new(
        found: &Inspection,
        holders: Option<&LockHolders>,
        us: ClientId,
        waited: Duration,
    ) -> Self {
        let held_by = |holders: &LockHolders| holders.held_by(SystemTime::now());
        let position = found.queue.iter().position(|waiter| waiter.belongs_to(us));
        Self {
            name: found.name.clone(),
            held_by: holders.map(|holders| held_by(holders).unwrap_or_else(|| "not held now".to_owned())),
            ttl: found.ttl,
            queue_position: position.map(|position| (position + 1, found.queue.len())),
            waited,
        }
    }

    /// The text of the line: first what changes, which a narrow terminal must show. Text of other clients is escaped.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("waiting {}", in_seconds(self.waited));
        if let Some((position, length)) = self.queue_position {
            let _ = write!(text, ", {position} of {length} in the queue,");
        }
        let _ = write!(text, " for \"{}\"", escape(&self.name));
        if let Some(held_by) = &self.held_by {
            let _ = write!(text, ", {held_by}");
        }
        if let Some(ttl) = self.ttl {
            let _ = write!(text, ", lease {}", in_seconds(ttl));
        }
        text
    }
}

impl<'a> WaitingLine<'a> {
    pub(crate) fn new(stderr_writer: &'a StderrWriter) -> Self {
        Self { stderr_writer }
    }

    /// Redraws the line, cut to the width of the terminal: a line that wraps could not be erased.
    ///
    /// Draws nothing while an earlier line is not written, such as on a terminal after Ctrl-S.
    pub(crate) fn draw(&self, text: &str) {
        if !self.stderr_writer.is_idle() {
            return;
        }
        let size = terminal_size::terminal_size_of(io::stderr());
        let width = size.map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0));
        self.stderr_writer.write(format!("\r\x1b[K{}", fit(text, width.saturating_sub(1))));
    }
}

impl Drop for WaitingLine<'_> {
    fn drop(&mut self) {
        self.stderr_writer.write("\r\x1b[K".to_owned());
    }
}

/// Cuts a text to this many columns.
fn fit(text: &str, width: usize) -> String {
    let columns = |text: &str| text.chars().filter_map(UnicodeWidthChar::width).sum::<usize>();
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |character: &char| {
        used += character.width().unwrap_or_default();
        used <= width
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Formats a duration in whole seconds.
fn in_seconds(time: Duration) -> impl std::fmt::Display {
    humantime::format_duration(Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_status() -> WaitStatus {
        WaitStatus {
            name: "nightly".to_owned(),
            held_by: Some("held by web-1:4242 (backup) for 12s".to_owned()),
            ttl: Some(Duration::from_secs(28)),
            queue_position: Some((2, 3)),
            waited: Duration::from_secs(75),
        }
    }

    #[test]
    fn the_line_shows_time_place_and_holder_in_eighty_columns() {
        let expected = "waiting 1m 15s, 2 of 3 in the queue, for \"nightly\", held by web-1:4242 (backup) for \
                        12s, lease 28s";
        assert_eq!(wait_status().text(), expected);
        let status = WaitStatus { held_by: None, ttl: None, queue_position: None, ..wait_status() };
        assert_eq!(status.text(), "waiting 1m 15s for \"nightly\"");
    }

    #[test]
    fn control_characters_in_the_name_are_escaped() {
        let text = WaitStatus { name: "\x1b[2J\n\r\t\u{202e}\u{7}\u{9b}".to_owned(), ..wait_status() }.text();
        let is_printable = |character: char| !character.is_control() && character != '\u{202e}';
        assert!(text.chars().all(is_printable), "{text:?}");
    }

    #[test]
    fn a_line_is_cut_to_the_terminal_width() {
        assert_eq!(fit("short", 5), "short");
        assert_eq!(fit("longer", 5), "long…");
        assert_eq!(fit("広い広い", 5), "広い…");
        assert_eq!(fit("x", 0), "…");
    }
}
