use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use turnlock::{Deadlock, Waiter};

use super::fields::{kind_name, millis};
use super::owner_name;
use crate::duration::format_short;
use crate::escape::escape;
use crate::timestamp::rfc_3339;

/// A wait that a client has announced, as printed by `ls`, `show` and `watch`.
///
/// Serializes to an object of `--json`. Every field must be documented in `docs/program-json.md`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WaitView {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) owner: String,
    host: String,
    pid: u32,
    label: String,
    pub(super) task: Option<String>,
    #[serde(serialize_with = "timestamp")]
    pub(super) since: SystemTime,
    #[serde(rename = "time_left_ms", serialize_with = "millis")]
    time_left: Option<Duration>,
    call_site: Option<String>,
    holds: Vec<HeldView>,
}

/// What a waiting task holds.
#[derive(Clone, Debug, Serialize)]
struct HeldView {
    name: String,
    kind: &'static str,
    owner: String,
}

/// Waiters that wait for each other, as printed by `ls --deadlocks --json`.
#[derive(Debug, Serialize)]
pub(super) struct DeadlockView {
    certain: bool,
    waiters: Vec<WaitView>,
}

impl WaitView {
    pub(super) fn new(waiter: &Waiter) -> Self {
        let held = waiter.holds.iter().map(|held| HeldView {
            name: held.name.clone(),
            kind: kind_name(held.kind),
            owner: held.owner.to_string(),
        });
        Self {
            name: waiter.name.clone(),
            kind: kind_name(waiter.kind),
            owner: waiter.owner.to_string(),
            host: waiter.host.clone(),
            pid: waiter.pid,
            label: waiter.label.clone(),
            task: waiter.task.clone(),
            since: waiter.since,
            time_left: waiter.time_left,
            call_site: waiter.call_site.clone(),
            holds: held.collect(),
        }
    }

    /// Formats who waits, and for how long.
    pub(super) fn line(&self, now: SystemTime) -> String {
        format!("{}{}", self.process(), self.details(now))
    }

    /// Formats the process that waits, and its short id.
    pub(super) fn process(&self) -> String {
        let identity = owner_name::identity(Some(&self.host), Some(self.pid), Some(&self.label));
        owner_name::short(identity.as_deref(), &self.owner)
    }

    /// Formats the task, the time and the call site of the wait, and what the task holds.
    pub(super) fn details(&self, now: SystemTime) -> String {
        let mut text = String::new();
        if let Some(task) = &self.task {
            text.extend([", ", &*escape(task)]);
        }
        // The clock of this machine may have been set.
        let waited = now.duration_since(self.since).unwrap_or_default();
        text.extend([", for ", &*format_short(waited)]);
        if let Some(at) = &self.call_site {
            text.extend([", at ", &*escape(at)]);
        }
        if !self.holds.is_empty() {
            let names: Vec<_> = self.holds.iter().map(|held| escape(&held.name)).collect();
            text.extend([", holds ", &*names.join(", ")]);
        }
        text
    }
}

impl DeadlockView {
    pub(super) fn new(deadlock: &Deadlock) -> Self {
        let waiters = deadlock.waiters.iter().map(WaitView::new).collect();
        Self { certain: deadlock.is_certain, waiters }
    }
}

fn timestamp<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    rfc_3339(*time).serialize(serializer)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A task that has waited since 1970 for two minutes.
    pub(crate) fn wait(name: &str) -> WaitView {
        WaitView {
            name: name.to_owned(),
            kind: "lock",
            owner: "07070707-1707-4707-8707-070707070707:13".to_owned(),
            host: "web-2".to_owned(),
            pid: 43,
            label: "importer".to_owned(),
            task: Some("task 7".to_owned()),
            since: SystemTime::UNIX_EPOCH,
            time_left: None,
            call_site: Some("src/main.rs:7".to_owned()),
            holds: vec![HeldView { name: "prices".to_owned(), kind: "lock", owner: "x:1".to_owned() }],
        }
    }

    #[test]
    fn a_wait_is_one_line_without_control_characters() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(135);
        let expected = "web-2:43 (importer) 07070707…:13, task 7, for 2m 15s, at src/main.rs:7, holds prices";
        assert_eq!(wait("orders").line(now), expected);
        let hostile = "\x1b[2J\n\u{202e}";
        let mut wait = wait(hostile);
        (wait.host, wait.label, wait.owner) = (hostile.into(), hostile.into(), hostile.into());
        (wait.task, wait.call_site) = (Some(hostile.into()), Some(hostile.into()));
        wait.holds[0].name = hostile.into();
        let line = wait.line(now);
        assert!(
            !line.contains(|character: char| character.is_control() || character == '\u{202e}'),
            "{line:?}"
        );
    }
}
