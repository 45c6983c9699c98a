//! node-redlock, in a Node process.

use std::path::PathBuf;
use std::process::Command;

use super::PeerThread;
use super::driver::Driver;
use crate::servers::build_cache::{Recipe, build_project};

/// A Node process with one client of node-redlock, for one server. Dropping it kills the process.
#[derive(Debug)]
pub struct NodeRedlock {
    driver: Driver,
}

impl NodeRedlock {
    /// Returns the reason why node-redlock cannot run on this machine; `None` if it can.
    ///
    /// The first call on a machine downloads.
    pub fn missing() -> Option<String> {
        built().err()
    }

    /// Starts a client of a server (`redis://host:port`) and returns once it is connected.
    pub async fn start(url: &str) -> Self {
        let dir = built().unwrap_or_else(|reason| panic!("no node-redlock: {reason}"));
        let mut command = Command::new("node");
        command.args(["driver.js", url]).current_dir(dir);
        Self { driver: Driver::start(&mut command).await }
    }

    /// Returns the equivalent of a named thread in Node: it owns locks, and runs its calls in order.
    pub fn thread(&self, name: &str) -> PeerThread {
        self.driver.thread(name)
    }

    /// Returns the id of the process. Panics after [`kill`](Self::kill).
    pub fn pid(&self) -> u32 {
        self.driver.pid()
    }

    /// Kills the process (SIGKILL) and returns once it has exited.
    pub async fn kill(&mut self) {
        self.driver.kill().await;
    }
}

fn built() -> Result<PathBuf, String> {
    build_project(&Recipe {
        name: "redlock",
        folder: "redlock",
        tools: &[["node", "--version"]],
        command: &["npm", "ci", "--loglevel=error"],
    })
}
