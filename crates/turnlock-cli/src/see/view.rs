use std::io::{self, Write};
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::change_log::ChangeLog;
use super::owner_name;
use super::picture::{Picture, rfc_3339};
use super::screen::{self, Screen};
use super::table::{Table, cut};
use crate::visible::{harmless, json, visible};

const TROUBLE: Style = AnsiColor::Red.on_default().bold();
const FAINT: Style = Style::new().dimmed();

/// What one who watches sees: a table that is drawn again and again on a terminal, else a line for each change.
#[derive(Debug)]
pub(super) struct View {
    form: Form,
    /// What was seen last, to be shown beside a trouble.
    last: Vec<Picture>,
    log: ChangeLog,
    is_in_trouble: bool,
}

#[derive(Debug)]
enum Form {
    Live(Screen),
    Lines,
    Json,
}

/// A change, as an object.
#[derive(Serialize)]
struct Change<'a> {
    at: String,
    #[serde(flatten)]
    picture: &'a Picture,
}

impl View {
    /// For `--json`, or what suits where the output goes.
    pub(super) fn open(as_json: bool) -> io::Result<Self> {
        let form = if as_json { Form::Json } else { Screen::open()?.map_or(Form::Lines, Form::Live) };
        Ok(Self { form, last: Vec::new(), log: ChangeLog::default(), is_in_trouble: false })
    }

    /// Shows what was seen.
    pub(super) fn show(&mut self, seen: Vec<Picture>, is_complete: bool) -> anyhow::Result<()> {
        let now = SystemTime::now();
        if let Form::Live(screen) = &self.form {
            let count = match (seen.len(), is_complete) {
                (0, _) => "nothing is locked".to_owned(),
                (count, true) => count.to_string(),
                (count, false) => format!("{count}, and these are not all"),
            };
            draw(screen, &format!("{FAINT}{}  {count}{FAINT:#}", second(now)), &seen, now)?;
            self.last = seen;
            return Ok(());
        }
        if std::mem::take(&mut self.is_in_trouble) {
            writeln!(anstream::stderr(), "turnlock: the store answers again")?;
        }
        let mut out = anstream::stdout().lock();
        for picture in self.log.changes(&seen, is_complete) {
            match self.form {
                Form::Json => {
                    writeln!(out, "{}", json(&Change { at: rfc_3339(now), picture: &picture })?)?;
                }
                _ => writeln!(out, "{}  {}", second(now), sentence(&picture))?,
            }
        }
        out.flush()?;
        Ok(())
    }

    /// Says that the store does not answer, beside what was seen last.
    pub(super) fn trouble(&mut self, error: &turnlock::Error) -> io::Result<()> {
        let text = harmless(&error.to_string());
        if let Form::Live(screen) = &self.form {
            let now = SystemTime::now();
            let text = cut(&format!("{}  {text}", second(now)), screen::width().unwrap_or(80));
            return draw(screen, &format!("{TROUBLE}{text}{TROUBLE:#}"), &self.last, now);
        }
        // Once an outage: a line a second would bury what matters.
        if !std::mem::replace(&mut self.is_in_trouble, true) {
            writeln!(anstream::stderr(), "turnlock: {text}; going on")?;
        }
        Ok(())
    }
}

fn draw(screen: &Screen, head: &str, pictures: &[Picture], now: SystemTime) -> io::Result<()> {
    let mut lines = vec![head.to_owned()];
    if !pictures.is_empty() {
        lines.extend(Table::new(pictures, now).lines(screen::width()));
    }
    screen.draw(&lines)
}

/// How it stands with a lock, in one line.
fn sentence(picture: &Picture) -> String {
    let name = visible(&picture.name);
    let holders: Vec<_> = picture
        .holders
        .iter()
        .map(|holder| {
            let who = owner_name::who(holder.host.as_deref(), holder.pid, holder.label.as_deref());
            owner_name::brief(who.as_deref(), &holder.owner)
        })
        .collect();
    let state = match &holders[..] {
        [] => "free".to_owned(),
        holders => format!("held by {}", holders.join(", ")),
    };
    match picture.queue.len() {
        0 => format!("{name}: {state}"),
        waiting => format!("{name}: {state}; {waiting} in the queue"),
    }
}

fn second(time: SystemTime) -> humantime::Rfc3339Timestamp {
    humantime::format_rfc3339_seconds(time)
}

#[cfg(test)]
mod tests {
    use super::super::picture::WaiterPicture;
    use super::super::picture::tests::held;
    use super::*;

    #[test]
    fn a_line_says_how_it_stands() {
        let mut picture = held("a\nb");
        assert_eq!(sentence(&picture), r"a\nb: held by web-1:42 (deploy.sh) 07070707…:12");
        picture.queue = vec![WaiterPicture { owner: "x".into(), host: None, pid: None, label: None }];
        assert!(sentence(&picture).ends_with("; 1 in the queue"));
        assert_eq!(sentence(&picture.gone()), r"a\nb: free");
    }
}
