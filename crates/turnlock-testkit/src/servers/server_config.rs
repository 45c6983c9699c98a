//! The configuration of a server.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::clock_shim;
use crate::{Login, ServerProgram};

/// The name of the file with the shift of a server's clock.
const CLOCK: &str = "clock";

/// The configuration of a server over all its restarts, without its directory and ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerConfig {
    pub(crate) program: ServerProgram,
    /// Arguments after the default ones.
    pub(crate) args: Vec<String>,
    /// The shift of its wall clock in seconds; `None` for the machine's clock.
    pub(crate) clock_ahead: Option<i64>,
    /// Lines of the configuration file, for settings that cannot be arguments.
    pub(crate) lines: Vec<String>,
    /// The argument for a second port, if the server needs one.
    pub(crate) second_port: Option<&'static str>,
    /// The only user; `None` for a server without access control.
    pub(crate) login: Option<Login>,
    /// Whether it is a sentinel.
    pub(crate) is_sentinel: bool,
}

impl ServerConfig {
    pub(crate) fn with_args<S: ToString>(args: &[S]) -> Self {
        Self { args: args.iter().map(ToString::to_string).collect(), ..Self::default() }
    }

    /// Returns the command that runs the server in `dir`.
    ///
    /// Writes the configuration file again, since a server may have rewritten it.
    pub(crate) fn command(&self, dir: &Path, port: u16, second_port: u16) -> Command {
        let mut lines = self.lines.clone();
        lines.extend(self.login.iter().flat_map(Login::config_lines));
        let program = self.program.path();
        let mut command =
            Command::new(program.unwrap_or_else(|reason| panic!("no server program: {reason}")));
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

    /// Sets the clock of the server in `dir` to `seconds` ahead of this machine's.
    pub(crate) fn set_clock(dir: &Path, seconds: i64) {
        // Written in place: the server has mapped the file.
        let file = fs::File::options().create(true).truncate(false).write(true).open(dir.join(CLOCK));
        let written = file.and_then(|mut file| file.write_all(&seconds.to_ne_bytes()));
        written.expect("the server's clock can be set");
    }
}
