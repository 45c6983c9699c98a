//! The fixture of one case: a store, a lock name of its own, a directory, and the program.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::process::Command;
use turnlock::Client;
use turnlock_testkit::{RedisServer, TempDir};

use crate::program::Program;
use crate::store::Store;

pub(crate) struct Fixture {
    /// URL of the store.
    pub(crate) url: String,
    /// A name that no other case uses.
    pub(crate) name: String,
    dir: TempDir,
    _server: Option<Arc<RedisServer>>,
}

impl Fixture {
    pub(crate) async fn new(store: Store) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("case-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = TempDir::new();
        let server = store.server().await;
        let url = match &server {
            Some(server) => server.url(),
            None => format!("file:{}", dir.path().join("locks").display()),
        };
        Self { url, name, dir, _server: server }
    }

    /// Switches to another store.
    pub(crate) fn on(mut self, url: String) -> Self {
        self.url = url;
        self
    }

    /// Sets a connect time-out of a minute.
    ///
    /// The default is too short on a busy machine for a run with a short `--wait`, or for many runs at once.
    pub(crate) fn with_long_connect_timeout(self) -> Self {
        if !self.url.starts_with("redis:") {
            return self;
        }
        let url = format!("{}?connect_timeout=1m", self.url);
        self.on(url)
    }

    /// The path of a file in the directory of the case.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `turnlock ARGUMENTS…`, not started yet.
    pub(crate) fn turnlock(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnlock"));
        command.env_remove("TURNLOCK_PASSWORD").env("TURNLOCK_STORE", &self.url);
        command.args(arguments);
        command
    }

    /// `turnlock run ARGUMENTS…`, not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.turnlock(&[&["run"], arguments].concat())
    }

    /// `turnlock run FLAGS… NAME -- COMMAND…`, started.
    pub(crate) fn run(&self, flags: &[&str], command: &[&str]) -> Program {
        Program::start(self.command(&[flags, &[&self.name, "--"], command].concat()))
    }

    /// `turnlock run FLAGS… NAME -- sh -c SCRIPT`, started.
    pub(crate) fn script(&self, flags: &[&str], script: &str) -> Program {
        self.run(flags, &["sh", "-c", script])
    }

    /// Starts a run that holds the lock until its input is closed.
    pub(crate) async fn hold(&self, flags: &[&str]) -> Program {
        let mut holder = self.script(flags, "echo held; exec cat");
        holder.expect("held").await;
        holder
    }

    /// `turnlock hold FLAGS… NAME`, not started yet.
    pub(crate) fn hold_command(&self, flags: &[&str]) -> Command {
        self.turnlock(&[&["hold"], flags, &[&self.name]].concat())
    }

    /// `sh`, or another shell, with this script, not started yet. `turnlock` is in its path.
    pub(crate) fn shell(&self, shell: &str, script: &str) -> Command {
        let directory = Path::new(env!("CARGO_BIN_EXE_turnlock")).parent().expect("a directory");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(shell);
        command.args(["-c", script]).current_dir(self.dir.path());
        command.env("PATH", format!("{}:{path}", directory.display()));
        command.env_remove("TURNLOCK_PASSWORD").env("TURNLOCK_STORE", &self.url).env("NAME", &self.name);
        command
    }

    /// Connects a client of the library to the store.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url).await.expect("the store")
    }

    /// Returns `true` if a run with these flags can acquire the lock now.
    pub(crate) async fn is_free(&self, flags: &[&str]) -> bool {
        match self.run(&[&["-n", "-E", "99"], flags].concat(), &["true"]).code().await {
            0 => true,
            99 => false,
            other => panic!("the run exited with {other}"),
        }
    }
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
