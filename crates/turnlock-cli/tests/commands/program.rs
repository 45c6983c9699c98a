use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use turnlock_testkit::within;

/// Time limit of a run.
const LIMIT: Duration = Duration::from_secs(60);

/// The program under test, not started yet.
#[derive(Debug)]
pub(crate) struct Program(Command);

/// The exit code and output of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Program {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        Self::of(env!("CARGO_BIN_EXE_turnlock"), arguments)
    }

    /// The program in name spaces of its own, which give it this host name and process id. Needs root.
    pub(crate) fn on_machine(host: &str, pid: u32, arguments: &[&str]) -> Self {
        let script = "echo \"$0\" >/proc/sys/kernel/hostname; echo \"$1\" >/proc/sys/kernel/ns_last_pid; shift; \"$@\"; exit $?";
        let last_pid = (pid - 1).to_string();
        let namespaces = ["--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script];
        let program = [host, &last_pid, env!("CARGO_BIN_EXE_turnlock")];
        Self::of("unshare", &[&namespaces[..], &program, arguments].concat())
    }

    /// Another program, in the environment of the program under test.
    pub(crate) fn of(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).kill_on_drop(true).stdin(Stdio::null());
        for variable in
            ["TURNLOCK_STORE", "TURNLOCK_PASSWORD", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"]
        {
            command.env_remove(variable);
        }
        command.env("TERM", "xterm");
        Self(command)
    }

    /// Adds an argument of any bytes.
    pub(crate) fn with_argument(mut self, argument: &OsStr) -> Self {
        self.0.arg(argument);
        self
    }

    pub(crate) fn with_env(mut self, variable: &str, value: &str) -> Self {
        self.0.env(variable, value);
        self
    }

    /// Starts it in a process group of its own, so that it can stop its group.
    pub(crate) fn in_own_group(mut self) -> Self {
        self.0.process_group(0);
        self
    }

    pub(crate) fn in_directory(mut self, directory: &Path) -> Self {
        self.0.current_dir(directory);
        self
    }

    pub(crate) fn with_stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.0.stdin(stdin);
        self
    }

    pub(crate) fn printing_to(mut self, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Self {
        self.0.stdout(stdout).stderr(stderr);
        self
    }

    pub(crate) fn start(mut self) -> Child {
        self.0.spawn().unwrap()
    }

    /// Runs the program to its end.
    pub(crate) async fn run(self) -> Ended {
        let child = self.printing_to(Stdio::piped(), Stdio::piped()).start();
        let output = within(LIMIT, "the program ends", child.wait_with_output()).await.unwrap();
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Sends a signal; `signal` is an option of `kill`.
pub(crate) async fn signal(child: &Child, signal: &str) {
    let id = child.id().expect("a running process").to_string();
    let status = Command::new("kill").args([signal, &id]).status().await;
    assert!(status.unwrap().success());
}

/// Waits for the end of the process and returns its exit code.
pub(crate) async fn code_of(mut child: Child) -> Option<i32> {
    within(LIMIT, "the program ends", child.wait()).await.unwrap().code()
}
