use std::io::{self, IsTerminal, Write};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use terminal_size::{Height, Width, terminal_size_of};

use super::table::cut;

/// The alternate screen of the terminal. The previous contents are restored on drop.
#[derive(Debug)]
pub(super) struct Screen {
    out: io::Stdout,
}

impl Screen {
    /// Switches to the alternate screen. `None` if standard output is not a capable terminal.
    pub(super) fn open() -> io::Result<Option<Self>> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if !io::stdout().is_terminal() || is_dumb {
            return Ok(None);
        }
        let screen = Self { out: io::stdout() };
        screen.enter()?;
        Ok(Some(screen))
    }

    /// Switches to the alternate screen, and hides the cursor.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.write(b"\x1b[?1049h\x1b[?25l")
    }

    /// Restores the previous contents and the cursor.
    pub(super) fn leave(&self) -> io::Result<()> {
        self.write(b"\x1b[?25h\x1b[?1049l")
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = self.out.lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// Replaces the contents of the screen with these lines, as many as fit.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let height = size().map_or(24, |(_, height)| height).max(2);
        let without_colour = AutoStream::choice(&self.out) == ColorChoice::Never;
        let mut text = String::from("\x1b[H");
        let shown = if lines.len() > height { height - 1 } else { lines.len() };
        for (index, line) in lines[..shown].iter().enumerate() {
            let separator = if index == 0 { "" } else { "\r\n" };
            let line = if without_colour { strip_str(line).to_string() } else { line.clone() };
            text.extend([separator, &line, "\x1b[K"]);
        }
        if shown < lines.len() {
            let more = format!("and {} more lines", lines.len() - shown);
            text.extend(["\r\n", &cut(&more, width().unwrap_or(80)), "\x1b[K"]);
        }
        text.push_str("\x1b[J");
        // Not through anstream: without colours it would strip the cursor movements as well.
        self.write(text.as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.leave();
    }
}

/// The width of the terminal. `None` if standard output is not a terminal.
pub(super) fn width() -> Option<usize> {
    size().map(|(width, _)| width)
}

fn size() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let known = terminal_size_of(io::stdout()).filter(|(Width(width), _)| *width > 0);
    Some(known.map_or((80, 24), |(Width(width), Height(height))| (width.into(), height.into())))
}
