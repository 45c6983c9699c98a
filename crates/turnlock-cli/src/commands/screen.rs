//! The size of the terminal.

use std::io::{self, IsTerminal};

use terminal_size::{Height, Width, terminal_size_of};

/// The width of the terminal. `None` if standard output is not a terminal.
pub(super) fn width() -> Option<usize> {
    size().map(|(width, _)| width)
}

/// The width and height of the terminal. `None` if standard output is not a terminal.
pub(super) fn size() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let known = terminal_size_of(io::stdout()).filter(|(Width(width), _)| *width > 0);
    Some(known.map_or((80, 24), |(Width(width), Height(height))| (width.into(), height.into())))
}
