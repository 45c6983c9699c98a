//! redis-py's lock, in a Python process.

use std::path::PathBuf;
use std::process::Command;

use super::PeerThread;
use super::driver::Driver;
use super::workshop::{Recipe, project};

/// Where pip puts what it installs, beside the program.
const PACKAGES: &str = "packages";

/// A Python process with one client of redis-py. Dropping it kills the process.
#[derive(Debug)]
pub struct PyLock {
    driver: Driver,
}

impl PyLock {
    /// Why redis-py cannot be run on this machine, or `None` when it can.
    ///
    /// The first asking on a machine downloads.
    pub fn missing() -> Option<String> {
        built().err()
    }

    /// Starts a client of a server (`redis://host:port`) and returns once it is connected.
    pub async fn start(url: &str) -> Self {
        let dir = built().unwrap_or_else(|reason| panic!("no redis-py: {reason}"));
        let mut command = Command::new("python3");
        command.args(["driver.py", url]).env("PYTHONPATH", dir.join(PACKAGES)).current_dir(dir);
        Self { driver: Driver::start(&mut command).await }
    }

    /// A Python thread by name: an owner of locks.
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
    let install = ["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let what = ["--require-hashes", "--target", PACKAGES, "-r", "requirements.txt"];
    project(&Recipe {
        name: "redis-py",
        folder: "redis-py",
        tools: &[["python3", "--version"]],
        command: &[install.as_slice(), &what].concat(),
    })
}
