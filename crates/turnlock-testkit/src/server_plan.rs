//! What a server is started with.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Login;

/// Everything about a server that stays the same over its restarts, except where it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerPlan {
    /// Arguments after the usual ones.
    pub(crate) args: Vec<String>,
    /// Variables of the process's environment.
    pub(crate) variables: Vec<(String, OsString)>,
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
        let mut command = Command::new("redis-server");
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
        command.args(&self.args).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}
