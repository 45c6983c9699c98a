//! A store in a file, on a small file system of its own where that is possible.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use turnlock::Client;
use turnlock_testkit::TempDir;

use super::shape::{Fault, Injection, Level, Shape};

/// The store, in a temporary directory.
pub(super) struct FileStore {
    // Dropped before the directory on which it is mounted.
    disk: Result<SmallDisk, String>,
    dir: TempDir,
    level: Level,
}

/// A file system in memory, unmounted on drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Result<Self, String> {
        let at = at.to_owned();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m,mode=0700", "turnlock-campaign"]).arg(&at);
        run(&mut mount).map(|()| Self(at)).map_err(|error| format!("no file system of its own: {error:#}"))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Twice, if a fault made it read-only and did not end.
        while run(Command::new("umount").arg("--lazy").arg(&self.0)).is_ok() {}
    }
}

/// Runs a program. Its error output is the error.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{}", error.lines().next().unwrap_or_default());
    Ok(())
}

/// What the `sqlite3` shell prints when it has executed the statements before.
const EXECUTED: &str = "executed";
const FILLING: &str = "filling";
const LOSING: [&str; 4] = ["remove_presence", "remove_clients", "remove_database", "replace_database"];

impl FileStore {
    pub(super) fn start(level: Level) -> Self {
        let dir = TempDir::new();
        Self { disk: SmallDisk::mount(dir.path()), dir, level }
    }

    fn url(&self) -> String {
        format!("file:{}", self.path("locks").display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Fills the disk until nothing fits any more.
    fn fill(&self) -> anyhow::Result<()> {
        let mut file = fs::File::create(self.path(FILLING))?;
        // Each smaller piece fits a smaller rest.
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(())
    }

    /// Removes what a client has in the directory of the clients: its pipe, or the file that shows that it is alive.
    fn remove_of_client(&self, is_pipe: bool, rng: &mut Rng) -> anyhow::Result<String> {
        let mut found: Vec<_> = fs::read_dir(self.path("locks.clients"))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some() == is_pipe)
            .collect();
        found.sort();
        let path = rng.choice(&found).context("no client")?;
        fs::remove_file(path)?;
        Ok(path.file_name().unwrap_or_default().to_string_lossy().into_owned())
    }

    /// Moves the database away, or removes it. What is open stays open.
    fn remove_database(&self) -> anyhow::Result<()> {
        for name in ["locks", "locks-wal", "locks-shm"] {
            let outcome = fs::remove_file(self.path(name));
            outcome.or_else(|error| {
                if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
            })?;
        }
        Ok(())
    }

    /// Runs statements with the `sqlite3` shell, and ends it after the fault, which begins when they have been executed.
    async fn with_sqlite(&self, statements: &str, fault: &mut Injection<'_>) -> anyhow::Result<()> {
        let mut shell = tokio::process::Command::new("sqlite3")
            .arg("-bail")
            .arg(self.path("locks"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = shell.stdin.take().context("a pipe")?;
        let input = format!("PRAGMA busy_timeout = 5000;\n{statements}\nSELECT '{EXECUTED}';\n");
        stdin.write_all(input.as_bytes()).await?;
        let mut lines = BufReader::new(shell.stdout.take().context("a pipe")?).lines();
        while let Some(line) = lines.next_line().await? {
            if line == EXECUTED {
                fault.begin("");
                fault.last().await;
                break;
            }
        }
        drop(stdin);
        let output = shell.wait_with_output().await?;
        let error = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "sqlite3: {}: {}", output.status, error.trim());
        Ok(())
    }

    async fn inject_one(&mut self, fault: &mut Injection<'_>) -> anyhow::Result<()> {
        match fault.name {
            "full_disk" => {
                fault.begin("");
                self.fill()?;
                fault.last().await;
                fs::remove_file(self.path(FILLING))?;
            }
            // For processes that open the store meanwhile. Those that have it open go on.
            "read_only" => {
                let dir = self.dir.path();
                run(Command::new("mount").arg("--bind").arg(dir).arg(dir))?;
                let outcome = run(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(dir));
                if outcome.is_ok() {
                    fault.begin("");
                    fault.last().await;
                }
                run(Command::new("umount").arg("--lazy").arg(dir))?;
                outcome?;
            }
            "busy_file" => self.with_sqlite("BEGIN IMMEDIATE;", fault).await?,
            "long_reader" => self.with_sqlite("BEGIN; SELECT count(*) FROM items;", fault).await?,
            "checkpoint" => self.with_sqlite("PRAGMA wal_checkpoint(TRUNCATE);", fault).await?,
            "remove_pipe" | "remove_presence" => {
                let removed = self.remove_of_client(fault.name == "remove_pipe", fault.rng)?;
                fault.begin(&removed);
            }
            "remove_clients" => {
                fault.begin("");
                fs::remove_dir_all(self.path("locks.clients"))?;
            }
            "remove_database" => {
                fault.begin("");
                self.remove_database()?;
            }
            _ => {
                fault.begin("");
                // A copy without its log is an older state.
                fs::copy(self.path("locks"), self.path("copy"))?;
                self.remove_database()?;
                fs::rename(self.path("copy"), self.path("locks"))?;
            }
        }
        Ok(())
    }

    /// Locks that are held or have a queue.
    async fn find(&self) -> anyhow::Result<Vec<String>> {
        let client = Client::connect(&self.url()).await?;
        let found = client.find("*", 10_000).await?;
        anyhow::ensure!(found.is_complete, "too many names");
        let held = found.items.iter().filter(|item| !item.holders.is_empty() || !item.queue.is_empty());
        Ok(held.map(|item| format!("{}: {:?} {:?}", item.name, item.holders, item.queue)).collect())
    }
}

impl Shape for FileStore {
    fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }

    fn faults(&self) -> Vec<Fault> {
        let disk = self.disk.as_ref().err().cloned();
        let shell = run(Command::new("sqlite3").arg("--version")).err();
        let shell = shell.map(|error| format!("no sqlite3: {error:#}"));
        let with = |names: &[&'static str], missing: &Option<String>| {
            names.iter().map(|name| Fault { name, missing: missing.clone() }).collect::<Vec<_>>()
        };
        let mut faults = with(&["full_disk", "read_only"], &disk);
        faults.extend(with(&["busy_file", "long_reader", "checkpoint"], &shell));
        faults.extend(Fault::all(&["remove_pipe"]));
        if self.level == Level::All {
            faults.extend(Fault::all(&LOSING));
        }
        faults
    }

    fn inject<'a>(&'a mut self, fault: &'a mut Injection<'_>) -> BoxFuture<'a, anyhow::Result<()>> {
        self.inject_one(fault).boxed()
    }

    fn heal(&mut self) -> BoxFuture<'_, anyhow::Result<()>> {
        async {
            let filling = self.path(FILLING);
            if filling.exists() {
                fs::remove_file(filling)?;
            }
            Ok(())
        }
        .boxed()
    }

    fn left(&self) -> BoxFuture<'_, anyhow::Result<Vec<String>>> {
        self.find().boxed()
    }
}
