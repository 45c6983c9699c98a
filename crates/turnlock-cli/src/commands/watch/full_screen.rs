use std::io::{self, IsTerminal, Write};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste, Event};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, is_raw_mode_enabled,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::commands::screen;

/// The terminal in raw mode, on its alternate screen. Both are restored on drop and before a panic is reported.
#[derive(Debug)]
pub(super) struct FullScreen {
    /// What the screen shows. `None` if that is unknown.
    shown: Option<String>,
}

impl FullScreen {
    /// Returns `true` if standard input and output are a capable terminal.
    pub(super) fn is_possible() -> bool {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
    }

    /// Takes the terminal.
    pub(super) fn open() -> io::Result<Self> {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = leave();
            report(panic);
        }));
        let mut screen = Self { shown: None };
        screen.enter()?;
        Ok(screen)
    }

    /// Takes the terminal, also if another program has changed its mode meanwhile.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        self.shown = None;
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide, EnableBracketedPaste)
    }

    /// Restores the terminal while the process is stopped.
    pub(super) fn suspend(&mut self, stop: impl FnOnce()) -> io::Result<()> {
        leave()?;
        stop();
        self.enter()
    }

    /// Reads keys, pasted text and changes of the size, on a thread of its own.
    pub(super) fn events() -> io::Result<UnboundedReceiver<io::Result<Event>>> {
        let (sender, events) = unbounded_channel();
        let read = move || {
            loop {
                let event = crossterm::event::read();
                let is_last = event.is_err();
                if sender.send(event).is_err() || is_last {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("turnlock-keys".to_owned()).spawn(read)?;
        Ok(events)
    }

    /// The width and height of the terminal.
    pub(super) fn size() -> (usize, usize) {
        screen::size().unwrap_or((80, 24))
    }

    /// Makes sure that the next drawing writes the whole screen.
    pub(super) fn forget(&mut self) {
        self.shown = None;
    }

    /// Replaces the contents of the screen with these lines, which must fit.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let without_colour = AutoStream::choice(&io::stdout()) == ColorChoice::Never;
        let mut text = String::from("\x1b[H");
        for (index, line) in lines.iter().enumerate() {
            let line = if without_colour { strip_str(line).to_string() } else { line.clone() };
            text.extend([if index == 0 { "" } else { "\r\n" }, &line, "\x1b[K"]);
        }
        text.push_str("\x1b[J");
        if self.shown.as_ref() == Some(&text) {
            return Ok(());
        }
        // Not through anstream: without colours it would strip the cursor movements as well.
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        self.shown = Some(text);
        Ok(())
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        let _ = leave();
    }
}

/// Restores the mode of the terminal and its previous contents, if they are not restored yet.
fn leave() -> io::Result<()> {
    if !is_raw_mode_enabled()? {
        return Ok(());
    }
    let restored = execute!(io::stdout(), DisableBracketedPaste, Show, LeaveAlternateScreen);
    disable_raw_mode()?;
    restored
}
