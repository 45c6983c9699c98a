//! The real Redisson, in a Java process.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::driver::Driver;
use super::{PeerError, PeerThread};
use crate::servers::build_cache::{Recipe, build_project};
use crate::servers::clock_shim;

/// Redisson's default.
const WATCHDOG: Duration = Duration::from_secs(30);
/// Options for a JVM that starts quickly and needs little memory.
const JVM: &[&str] = &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m"];

/// A Java process with one client of Redisson. Dropping it kills the process.
#[derive(Debug)]
pub struct Redisson {
    driver: Driver,
}

impl Redisson {
    /// The versions in the tests: the newest, and the oldest that is still in wide use.
    pub const VERSIONS: [&str; 2] = ["4.7.0", "3.50.0"];

    /// Returns the reason why this version cannot run on this machine; `None` if it can.
    ///
    /// The first call on a machine downloads and compiles.
    pub fn missing(version: &str) -> Option<String> {
        built(version).err()
    }

    /// Returns the path of the jar of this version. Panics if it is [missing](Self::missing).
    pub fn jar(version: &str) -> PathBuf {
        let dir = built(version).unwrap_or_else(|reason| panic!("no Redisson {version}: {reason}"));
        dir.join("target/lib").join(format!("redisson-{version}.jar"))
    }

    /// Starts a client with Redisson's defaults, but few connections.
    ///
    /// Returns once it is connected. The URL is that of a server (`redis://host:port`), of a
    /// [`SentinelSet`](crate::SentinelSet) or of a [`ClusterSet`](crate::ClusterSet).
    pub async fn start(version: &str, url: &str) -> Self {
        Self::start_with(version, url, WATCHDOG, 0).await
    }

    /// Starts a client with this watchdog time-out and a shifted wall clock.
    ///
    /// The watchdog renews every third of its time-out. The clock is ahead of this machine's, or behind it if
    /// negative. If [`RedisServer::clock_shift_missing`](crate::RedisServer::clock_shift_missing) returns a
    /// reason, it must be 0.
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

    /// Returns a named Java thread, which owns locks.
    pub fn thread(&self, name: &str) -> PeerThread {
        self.driver.thread(name)
    }

    /// Returns the owner id of a Java thread, `<uuid>:<thread id>`. Works while it is blocked.
    pub async fn owner(&self, thread: &str) -> String {
        self.call(thread, "me").await.expect("the client has an id")
    }

    /// Interrupts a Java thread.
    pub async fn interrupt(&self, thread: &str) {
        self.call(thread, "interrupt").await.expect("a thread can be interrupted");
    }

    /// Returns the wall clock of the Java process, in milliseconds since 1970.
    pub async fn now(&self) -> i64 {
        self.call("clock", "now").await.expect("a clock").parse().expect("a number")
    }

    async fn call(&self, thread: &str, request: &str) -> Result<String, PeerError> {
        self.thread(thread).call(request).await
    }

    /// Returns the id of the process. Panics after [`kill`](Self::kill).
    pub fn pid(&self) -> u32 {
        self.driver.pid()
    }

    /// Kills the process (SIGKILL) and returns once it has exited.
    ///
    /// Open calls fail with [`PeerError::ENDED`].
    pub async fn kill(&mut self) {
        self.driver.kill().await;
    }
}

fn built(version: &str) -> Result<PathBuf, String> {
    build_project(&Recipe {
        name: &format!("redisson-{version}"),
        folder: "redisson",
        tools: &[["java", "-version"]],
        command: &["mvn", "-q", "-B", "compile", &format!("-Dredisson.version={version}")],
    })
}
