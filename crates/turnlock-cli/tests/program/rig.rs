//! What one case has: a store, a name of its own, a directory, and the program.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::process::Command;
use turnlock::Client;
use turnlock_testkit::{RedisServer, TempDir};

use crate::program::Program;
use crate::store::Store;

pub(crate) struct Rig {
    /// The store, as the program takes it.
    pub(crate) url: String,
    /// A name that no other case uses.
    pub(crate) name: String,
    dir: TempDir,
    _server: Option<Arc<RedisServer>>,
}

impl Rig {
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

    /// The same on another store.
    pub(crate) fn on(mut self, url: String) -> Self {
        self.url = url;
        self
    }

    /// The same with time to connect: who waits for a short time only, or comes with many others, has less of it than a busy
    /// machine may take.
    pub(crate) fn patient(self) -> Self {
        if !self.url.starts_with("redis:") {
            return self;
        }
        let url = format!("{}?connect_timeout=1m", self.url);
        self.on(url)
    }

    /// A file for the case.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `turnlock WORDS…`, not yet started.
    pub(crate) fn turnlock(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnlock"));
        command.env_remove("TURNLOCK_PASSWORD").env("TURNLOCK_STORE", &self.url);
        command.args(words);
        command
    }

    /// `turnlock run WORDS…`, not yet started.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.turnlock(&[&["run"], words].concat())
    }

    /// `turnlock run FLAGS… NAME -- COMMAND…`, running.
    pub(crate) fn run(&self, flags: &[&str], command: &[&str]) -> Program {
        Program::start(self.command(&[flags, &[&self.name, "--"], command].concat()))
    }

    /// `turnlock run FLAGS… NAME -- sh -c SCRIPT`, running.
    pub(crate) fn script(&self, flags: &[&str], script: &str) -> Program {
        self.run(flags, &["sh", "-c", script])
    }

    /// One that has the lock until its input is closed.
    pub(crate) async fn hold(&self, flags: &[&str]) -> Program {
        let mut holder = self.script(flags, "echo held; exec cat");
        holder.expect("held").await;
        holder
    }

    /// The library on the same store.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url).await.expect("the store")
    }

    /// Whether the lock can be had now, by one who asks for it in this way.
    pub(crate) async fn is_free(&self, flags: &[&str]) -> bool {
        match self.run(&[&["-n", "-E", "99"], flags].concat(), &["true"]).code().await {
            0 => true,
            99 => false,
            other => panic!("an attempt ended with {other}"),
        }
    }
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
