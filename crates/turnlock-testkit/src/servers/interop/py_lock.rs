//! redis-py's lock, in a Python process.

use std::path::PathBuf;
use std::process::Command;

use super::PeerThread;
use super::driver::Driver;
use crate::servers::build_cache::{Recipe, build_project};

/// The directory for what pip installs, beside the program.
const PACKAGES: &str = "packages";

/// A Python process with one client of redis-py. Dropping it kills the process.
#[derive(Debug)]
pub struct PyLock {
    driver: Driver,
}

impl PyLock {
    /// Returns the reason why redis-py cannot run on this machine; `None` if it can.
    ///
    /// The first call on a machine downloads.
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

    /// Returns a named Python thread, which owns locks.
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
    let install = ["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let packages = ["--require-hashes", "--target", PACKAGES, "-r", "requirements.txt"];
    build_project(&Recipe {
        name: "redis-py",
        folder: "redis-py",
        tools: &[["python3", "--version"]],
        command: &[install.as_slice(), &packages].concat(),
    })
}
