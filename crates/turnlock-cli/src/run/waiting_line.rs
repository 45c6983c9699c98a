use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime};

use turnlock::{ClientId, Identity, Inspection};
use unicode_width::UnicodeWidthChar;

use super::scribe::Scribe;
use crate::visible::visible;

/// The width of a terminal that does not tell.
const USUAL_WIDTH: usize = 80;

/// A line on the terminal that says what is waited for. It is gone when this is dropped.
pub(crate) struct WaitingLine<'a> {
    scribe: &'a Scribe,
}

/// What there is to say about a lock that somebody else holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    pub(crate) name: String,
    pub(crate) holders: Vec<Person>,
    pub(crate) ttl: Option<Duration>,
    /// Our place in the queue and the length of it, where there is one.
    pub(crate) place: Option<(usize, usize)>,
    pub(crate) waited: Duration,
}

/// Who holds it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Person {
    owner: String,
    /// Label, host and number of the process.
    identity: Option<(String, String, u32)>,
    held_for: Option<Duration>,
}

impl Scene {
    pub(crate) fn new(
        found: &Inspection,
        identities: Vec<Option<Identity>>,
        us: ClientId,
        waited: Duration,
    ) -> Self {
        let identities = identities.into_iter().chain(std::iter::repeat(None));
        let person = |(holder, identity): (&turnlock::Holder, Option<Identity>)| Person {
            owner: holder.owner.to_string(),
            identity: identity.map(|identity| (identity.label, identity.host, identity.pid)),
            held_for: holder.since.and_then(|since| SystemTime::now().duration_since(since).ok()),
        };
        let place = found.queue.iter().position(|waiter| waiter.is_of(us));
        Self {
            name: found.name.clone(),
            holders: found.holders.iter().zip(identities).map(person).collect(),
            ttl: found.ttl,
            place: place.map(|place| (place + 1, found.queue.len())),
            waited,
        }
    }

    /// All of it in a line. What others wrote is shown so that it cannot do anything to the terminal.
    pub(crate) fn words(&self) -> String {
        let mut words = format!("waiting {} for \"{}\"", rough(self.waited), visible(&self.name));
        match &self.holders[..] {
            [] => words.push_str(": free just now"),
            [one] => {
                let _ = write!(words, ", held by {}", one.words());
            }
            [one, others @ ..] => {
                let _ = write!(words, ", held by {} and {} more", one.words(), others.len());
            }
        }
        if let Some(ttl) = self.ttl {
            let _ = write!(words, ", ends in {} unless renewed", rough(ttl));
        }
        if let Some((place, of)) = self.place {
            let _ = write!(words, ", we are number {place} of {of}");
        }
        words
    }
}

impl Person {
    fn words(&self) -> String {
        let mut words = match &self.identity {
            Some((label, host, pid)) => format!("{} on {} (pid {pid})", visible(label), visible(host)),
            None => visible(&self.owner),
        };
        if let Some(time) = self.held_for {
            let _ = write!(words, " for {}", rough(time));
        }
        words
    }
}

impl<'a> WaitingLine<'a> {
    pub(crate) fn new(scribe: &'a Scribe) -> Self {
        Self { scribe }
    }

    /// Writes the line anew, and no more of it than fits: one that wraps could not be taken back. A terminal that was halted
    /// (Ctrl-S) is not given one after the other.
    pub(crate) fn draw(&self, text: &str) {
        if !self.scribe.is_idle() {
            return;
        }
        let size = terminal_size::terminal_size_of(io::stderr());
        let width = size.map_or(USUAL_WIDTH, |(width, _)| usize::from(width.0));
        self.scribe.write(format!("\r\x1b[K{}", fitted(text, width.saturating_sub(1))));
    }
}

impl Drop for WaitingLine<'_> {
    fn drop(&mut self) {
        self.scribe.write("\r\x1b[K".to_owned());
    }
}

/// As much of a text as fits into so many columns.
fn fitted(text: &str, width: usize) -> String {
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

/// A time to the second.
fn rough(time: Duration) -> impl std::fmt::Display {
    humantime::format_duration(Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        let backup = Person {
            owner: "1:1".to_owned(),
            identity: Some(("backup".to_owned(), "web-1".to_owned(), 4242)),
            held_for: Some(Duration::from_millis(12_900)),
        };
        Scene {
            name: "nightly".to_owned(),
            holders: vec![backup],
            ttl: Some(Duration::from_secs(28)),
            place: Some((2, 3)),
            waited: Duration::from_secs(75),
        }
    }

    #[test]
    fn who_waits_sees_whom_for() {
        let expected = "waiting 1m 15s for \"nightly\", held by backup on web-1 (pid 4242) for 12s, ends in 28s \
                        unless renewed, we are number 2 of 3";
        assert_eq!(scene().words(), expected);
        let java = Person { owner: "f00:1".to_owned(), ..Person::default() };
        let scene = Scene { holders: vec![java.clone(), java], ttl: None, place: None, ..scene() };
        assert_eq!(scene.words(), "waiting 1m 15s for \"nightly\", held by f00:1 and 1 more");
    }

    #[test]
    fn what_others_wrote_does_nothing_to_the_terminal() {
        let hostile = "\x1b[2J\n\r\t\u{202e}\u{7}\u{9b}";
        let identity = Some((hostile.to_owned(), hostile.to_owned(), 1));
        let person = Person { owner: hostile.to_owned(), identity, held_for: None };
        let nobody = Person { owner: hostile.to_owned(), ..Person::default() };
        for holders in [vec![person], vec![nobody]] {
            let words = Scene { name: hostile.to_owned(), holders, ..scene() }.words();
            let is_harmless = |character: char| !character.is_control() && character != '\u{202e}';
            assert!(words.chars().all(is_harmless), "{words:?}");
        }
    }

    #[test]
    fn a_line_fits_the_terminal() {
        assert_eq!(fitted("short", 5), "short");
        assert_eq!(fitted("longer", 5), "long…");
        assert_eq!(fitted("広い広い", 5), "広い…");
        assert_eq!(fitted("x", 0), "…");
    }
}
