use unicode_width::UnicodeWidthChar;

use crate::commands::table::cut;

/// Text with a position to scroll: the details of a lock, the question before an unlock, the help.
#[derive(Debug, Default)]
pub(super) struct TextPane {
    top: usize,
    /// The number of lines that were visible at the last drawing.
    page: usize,
}

impl TextPane {
    /// Scrolls by lines.
    pub(super) fn scroll(&mut self, lines: isize) {
        self.top = self.top.saturating_add_signed(lines);
    }

    /// Scrolls by pages.
    pub(super) fn turn(&mut self, pages: isize) {
        self.scroll(pages.saturating_mul(isize::try_from(self.page.max(1)).unwrap_or(isize::MAX)));
    }

    /// Scrolls to the first or past the last line.
    pub(super) fn jump(&mut self, to_end: bool) {
        self.top = if to_end { usize::MAX } else { 0 };
    }

    /// The visible lines. If not all fit, the last line says how many follow.
    pub(super) fn visible(&mut self, mut lines: Vec<String>, width: usize, height: usize) -> Vec<String> {
        self.page = height.saturating_sub(1);
        if lines.len() <= height {
            self.top = 0;
            return lines;
        }
        self.top = self.top.min(lines.len() - self.page);
        let below = lines.len() - self.top - self.page;
        let mut visible: Vec<String> = lines.drain(self.top..).take(self.page).collect();
        if height > 0 {
            let more = if below == 0 { "(end)".to_owned() } else { format!("({below} more lines)") };
            visible.push(cut(&more, width));
        }
        visible
    }
}

/// Breaks a text into lines of at most `width` columns. The text has no styles and no control characters.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for character in text.chars() {
        let needed = character.width().unwrap_or_default();
        if used + needed > width.max(2) {
            lines.push(String::new());
            used = 0;
        }
        used += needed;
        if let Some(line) = lines.last_mut() {
            line.push(character);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_by_display_width() {
        assert_eq!(wrap("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(wrap("注文注文", 5), ["注文", "注文"]);
        assert_eq!(wrap("e\u{301}e\u{301}", 2), ["e\u{301}e\u{301}"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("注文", 0), ["注", "文"], "a character is shown even if it does not fit");
    }

    #[test]
    fn all_lines_can_be_reached_by_scrolling() {
        let lines = || (0..9).map(|number| number.to_string()).collect::<Vec<_>>();
        let mut pane = TextPane::default();
        assert_eq!(pane.visible(lines(), 80, 9), lines());
        assert_eq!(pane.visible(lines(), 80, 4), ["0", "1", "2", "(6 more lines)"]);
        pane.scroll(1);
        assert_eq!(pane.visible(lines(), 80, 4), ["1", "2", "3", "(5 more lines)"]);
        pane.turn(1);
        assert_eq!(pane.visible(lines(), 80, 4), ["4", "5", "6", "(2 more lines)"]);
        pane.jump(true);
        assert_eq!(pane.visible(lines(), 80, 4), ["6", "7", "8", "(end)"]);
        pane.turn(-1);
        assert_eq!(pane.visible(lines(), 80, 4)[0], "3");
        pane.jump(false);
        assert_eq!(pane.visible(lines(), 80, 1), ["(9 more lines)"]);
        assert_eq!(pane.visible(lines(), 80, 0), [""; 0]);
    }
}
