use std::fmt;

/// A Markdown table: the first column is left-aligned, the others right-aligned.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<S: ToString>(heads: impl IntoIterator<Item = S>) -> Self {
        Self { heads: heads.into_iter().map(|head| head.to_string()).collect(), rows: Vec::new() }
    }

    /// Adds a row, which may have fewer cells than the table has columns.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |f: &mut fmt::Formatter<'_>, cells: &[String]| {
            let cells: Vec<String> =
                (0..self.heads.len()).map(|i| escaped(cells.get(i).map_or("", String::as_str))).collect();
            writeln!(f, "| {} |", cells.join(" | "))
        };
        write(f, &self.heads)?;
        writeln!(f, "|---|{}", "--:|".repeat(self.heads.len().saturating_sub(1)))?;
        self.rows.iter().try_for_each(|row| write(f, row))
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Formats a whole number, with thousands separators.
pub(crate) fn count(value: f64) -> String {
    with_separators(&format!("{value:.0}"))
}

/// Formats a number with three significant digits or more, and thousands separators.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let digits = match value.abs() {
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    };
    with_separators(&format!("{value:.digits$}"))
}

fn with_separators(text: &str) -> String {
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut separated = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            separated.push(',');
        }
        separated.push(digit);
    }
    separated + rest
}

#[cfg(test)]
mod tests {
    use super::{Table, count, number};

    #[test]
    fn a_table_is_as_wide_as_its_heads() {
        let mut table = Table::new(["name", "a", "b"]);
        table.row(vec!["x|y".to_owned(), "1".to_owned(), "2".to_owned()]);
        table.row(vec!["z".to_owned(), "none".to_owned()]);
        let text = "| name | a | b |\n|---|--:|--:|\n| x\\|y | 1 | 2 |\n| z | none |  |\n";
        assert_eq!(table.to_string(), text);
    }

    #[test]
    fn numbers_are_readable() {
        let cases = [
            (0.0, "0.00"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (99.96, "100"),
            (1_234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (-1_000.0, "-1,000"),
            (f64::NAN, "–"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!((count(10.0), count(1e5)), ("10".to_owned(), "100,000".to_owned()));
    }
}
