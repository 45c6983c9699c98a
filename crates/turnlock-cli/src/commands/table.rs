use std::borrow::Borrow;
use std::ops::Range;
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::lock_view::{HolderView, LockView};
use super::wait_view::WaitView;
use crate::duration::format_short;
use crate::escape::escape;

/// A table of locks with one row per holder.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<[Cell; COLUMNS]>,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    text: String,
    style: Style,
}

const COLUMNS: usize = 10;
const HEADINGS: [&str; COLUMNS] =
    ["NAME", "HELD BY", "FOR", "TTL", "WAITERS", "AS", "KIND", "COUNT", "FREE", "TOKEN"];
const NAME: usize = 0;
const HELD_BY: usize = 1;
const FOR: usize = 2;
const TTL: usize = 3;
const WAITERS: usize = 4;
const AS: usize = 5;
const KIND: usize = 6;
const COUNT: usize = 7;
const FREE: usize = 8;
const TOKEN: usize = 9;
/// Columns that are shortened if the terminal is narrow: names and owners.
const SHRINKABLE: [usize; 2] = [NAME, HELD_BY];
/// Columns that are omitted before names and owners are shortened to less than [`LEGIBLE`], in this order.
const OMITTED: [usize; 8] = [TOKEN, COUNT, KIND, AS, FREE, WAITERS, TTL, FOR];
/// The width of a name or an owner that is worth more than another column.
const LEGIBLE: usize = 36;
/// The least width of a shortened column.
const MIN_WIDTH: usize = 8;
/// The most holders of one lock that are shown.
const MAX_HOLDERS: usize = 10;
const GAP: &str = "  ";

const HEADING: Style = Style::new().bold();
const NAMED: Style = AnsiColor::Cyan.on_default();
const FAINT: Style = Style::new().dimmed();
const WAITING: Style = AnsiColor::Yellow.on_default();

impl Table {
    /// Builds the table of these locks at the time `now`.
    pub(super) fn new(locks: &[LockView], now: SystemTime) -> Self {
        Self { rows: locks.iter().flat_map(|lock| rows(lock, now)).collect() }
    }

    /// Builds the same table with a row per waiter, below the holders.
    pub(super) fn with_waiters(locks: &[LockView], now: SystemTime) -> Self {
        let rows_of = |lock| rows(lock, now).into_iter().chain(waiter_rows(lock, now));
        Self { rows: locks.iter().flat_map(rows_of).collect() }
    }

    /// Builds a table with one row per lock, which shows the first holder and the number of holders.
    pub(super) fn one_row_each<L: Borrow<LockView>>(locks: &[L], now: SystemTime) -> Self {
        Self { rows: locks.iter().map(|lock| one_row(lock.borrow(), now)).collect() }
    }

    /// Formats the table in lines of at most `width` columns. Empty columns are omitted.
    pub(super) fn lines(&self, width: Option<usize>) -> Vec<String> {
        self.lines_of(0..self.rows.len(), width)
    }

    /// Formats the headings and some of the rows. The widths of the columns are those of the whole table.
    pub(super) fn lines_of(&self, rows: Range<usize>, width: Option<usize>) -> Vec<String> {
        let headings = HEADINGS.map(|heading| Cell::new(heading, HEADING));
        let widths = self.widths(width);
        let line = |row: &[Cell; COLUMNS]| self::line(row, &widths, width);
        std::iter::once(&headings).chain(&self.rows[rows]).map(line).collect()
    }

    /// The width of each column; `None` for an omitted one.
    fn widths(&self, limit: Option<usize>) -> [Option<usize>; COLUMNS] {
        let mut widths: [Option<usize>; COLUMNS] = std::array::from_fn(|column| {
            let widest =
                self.rows.iter().map(|row| row[column].text.width()).max().filter(|widest| *widest > 0);
            widest.map(|widest| widest.max(HEADINGS[column].width()))
        });
        let Some(limit) = limit else { return widths };
        for column in OMITTED {
            let needed = |(column, width): (usize, &Option<usize>)| {
                let most = if SHRINKABLE.contains(&column) { LEGIBLE } else { usize::MAX };
                width.map(|width| width.min(most) + GAP.width())
            };
            let needed: usize = widths.iter().enumerate().filter_map(needed).sum();
            if needed <= limit + GAP.width() {
                break;
            }
            widths[column] = None;
        }
        let gaps = GAP.width() * widths.iter().flatten().count().saturating_sub(1);
        let mut excess = (widths.iter().flatten().sum::<usize>() + gaps).saturating_sub(limit);
        while excess > 0 {
            let widest = SHRINKABLE.into_iter().filter_map(|column| Some((widths[column]?, column))).max();
            let Some((current, column)) = widest.filter(|(current, _)| *current > MIN_WIDTH) else { break };
            widths[column] = Some(current - 1);
            excess -= 1;
        }
        widths
    }
}

impl Cell {
    fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Style::new())
    }
}

/// The first row of a lock, and the number of its holders.
fn one_row(lock: &LockView, now: SystemTime) -> [Cell; COLUMNS] {
    let mut row = first_row(lock, now);
    if lock.holders.len() > 1 {
        row[HELD_BY].text = format!("{} holders: {}", lock.holders.len(), row[HELD_BY].text);
    }
    row
}

/// The rows of one lock, one per holder.
fn rows(lock: &LockView, now: SystemTime) -> Vec<[Cell; COLUMNS]> {
    let mut holders = lock.holders.iter().skip(1);
    let mut rows = vec![first_row(lock, now)];
    rows.extend(holders.by_ref().take(MAX_HOLDERS - 1).map(|holder| holder_cells(holder, lock, now)));
    let hidden = holders.count();
    if hidden > 0 {
        let mut more: [Cell; COLUMNS] = Default::default();
        more[HELD_BY] = Cell::new(format!("and {hidden} more"), FAINT);
        rows.push(more);
    }
    rows
}

/// The rows of the waiters: those in the queue of a fair lock, the next one first, and then the others.
fn waiter_rows(lock: &LockView, now: SystemTime) -> impl Iterator<Item = [Cell; COLUMNS]> {
    let queued =
        lock.queued().map(|(waiter, wait)| (wait.map_or_else(|| waiter.line(), WaitView::process), wait));
    let others = lock.unqueued().map(|wait| (wait.process(), Some(wait)));
    queued.chain(others).map(move |(process, wait)| {
        let task = wait.and_then(|wait| wait.task.as_deref());
        let task = task.map_or_else(String::new, |task| format!(", {}", escape(task)));
        let mut cells: [Cell; COLUMNS] = Default::default();
        cells[HELD_BY] = Cell::new(format!("waiting: {process}{task}"), WAITING);
        let waited = wait.map(|wait| now.duration_since(wait.since).unwrap_or_default());
        cells[FOR] = Cell::plain(waited.map(format_short).unwrap_or_default());
        cells
    })
}

/// The row with the fields of the lock and its first holder.
fn first_row(lock: &LockView, now: SystemTime) -> [Cell; COLUMNS] {
    let mut first =
        lock.holders.first().map_or_else(no_holder_cells, |holder| holder_cells(holder, lock, now));
    first[NAME] = Cell::new(escape(&lock.name), NAMED);
    first[KIND] = Cell::plain(lock.kind.unwrap_or_default());
    let waiting = lock.waiting();
    if waiting > 0 {
        first[WAITERS] = Cell::new(waiting.to_string(), WAITING);
    }
    first[TOKEN] = Cell::plain(lock.token.map(|token| token.to_string()).unwrap_or_default());
    first[FREE] = Cell::plain(lock.available.map(|free| free.to_string()).unwrap_or_default());
    first
}

fn no_holder_cells() -> [Cell; COLUMNS] {
    let mut cells: [Cell; COLUMNS] = Default::default();
    cells[HELD_BY] = Cell::new("none", FAINT);
    cells
}

fn holder_cells(holder: &HolderView, lock: &LockView, now: SystemTime) -> [Cell; COLUMNS] {
    let mode = if holder.mode == "exclusive" { "" } else { holder.mode };
    // Clocks differ: a start in the future counts as now.
    let held_for = holder.since.map(|since| now.duration_since(since).unwrap_or_default());
    let ttl = holder.ttl.or(lock.ttl).map_or_else(|| "no expiry".to_owned(), format_short);
    let mut cells: [Cell; COLUMNS] = Default::default();
    cells[HELD_BY] = Cell::plain(holder.line(now));
    cells[AS] = Cell::plain(mode);
    // Most are held once.
    cells[COUNT] = Cell::plain(if holder.count > 1 { holder.count.to_string() } else { String::new() });
    cells[FOR] = Cell::plain(held_for.map(format_short).unwrap_or_default());
    cells[TTL] = Cell::plain(ttl);
    cells
}

fn line(row: &[Cell; COLUMNS], widths: &[Option<usize>; COLUMNS], limit: Option<usize>) -> String {
    let mut line = String::new();
    // Padding is written only before the next text, so that no line ends in spaces.
    let (mut used, mut padding) = (0, 0);
    for (cell, width) in row.iter().zip(widths) {
        let Some(width) = *width else { continue };
        let gap = if used + padding == 0 { 0 } else { GAP.width() };
        padding += gap;
        let available = limit.map_or(width, |limit| width.min(limit.saturating_sub(used + padding)));
        let text = cut(&cell.text, available);
        if !text.is_empty() {
            line.extend(std::iter::repeat_n(' ', padding));
            line.extend([
                cell.style.render().to_string(),
                text.clone(),
                cell.style.render_reset().to_string(),
            ]);
            used += padding + text.width();
            padding = 0;
        }
        padding += width.saturating_sub(text.width());
    }
    line
}

/// Cuts a text to `width` columns.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut end = 0;
    for (start, character) in text.char_indices() {
        let next = start + character.len_utf8();
        // One column is for the ellipsis.
        if text[..next].width() + 1 > width {
            break;
        }
        end = next;
    }
    if width == 0 { String::new() } else { format!("{}…", &text[..end]) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::lock_view::WaiterView;
    use super::super::lock_view::tests::{held, kept};
    use super::super::wait_view::tests::wait;
    use super::*;

    fn plain(lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    fn table(locks: &[LockView], width: Option<usize>) -> Vec<String> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(135);
        plain(&Table::new(locks, now).lines(width))
    }

    #[test]
    fn a_table_has_aligned_columns_and_a_row_per_holder() {
        let mut reads = held("prices");
        reads.kind = Some("read-write-lock");
        reads.holders[0].mode = "read";
        let other = HolderView { host: None, owner: "java".into(), since: None, ..reads.holders[0].clone() };
        reads.holders.push(other);
        let waiter = WaiterView { owner: "x".into(), host: None, pid: None, label: None };
        let mut fair = held("tickets");
        (fair.kind, fair.queue) = (Some("fair-lock"), vec![waiter.clone(), waiter]);
        let expected = "\
NAME     HELD BY                            FOR     TTL  WAITERS  AS    KIND             COUNT
orders   web-1:42 (deploy.sh) 07070707…:12  2m 13s  28s                 lock             2
prices   web-1:42 (deploy.sh) 07070707…:12  2m 13s  28s           read  read-write-lock
         java                                       28s           read
tickets  web-1:42 (deploy.sh) 07070707…:12  2m 13s  28s  2              fair-lock";
        let mut twice = held("orders");
        twice.holders[0].count = 2;
        assert_eq!(table(&[twice, reads, fair], None).join("\n"), expected);
    }

    #[test]
    fn waiters_have_rows_in_the_order_of_the_queue() {
        let mut lock = held("tickets");
        (lock.kind, lock.waiters) = (Some("fair-lock"), vec![wait("tickets"), wait("tickets")]);
        lock.waiters[1].owner = "07070707-1707-4707-8707-070707070707:14".to_owned();
        let waiter = |owner: &str| WaiterView { owner: owner.to_owned(), host: None, pid: None, label: None };
        lock.queue = vec![waiter("java:1"), waiter(&lock.waiters[1].owner)];
        let expected = "\
NAME     HELD BY                                            FOR     TTL  WAITERS  KIND
tickets  web-1:42 (deploy.sh) 07070707…:12                  2m 13s  28s  3        fair-lock
         waiting: java:1
         waiting: web-2:43 (importer) 07070707…:14, task 7  2m 15s
         waiting: web-2:43 (importer) 07070707…:13, task 7  2m 15s";
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(135);
        assert_eq!(plain(&Table::with_waiters(&[lock], now).lines(None)).join("\n"), expected);
    }

    #[test]
    fn a_stuck_holder_is_marked() {
        let mut lock = held("orders");
        lock.holders[0].stuck = true;
        assert!(table(&[lock], Some(80))[1].contains("07070707…:12 (stuck)"));
    }

    #[test]
    fn a_kept_lock_is_shown_with_its_end() {
        let lines = table(&[kept("orders")], Some(80));
        assert_eq!(lines[1], "orders  kept until 00:03:20Z (deploy.sh)  2m 13s  28s  lock");
    }

    #[test]
    fn a_free_semaphore_and_a_lock_without_expiry_are_shown() {
        let mut endless = held("orders");
        endless.ttl = None;
        let free =
            LockView { kind: Some("permit-semaphore"), available: Some(3), ..LockView::absent("slots") };
        let lines = table(&[endless, free], None);
        assert!(lines[1].contains("no expiry"), "{lines:?}");
        assert!(lines[2].contains("none") && lines[2].ends_with('3'), "{lines:?}");
    }

    #[test]
    fn eighty_columns_show_the_name_and_the_holder() {
        let mut fenced = held("orders:eu-central-1:nightly");
        (fenced.kind, fenced.token) = (Some("fenced-lock"), Some(1_763_417_640_000_000));
        fenced.holders[0].count = 3;
        let expected = "\
NAME                         HELD BY                            FOR     TTL
orders:eu-central-1:nightly  web-1:42 (deploy.sh) 07070707…:12  2m 13s  28s";
        assert_eq!(table(&[fenced.clone()], Some(80)).join("\n"), expected);
        let wider = table(&[fenced.clone()], Some(100)).join("\n");
        assert!(
            wider.contains("fenced-lock") && wider.contains("COUNT") && !wider.contains("TOKEN"),
            "{wider}"
        );
        assert!(table(&[fenced], None).join("\n").contains("1763417640000000"));
    }

    #[test]
    fn control_characters_and_long_names_do_not_break_the_table() {
        let long = "x".repeat(4_096);
        let names = [
            "a\nb",
            "\u{1b}[2J\u{1b}]0;t\u{7}",
            "\u{202e}evil",
            "\t\t",
            "注文注文",
            "🦀🦀",
            "e\u{301}",
            &long,
        ];
        let mut locks: Vec<_> = names.iter().map(|name| held(name)).collect();
        locks[0].holders[0].label = Some("\u{1b}[31m\nred".repeat(300));
        for width in [Some(10), Some(40), Some(80), Some(200), None] {
            let lines = table(&locks, width);
            assert_eq!(lines.len(), 1 + names.len());
            for line in &lines {
                assert!(!line.contains(char::is_control) && !line.contains('\u{202e}'), "{line}");
                assert!(width.is_none_or(|width| line.width() <= width), "{width:?}: {line}");
            }
            if width == Some(200) {
                let kinds: Vec<_> =
                    lines.iter().skip(1).map(|line| line[..line.find(" lock").unwrap()].width()).collect();
                assert!(kinds.iter().all(|at| *at == kinds[0]), "{lines:#?}");
            }
        }
    }

    #[test]
    fn more_than_ten_holders_are_summarized() {
        let mut crowd = held("crowd");
        crowd.holders = vec![crowd.holders[0].clone(); 1_000];
        let lines = table(&[crowd], None);
        assert_eq!(lines.len(), 1 + MAX_HOLDERS + 1);
        assert!(lines[1 + MAX_HOLDERS].contains("and 990 more"));
    }

    #[test]
    fn text_is_cut_by_display_width() {
        assert_eq!(cut("注文注文", 8), "注文注文");
        assert_eq!(cut("注文注文", 7), "注文注…");
        assert_eq!(cut("注文注文", 4), "注…");
        assert_eq!(cut("abc", 1), "…");
        assert_eq!(cut("abc", 0), "");
    }
}
