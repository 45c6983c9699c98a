//! The drawing of the full-screen view.

use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use unicode_width::UnicodeWidthStr;

use super::text_pane::wrap;
use super::view::{CONFIRMATION, KEYS, Mode, Status, UnlockPrompt, WatchView};
use crate::commands::lock_view::LockView;
use crate::commands::show::{self, FIELD_STYLE, FIELD_WIDTH};
use crate::commands::table::cut;
use crate::commands::unlock;
use crate::duration::format_short;
use crate::escape::escape;
use crate::list_arguments::ListArguments;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const SUCCESS: Style = AnsiColor::Green.on_default();
const FAINT: Style = Style::new().dimmed();
const SELECTED: Style = Style::new().invert();
/// Marks the selected row also where there are no styles.
const MARK: &str = "> ";
const NO_MARK: &str = "  ";
/// The width of the keys in the help.
const KEYS_WIDTH: usize = 17;

impl WatchView {
    /// Draws the view: exactly `height` lines of at most `width` columns.
    pub(super) fn lines(&mut self, width: usize, height: usize, now: SystemTime) -> Vec<String> {
        let body_height = height.saturating_sub(2);
        let body = match &self.mode {
            Mode::List | Mode::Filter => self.rows(width, body_height),
            Mode::Details(name) => {
                let lock = self.found.iter().find(|lock| lock.name == *name);
                let lock = lock.map_or_else(|| LockView::absent(name), |lock| LockView::clone(lock));
                let lines = labelled(&show::fields(&lock, self.queried), FIELD_WIDTH, width);
                self.pane.visible(lines, width, body_height)
            }
            Mode::Help => self.pane.visible(labelled(KEYS, KEYS_WIDTH, width), width, body_height),
            Mode::Unlock(prompt) => {
                let lines = question(prompt).iter().flat_map(|line| wrap(line, width)).collect();
                self.pane.visible(lines, width, body_height)
            }
        };
        let mut lines = vec![self.header(width, now)];
        lines.extend(body.into_iter().map(|line| if width < 2 { String::new() } else { line }));
        lines.resize(height.saturating_sub(1).max(1), String::new());
        lines.push(self.footer(width));
        lines.truncate(height);
        lines
    }

    /// The headings and the rows around the selected one.
    fn rows(&mut self, width: usize, height: usize) -> Vec<String> {
        // A screen of three lines has no room for the headings.
        let headings = usize::from(height > 1);
        self.page = (height - headings.min(height)).max(1);
        let last_top = self.shown.len().saturating_sub(self.page);
        let lowest = (self.selected + 1).saturating_sub(self.page);
        self.top = self.top.clamp(lowest, self.selected).min(last_top);
        if self.shown.is_empty() || height == 0 {
            return Vec::new();
        }
        let end = (self.top + self.page).min(self.shown.len());
        let marked = |(index, line): (usize, String)| {
            if index == 0 || self.top + index - 1 != self.selected {
                return format!("{NO_MARK}{line}");
            }
            let text = anstream::adapter::strip_str(&line).to_string();
            let padding = " ".repeat(width.saturating_sub(MARK.width() + text.width()));
            format!("{SELECTED}{MARK}{text}{padding}{SELECTED:#}")
        };
        let lines = self.table.lines_of(self.top..end, Some(width.saturating_sub(MARK.width())));
        lines.into_iter().enumerate().map(marked).skip(1 - headings).collect()
    }

    fn header(&self, width: usize, now: SystemTime) -> String {
        let mut count = match (self.shown.len(), self.found.len()) {
            (0, 0) => "no locks".to_owned(),
            (shown, found) => format!("{shown} of {found} locks"),
        };
        if !self.is_complete {
            count.push_str(", incomplete");
        }
        let age = format_short(now.duration_since(self.queried).unwrap_or_default());
        if let Some(outage) = &self.outage {
            let text = cut(&format!("{count}, {age} old: {outage}"), width);
            return format!("{ERROR}{text}{ERROR:#}");
        }
        if self.is_paused {
            count.extend([", paused, ", &age, " old"]);
        }
        let mut parts = vec![count];
        if !self.filter.is_empty() || matches!(self.mode, Mode::Filter) {
            parts.push(format!("/{}", escape(&self.filter)));
        }
        let order = self.list.sort.to_possible_value().map(|value| value.get_name().to_owned());
        parts.push(format!("by {}", order.unwrap_or_default()));
        parts.extend(options(&self.list));
        parts.push(humantime::format_rfc3339_seconds(self.queried).to_string());
        format!("{FAINT}{}{FAINT:#}", cut(&parts.join("  "), width))
    }

    fn footer(&self, width: usize) -> String {
        let (text, style) = match (&self.status, &self.mode) {
            (_, Mode::Filter) => (tail(&format!("/{}_", escape(&self.filter)), width), Style::new()),
            (_, Mode::Unlock(UnlockPrompt { lock: None, .. })) => ("Esc: back".to_owned(), FAINT),
            (_, Mode::Unlock(UnlockPrompt { typed, .. })) => {
                let question = format!("Type {CONFIRMATION} and Enter to unlock, Esc to cancel: ");
                let typed = format!("{}_", escape(typed));
                // What is typed stays visible on a narrow terminal.
                let room = width.saturating_sub(typed.width());
                (tail(&format!("{}{typed}", cut(&question, room)), width), ERROR)
            }
            (Some(Status { text, is_error }), _) => (text.clone(), if *is_error { ERROR } else { SUCCESS }),
            (None, Mode::List) => (
                "?: help  q: quit  /: filter  s: sort  Enter: details  u: unlock  Space: pause".to_owned(),
                FAINT,
            ),
            (None, Mode::Details(_)) => ("Esc: back  u: unlock  q: quit".to_owned(), FAINT),
            (None, Mode::Help) => ("Esc: back  q: quit".to_owned(), FAINT),
        };
        format!("{style}{}{style:#}", cut(&text, width))
    }
}

/// The sentences before a confirmation.
fn question(prompt: &UnlockPrompt) -> Vec<String> {
    match &prompt.lock {
        None => vec![format!("querying the holders of {} …", escape(&prompt.name))],
        Some(lock) => {
            let mut lines = vec![format!("Unlock {} by force?", escape(&prompt.name))];
            lines.extend(unlock::holder_lines(&lock.1));
            lines.push(unlock::WARNING.to_owned());
            lines
        }
    }
}

/// Formats labels and texts in two columns. Texts are wrapped.
fn labelled<L: AsRef<str>, T: AsRef<str>>(
    fields: &[(L, T)],
    label_width: usize,
    width: usize,
) -> Vec<String> {
    // A narrow terminal has no second column.
    let indent = if width >= 2 * label_width { label_width } else { 0 };
    let mut lines = Vec::new();
    for (label, text) in fields {
        let label = label.as_ref();
        if indent == 0 && !label.is_empty() {
            lines.push(format!("{FIELD_STYLE}{}{FIELD_STYLE:#}", cut(label, width)));
        }
        for (index, part) in wrap(text.as_ref(), width - indent).into_iter().enumerate() {
            let label = if index == 0 && indent > 0 { label } else { "" };
            lines.push(format!("{FIELD_STYLE}{label:indent$}{FIELD_STYLE:#}{part}"));
        }
    }
    lines
}

/// The filters of the command line.
fn options(list: &ListArguments) -> Vec<String> {
    let ListArguments { holder, older_than, kind, .. } = list;
    let mut options = Vec::new();
    options.extend(holder.as_ref().map(|text| format!("holder {}", escape(text))));
    options.extend(older_than.map(|age| format!("older than {}", format_short(age))));
    options.extend(kind.as_ref().map(|kind| format!("kind {kind}")));
    options
}

/// Cuts the beginning of a text that is wider than `width`.
fn tail(text: &str, width: usize) -> String {
    let mut start = 0;
    for (at, _) in text.char_indices() {
        start = at;
        if text[at..].width() <= width {
            break;
        }
    }
    text[start..].to_owned()
}
