//! The pipes to a driven program: requests on its stdin, replies from its stdout, in any order.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::{PeerError, PendingReply};

type ReplySender = oneshot::Sender<Result<String, PeerError>>;

/// Sends requests and matches replies to them by id.
#[derive(Debug)]
pub(crate) struct DriverPipe {
    requests: Mutex<Requests>,
    /// The requests without a reply yet, by id; `None` once the program has ended.
    pending: Mutex<Option<HashMap<u64, ReplySender>>>,
}

#[derive(Debug)]
struct Requests {
    stdin: ChildStdin,
    sent: u64,
}

impl DriverPipe {
    pub(crate) fn new(stdin: ChildStdin) -> Self {
        Self { requests: Mutex::new(Requests { stdin, sent: 0 }), pending: Mutex::new(Some(HashMap::new())) }
    }

    /// Sends a request for a thread of the program.
    pub(crate) fn send(&self, thread: &str, request: &str) -> PendingReply {
        let (sender, reply) = oneshot::channel();
        // Locked during the write, so that the requests of one caller arrive in order.
        let mut requests = self.requests.lock().expect("no panic while writing");
        requests.sent += 1;
        let id = requests.sent;
        // If the program has ended, the sender is dropped, and the reply is an error.
        if let Some(pending) = self.pending().as_mut() {
            pending.insert(id, sender);
        }
        // A failed write means that the program has ended, which the reader detects too.
        let _ = requests.stdin.write_all(format!("{id} {thread} {request}\n").as_bytes());
        PendingReply::new(reply)
    }

    /// Reads replies until stdout ends. Notifies `ready` when the program is ready.
    pub(crate) fn read(&self, stdout: ChildStdout, ready: oneshot::Sender<()>) {
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        if lines.next().as_deref() == Some("ready") {
            let _ = ready.send(());
        }
        for line in lines {
            let Some((id, outcome)) = parse(&line) else {
                eprintln!("not a reply: {line}");
                continue;
            };
            if let Some(sender) = self.pending().as_mut().and_then(|pending| pending.remove(&id)) {
                // The caller may have dropped the reply.
                let _ = sender.send(outcome);
            }
        }
        *self.pending() = None;
    }

    fn pending(&self) -> MutexGuard<'_, Option<HashMap<u64, ReplySender>>> {
        self.pending.lock().expect("no panic while matching a reply")
    }
}

/// Parses `<id> ok <value>` and `<id> error <name> <message>`.
fn parse(line: &str) -> Option<(u64, Result<String, PeerError>)> {
    let (id, rest) = line.split_once(' ')?;
    let outcome = match rest.split_once(' ')? {
        ("ok", value) => Ok(value.to_owned()),
        ("error", error) => {
            let (name, message) = error.split_once(' ').unwrap_or((error, ""));
            Err(PeerError { name: name.to_owned(), message: message.to_owned() })
        }
        _ => return None,
    };
    Some((id.parse().ok()?, outcome))
}
