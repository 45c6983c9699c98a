//! The program on a terminal.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use turnlock_testkit::within;

use crate::fixture::Fixture;

/// Time limit of each step.
const LIMIT: Duration = Duration::from_secs(60);

/// The program on a terminal that `script` provides.
pub(crate) struct Terminal {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    text: String,
}

/// Why a terminal is not available on this machine, if it is not.
pub(crate) fn missing() -> Option<String> {
    match Command::new("script").arg("--version").output() {
        Ok(output) if output.status.success() => None,
        _ => Some("`script` cannot be run".to_owned()),
    }
}

impl Terminal {
    /// Starts `turnlock run ARGUMENTS…` on a terminal.
    pub(crate) fn start(fixture: &Fixture, arguments: &[&str]) -> Self {
        Self::run(fixture, &fixture.command(arguments))
    }

    /// Starts a command line on a terminal.
    pub(crate) fn run(fixture: &Fixture, program: &tokio::process::Command) -> Self {
        let program = program.as_std();
        let line: Vec<String> =
            [program.get_program()].into_iter().chain(program.get_args()).map(quoted).collect();
        let mut command = tokio::process::Command::new("script");
        command.args([
            "-q",
            "-e",
            "-f",
            "-c",
            &format!("stty rows 50 cols 200; exec {}", line.join(" ")),
            "/dev/null",
        ]);
        command.env("TURNLOCK_STORE", &fixture.url).env("SHELL", "/bin/sh");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("a terminal");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output, text: String::new() }
    }

    pub(crate) async fn press(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).await.expect("a terminal");
    }

    /// Waits until the output contains this text, and returns all output so far.
    pub(crate) async fn shows(&mut self, text: &str) -> &str {
        let what = format!("{text:?} on the terminal");
        let read = async {
            let mut part = [0; 1024];
            while !self.text.contains(text) {
                let length = self.output.read(&mut part).await.expect("a terminal");
                assert_ne!(length, 0, "no {text:?} in {:?}", self.text);
                self.text.push_str(&String::from_utf8_lossy(&part[..length]));
            }
        };
        within(LIMIT, &what, read).await;
        &self.text
    }

    /// Waits for the end, and returns the output that no other call has returned.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        within(LIMIT, "the program exits", self.output.read_to_end(&mut rest)).await.expect("a terminal");
        String::from_utf8_lossy(&rest).into_owned()
    }

    pub(crate) async fn code(mut self) -> i32 {
        let status = within(LIMIT, "the program exits", self.child.wait()).await.expect("an exit status");
        status.code().expect("not ended by a signal")
    }
}

fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_str().expect("text").replace('\'', r"'\''"))
}
