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
        None => without_holder(lock),
        Some(first) if first.kept_until.is_some() => holders,
        Some(_) => format!("held by {holders}"),
    };
    match (lock.queue.len(), lock.unqueued().count()) {
        (0, 0) => format!("{name}: {state}"),
        (queued, 0) => format!("{name}: {state}; {queued} in the queue"),
        (queued, others) => format!("{name}: {state}; {} waiting", queued + others),
    }
}

/// The state of a lock without a holder. Semaphores and latches have none, and are listed while they have waiters.
fn without_holder(lock: &LockView) -> String {
    // A name that is not in use has the kind of its waiters only.
    match (lock.kind.or(lock.waiters.first().map(|wait| wait.kind)), lock.available) {
        (Some("latch"), Some(count)) => format!("count {count}"),
        (_, Some(free)) => format!("{} free", free.max(0)),
        (Some("semaphore" | "latch"), None) if lock.waiters.is_empty() => "no waiter is known".to_owned(),
        (Some("semaphore" | "latch"), None) => "not set".to_owned(),
        (_, None) => "free".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lock_view::WaiterView;
    use crate::commands::lock_view::tests::{held, kept};
    use crate::commands::wait_view::tests::wait;

    #[test]
    fn a_line_shows_holders_and_queue() {
        let now = SystemTime::UNIX_EPOCH;
        assert_eq!(state_line(&kept("a\nb"), now), r"a\nb: kept until 00:03:20Z (deploy.sh)");
        let mut lock = held("a\nb");
        assert_eq!(state_line(&lock, now), r"a\nb: held by web-1:42 (deploy.sh) 07070707…:12");
        lock.queue = vec![WaiterView { owner: "x".into(), host: None, pid: None, label: None }];
        assert!(state_line(&lock, now).ends_with("; 1 in the queue"));
        // One of them is in the queue.
        lock.waiters = vec![wait("a\nb"), wait("a\nb")];
        lock.waiters[0].owner = "x".to_owned();
        assert!(state_line(&lock, now).ends_with("; 2 waiting"));
        lock.queue.clear();
        lock.waiters.pop();
        assert!(state_line(&lock, now).ends_with("; 1 waiting"));
        lock.holders[0].stuck = true;
        assert!(state_line(&lock, now).contains("07070707…:12 (stuck); 1 waiting"));
        assert_eq!(state_line(&lock.released(), now), r"a\nb: free");
    }

    #[test]
    fn a_semaphore_or_a_latch_has_its_number() {
        let now = SystemTime::UNIX_EPOCH;
        let line = |kind, available, waiters| {
            let lock = LockView { kind: Some(kind), available, waiters, ..LockView::absent("jobs") };
            state_line(&lock, now)
        };
        assert_eq!(line("semaphore", Some(0), vec![wait("jobs")]), "jobs: 0 free; 1 waiting");
        assert_eq!(line("permit-semaphore", Some(-1), vec![wait("jobs")]), "jobs: 0 free; 1 waiting");
        assert_eq!(line("latch", Some(3), vec![wait("jobs")]), "jobs: count 3; 1 waiting");
        assert_eq!(line("semaphore", None, vec![wait("jobs")]), "jobs: not set; 1 waiting");
        assert_eq!(line("latch", None, vec![]), "jobs: no waiter is known");
        let mut wait = wait("jobs");
        wait.kind = "semaphore";
        let lock = LockView { waiters: vec![wait], ..LockView::absent("jobs") };
        assert_eq!(state_line(&lock, now), "jobs: not set; 1 waiting");
    }
}
