//! Processes that wait for each other, in the log, the program and the dashboard.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tracing::Level;
use turnlock::Client;
use turnlock_testkit::{LogSubscriber, StallMonitor, record_repeat, within};

use crate::browser::Browser;
use crate::dashboard::command;
use crate::fixture::Fixture;
use crate::http::Events;
use crate::{AWHILE, Case, cases};

pub(crate) const CASES: &[Case] = cases![a_deadlock_of_three_processes_is_named_within_three_seconds];

pub(crate) const BROWSER_CASES: &[Case] = cases![a_deadlock_is_shown_above_every_page];

/// The longest time from the moment at which the cycle closes until it is shown.
const MAX_TIME: Duration = Duration::from_secs(3);

/// The environment variable that makes this program a member of a deadlock: `<label>,<held>,<wanted> <url>`.
const CHILD_VARIABLE: &str = "TURNLOCK_TEST_CHILD";

const LABELS: [&str; 3] = ["first", "second", "third"];

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD_VARIABLE).is_some()
}

/// Holds one lock, waits for another once a line is read from standard input, and ends with the input.
pub(crate) fn run_child() {
    let setting = std::env::var(CHILD_VARIABLE).unwrap();
    let (names, url) = setting.split_once(' ').unwrap();
    let [label, held, wanted] = names.split(',').collect::<Vec<_>>()[..] else { panic!("{names}") };
    let log = LogSubscriber::new(Level::WARN, |line| println!("{line}"));
    tracing::subscriber::set_global_default(log).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = Client::builder().label(label).connect(url).await.unwrap();
        let held = client.lock(held).lock().await.unwrap();
        println!("holds");
        let wanted = client.lock(wanted);
        let mut input = BufReader::new(tokio::io::stdin()).lines();
        input.next_line().await.unwrap();
        tokio::select! {
            guard = wanted.lock() => drop(guard),
            line = input.next_line() => drop(line),
        }
        drop(held);
        assert!(client.shutdown(AWHILE).await.is_clean());
    });
}

/// A process that holds one lock and waits for another.
struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(label: &str, held: &str, wanted: &str, url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(CHILD_VARIABLE, format!("{label},{held},{wanted} {url}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut process = Self { child, stdin, lines: BufReader::new(stdout).lines() };
        assert_eq!(process.line().await, "holds");
        process
    }

    async fn line(&mut self) -> String {
        within(AWHILE, "a line of a process", self.lines.next_line()).await.unwrap().unwrap()
    }

    /// Reads the log until it has the deadlock. Returns the line.
    async fn logged(&mut self) -> String {
        loop {
            let line = self.line().await;
            if line.starts_with("deadlock: ") {
                return line;
            }
        }
    }
}

/// Three processes, each with a lock that the one before it waits for from now on.
async fn deadlock(fixture: &Fixture, names: [&str; 3]) -> [Process; 3] {
    let start = |at: usize| Process::start(LABELS[at], names[at], names[(at + 1) % 3], fixture.url());
    let (first, second, third) = tokio::join!(start(0), start(1), start(2));
    let mut processes = [first, second, third];
    for process in &mut processes {
        process.stdin.write_all(b"\n").await.unwrap();
    }
    processes
}

async fn a_deadlock_of_three_processes_is_named_within_three_seconds(fixture: Fixture) {
    const MAX_ATTEMPTS: usize = 6;
    // The interval of users.
    let dashboard = fixture.dashboard(&["--interval", "1s"]).await;
    let mut events = dashboard.events().await;
    let stalls = StallMonitor::watch();
    let mut times = Vec::new();
    for attempt in 0..MAX_ATTEMPTS {
        let names = ["orders", "stock", "billing"].map(|name| format!("{name}-{attempt}"));
        let began = Instant::now();
        let took = shown(&fixture, &mut events, names.each_ref().map(|name| &**name)).await;
        if took <= MAX_TIME {
            return;
        }
        let stalled = stalls.between(began, Instant::now()).await;
        let text = format!("a deadlock that was shown after {took:?}; the machine stalled for {stalled:?}");
        // Processes, the store and the program wait for a processor one after the other.
        assert!(stalled >= took / 10, "{text}");
        times.push((took, stalled));
        record_repeat(text);
    }
    panic!(
        "the machine stalled in each attempt, so that nothing was shown: (shown after, stalled for) {times:?}"
    );
}

/// Returns how long it takes until the log, `ls --deadlocks`, `doctor` and the dashboard have all shown a deadlock.
async fn shown(fixture: &Fixture, events: &mut Events, names: [&str; 3]) -> Duration {
    let mut processes = deadlock(fixture, names).await;
    let closed = Instant::now();
    let pids = processes.each_ref().map(|process| process.child.id().unwrap());
    let is_named = |text: &str| {
        let is_member = |(label, pid): (&str, u32)| text.contains(&format!(":{pid} ({label})"));
        names.iter().all(|name| text.contains(&format!("{name:?}")))
            && LABELS.into_iter().zip(pids).all(is_member)
    };
    let run = async |arguments: &[&str]| {
        let output =
            within(AWHILE, "the program ends", command(fixture.url(), arguments).output()).await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), closed.elapsed())
    };
    let in_programs = async {
        let [first, second, third] = &mut processes;
        let lines: [String; 3] = tokio::join!(first.logged(), second.logged(), third.logged()).into();
        let logged = closed.elapsed();
        assert!(lines.iter().all(|line| is_named(line)), "{lines:?}");
        // Whoever reads the records after that finds it too.
        let (listed, examined) = tokio::join!(run(&["ls", "--deadlocks"]), run(&["doctor"]));
        assert!(
            listed.0 == Some(1) && listed.1.starts_with("deadlock: ") && is_named(&listed.1),
            "{listed:?}"
        );
        assert!(examined.1.contains("DANGER: waits.") && is_named(&examined.1), "{examined:?}");
        (logged, listed.2, examined.2)
    };
    let on_dashboard = async {
        let is_cycle = |data: &Value| {
            let all = data["deadlocks"].as_array().into_iter().flatten();
            all.filter(|found| found["certain"] == true).any(|found| {
                let waiters: Vec<_> = found["waiters"].as_array().into_iter().flatten().collect();
                let has = |name: &str, label: &str, pid: u32| {
                    waiters
                        .iter()
                        .any(|wait| wait["name"] == name && wait["label"] == label && wait["pid"] == pid)
                };
                waiters.len() == 3 && (0..3).all(|at| has(names[(at + 1) % 3], LABELS[at], pids[at]))
            })
        };
        events.until(|_, data| is_cycle(data)).await;
        closed.elapsed()
    };
    let ((logged, listed, examined), dashboard) = tokio::join!(in_programs, on_dashboard);
    println!(
        "a deadlock is logged after {logged:?}, listed after {listed:?}, found by the doctor after {examined:?}, on the dashboard after {dashboard:?}"
    );
    // They end with their input, and remove what they have announced.
    for Process { mut child, stdin, .. } in processes {
        drop(stdin);
        within(AWHILE, "a process ends", child.wait()).await.unwrap();
    }
    let is_gone = |data: &Value| data["deadlocks"].as_array().is_some_and(Vec::is_empty);
    events.until(|_, data| is_gone(data)).await;
    logged.max(listed).max(examined).max(dashboard)
}

async fn a_deadlock_is_shown_above_every_page(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(dashboard.url()).await;
    let processes = deadlock(&fixture, ["orders", "stock", "billing"]).await;
    browser.until("document.querySelector('.alert.deadlock.certain') !== null").await;
    let text = browser.text(".alert.deadlock").await;
    let pids = processes.each_ref().map(|process| process.child.id().unwrap());
    for part in [
        &*format!(":{} (first) ", pids[0]),
        &format!(":{} (second) ", pids[1]),
        &format!(":{} (third) ", pids[2]),
        "holds orders and waits for stock",
        "holds stock and waits for billing",
        "holds billing and waits for orders",
    ] {
        let squeezed = text.replace("  ", " ");
        assert!(squeezed.contains(part), "{part} in {squeezed}");
    }
    assert_eq!(browser.eval("document.querySelector('.alert.deadlock').getAttribute('role')").await, "alert");
    browser.click(".alert.deadlock a").await;
    browser.until("document.querySelectorAll('.graph .edge.cycle').length === 6").await;
    assert_eq!(browser.eval("document.querySelectorAll('.graph .node.cycle').length").await, 6);
    for Process { mut child, stdin, .. } in processes {
        drop(stdin);
        within(AWHILE, "a process ends", child.wait()).await.unwrap();
    }
    browser.until("document.querySelector('.alert.deadlock') === null").await;
}
