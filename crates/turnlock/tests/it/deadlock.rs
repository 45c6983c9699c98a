//! A deadlock of three processes: found by the library, and in the log of each of them. A holder that is stuck.

use std::process::Stdio;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tracing::Level;
use turnlock::Client;
use turnlock_testkit::{LogSubscriber, eventually, eventually_some, within};

use crate::child;
use crate::fixture::{Fixture, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] =
    cases![a_deadlock_of_three_processes_is_named, a_body_that_blocks_its_thread_is_stuck];

/// Three seconds, with room for a busy machine.
const SOON: std::time::Duration = ms(20_000);

/// Holds one lock, and waits for another once a line is read from standard input.
pub(crate) fn run_child(label: &str, held: &str, wanted: &str, url: &str) {
    let log = LogSubscriber::new(Level::WARN, |line| println!("{line}"));
    tracing::subscriber::set_global_default(log).expect("the first one");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = Client::builder().label(label).connect(url).await.expect("a store");
        let first = client.lock(held).lock().await.expect("free");
        println!("holds");
        child::read_line().await;
        let second = client.lock(wanted).lock().await.expect("acquired");
        second.unlock().await.expect("held");
        first.unlock().await.expect("held");
        println!("done");
    });
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(label: &str, held: &str, wanted: &str, url: &str) -> Self {
        let mut command = child::command(&format!("deadlock,{label},{held},{wanted}"), url);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("a child");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut process = Self { child, stdin, lines: BufReader::new(stdout).lines() };
        process.until("holds").await;
        process
    }

    /// Reads lines until one begins with `text`, and returns it.
    async fn until(&mut self, text: &str) -> String {
        let read = async {
            loop {
                let line = self.lines.next_line().await.expect("readable").expect("the child runs");
                if line.starts_with(text) {
                    return line;
                }
            }
        };
        within(SOON, text, read).await
    }
}

async fn a_deadlock_of_three_processes_is_named(fixture: Fixture) {
    let (url, reader) = (fixture.url(), fixture.client().await);
    let names = [fixture.name(), fixture.name(), fixture.name()];
    let labels = ["first", "second", "third"];
    let mut processes = Vec::new();
    for (number, label) in labels.iter().enumerate() {
        processes.push(Process::start(label, &names[number], &names[(number + 1) % 3], &url).await);
    }
    assert!(
        reader.deadlocks().await.expect("a reply").iter().all(|found| !found.to_string().contains(&names[0]))
    );
    let began = Instant::now();
    for process in &mut processes {
        process.stdin.write_all(b"\n").await.expect("it reads");
    }
    let found = async || {
        let all = reader.deadlocks().await.expect("a reply");
        all.into_iter().find(|found| found.is_certain && found.to_string().contains(&names[0]))
    };
    let text = eventually_some("the deadlock is found", SOON, found).await.to_string();
    println!("found after {:?}", began.elapsed());
    for process in &mut processes {
        let line = process.until("deadlock: ").await;
        println!("logged after {:?}", began.elapsed());
        for part in labels.iter().map(|label| format!("({label})")).chain(names.clone()) {
            assert!(line.contains(&part) && text.contains(&part), "{part} in {line}\n{text}");
        }
    }
    // The end of one of them resolves it.
    processes[0].child.kill().await.expect("killed");
    reader.lock(&names[0]).force_unlock().await.expect("a reply");
    processes[2].until("done").await;
    processes[1].until("done").await;
}

async fn a_body_that_blocks_its_thread_is_stuck(fixture: Fixture) {
    let (client, reader, name) = (fixture.client().await, fixture.client().await, fixture.name());
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let lock = client.lock(&name);
    // On a runtime of its own: it blocks one of its threads.
    let blocking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(lock.run(|_| async move { blocked.recv().expect("unblocked") })).expect("held");
    });
    let is_stuck = async || {
        let found = reader.inspect(&name).await.expect("a reply");
        found.is_some_and(|found| found.holders.iter().any(|holder| holder.is_stuck))
    };
    // After 10 s, and the period of checks.
    eventually("it is reported as stuck", ms(60_000), is_stuck).await;
    unblock.send(()).expect("it waits");
    // The release needs the threads of this runtime.
    let joined = tokio::task::spawn_blocking(move || blocking.join());
    joined.await.expect("no panic").expect("no panic");
}
