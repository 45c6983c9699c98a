//! What a server is started with.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::{Login, ServerProgram, clock_shim};

/// The name of the file that says how far a server's own clock is ahead.
const CLOCK: &str = "clock";

/// Everything about a server that stays the same over its restarts, except where it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerPlan {
    pub(crate) program: ServerProgram,
    /// Arguments after the usual ones.
    pub(crate) args: Vec<String>,
    /// How many seconds its wall clock is ahead of this machine's, if it has a clock of its own, which can be set.
    pub(crate) clock_ahead: Option<i64>,
    /// Lines of the configuration file: what cannot be an argument.
    pub(crate) lines: Vec<String>,
    /// The argument that takes a second port, if the server needs one.
    pub(crate) second_port: Option<&'static str>,
    /// Who may use it; everybody when there is none.
    pub(crate) login: Option<Login>,
    /// Whether it watches over other servers, and keeps no data itself.
    pub(crate) is_sentinel: bool,
}

impl ServerPlan {
    pub(crate) fn with_args<S: ToString>(args: &[S]) -> Self {
        Self { args: args.iter().map(ToString::to_string).collect(), ..Self::default() }
    }

    /// The command that runs it in `dir`, where its configuration is written anew: a server may have changed its own.
    pub(crate) fn command(&self, dir: &Path, port: u16, second_port: u16) -> Command {
        let mut lines = self.lines.clone();
        lines.extend(self.login.iter().flat_map(Login::lines));
        let program = self.program.path();
        let mut command = Command::new(program.unwrap_or_else(|reason| panic!("no server: {reason}")));
        if self.is_sentinel || !lines.is_empty() {
            let file = dir.join("server.conf");
            fs::write(&file, lines.join("\n") + "\n").expect("the server's configuration can be written");
            command.arg(file);
        }
        if self.is_sentinel {
            command.arg("--sentinel");
        }
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"])
            .arg(dir);
        if let Some(argument) = self.second_port {
            command.args([argument, &second_port.to_string()]);
        }
        command.args(&self.args);
        if let Some(seconds) = self.clock_ahead {
            Self::set_clock(dir, seconds);
            command.env("LD_PRELOAD", clock_shim::library());
            command.env(clock_shim::STEP_VARIABLE, dir.join(CLOCK));
        }
        command
    }

    /// Sets the clock of the server that runs in `dir`, if it has one of its own, so many seconds ahead of this machine's.
    pub(crate) fn set_clock(dir: &Path, seconds: i64) {
        // Written in place, since the server has mapped it.
        let file = fs::File::options().create(true).truncate(false).write(true).open(dir.join(CLOCK));
        let written = file.and_then(|mut file| file.write_all(&seconds.to_ne_bytes()));
        written.expect("the server's clock can be set");
    }
}
