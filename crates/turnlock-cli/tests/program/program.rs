//! A running program and its output.

use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use turnlock_testkit::within;

/// Time limit of each step.
const LIMIT: Duration = Duration::from_secs(60);

/// A running program. It is killed on drop, and its command with it.
pub(crate) struct Program {
    child: Child,
    pub(crate) pid: Pid,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the program starts");
        let pid =
            Pid::from_raw(child.id().expect("running").try_into().expect("a number")).expect("not zero");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { pid, input: child.stdin.take(), output, child }
    }

    /// The next line of standard output.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        within(LIMIT, "a line of output", self.output.read_line(&mut line)).await.expect("text");
        if line.is_empty() {
            let mut text = String::new();
            let stderr = self.child.stderr.as_mut().expect("piped");
            let _ = stderr.read_to_string(&mut text).await;
            panic!("the program has exited ({:?}): {text}", self.child.wait().await);
        }
        line.trim_end().to_owned()
    }

    pub(crate) async fn expect(&mut self, line: &str) {
        assert_eq!(self.line().await, line);
    }

    /// The next line of standard output, as a number.
    pub(crate) async fn number(&mut self) -> i32 {
        self.line().await.parse().expect("a number")
    }

    /// The next line of standard error.
    pub(crate) async fn stderr_line(&mut self) -> String {
        let mut line = Vec::new();
        let stderr = self.child.stderr.as_mut().expect("piped");
        // Byte by byte, so that nothing after the line is consumed.
        let read = async {
            while line.last() != Some(&b'\n') {
                line.push(stderr.read_u8().await.expect("a line of standard error"));
            }
        };
        within(LIMIT, "a line of standard error", read).await;
        String::from_utf8(line).expect("text").trim_end().to_owned()
    }

    /// The next line of standard error, as an event.
    pub(crate) async fn event(&mut self) -> serde_json::Value {
        let line = self.stderr_line().await;
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not an event: {line}"))
    }

    /// Waits for an event of this name.
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
        kill_process(self.pid, signal).expect("a running process");
    }

    pub(crate) async fn write(&mut self, text: &str) {
        self.input.as_mut().expect("open").write_all(text.as_bytes()).await.expect("read");
    }

    /// Closes standard input.
    pub(crate) fn close(&mut self) {
        self.input.take();
    }

    /// Closes the reading end of standard error.
    pub(crate) fn close_stderr(&mut self) {
        self.child.stderr.take();
    }

    /// Waits for the exit code without reading standard error.
    pub(crate) async fn code_without_reading_stderr(mut self) -> i32 {
        let status = within(LIMIT, "the program exits", self.child.wait()).await.expect("an exit status");
        status.code().expect("not ended by a signal")
    }

    /// Waits for the exit code.
    pub(crate) async fn code(self) -> i32 {
        self.finish().await.0
    }

    /// Waits for the exit code and standard error.
    pub(crate) async fn finish(self) -> (i32, String) {
        let output = self.output().await;
        (
            output.status.code().expect("not ended by a signal"),
            String::from_utf8(output.stderr).expect("text"),
        )
    }

    /// Closes standard input, and waits for the end and all output.
    pub(crate) async fn output(mut self) -> Output {
        self.close();
        self.output_with_open_stdin().await
    }

    /// Waits for the end and all output. Standard input stays open until then.
    pub(crate) async fn output_with_open_stdin(mut self) -> Output {
        let _input = self.input.take();
        let mut stdout = Vec::new();
        let ended = async {
            let (read, output) =
                tokio::join!(self.output.read_to_end(&mut stdout), self.child.wait_with_output());
            read.expect("output");
            output.expect("an exit status")
        };
        let output = within(LIMIT, "the program exits", ended).await;
        Output { stdout, ..output }
    }
}

/// The time from `earlier` to `event`.
pub(crate) fn between(earlier: &serde_json::Value, event: &serde_json::Value) -> Duration {
    time_of(event).duration_since(time_of(earlier)).expect("in this order")
}

/// The time of an event.
pub(crate) fn time_of(event: &serde_json::Value) -> SystemTime {
    humantime::parse_rfc3339(event["time"].as_str().expect("a time")).expect("a time in RFC 3339")
}

/// Returns `true` if the process can still execute code: it is running, and neither stopped nor killed.
///
/// On a busy machine, a killed process may exist for a while, but it executes no more code.
pub(crate) fn can_execute(pid: i32) -> bool {
    const KILL_OR_STOP: u64 = 1 << (9 - 1) | 1 << (19 - 1);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    let is_pending = |name| u64::from_str_radix(field(name), 16).is_ok_and(|bits| bits & KILL_OR_STOP != 0);
    field("State:").starts_with(['R', 'S', 'D']) && !is_pending("SigPnd:") && !is_pending("ShdPnd:")
}

/// Returns `true` if the process is running. A zombie is not.
pub(crate) fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}
