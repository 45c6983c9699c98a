//! The real Redisson, in a Java process.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::driver::Driver;
use super::workshop::{Recipe, project};
use super::{PeerError, PeerThread};
use crate::clock_shim;

/// What Redisson has by itself.
const WATCHDOG: Duration = Duration::from_secs(30);
/// A JVM that starts quickly and stays small, since it works for a few seconds.
const JVM: &[&str] = &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m"];

/// A Java process with one client of Redisson. Dropping it kills the process.
#[derive(Debug)]
pub struct Redisson {
    driver: Driver,
}

impl Redisson {
    /// The versions that tests run with: the newest, and the oldest that is still in wide use.
    pub const VERSIONS: [&str; 2] = ["4.7.0", "3.50.0"];

    /// Why this version cannot be run on this machine, or `None` when it can.
    ///
    /// The first asking on a machine downloads and compiles.
    pub fn missing(version: &str) -> Option<String> {
        built(version).err()
    }

    /// Starts a client and returns once it is connected: to a server (`redis://host:port`), to the master that sentinels
    /// name, or to a cluster, by the addresses that [`SentinelSet`](crate::SentinelSet) and
    /// [`ClusterSet`](crate::ClusterSet) have. It has Redisson's own defaults, but few connections.
    pub async fn start(version: &str, url: &str) -> Self {
        Self::start_with(version, url, WATCHDOG, 0).await
    }

    /// Starts a client whose watchdog has the given timeout, and renews every third of it, in a process whose wall
    /// clock is some seconds ahead of this machine's, or behind it.
    ///
    /// Where [`RedisServer::clock_shift_missing`](crate::RedisServer::clock_shift_missing) has a reason, the clock
    /// must be 0 s ahead.
    pub async fn start_with(version: &str, url: &str, watchdog: Duration, clock_ahead_seconds: i64) -> Self {
        let dir = built(version).unwrap_or_else(|reason| panic!("no Redisson {version}: {reason}"));
        let mut command = Command::new("java");
        command
            .args(JVM)
            .args(["-cp", "target/classes:target/lib/*", "turnlock.interop.Main", url])
            .arg(watchdog.as_millis().to_string())
            .current_dir(dir);
        if clock_ahead_seconds != 0 {
            command.env("LD_PRELOAD", clock_shim::library());
            command.env(clock_shim::VARIABLE, clock_ahead_seconds.to_string());
        }
        Self { driver: Driver::start(&mut command).await }
    }

    /// A Java thread by name: an owner of locks.
    pub fn thread(&self, name: &str) -> PeerThread {
        self.driver.thread(name)
    }

    /// The owner id of a Java thread, `<uuid>:<thread id>`, also while it is blocked.
    pub async fn owner(&self, thread: &str) -> String {
        self.at_once(thread, "me").await.expect("the client has an id")
    }

    /// Interrupts a Java thread.
    pub async fn interrupt(&self, thread: &str) {
        self.at_once(thread, "interrupt").await.expect("a thread can be interrupted");
    }

    /// The wall clock of the Java process, in milliseconds since 1970.
    pub async fn now(&self) -> i64 {
        self.at_once("clock", "now").await.expect("a clock").parse().expect("a number")
    }

    async fn at_once(&self, thread: &str, request: &str) -> Result<String, PeerError> {
        self.thread(thread).call(request).await
    }

    /// The id of the process. Panics once it was killed.
    pub fn pid(&self) -> u32 {
        self.driver.pid()
    }

    /// Kills the process (SIGKILL) and returns once it has ended. Open calls answer [`PeerError::ENDED`].
    pub async fn kill(&mut self) {
        self.driver.kill().await;
    }
}

fn built(version: &str) -> Result<PathBuf, String> {
    project(&Recipe {
        name: &format!("redisson-{version}"),
        folder: "redisson",
        tools: &[["java", "-version"]],
        command: &["mvn", "-q", "-B", "compile", &format!("-Dredisson.version={version}")],
    })
}
