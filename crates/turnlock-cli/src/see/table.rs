use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::picture::{HolderPicture, Picture};
use super::{owner_name, span};
use crate::visible::visible;

/// Locks as lines for people: one a holder, below a line of headings.
#[derive(Debug)]
pub(super) struct Table {
    /// Each row has a cell for each heading.
    rows: Vec<[Cell; COLUMNS]>,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    text: String,
    style: Style,
}

const COLUMNS: usize = 10;
const HEADINGS: [&str; COLUMNS] =
    ["NAME", "KIND", "HELD BY", "AS", "COUNT", "FOR", "TTL", "QUEUE", "TOKEN", "FREE"];
/// Those that give way when there is little room: names and owners may be of any length.
const FLEXIBLE: [usize; 2] = [0, 2];
/// Below this, a name says nothing.
const LEAST: usize = 8;
/// How many holders of one thing are shown, by a line each.
const HOLDERS: usize = 10;
const GAP: &str = "  ";

const HEADING: Style = Style::new().bold();
const NAME: Style = AnsiColor::Cyan.on_default();
const FAINT: Style = Style::new().dimmed();
const WAITING: Style = AnsiColor::Yellow.on_default();

impl Table {
    /// The table of these, as of now.
    pub(super) fn new(pictures: &[Picture], now: SystemTime) -> Self {
        Self { rows: pictures.iter().flat_map(|picture| rows(picture, now)).collect() }
    }

    /// Its lines, none of them longer than `width`. Columns in which there is nothing are left out.
    pub(super) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let headings = HEADINGS.map(|heading| Cell::new(heading, HEADING));
        let widths = self.widths(width);
        let line = |row: &[Cell; COLUMNS]| self::line(row, &widths, width);
        std::iter::once(&headings).chain(&self.rows).map(line).collect()
    }

    /// How wide each column is; `None` for one that is left out.
    fn widths(&self, limit: Option<usize>) -> [Option<usize>; COLUMNS] {
        let mut widths: [Option<usize>; COLUMNS] = std::array::from_fn(|column| {
            let widest =
                self.rows.iter().map(|row| row[column].text.width()).max().filter(|widest| *widest > 0);
            widest.map(|widest| widest.max(HEADINGS[column].width()))
        });
        let Some(limit) = limit else { return widths };
        let gaps = GAP.width() * widths.iter().flatten().count().saturating_sub(1);
        let mut excess = (widths.iter().flatten().sum::<usize>() + gaps).saturating_sub(limit);
        while excess > 0 {
            let widest = FLEXIBLE.into_iter().filter_map(|column| Some((widths[column]?, column))).max();
            let Some((now, column)) = widest.filter(|(now, _)| *now > LEAST) else { break };
            widths[column] = Some(now - 1);
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

/// The rows of one lock: its own beside its first holder, and the other holders.
fn rows(picture: &Picture, now: SystemTime) -> Vec<[Cell; COLUMNS]> {
    let mut holders = picture.holders.iter();
    let mut first = holders.next().map_or_else(nobody, |holder| holder_cells(holder, picture, now));
    first[0] = Cell::new(visible(&picture.name), NAME);
    first[1] = Cell::plain(picture.kind.unwrap_or_default());
    if !picture.queue.is_empty() {
        first[7] = Cell::new(picture.queue.len().to_string(), WAITING);
    }
    first[8] = Cell::plain(picture.token.map(|token| token.to_string()).unwrap_or_default());
    first[9] = Cell::plain(picture.available.map(|free| free.to_string()).unwrap_or_default());
    let mut rows = vec![first];
    rows.extend(holders.by_ref().take(HOLDERS - 1).map(|holder| holder_cells(holder, picture, now)));
    let unseen = holders.count();
    if unseen > 0 {
        let mut more: [Cell; COLUMNS] = Default::default();
        more[2] = Cell::new(format!("and {unseen} more"), FAINT);
        rows.push(more);
    }
    rows
}

fn nobody() -> [Cell; COLUMNS] {
    let mut cells: [Cell; COLUMNS] = Default::default();
    cells[2] = Cell::new("nobody", FAINT);
    cells
}

fn holder_cells(holder: &HolderPicture, picture: &Picture, now: SystemTime) -> [Cell; COLUMNS] {
    let who = owner_name::who(holder.host.as_deref(), holder.pid, holder.label.as_deref());
    let mode = if holder.mode == "exclusive" { "" } else { holder.mode };
    // Clocks differ: one who began in the future has just begun.
    let held_for = holder.since.map(|since| now.duration_since(since).unwrap_or_default());
    let ttl = holder.ttl.or(picture.ttl).map_or_else(|| "no end".to_owned(), span::short);
    let mut cells: [Cell; COLUMNS] = Default::default();
    cells[2] = Cell::plain(owner_name::brief(who.as_deref(), &holder.owner));
    cells[3] = Cell::plain(mode);
    cells[4] = Cell::plain(holder.count.to_string());
    cells[5] = Cell::plain(held_for.map(span::short).unwrap_or_default());
    cells[6] = Cell::plain(ttl);
    cells
}

fn line(row: &[Cell; COLUMNS], widths: &[Option<usize>; COLUMNS], limit: Option<usize>) -> String {
    let mut line = String::new();
    let (mut used, mut owed) = (0, 0);
    for (cell, width) in row.iter().zip(widths) {
        let Some(width) = *width else { continue };
        let gap = if used + owed == 0 { 0 } else { GAP.width() };
        // What is owed is only paid when something follows, so that no line ends in spaces.
        owed += gap;
        let room = limit.map_or(width, |limit| width.min(limit.saturating_sub(used + owed)));
        let text = cut(&cell.text, room);
        if !text.is_empty() {
            line.extend(std::iter::repeat_n(' ', owed));
            line.extend([
                cell.style.render().to_string(),
                text.clone(),
                cell.style.render_reset().to_string(),
            ]);
            used += owed + text.width();
            owed = 0;
        }
        owed += width.saturating_sub(text.width());
    }
    line
}

/// The text, cut where it is wider than that.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut end = 0;
    for (start, character) in text.char_indices() {
        let next = start + character.len_utf8();
        // With the dots that say that there is more.
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

    use super::super::picture::WaiterPicture;
    use super::super::picture::tests::held;
    use super::*;

    fn plain(lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    fn table(pictures: &[Picture], width: Option<usize>) -> Vec<String> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(135);
        plain(&Table::new(pictures, now).lines(width))
    }

    #[test]
    fn a_table_reads_as_people_expect() {
        let mut reads = held("prices");
        reads.kind = Some("read-write-lock");
        reads.holders[0].mode = "read";
        let other =
            HolderPicture { host: None, owner: "java".into(), since: None, ..reads.holders[0].clone() };
        reads.holders.push(other);
        let waiter = WaiterPicture { owner: "x".into(), host: None, pid: None, label: None };
        let mut fair = held("tickets");
        (fair.kind, fair.queue) = (Some("fair-lock"), vec![waiter.clone(), waiter]);
        let expected = "\
NAME     KIND             HELD BY                            AS    COUNT  FOR     TTL  QUEUE
orders   lock             web-1:42 (deploy.sh) 07070707…:12        1      2m 13s  28s
prices   read-write-lock  web-1:42 (deploy.sh) 07070707…:12  read  1      2m 13s  28s
                          java                               read  1              28s
tickets  fair-lock        web-1:42 (deploy.sh) 07070707…:12        1      2m 13s  28s  2";
        assert_eq!(table(&[held("orders"), reads, fair], None).join("\n"), expected);
    }

    #[test]
    fn what_nobody_holds_and_what_has_no_end_is_said() {
        let mut endless = held("orders");
        endless.ttl = None;
        let free =
            Picture { kind: Some("permit-semaphore"), available: Some(3), ..Picture::nothing("slots") };
        let lines = table(&[endless, free], None);
        assert!(lines[1].contains("no end"), "{lines:?}");
        assert!(lines[2].contains("nobody") && lines[2].ends_with('3'), "{lines:?}");
    }

    #[test]
    fn hostile_names_break_no_line_and_no_column() {
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
        let mut pictures: Vec<_> = names.iter().map(|name| held(name)).collect();
        pictures[0].holders[0].label = Some("\u{1b}[31m\nred".repeat(300));
        for width in [Some(10), Some(40), Some(80), Some(200), None] {
            let lines = table(&pictures, width);
            assert_eq!(lines.len(), 1 + names.len());
            for line in &lines {
                assert!(!line.contains(char::is_control) && !line.contains('\u{202e}'), "{line}");
                assert!(width.is_none_or(|width| line.width() <= width), "{width:?}: {line}");
            }
            if width == Some(200) {
                let kinds: Vec<_> =
                    lines.iter().skip(1).map(|line| line[..line.find("lock").unwrap()].width()).collect();
                assert!(kinds.iter().all(|at| *at == kinds[0]), "{lines:#?}");
            }
        }
    }

    #[test]
    fn many_holders_are_counted() {
        let mut crowd = held("crowd");
        crowd.holders = vec![crowd.holders[0].clone(); 1_000];
        let lines = table(&[crowd], None);
        assert_eq!(lines.len(), 1 + HOLDERS + 1);
        assert!(lines[1 + HOLDERS].contains("and 990 more"));
    }

    #[test]
    fn a_text_is_cut_by_width_and_not_by_bytes() {
        assert_eq!(cut("注文注文", 8), "注文注文");
        assert_eq!(cut("注文注文", 7), "注文注…");
        assert_eq!(cut("注文注文", 4), "注…");
        assert_eq!(cut("abc", 1), "…");
        assert_eq!(cut("abc", 0), "");
    }
}
