//! Stores in a directory of a group.

use std::os::unix::fs::chown;
use std::time::{Duration, SystemTime};

use turnlock_testkit::eventually;

use super::{ALICE, BOB, CAROL, GROUP, ROOT, SharedMachine, owner_and_mode, set_mode};
use crate::fixture::{Fixture, ms};
use crate::program::{Program, time_of};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    root_and_the_users_of_a_group_exclude_each_other_whatever_their_umask,
    a_user_is_woken_by_another_user,
    a_killed_holder_is_found_dead_by_another_user,
    a_user_outside_the_group_is_refused,
    a_group_store_is_created_by_root,
    only_a_directory_of_root_with_mode_2750_makes_a_store_shared,
    a_private_store_stays_private_in_a_directory_of_a_group,
    root_may_use_the_private_store_of_a_user,
];

async fn root_and_the_users_of_a_group_exclude_each_other_whatever_their_umask(fixture: Fixture) {
    let machine = SharedMachine::with_group_store(fixture).await;
    for (holder, others) in [(ALICE, [BOB, ROOT]), (ROOT, [ALICE, BOB])] {
        let mut holding = machine.hold(holder).await;
        for other in others {
            machine.assert_free(other, false).await;
        }
        let names = std::fs::read_dir(machine.clients()).expect("a directory");
        let paths: Vec<_> = names.map(|entry| entry.expect("an entry").path()).collect();
        assert_eq!(paths.len(), 2, "{paths:?}");
        for path in paths {
            let mode = if path.extension().is_some() { 0o620 } else { 0o640 };
            assert_eq!(owner_and_mode(&path), (holder.id, GROUP, mode), "{}", path.display());
        }
        holding.close();
        assert_eq!(holding.code().await, 0);
    }
    for file in ["locks", "locks-wal", "locks-shm"] {
        assert_eq!(owner_and_mode(&machine.directory.join(file)), (0, GROUP, 0o660), "{file}");
    }
    assert_eq!(owner_and_mode(&machine.clients()), (0, GROUP, 0o2770));
    // Members must not be able to create files beside the database.
    assert_eq!(owner_and_mode(&machine.directory), (0, GROUP, 0o2750));
    let doctor = machine.output(ALICE, &["doctor"]).await;
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(text.contains(&format!("Root and the members of group {GROUP} share it.")), "{doctor:?}");
}

/// The holder stays alive when its lock is released by force, so that only the pipe and the poll wake the waiter.
async fn a_user_is_woken_by_another_user(fixture: Fixture) {
    let machine = SharedMachine::with_group_store(fixture).await;
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let _holder = machine.hold(ROOT).await;
        let mut waiter = machine.wait(ALICE).await;
        let output = machine.output(BOB, &["unlock", "--force", "--yes", &machine.fixture.name]).await;
        let unlocked = SystemTime::now();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        // It may be woken before the other program has ended.
        fastest = fastest.min(waited_since(unlocked, &mut waiter).await);
        waiter.expect("mine").await;
        assert_eq!(waiter.code().await, 0);
    }
    // A waiter that is not woken polls once a second.
    assert!(fastest < ms(200), "{fastest:?}");
}

async fn waited_since(start: SystemTime, waiter: &mut Program) -> Duration {
    time_of(&waiter.event_named("acquired").await).duration_since(start).unwrap_or_default()
}

async fn a_killed_holder_is_found_dead_by_another_user(fixture: Fixture) {
    let machine = SharedMachine::with_group_store(fixture).await;
    for (dead, next) in [(ALICE, BOB), (ROOT, ALICE), (ALICE, ROOT)] {
        let holder = machine.hold(dead).await;
        let mut waiter = machine.wait(next).await;
        let start = SystemTime::now();
        // Kills the process. Its lease would last for 30 s.
        drop(holder);
        let time = waited_since(start, &mut waiter).await;
        assert!(time < ms(15_000), "{time:?}");
        waiter.expect("mine").await;
        assert_eq!(waiter.code().await, 0);
    }
    // The next client removes the files of those that were killed, whoever they were.
    machine.assert_free(BOB, true).await;
    let is_empty = async || std::fs::read_dir(machine.clients()).expect("a directory").count() == 0;
    eventually("no file of a client is left", ms(10_000), is_empty).await;
}

async fn a_user_outside_the_group_is_refused(fixture: Fixture) {
    let machine = SharedMachine::with_group_store(fixture).await;
    let message = machine.assert_denied(CAROL).await;
    let expected = [
        &format!("{}: it belongs to root:{GROUP} (mode 2750)", machine.directory.display()),
        "this process runs as user 47003",
        &format!("Add the user to group {GROUP}"),
    ];
    assert!(expected.iter().all(|part| message.contains(*part)), "{message}");
}

async fn a_group_store_is_created_by_root(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o2750);
    let message = machine.assert_denied(ALICE).await;
    let command = format!("run `turnlock --store {} ls` as root once", machine.url());
    assert!(message.contains("(mode 2750)") && message.contains(&command), "{message}");
    assert_eq!(machine.output(ROOT, &["--store", &machine.url(), "ls"]).await.status.code(), Some(0));
    machine.assert_free(ALICE, true).await;
    // The same if the files of SQLite are gone, as after a tool that has closed the database.
    for file in ["locks-wal", "locks-shm"] {
        std::fs::remove_file(machine.directory.join(file)).expect("there");
    }
    assert!(machine.assert_denied(ALICE).await.contains(&command));
    machine.assert_free(ROOT, true).await;
    machine.assert_free(ALICE, true).await;
}

async fn only_a_directory_of_root_with_mode_2750_makes_a_store_shared(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o2750);
    for (mode, owner, user) in [
        (0o750, 0, ROOT),
        (0o2755, 0, ROOT),
        (0o2770, 0, ALICE),
        (0o2777, 0, ALICE),
        (0o1777, 0, ALICE),
        (0o2750, ALICE.id, ALICE),
    ] {
        for file in ["locks", "locks-wal", "locks-shm"] {
            let _ = std::fs::remove_file(machine.directory.join(file));
        }
        let _ = std::fs::remove_dir_all(machine.clients());
        chown(&machine.directory, Some(owner), None).expect("root");
        set_mode(&machine.directory, mode);
        machine.assert_free(user, true).await;
        assert_eq!(owner_and_mode(&machine.store()).2, 0o600, "{mode:o}");
        assert_eq!(owner_and_mode(&machine.clients()).2 & 0o777, 0o700, "{mode:o}");
        machine.assert_denied(BOB).await;
    }
}

async fn a_private_store_stays_private_in_a_directory_of_a_group(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o700);
    machine.assert_free(ROOT, true).await;
    set_mode(&machine.directory, 0o2750);
    let holder = machine.hold(ROOT).await;
    let message = machine.assert_denied(BOB).await;
    let expected = format!("cannot read {}: it belongs to root:root (mode 0600)", machine.store().display());
    assert!(message.contains(&expected) && message.contains("Use another path"), "{message}");
    for entry in std::fs::read_dir(machine.clients()).expect("a directory") {
        assert_eq!(owner_and_mode(&entry.expect("an entry").path()).2, 0o600);
    }
    drop(holder);
}

/// Its files are those of the user, who can check whether root's client is alive.
async fn root_may_use_the_private_store_of_a_user(fixture: Fixture) {
    let machine = SharedMachine::with_store_of_alice(fixture).await;
    let holder = machine.hold(ROOT).await;
    machine.assert_free(ALICE, false).await;
    for entry in std::fs::read_dir(machine.clients()).expect("a directory") {
        let path = entry.expect("an entry").path();
        assert_eq!(owner_and_mode(&path), (ALICE.id, GROUP, 0o600), "{}", path.display());
    }
    let mut waiter = machine.wait(ALICE).await;
    drop(holder);
    waiter.expect("mine").await;
    assert_eq!(waiter.code().await, 0);
}
