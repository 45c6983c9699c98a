//! Errors of a store in a file name the path, its owner and mode, and what to do.

use std::fs;
use std::os::unix::fs::chown;

use super::{ALICE, CAROL, SharedMachine, User, set_mode};
use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    missing_permissions_are_reported_with_owner_and_mode,
    a_bad_path_is_a_usage_error,
    a_read_only_file_system_is_reported,
    a_full_disk_is_reported,
    too_many_open_files_are_reported,
];

/// Asserts that a message is about the files, and not about how they are used.
fn assert_parts(message: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| message.contains(part)), "{parts:?}: {message}");
    for word in ["SQLite", "database", "disk I/O", "remove", "delete"] {
        assert!(!message.contains(word), "{word}: {message}");
    }
}

async fn missing_permissions_are_reported_with_owner_and_mode(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o755);
    let as_carol = "and this process runs as user 47003. Use another path";
    let denied = async |user: User, parts: &[&str]| {
        assert_parts(&machine.assert_denied(user).await, parts);
    };
    denied(CAROL, &["cannot create files in", "/shared: it belongs to root:47000 (mode 0755)", as_carol])
        .await;
    let mut default = machine.turnlock(CAROL, &["--store", "file:", "ls"]);
    let output = default.env("XDG_STATE_HOME", &machine.directory).output().await.expect("started");
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    assert_parts(
        &String::from_utf8_lossy(&output.stderr),
        &["cannot create files in", "/shared: it belongs"],
    );
    machine.assert_free(super::ROOT, true).await;
    denied(CAROL, &["cannot read", "/shared/locks: it belongs to root:root (mode 0600)", as_carol]).await;
    set_mode(&machine.store(), 0o644);
    denied(CAROL, &["cannot write to", "/shared/locks: it belongs to root:root (mode 0644)", as_carol]).await;
    set_mode(&machine.store(), 0o666);
    denied(CAROL, &["/shared/locks.clients: it belongs to root:root (mode 0700)", as_carol]).await;
    set_mode(&machine.directory, 0o700);
    denied(CAROL, &["cannot use files below", "/shared: it belongs to root:47000 (mode 0700)", as_carol])
        .await;
    // Files of SQLite that belong to another user.
    let machine = SharedMachine::with_store_of_alice(Fixture::new(crate::store::Store::File).await).await;
    chown(machine.directory.join("locks-wal"), Some(0), Some(0)).expect("root");
    let message = machine.assert_denied(ALICE).await;
    assert_parts(&message, &["/shared/locks-wal: it belongs to root:root (mode 0600)"]);
}

async fn a_bad_path_is_a_usage_error(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o700);
    fs::write(machine.directory.join("file"), "").expect("written");
    for (path, part) in [
        ("file/locks", "/shared/file is not a directory"),
        ("no/such/locks", "/shared/no/such does not exist"),
    ] {
        let url = format!("file:{}", machine.directory.join(path).display());
        let output = machine.output(super::ROOT, &["--store", &url, "ls"]).await;
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        assert_parts(&String::from_utf8_lossy(&output.stderr), &[part, "use another path"]);
    }
}

async fn a_read_only_file_system_is_reported(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o755);
    let script = "mount -t tmpfs tmpfs $DIR && $T --store file:$DIR/locks run a true && echo made
        mount -o remount,ro $DIR; $T --store file:$DIR/locks run a true; echo code $?";
    let output = machine.script(script).await;
    assert!(output.starts_with("made\n") && output.contains("code 77"), "{output}");
    assert_parts(&output, &["/shared/locks: its file system is mounted read-only", "Use a path on another"]);
}

async fn a_full_disk_is_reported(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o755);
    let script = "mount -t tmpfs -o size=256k tmpfs $DIR; head -c 10M /dev/zero >$DIR/file
        $T --store file:$DIR/locks run a true; echo code $?";
    let output = machine.script(script).await;
    assert!(output.contains("code 69"), "{output}");
    assert_parts(&output, &["no space is left for", "/shared/locks: free some on the file system of"]);
}

/// The limit is so low that the program starts, and cannot open all files of the store.
async fn too_many_open_files_are_reported(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o755);
    machine.assert_free(super::ROOT, true).await;
    // Whichever file it is that cannot be opened.
    let script = "for n in 9 10 11 12 13 14 15 16 17 18; do
        (ulimit -n $n; exec $T --store file:$DIR/locks ls 2>&1) || echo code $?; done";
    let output = machine.script(script).await;
    assert!(output.contains("too many open files") && output.contains("code 69"), "{output}");
    assert!(!output.contains("code 77") && !output.contains("code 65"), "{output}");
}
