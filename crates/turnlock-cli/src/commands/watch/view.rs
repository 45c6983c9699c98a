use std::sync::Arc;
use std::time::SystemTime;

use clap::ValueEnum;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use turnlock::{Error, Inspection};

use super::text_pane::TextPane;
use crate::commands::lock_list;
use crate::commands::lock_view::LockView;
use crate::commands::table::Table;
use crate::commands::unlock::cannot_unlock;
use crate::escape::{escape, escape_message};
use crate::list_arguments::{ListArguments, SortBy};

/// The word that confirms an unlock.
pub(super) const CONFIRMATION: &str = "yes";
/// The most characters that can be typed.
const MAX_TYPED: usize = 200;

/// The keys, and what they do.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("Up, Down, k, j", "select a lock"),
    ("PgUp, PgDn", "move by a page"),
    ("Home, End, g, G", "select the first or last lock"),
    ("Enter", "show the selected lock: full owner ids, hold time, lease, queue"),
    ("/", "filter by a text in the name or the holder; Enter keeps the filter, Esc clears it"),
    ("s", "next order: by age, name, ttl or waiters"),
    ("a, n, t, w", "order by age, name, ttl or waiters"),
    ("u, x", "unlock the selected lock by force, after confirmation"),
    ("Space", "in the list, pause the queries, or continue; in the details and here, next page"),
    ("Esc", "back; in the list, clear the filter"),
    ("?", "list the keys"),
    ("Ctrl-U", "erase what is typed, or clear the filter"),
    ("Ctrl-L", "redraw the screen"),
    ("Ctrl-Z", "stop until the shell continues it (not on Windows)"),
    ("q, Ctrl-C", "quit"),
];

/// The state of the full-screen view. Has no terminal and no store.
#[derive(Debug)]
pub(super) struct WatchView {
    pub(super) list: ListArguments,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) pane: TextPane,
    pub(super) status: Option<Status>,
    /// The name of the lock whose unlock has no outcome yet.
    pub(super) unlocking: Option<String>,
    /// Why the last query failed, if it did.
    pub(super) outage: Option<String>,
    pub(super) is_paused: bool,
    /// The result of the last query that succeeded, in the order of names.
    pub(super) found: Vec<Arc<LockView>>,
    pub(super) is_complete: bool,
    pub(super) queried: SystemTime,
    /// What passes the filters, in the selected order, and its table.
    pub(super) shown: Vec<Arc<LockView>>,
    pub(super) table: Table,
    pub(super) selected: usize,
    /// The first visible row, and the number of visible rows, at the last drawing.
    pub(super) top: usize,
    pub(super) page: usize,
}

/// What the keys act on.
#[derive(Debug)]
pub(super) enum Mode {
    List,
    /// The filter is being typed.
    Filter,
    /// The details of the lock of this name.
    Details(String),
    Unlock(UnlockPrompt),
    Help,
}

/// The question before an unlock.
#[derive(Debug)]
pub(super) struct UnlockPrompt {
    pub(super) name: String,
    /// The holders that are shown and will be released. `None` until the store has replied.
    pub(super) lock: Option<Box<(Inspection, LockView)>>,
    pub(super) typed: String,
}

/// The outcome of an unlock.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// What the terminal and the store have to do after a key.
#[derive(Debug)]
pub(super) enum Action {
    None,
    Quit,
    Interrupt,
    Suspend,
    Redraw,
    Query,
    Inspect(String),
    Unlock(Box<Inspection>),
}

impl WatchView {
    pub(super) fn new(list: ListArguments) -> Self {
        Self {
            list,
            filter: String::new(),
            mode: Mode::List,
            pane: TextPane::default(),
            status: None,
            unlocking: None,
            outage: None,
            is_paused: false,
            found: Vec::new(),
            is_complete: true,
            queried: SystemTime::UNIX_EPOCH,
            shown: Vec::new(),
            table: Table::default(),
            selected: 0,
            top: 0,
            page: 1,
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Shows the result of a query: locks in the order of their names.
    pub(super) fn update(&mut self, locks: Vec<LockView>, is_complete: bool, now: SystemTime) {
        self.found = locks.into_iter().map(Arc::new).collect();
        (self.is_complete, self.queried, self.outage) = (is_complete, now, None);
        self.arrange();
    }

    /// Shows that a query failed. The last known state stays.
    pub(super) fn show_outage(&mut self, error: &Error) {
        self.outage = Some(escape_message(&turnlock_core::error_chain(error)));
    }

    /// Shows the holders that will be released, and asks for confirmation.
    pub(super) fn show_inspected(
        &mut self,
        name: &str,
        lock: Result<Option<Box<(Inspection, LockView)>>, Error>,
    ) {
        let Mode::Unlock(prompt) = &mut self.mode else { return };
        if prompt.name != name || prompt.lock.is_some() {
            return;
        }
        let refusal = match lock {
            Err(error) => escape_message(&turnlock_core::error_chain(&error)),
            Ok(None) => format!("{} is not held", escape(name)),
            Ok(Some(lock)) => {
                let Some(reason) = cannot_unlock(&lock.0) else {
                    prompt.lock = Some(lock);
                    return;
                };
                reason
            }
        };
        self.mode = Mode::List;
        self.status = Some(Status { text: refusal, is_error: true });
    }

    /// Shows the outcome of an unlock.
    pub(super) fn show_unlocked(&mut self, name: &str, outcome: Result<Result<String, String>, Error>) {
        self.unlocking = None;
        self.status = Some(match outcome {
            Ok(Ok(text)) => Status { text, is_error: false },
            Ok(Err(text)) => Status { text, is_error: true },
            Err(error) => {
                let error = escape_message(&turnlock_core::error_chain(&error));
                Status { text: format!("{}: {error}", escape(name)), is_error: true }
            }
        });
    }

    /// Handles a key.
    pub(super) fn handle(&mut self, key: KeyEvent) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Interrupt,
                KeyCode::Char('z') => Action::Suspend,
                KeyCode::Char('l') => Action::Redraw,
                KeyCode::Char('u') => {
                    self.erase(true);
                    Action::None
                }
                _ => Action::None,
            };
        }
        if key.modifiers.contains(KeyModifiers::ALT) {
            return Action::None;
        }
        // An outcome that came while a filter is typed is not visible yet.
        if !matches!(self.mode, Mode::Filter) {
            self.status = None;
        }
        match &self.mode {
            Mode::List => return self.handle_in_list(key.code),
            Mode::Filter => self.handle_in_filter(key.code),
            Mode::Unlock(_) => return self.handle_in_prompt(key.code),
            Mode::Details(_) | Mode::Help => return self.handle_in_pane(key.code),
        }
        Action::None
    }

    /// Handles pasted text: it is part of a filter, and never a key.
    pub(super) fn paste(&mut self, text: &str) {
        if matches!(self.mode, Mode::Filter) {
            for character in text.chars() {
                self.type_in(character);
            }
        }
    }

    fn handle_in_list(&mut self, key: KeyCode) -> Action {
        match key {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?') => self.open(Mode::Help),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.erase(true),
            KeyCode::Char('s') => {
                let orders = SortBy::value_variants();
                let next = orders.iter().position(|by| *by == self.list.sort).map_or(0, |at| at + 1);
                self.sort_by(orders[next % orders.len()]);
            }
            KeyCode::Char('a') => self.sort_by(SortBy::Age),
            KeyCode::Char('n') => self.sort_by(SortBy::Name),
            KeyCode::Char('t') => self.sort_by(SortBy::Ttl),
            KeyCode::Char('w') => self.sort_by(SortBy::Waiters),
            KeyCode::Char(' ') => {
                self.is_paused = !self.is_paused;
                return if self.is_paused { Action::None } else { Action::Query };
            }
            KeyCode::Enter => {
                if let Some(lock) = self.selected() {
                    self.open(Mode::Details(lock.name.clone()));
                }
            }
            KeyCode::Char('u' | 'x') => {
                let name = self.selected().map(|lock| lock.name.clone());
                return self.ask_to_unlock(name);
            }
            key => self.move_selection(key),
        }
        Action::None
    }

    fn handle_in_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.erase(true);
                self.mode = Mode::List;
            }
            KeyCode::Backspace => self.erase(false),
            KeyCode::Char(character) => self.type_in(character),
            key => self.move_selection(key),
        }
    }

    fn handle_in_pane(&mut self, key: KeyCode) -> Action {
        match (key, &self.mode) {
            (KeyCode::Char('q'), _) => return Action::Quit,
            (KeyCode::Esc | KeyCode::Enter | KeyCode::Char('?'), _) => self.mode = Mode::List,
            (KeyCode::Char('u' | 'x'), Mode::Details(name)) => {
                let name = Some(name.clone());
                return self.ask_to_unlock(name);
            }
            (key, _) => self.scroll(key),
        }
        Action::None
    }

    fn handle_in_prompt(&mut self, key: KeyCode) -> Action {
        let Mode::Unlock(prompt) = &mut self.mode else { return Action::None };
        match (key, &prompt.lock) {
            (KeyCode::Enter, Some(lock)) => {
                let confirmed = (prompt.typed == CONFIRMATION).then(|| Box::new(lock.0.clone()));
                let text = match confirmed {
                    None => format!("{} was not unlocked", escape(&prompt.name)),
                    Some(_) => format!("unlocking {} …", escape(&prompt.name)),
                };
                self.unlocking = confirmed.is_some().then(|| prompt.name.clone());
                self.status = Some(Status { text, is_error: false });
                self.mode = Mode::List;
                return confirmed.map_or(Action::None, Action::Unlock);
            }
            (KeyCode::Esc, _) => {
                let text = format!("{} was not unlocked", escape(&prompt.name));
                self.status = Some(Status { text, is_error: false });
                self.mode = Mode::List;
            }
            (KeyCode::Backspace, _) => self.erase(false),
            // What is typed before the holders are shown confirms nothing.
            (KeyCode::Char(character), Some(_)) => self.type_in(character),
            (key, _) => self.scroll(key),
        }
        Action::None
    }

    fn ask_to_unlock(&mut self, name: Option<String>) -> Action {
        let Some(name) = name else { return Action::None };
        // Another request would cancel it, possibly between two holders.
        if let Some(unlocking) = &self.unlocking {
            let text = format!("the unlock of {} has not ended: try again later", escape(unlocking));
            self.status = Some(Status { text, is_error: true });
            return Action::None;
        }
        self.open(Mode::Unlock(UnlockPrompt { name: name.clone(), lock: None, typed: String::new() }));
        Action::Inspect(name)
    }

    fn open(&mut self, mode: Mode) {
        (self.mode, self.pane) = (mode, TextPane::default());
    }

    fn type_in(&mut self, character: char) {
        let typed = match &mut self.mode {
            Mode::Filter => &mut self.filter,
            Mode::Unlock(prompt) => &mut prompt.typed,
            _ => return,
        };
        if typed.chars().count() < MAX_TYPED {
            typed.push(character);
        }
        self.arrange();
    }

    /// Erases the last character of what is typed, or all.
    fn erase(&mut self, all: bool) {
        let typed =
            if let Mode::Unlock(prompt) = &mut self.mode { &mut prompt.typed } else { &mut self.filter };
        typed.pop();
        if all {
            typed.clear();
        }
        self.arrange();
    }

    fn sort_by(&mut self, by: SortBy) {
        self.list.sort = by;
        self.arrange();
    }

    fn move_selection(&mut self, key: KeyCode) {
        let last = self.shown.len().saturating_sub(1);
        let selected = match key {
            KeyCode::Up | KeyCode::Char('k') => self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected + 1,
            KeyCode::PageUp => self.selected.saturating_sub(self.page),
            KeyCode::PageDown => self.selected + self.page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => return,
        };
        self.selected = selected.min(last);
    }

    fn scroll(&mut self, key: KeyCode) {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.pane.scroll(-1),
            KeyCode::Down | KeyCode::Char('j') => self.pane.scroll(1),
            KeyCode::PageUp => self.pane.turn(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.pane.turn(1),
            KeyCode::Home | KeyCode::Char('g') => self.pane.jump(false),
            KeyCode::End | KeyCode::Char('G') => self.pane.jump(true),
            _ => {}
        }
    }

    pub(super) fn selected(&self) -> Option<&LockView> {
        self.shown.get(self.selected).map(AsRef::as_ref)
    }

    /// Filters and sorts. The selection stays on its lock, or at its position if the lock is not shown any more.
    fn arrange(&mut self) {
        let name = self.selected().map(|lock| lock.name.clone());
        let is_shown = |lock: &&Arc<LockView>| {
            let matches = |text: &str| lock.name.contains(text) || lock_list::is_held_by(lock, text);
            lock_list::is_wanted(lock, &self.list, self.queried) && matches(&self.filter)
        };
        let mut shown: Vec<_> = self.found.iter().filter(is_shown).cloned().collect();
        lock_list::sort(&mut shown, self.list.sort);
        let position = shown.iter().position(|lock| Some(&lock.name) == name.as_ref());
        self.selected = position.unwrap_or(self.selected).min(shown.len().saturating_sub(1));
        self.table = Table::one_row_each(&shown, self.queried);
        self.shown = shown;
    }
}

#[cfg(test)]
mod tests;
