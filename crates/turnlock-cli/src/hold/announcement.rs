use std::io::{self, Write};
use std::thread;
use std::time::{Instant, SystemTime};

use serde::Serialize;
use tokio::sync::oneshot;

use super::notify_socket::notify_ready;
use crate::escape::{escape, json_line};
use crate::session::held_lock::HeldLock;
use crate::session::lock_session::LockSession;
use crate::session::run_lease::RunLease;
use crate::timestamp::rfc_3339;

/// The line on standard output that tells that the lock is held, and the message to the service manager.
pub(super) struct Announcement {
    /// The name of the lock, escaped.
    name: String,
    line: String,
}

/// What became of an announcement.
pub(super) struct Announced {
    pub(super) printed: io::Result<()>,
    pub(super) notified: io::Result<()>,
}

/// The line with `--json`.
#[derive(Serialize)]
struct JsonLine<'a> {
    name: &'a str,
    owner: &'a str,
    token: Option<u64>,
    lease_ms: u128,
    renewed: bool,
    valid_until: String,
}

impl Announcement {
    pub(super) fn new(session: &LockSession<'_>, lock: &HeldLock) -> Self {
        let line = if session.arguments.json { json(session, lock) } else { text(lock) };
        Self { name: escape(session.name), line: line + "\n" }
    }

    /// Prints the line, and then notifies the service manager.
    ///
    /// In a thread of its own: a reader that does not read delays neither renewals nor signals.
    pub(super) fn make(self) -> io::Result<oneshot::Receiver<Announced>> {
        let (sender, receiver) = oneshot::channel();
        let announce = move || {
            let mut stdout = io::stdout().lock();
            let printed = stdout.write_all(self.line.as_bytes()).and_then(|()| stdout.flush());
            let notified = if printed.is_ok() { notify_ready(&self.name) } else { Ok(()) };
            // The receiver is gone if the hold has ended meanwhile.
            let _ = sender.send(Announced { printed, notified });
        };
        thread::Builder::new().name("announcement".to_owned()).spawn(announce)?;
        Ok(receiver)
    }
}

/// `held OWNER`, or `held OWNER TOKEN`: words for `read` of a shell.
fn text(lock: &HeldLock) -> String {
    let token = lock.token().map(|token| format!(" {token}")).unwrap_or_default();
    format!("held {}{token}", escape(&lock.owner()))
}

fn json(session: &LockSession<'_>, lock: &HeldLock) -> String {
    let lease = RunLease::of(session.arguments);
    let left = lock.valid_until().saturating_duration_since(Instant::now());
    let line = JsonLine {
        name: session.name,
        owner: &lock.owner(),
        token: lock.token(),
        lease_ms: lease.duration().as_millis(),
        renewed: matches!(lease, RunLease::Renewed(_)),
        valid_until: rfc_3339(SystemTime::now() + left),
    };
    json_line(&line).unwrap_or_default()
}
