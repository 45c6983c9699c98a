use std::io::{self, Write};
use std::time::SystemTime;

use serde::Serialize;

use super::change_tracker::ChangeTracker;
use super::found::Found;
use crate::arguments::WatchArguments;
use crate::commands::lock_list;
use crate::commands::lock_view::LockView;
use crate::escape::{escape, escape_message, json_line};
use crate::list_arguments::ListArguments;
use crate::timestamp::rfc_3339;

/// The output of `watch` without a terminal: a line or a JSON object per change.
#[derive(Debug)]
pub(super) struct ChangeLines<'a> {
    list: &'a ListArguments,
    as_json: bool,
    changes: ChangeTracker,
    is_unavailable: bool,
}

/// A change, as printed with `--json`.
#[derive(Serialize)]
struct Change<'a> {
    at: String,
    #[serde(flatten)]
    lock: &'a LockView,
}

impl<'a> ChangeLines<'a> {
    pub(super) fn new(arguments: &'a WatchArguments) -> Self {
        let WatchArguments { list, json, .. } = arguments;
        Self { list, as_json: *json, changes: ChangeTracker::default(), is_unavailable: false }
    }

    /// Prints what has changed since the last call.
    pub(super) fn print(&mut self, found: &Found) -> anyhow::Result<()> {
        let now = SystemTime::now();
        if std::mem::take(&mut self.is_unavailable) {
            writeln!(anstream::stderr(), "turnlock: the store is available again")?;
        }
        let is_wanted = |lock: &LockView| lock_list::is_wanted(lock, self.list, now);
        let mut changes = self.changes.changes(&found.locks, found.is_complete, is_wanted);
        lock_list::sort(&mut changes, self.list.sort);
        let mut out = anstream::stdout().lock();
        for lock in changes {
            if self.as_json {
                writeln!(out, "{}", json_line(&Change { at: rfc_3339(now), lock: &lock })?)?;
            } else {
                writeln!(out, "{}  {}", humantime::format_rfc3339_seconds(now), state_line(&lock, now))?;
            }
        }
        out.flush()?;
        Ok(())
    }

    /// Reports that the store is unavailable, once per outage.
    pub(super) fn report_outage(&mut self, error: &turnlock::Error) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_unavailable, true) {
            let text = escape_message(&turnlock_core::error_chain(error));
            writeln!(anstream::stderr(), "turnlock: {text}; will retry")?;
        }
        Ok(())
    }
}

/// The state of a lock in one line.
fn state_line(lock: &LockView, now: SystemTime) -> String {
    let name = escape(&lock.name);
    let holders = lock.holders.iter().map(|holder| holder.line(now)).collect::<Vec<_>>().join(", ");
    let state = match lock.holders.first() {
        None => "free".to_owned(),
        Some(first) if first.kept_until.is_some() => holders,
        Some(_) => format!("held by {holders}"),
    };
    match lock.queue.len() {
        0 => format!("{name}: {state}"),
        waiting => format!("{name}: {state}; {waiting} in the queue"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lock_view::WaiterView;
    use crate::commands::lock_view::tests::{held, kept};

    #[test]
    fn a_line_shows_holders_and_queue() {
        let now = SystemTime::UNIX_EPOCH;
        assert_eq!(state_line(&kept("a\nb"), now), r"a\nb: kept until 00:03:20Z (deploy.sh)");
        let mut lock = held("a\nb");
        assert_eq!(state_line(&lock, now), r"a\nb: held by web-1:42 (deploy.sh) 07070707…:12");
        lock.queue = vec![WaiterView { owner: "x".into(), host: None, pid: None, label: None }];
        assert!(state_line(&lock, now).ends_with("; 1 in the queue"));
        assert_eq!(state_line(&lock.released(), now), r"a\nb: free");
    }
}
