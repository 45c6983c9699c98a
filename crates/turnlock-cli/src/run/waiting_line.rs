use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime};

use turnlock::{ClientId, Identity, Inspection};
use unicode_width::UnicodeWidthChar;

use super::stderr_writer::StderrWriter;
use crate::escape::escape;
use crate::timestamp::kept_until;

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
    pub(crate) holders: Vec<HolderInfo>,
    pub(crate) ttl: Option<Duration>,
    /// Our position in the fair queue, from 1, and the length of the queue.
    pub(crate) queue_position: Option<(usize, usize)>,
    pub(crate) waited: Duration,
}

/// A holder of the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct HolderInfo {
    owner: String,
    /// Label, host and pid.
    identity: Option<(String, String, u32)>,
    held_for: Option<Duration>,
    /// When a hold with a delayed unlock ends. Its process may have exited.
    kept_until: Option<SystemTime>,
}

impl WaitStatus {
    pub(crate) fn new(
        found: &Inspection,
        identities: Vec<Option<Identity>>,
        us: ClientId,
        waited: Duration,
    ) -> Self {
        let identities = identities.into_iter().chain(std::iter::repeat(None));
        let info = |(holder, identity): (&turnlock::Holder, Option<Identity>)| {
            let announced = identity.as_ref().and_then(|identity| identity.since_of(&holder.owner));
            let since = holder.since.or(announced);
            HolderInfo {
                owner: holder.owner.to_string(),
                held_for: since.and_then(|since| SystemTime::now().duration_since(since).ok()),
                kept_until: identity.as_ref().and_then(|identity| identity.kept_until_of(&holder.owner)),
                identity: identity.map(|identity| (identity.label, identity.host, identity.pid)),
            }
        };
        let position = found.queue.iter().position(|waiter| waiter.belongs_to(us));
        Self {
            name: found.name.clone(),
            holders: found.holders.iter().zip(identities).map(info).collect(),
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
        match &self.holders[..] {
            [] => text.push_str(", not held now"),
            [one] => {
                let _ = write!(text, ", {}", one.text());
            }
            [one, others @ ..] => {
                let _ = write!(text, ", {} and {} more", one.text(), others.len());
            }
        }
        if let Some(ttl) = self.ttl {
            let _ = write!(text, ", lease {}", in_seconds(ttl));
        }
        text
    }
}

impl HolderInfo {
    fn text(&self) -> String {
        let mut text = match (&self.identity, self.kept_until) {
            (Some((label, ..)), Some(end)) => {
                return format!("{} ({})", kept_until(end, SystemTime::now()), escape(label));
            }
            (Some((label, host, pid)), None) => format!("held by {}:{pid} ({})", escape(host), escape(label)),
            (None, _) => format!("held by {}", escape(&self.owner)),
        };
        if let Some(time) = self.held_for {
            let _ = write!(text, " for {}", in_seconds(time));
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
        let backup = HolderInfo {
            owner: "1:1".to_owned(),
            identity: Some(("backup".to_owned(), "web-1".to_owned(), 4242)),
            held_for: Some(Duration::from_millis(12_900)),
            kept_until: None,
        };
        WaitStatus {
            name: "nightly".to_owned(),
            holders: vec![backup],
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
        let mut kept = wait_status();
        kept.holders[0].kept_until = Some(SystemTime::UNIX_EPOCH);
        let expected = "for \"nightly\", kept until 1970-01-01T00:00:00Z (backup), lease 28s";
        assert!(kept.text().ends_with(expected), "{}", kept.text());
        let java = HolderInfo { owner: "f00:1".to_owned(), ..HolderInfo::default() };
        let holders = vec![java.clone(), java];
        let status = WaitStatus { holders, ttl: None, queue_position: None, ..wait_status() };
        assert_eq!(status.text(), "waiting 1m 15s for \"nightly\", held by f00:1 and 1 more");
    }

    #[test]
    fn control_characters_of_other_clients_are_escaped() {
        let hostile = "\x1b[2J\n\r\t\u{202e}\u{7}\u{9b}";
        let identity = Some((hostile.to_owned(), hostile.to_owned(), 1));
        let identified = HolderInfo { owner: hostile.to_owned(), identity, ..HolderInfo::default() };
        let kept = HolderInfo { kept_until: Some(SystemTime::UNIX_EPOCH), ..identified.clone() };
        let unidentified = HolderInfo { owner: hostile.to_owned(), ..HolderInfo::default() };
        for holders in [vec![identified], vec![kept], vec![unidentified]] {
            let text = WaitStatus { name: hostile.to_owned(), holders, ..wait_status() }.text();
            let is_printable = |character: char| !character.is_control() && character != '\u{202e}';
            assert!(text.chars().all(is_printable), "{text:?}");
        }
    }

    #[test]
    fn a_line_is_cut_to_the_terminal_width() {
        assert_eq!(fit("short", 5), "short");
        assert_eq!(fit("longer", 5), "long…");
        assert_eq!(fit("広い広い", 5), "広い…");
        assert_eq!(fit("x", 0), "…");
    }
}
