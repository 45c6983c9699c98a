//! node-redlock, in a Node process.

use std::path::PathBuf;
use std::process::Command;

use super::PeerThread;
use super::driver::Driver;
use super::workshop::{Recipe, project};

/// A Node process with one client of node-redlock, for one server. Dropping it kills the process.
#[derive(Debug)]
pub struct NodeRedlock {
    driver: Driver,
}

impl NodeRedlock {
    /// Why node-redlock cannot be run on this machine, or `None` when it can.
    ///
    /// The first asking on a machine downloads.
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

    /// What stands for a thread in Node, by name: it has locks of its own, and does one thing after the other.
    pub fn thread(&self, name: &str) -> PeerThread {
        self.driver.thread(name)
    }

    /// The id of the process. Panics once it was killed.
    pub fn pid(&self) -> u32 {
        self.driver.pid()
    }

    /// Kills the process (SIGKILL) and returns once it has ended.
    pub async fn kill(&mut self) {
        self.driver.kill().await;
    }
}

fn built() -> Result<PathBuf, String> {
    project(&Recipe {
        name: "redlock",
        folder: "redlock",
        tools: &[["node", "--version"]],
        command: &["npm", "ci", "--loglevel=error"],
    })
}
