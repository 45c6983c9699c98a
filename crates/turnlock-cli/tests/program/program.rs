//! A program that runs, and what it says.

use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use turnlock_testkit::within;

/// How long a program may take for what it is asked, unless the case says otherwise.
const LIMIT: Duration = Duration::from_secs(60);

/// Killed when dropped. Its command goes with it.
pub(crate) struct Program {
    child: Child,
    pub(crate) pid: Pid,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the program is there");
        let pid =
            Pid::from_raw(child.id().expect("running").try_into().expect("a number")).expect("not zero");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { pid, input: child.stdin.take(), output, child }
    }

    /// The next line of its output.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        within(LIMIT, "a line of output", self.output.read_line(&mut line)).await.expect("text");
        if line.is_empty() {
            let mut words = String::new();
            let errors = self.child.stderr.as_mut().expect("piped");
            let _ = errors.read_to_string(&mut words).await;
            panic!("the program has ended ({:?}): {words}", self.child.wait().await);
        }
        line.trim_end().to_owned()
    }

    pub(crate) async fn expect(&mut self, line: &str) {
        assert_eq!(self.line().await, line);
    }

    /// The next line of its output, which is a number.
    pub(crate) async fn number(&mut self) -> i32 {
        self.line().await.parse().expect("a number")
    }

    /// The next line of what it says of itself, which is an event.
    pub(crate) async fn event(&mut self) -> serde_json::Value {
        let mut line = Vec::new();
        let errors = self.child.stderr.as_mut().expect("piped");
        // Byte by byte, so that what follows the line is left for the next one.
        let read = async {
            while line.last() != Some(&b'\n') {
                line.push(errors.read_u8().await.expect("an event"));
            }
        };
        within(LIMIT, "an event", read).await;
        serde_json::from_slice(&line)
            .unwrap_or_else(|_| panic!("no event: {}", String::from_utf8_lossy(&line)))
    }

    /// Waits for an event of this kind.
    pub(crate) async fn event_named(&mut self, name: &str) -> serde_json::Value {
        loop {
            let event = self.event().await;
            if event["event"] == name {
                return event;
            }
            assert!(event["event"] != "exited" && event["event"] != "error", "before {name}: {event}");
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it runs");
    }

    pub(crate) async fn write(&mut self, text: &str) {
        self.input.as_mut().expect("open").write_all(text.as_bytes()).await.expect("read");
    }

    /// Its input ends.
    pub(crate) fn close(&mut self) {
        self.input.take();
    }

    /// Nobody listens any more to what it says.
    pub(crate) fn stop_listening(&mut self) {
        self.child.stderr.take();
    }

    /// Its exit code, while nobody reads what it says.
    pub(crate) async fn code_unread(mut self) -> i32 {
        let status = within(LIMIT, "the end of the program", self.child.wait()).await.expect("an end");
        status.code().expect("not ended by a signal")
    }

    /// Its exit code.
    pub(crate) async fn code(self) -> i32 {
        self.finish().await.0
    }

    /// Its exit code, and what it said of itself.
    pub(crate) async fn finish(self) -> (i32, String) {
        let output = self.output().await;
        (
            output.status.code().expect("not ended by a signal"),
            String::from_utf8(output.stderr).expect("text"),
        )
    }

    /// All that it says until its end.
    pub(crate) async fn output(mut self) -> Output {
        self.close();
        let mut stdout = Vec::new();
        let ended = async {
            let (read, output) =
                tokio::join!(self.output.read_to_end(&mut stdout), self.child.wait_with_output());
            read.expect("output");
            output.expect("an end")
        };
        let output = within(LIMIT, "the end of the program", ended).await;
        Output { stdout, ..output }
    }
}

/// How long after `earlier` an event was.
pub(crate) fn between(earlier: &serde_json::Value, event: &serde_json::Value) -> Duration {
    let time = |event: &serde_json::Value| event["time"].as_u64().expect("a time");
    Duration::from_millis(time(event) - time(earlier))
}

/// Whether a process can still execute code: it runs, and was neither stopped nor killed. A machine that is busy may take a
/// while to end a process that was killed, and lets it execute nothing before that.
pub(crate) fn can_act(pid: i32) -> bool {
    const KILL_OR_STOP: u64 = 1 << (9 - 1) | 1 << (19 - 1);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    let is_pending = |name| u64::from_str_radix(field(name), 16).is_ok_and(|bits| bits & KILL_OR_STOP != 0);
    field("State:").starts_with(['R', 'S', 'D']) && !is_pending("SigPnd:") && !is_pending("ShdPnd:")
}

/// Whether a process runs; one that has ended and that nobody has waited for does not.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}
