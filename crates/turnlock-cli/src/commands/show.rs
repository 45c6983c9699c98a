use std::io::{self, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use anstyle::Style;
use turnlock::Client;

use super::lock_view::{HolderView, LockView};
use super::owner_name;
use crate::arguments::{ShowArguments, StoreArguments};
use crate::duration::format_short;
use crate::escape::{escape, json_line};
use crate::timestamp::{kept_until, rfc_3339};

/// Exit code of `--check` if the lock is free.
const FREE: u8 = 1;

pub(super) const FIELD_STYLE: Style = Style::new().bold();
/// The width of the names of fields, with the space after them.
pub(super) const FIELD_WIDTH: usize = 8;

/// `turnlock show`: prints all that is known of one lock.
pub(crate) async fn show(store: &StoreArguments, arguments: ShowArguments) -> anyhow::Result<ExitCode> {
    let client = super::connect(store, Client::builder()).await?;
    let lock = LockView::query(&client, &arguments.name).await?;
    let mut out = anstream::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", json_line(&lock)?)?;
    } else {
        write(&mut out, &lock, SystemTime::now())?;
    }
    out.flush()?;
    Ok(if arguments.check && !lock.locked { ExitCode::from(FREE) } else { ExitCode::SUCCESS })
}

/// Writes the lock as text, one field per line.
fn write(out: &mut impl Write, lock: &LockView, now: SystemTime) -> io::Result<()> {
    for (name, text) in fields(lock, now) {
        writeln!(out, "{FIELD_STYLE}{name:FIELD_WIDTH$}{FIELD_STYLE:#}{text}")?;
    }
    Ok(())
}

/// The fields of the lock, each a line of text. A field of several lines has its name on the first one.
pub(super) fn fields(lock: &LockView, now: SystemTime) -> Vec<(&'static str, String)> {
    let mut fields = vec![("name", escape(&lock.name))];
    if let Some(kind) = lock.kind {
        fields.push(("kind", kind.to_owned()));
    }
    if lock.holders.is_empty() && lock.available.is_none() {
        fields.push(("held by", "none".to_owned()));
    }
    for (index, holder) in lock.holders.iter().enumerate() {
        fields.push((if index == 0 { "held by" } else { "" }, holder_line(holder, now)));
        fields.push(("", format!("owner {}", escape(&holder.owner))));
        if let Some(since) = holder.since {
            let held_for = format_short(now.duration_since(since).unwrap_or_default());
            fields.push(("", format!("since {}, for {held_for}", rfc_3339(since))));
        }
        if holder.stuck {
            let text = "seems to be stuck: held far longer than before, or its task blocks its thread";
            fields.push(("", text.to_owned()));
        }
        let by = holder.task.as_ref().map(|task| format!("by {}", escape(task)));
        let at = holder.call_site.as_ref().map(|at| format!("at {}", escape(at)));
        let by_and_at: Vec<_> = by.into_iter().chain(at).collect();
        if !by_and_at.is_empty() {
            fields.push(("", by_and_at.join(", ")));
        }
        if let Some(ttl) = holder.ttl {
            let unless_renewed = if holder.kept_until.is_none() { " unless renewed" } else { "" };
            fields.push(("", format!("expires in {}{unless_renewed}", format_short(ttl))));
        }
    }
    match lock.ttl {
        Some(ttl) => fields.push(("ttl", format_short(ttl))),
        // Permits expire one by one.
        None if lock.locked && lock.holders.iter().all(|holder| holder.ttl.is_none()) => {
            fields.push(("ttl", "no expiry".to_owned()));
        }
        None => {}
    }
    fields.extend(lock.token.map(|token| ("token", token.to_string())));
    if let Some(number) = lock.available {
        let text = match number {
            // The number of permits was lowered.
            ..0 => format!("0, and {} held above the limit", number.unsigned_abs()),
            0.. => number.to_string(),
        };
        fields.push((if lock.kind == Some("latch") { "count" } else { "free" }, text));
    }
    for (index, (waiter, wait)) in lock.queued().enumerate() {
        let details = wait.map_or_else(String::new, |wait| wait.details(now));
        let line = format!("{}. {}{details}", index + 1, waiter.line());
        fields.push((if index == 0 { "queue" } else { "" }, line));
    }
    for (index, wait) in lock.unqueued().enumerate() {
        fields.push((if index == 0 { "waiting" } else { "" }, wait.line(now)));
    }
    fields
}

/// Formats a holder: its identity, mode and hold count, and until when the lock is kept.
pub(super) fn holder_line(holder: &HolderView, now: SystemTime) -> String {
    // The process of a kept hold may have exited.
    let pid = holder.pid.filter(|_| holder.kept_until.is_none());
    let identity = owner_name::identity(holder.host.as_deref(), pid, holder.label.as_deref());
    let mut identity = identity.unwrap_or_else(|| "unidentified client".to_owned());
    if let Some(end) = holder.kept_until {
        identity = format!("{identity}, {}", kept_until(end, now));
    }
    let mode = match holder.mode {
        "exclusive" => String::new(),
        mode => format!(", {mode}"),
    };
    match holder.count {
        0 | 1 => format!("{identity}{mode}"),
        count => format!("{identity}{mode}, {count} times"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::lock_view::WaiterView;
    use super::super::lock_view::tests::{held, kept};
    use super::super::wait_view::tests::wait;
    use super::*;

    fn shown(lock: &LockView) -> String {
        let mut out = Vec::new();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(135);
        write(&mut out, lock, now).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string()
    }

    #[test]
    fn all_known_fields_are_shown() {
        let mut lock = held("tickets");
        lock.kind = Some("fair-lock");
        lock.holders[0].count = 2;
        lock.token = Some(7);
        lock.queue = vec![WaiterView { owner: "java:1".into(), host: None, pid: None, label: None }];
        let expected = "\
name    tickets
kind    fair-lock
held by web-1:42 (deploy.sh), 2 times
        owner 07070707-1707-4707-8707-070707070707:12
        since 1970-01-01T00:00:01.500Z, for 2m 13s
ttl     28s
token   7
queue   1. java:1
";
        assert_eq!(shown(&lock), expected);
    }

    #[test]
    fn waiters_and_the_task_of_a_holder_are_shown() {
        let mut lock = held("orders");
        (lock.holders[0].task, lock.holders[0].call_site) =
            (Some("task 3".into()), Some("src/a.rs:7".into()));
        lock.holders[0].stuck = true;
        lock.waiters = vec![wait("orders")];
        let text = shown(&lock);
        assert!(text.contains("        seems to be stuck"), "{text}");
        assert!(text.contains("        by task 3, at src/a.rs:7\n"), "{text}");
        let waiting =
            "waiting web-2:43 (importer) 07070707…:13, task 7, for 2m 15s, at src/main.rs:7, holds prices\n";
        assert!(text.ends_with(waiting), "{text}");
        // In the queue of a fair lock, it is shown once.
        lock.queue =
            vec![WaiterView { owner: lock.waiters[0].owner.clone(), host: None, pid: None, label: None }];
        let text = shown(&lock);
        assert!(text.contains(":13, task 7, for 2m 15s") && !text.contains("waiting"), "{text}");
    }

    #[test]
    fn a_number_is_shown_by_what_it_counts() {
        let mut lock = LockView { kind: Some("latch"), available: Some(3), ..LockView::absent("steps") };
        assert_eq!(shown(&lock), "name    steps\nkind    latch\ncount   3\n");
        lock = LockView { kind: Some("permit-semaphore"), available: Some(-1), ..held("jobs") };
        (lock.ttl, lock.holders[0].ttl) = (None, Some(Duration::from_secs(9)));
        let text = shown(&lock);
        assert!(text.contains("free    0, and 1 held above the limit\n"), "{text}");
        assert!(text.contains("expires in 9s unless renewed") && !text.contains("no expiry"), "{text}");
        lock.holders[0].ttl = None;
        assert!(shown(&lock).contains("ttl     no expiry\n"));
    }

    #[test]
    fn a_kept_lock_is_shown_without_a_process() {
        let shown = shown(&kept("report"));
        assert!(shown.contains("held by web-1 (deploy.sh), kept until 00:03:20Z\n"), "{shown}");
    }

    #[test]
    fn a_free_lock_and_an_unidentified_holder_are_shown() {
        assert_eq!(shown(&LockView::absent("a\nb")), "name    a\\nb\nheld by none\n");
        let mut lock = held("orders");
        lock.holders[0].host = None;
        assert!(shown(&lock).contains("unidentified client\n        owner 07070707-"));
    }
}
