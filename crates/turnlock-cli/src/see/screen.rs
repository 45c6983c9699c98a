use std::io::{self, IsTerminal, Write};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use terminal_size::{Height, Width, terminal_size_of};

use super::table::cut;

/// The terminal while something on it is drawn again and again. What stood there before comes back with its end.
#[derive(Debug)]
pub(super) struct Screen {
    out: io::Stdout,
}

impl Screen {
    /// The terminal, if our output goes to one that can do this.
    pub(super) fn open() -> io::Result<Option<Self>> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if !io::stdout().is_terminal() || is_dumb {
            return Ok(None);
        }
        let mut out = io::stdout();
        // The other screen, without a cursor.
        out.write_all(b"\x1b[?1049h\x1b[?25l")?;
        out.flush()?;
        Ok(Some(Self { out }))
    }

    /// Draws these lines in place of what is there, as many as there is room for.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let height = size().map_or(24, |(_, height)| height).max(2);
        let is_plain = AutoStream::choice(&self.out) == ColorChoice::Never;
        let mut text = String::from("\x1b[H");
        let room = if lines.len() > height { height - 1 } else { lines.len() };
        for (at, line) in lines[..room].iter().enumerate() {
            let end = if at == 0 { "" } else { "\r\n" };
            let line = if is_plain { strip_str(line).to_string() } else { line.clone() };
            text.extend([end, &line, "\x1b[K"]);
        }
        if room < lines.len() {
            let more = format!("and {} lines more", lines.len() - room);
            text.extend(["\r\n", &cut(&more, width().unwrap_or(80)), "\x1b[K"]);
        }
        text.push_str("\x1b[J");
        // What moves the cursor is no colour, and must not be taken out where colours are.
        let mut out = self.out.lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.out.write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = self.out.flush();
    }
}

/// How wide the terminal is that our output goes to; `None` when it goes elsewhere, and any width is right.
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
