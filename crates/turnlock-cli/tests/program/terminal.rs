//! A program on a terminal.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};
use turnlock_testkit::within;

use crate::rig::Rig;

/// How long a program may take for what it is asked.
const LIMIT: Duration = Duration::from_secs(60);

/// The program on a terminal of its own, which `script` makes.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    seen: String,
}

/// Why there is no terminal on this machine.
pub(crate) fn missing() -> Option<String> {
    match Command::new("script").arg("--version").output() {
        Ok(output) if output.status.success() => None,
        _ => Some("`script` cannot be run".to_owned()),
    }
}

impl Terminal {
    /// `turnlock run WORDS…` on a terminal.
    pub(crate) fn start(rig: &Rig, words: &[&str]) -> Self {
        let program = rig.command(words);
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
        command.env("TURNLOCK_STORE", &rig.url).env("SHELL", "/bin/sh");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("a terminal");
        let (keys, screen) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, keys, screen, seen: String::new() }
    }

    pub(crate) async fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.expect("a terminal");
    }

    /// Waits until this was written, and gives back all that was.
    pub(crate) async fn shows(&mut self, text: &str) -> &str {
        let what = format!("{text:?} on the terminal");
        let read = async {
            let mut part = [0; 1024];
            while !self.seen.contains(text) {
                let length = self.screen.read(&mut part).await.expect("a terminal");
                assert_ne!(length, 0, "no {text:?} in {:?}", self.seen);
                self.seen.push_str(&String::from_utf8_lossy(&part[..length]));
            }
        };
        within(LIMIT, &what, read).await;
        &self.seen
    }

    pub(crate) async fn code(mut self) -> i32 {
        let status = within(LIMIT, "the end of the program", self.child.wait()).await.expect("an end");
        status.code().expect("not ended by a signal")
    }
}

fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_str().expect("text").replace('\'', r"'\''"))
}
