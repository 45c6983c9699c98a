//! The line to a driven program: requests on its stdin, replies from its stdout, in any order.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::{Answer, PeerError};

type Asker = oneshot::Sender<Result<String, PeerError>>;

/// Sends requests and hands each reply to who asked for it.
#[derive(Debug)]
pub(crate) struct Line {
    requests: Mutex<Requests>,
    /// Who waits for which reply; `None` once no more can come.
    askers: Mutex<Option<HashMap<u64, Asker>>>,
}

#[derive(Debug)]
struct Requests {
    stdin: ChildStdin,
    sent: u64,
}

impl Line {
    pub(crate) fn new(stdin: ChildStdin) -> Self {
        Self { requests: Mutex::new(Requests { stdin, sent: 0 }), askers: Mutex::new(Some(HashMap::new())) }
    }

    /// Sends a request for a thread of the program.
    pub(crate) fn send(&self, thread: &str, request: &str) -> Answer {
        let (asker, answer) = oneshot::channel();
        // Held over the writing, so that the requests of one caller arrive in their order.
        let mut requests = self.requests.lock().expect("no panic while writing");
        requests.sent += 1;
        let id = requests.sent;
        // A program that has ended drops all askers, and that is their answer.
        if let Some(askers) = self.askers().as_mut() {
            askers.insert(id, asker);
        }
        // A failure to write is the program's end, which the reader sees too.
        let _ = requests.stdin.write_all(format!("{id} {thread} {request}\n").as_bytes());
        Answer::new(answer)
    }

    /// Reads replies until there are no more. `ready` hears when the program is.
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
            if let Some(asker) = self.askers().as_mut().and_then(|askers| askers.remove(&id)) {
                // Nobody may want to know any more.
                let _ = asker.send(outcome);
            }
        }
        *self.askers() = None;
    }

    fn askers(&self) -> MutexGuard<'_, Option<HashMap<u64, Asker>>> {
        self.askers.lock().expect("no panic while looking for an asker")
    }
}

/// Reads `<id> ok <value>` and `<id> error <name> <message>`.
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
