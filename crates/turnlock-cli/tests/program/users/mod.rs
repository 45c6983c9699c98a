//! Stores that several users of a machine use. The cases run the program as other users, so they need root.

mod file_errors;
mod group_store;
mod hostile_files;
mod system_store;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Output;

use libtest_mimic::Trial;
use rustix::process::geteuid;
use tokio::process::Command;
use turnlock_testkit::within;

use crate::fixture::{Fixture, ms};
use crate::program::Program;
use crate::store::Store;

/// A user by its numbers: no account is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    id: u32,
    group: u32,
}

/// The group that shares a store.
const GROUP: u32 = 47_000;
const ROOT: User = User { id: 0, group: 0 };
const ALICE: User = User { id: 47_001, group: GROUP };
const BOB: User = User { id: 47_002, group: GROUP };
/// Not in the group.
const CAROL: User = User { id: 47_003, group: 47_003 };

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |case, missing| crate::trial(Store::File, "users", case, missing);
    let mut trials = Vec::new();
    for cases in [group_store::CASES, hostile_files::CASES] {
        trials.extend(cases.iter().map(|case| trial(*case, root_missing())));
    }
    for cases in [file_errors::CASES, system_store::CASES] {
        trials.extend(cases.iter().map(|case| trial(*case, mounts_missing())));
    }
    trials
}

/// Why the cases cannot run as other users.
fn root_missing() -> Option<String> {
    let can_run = geteuid().is_root() && cfg!(target_os = "linux");
    (!can_run).then(|| "only root can run the program as other users".to_owned())
}

/// Why the cases cannot mount file systems.
fn mounts_missing() -> Option<String> {
    let mount = ["--mount", "mount", "-t", "tmpfs", "tmpfs", "/var/lib"];
    let can_mount = std::process::Command::new("unshare").args(mount).status();
    let missing = "no permission to mount a file system in a namespace (unshare --mount)";
    root_missing().or_else(|| (!can_mount.is_ok_and(|status| status.success())).then(|| missing.to_owned()))
}

/// The program in a directory of its own, for all users.
pub(crate) struct SharedMachine {
    fixture: Fixture,
    program: PathBuf,
    /// The directory of stores.
    directory: PathBuf,
}

impl SharedMachine {
    /// Creates a directory of root and the group, with this mode.
    fn new(fixture: Fixture, mode: u32) -> Self {
        let (program, directory) = (fixture.file("turnlock"), fixture.file("shared"));
        // Other users may have no access to the directory where it was built. Copied by another process: a file that
        // this one writes to stays open in the children that other cases start, and cannot be executed then.
        let copied =
            std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_turnlock")).arg(&program).status();
        assert!(copied.expect("cp").success());
        std::fs::create_dir(&directory).expect("a directory");
        chown(&directory, Some(0), Some(GROUP)).expect("root");
        set_mode(&directory, mode);
        Self { fixture, program, directory }
    }

    /// A store that the group shares, created by root.
    async fn with_group_store(fixture: Fixture) -> Self {
        let machine = Self::new(fixture, 0o2750);
        machine.assert_free(ROOT, true).await;
        machine
    }

    /// A private store of ALICE.
    async fn with_store_of_alice(fixture: Fixture) -> Self {
        let machine = Self::new(fixture, 0o700);
        chown(&machine.directory, Some(ALICE.id), None).expect("root");
        machine.assert_free(ALICE, true).await;
        machine
    }

    fn store(&self) -> PathBuf {
        self.directory.join("locks")
    }

    fn clients(&self) -> PathBuf {
        self.directory.join("locks.clients")
    }

    fn url(&self) -> String {
        format!("file:{}", self.store().display())
    }

    /// `turnlock ARGUMENTS…` of a user on the store, with the strictest umask. Not started yet.
    fn turnlock(&self, user: User, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(&self.program).args(arguments);
        command.env_remove("TURNLOCK_PASSWORD").env("TURNLOCK_STORE", self.url()).current_dir("/");
        command.uid(user.id).gid(user.group);
        command
    }

    /// Runs the program of a user to its end.
    async fn output(&self, user: User, arguments: &[&str]) -> Output {
        let mut command = self.turnlock(user, arguments);
        within(ms(60_000), "the program exits", command.output()).await.expect("started")
    }

    /// Starts a run that holds a lock until its input is closed.
    async fn hold(&self, user: User) -> Program {
        let arguments = ["run", "--json", &self.fixture.name, "--", "sh", "-c", "echo held; exec cat"];
        let mut holder = Program::start(self.turnlock(user, &arguments));
        holder.expect("held").await;
        holder
    }

    /// Starts a run that waits for the lock.
    async fn wait(&self, user: User) -> Program {
        let mut waiter =
            Program::start(self.turnlock(user, &["run", "--json", &self.fixture.name, "echo", "mine"]));
        waiter.event_named("waiting").await;
        waiter
    }

    /// Asserts whether a user can acquire the lock now.
    async fn assert_free(&self, user: User, is_free: bool) {
        let output = self.output(user, &["run", "-n", "-E", "99", &self.fixture.name, "true"]).await;
        assert_eq!(output.status.code(), Some(if is_free { 0 } else { 99 }), "{user:?}: {output:?}");
    }

    /// Asserts that a user is refused, and returns the message.
    async fn assert_denied(&self, user: User) -> String {
        let output = self.output(user, &["run", "-n", &self.fixture.name, "echo", "ran"]).await;
        assert_eq!((output.status.code(), &*output.stdout), (Some(77), &b""[..]), "{user:?}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    /// Runs a script as root with mounts of its own, where `$T` is the program. Returns its output and errors.
    async fn script(&self, script: &str) -> String {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("exec 2>&1; {script}")]).current_dir("/");
        command.env("T", &self.program).env("DIR", &self.directory).env_remove("TURNLOCK_STORE");
        let output = within(ms(120_000), "the script ends", command.output()).await.expect("started");
        String::from_utf8(output.stdout).expect("text")
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("root");
}

/// Owner, group and mode of a path, not of the target of a link.
fn owner_and_mode(path: &Path) -> (u32, u32, u32) {
    let found = std::fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (found.uid(), found.gid(), found.mode() & 0o7777)
}
