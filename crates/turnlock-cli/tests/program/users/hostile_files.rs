//! Files that another user puts in the place of those of a store: root must not change anything else.

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};
use std::path::PathBuf;

use super::{ALICE, BOB, GROUP, ROOT, SharedMachine, owner_and_mode, set_mode};
use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_journal_of_another_user_that_names_a_file_to_delete_is_refused,
    links_in_place_of_files_are_not_followed,
    hard_links_in_place_of_files_are_refused,
    a_link_in_place_of_the_clients_directory_is_not_followed,
    a_clients_directory_of_another_user_is_refused,
    ones_own_link_to_a_store_is_followed,
];

/// What root has elsewhere: a file with content, and an empty one.
struct Victims([PathBuf; 2]);

impl Victims {
    fn new(machine: &SharedMachine) -> Self {
        let victims = ["secret", "empty"].map(|name| machine.fixture.file(name));
        for (path, content) in victims.iter().zip(["secret", ""]) {
            fs::write(path, content).expect("written");
            set_mode(path, 0o600);
        }
        Self(victims)
    }

    fn assert_unchanged(&self) {
        for (path, content) in self.0.iter().zip(["secret", ""]) {
            assert_eq!(fs::read_to_string(path).expect("text"), content, "{}", path.display());
            assert_eq!(owner_and_mode(path), (0, 0, 0o600), "{}", path.display());
        }
    }
}

/// `SQLite` rolls a journal back before anything else, and then deletes the file that it names as its super-journal.
async fn a_journal_of_another_user_that_names_a_file_to_delete_is_refused(fixture: Fixture) {
    let machine = SharedMachine::with_store_of_alice(fixture).await;
    let victims = Victims::new(&machine);
    let name = victims.0[0].to_str().expect("text").as_bytes();
    let pages = &fs::read(machine.store()).expect("bytes")[28..32];
    let magic = *b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
    // No records, the size of the file, sectors of 512 bytes, pages of 4096 bytes.
    let mut journal =
        [&magic[..], &[0; 4], &[1; 4], pages, &512_u32.to_be_bytes(), &4096_u32.to_be_bytes()].concat();
    journal.resize(512, 0);
    let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
    let length = u32::try_from(name.len()).expect("short");
    // The page of the lock bytes, the name, its length, its checksum.
    journal.extend(
        [&262_145_u32.to_be_bytes()[..], name, &length.to_be_bytes(), &sum.to_be_bytes(), &magic].concat(),
    );
    let path = machine.directory.join("locks-journal");
    fs::write(&path, journal).expect("written");
    chown(&path, Some(ALICE.id), Some(GROUP)).expect("root");
    let message = machine.assert_denied(ROOT).await;
    assert!(message.contains("locks-journal is a file of another user"), "{message}");
    victims.assert_unchanged();
}

async fn links_in_place_of_files_are_not_followed(fixture: Fixture) {
    let machine = SharedMachine::with_store_of_alice(fixture).await;
    let victims = Victims::new(&machine);
    for file in ["locks", "locks-wal", "locks-shm"] {
        for victim in &victims.0 {
            let path = machine.directory.join(file);
            let kept = path.with_extension("kept");
            fs::rename(&path, &kept).expect("there");
            symlink(victim, &path).expect("root");
            lchown(&path, Some(ALICE.id), Some(GROUP)).expect("root");
            machine.assert_denied(ROOT).await;
            victims.assert_unchanged();
            fs::rename(&kept, &path).expect("there");
        }
    }
    machine.assert_free(ROOT, true).await;
}

async fn hard_links_in_place_of_files_are_refused(fixture: Fixture) {
    let machine = SharedMachine::with_store_of_alice(fixture).await;
    let victims = Victims::new(&machine);
    for file in ["locks-wal", "locks-shm"] {
        let path = machine.directory.join(file);
        fs::remove_file(&path).expect("there");
        // A user can do that where the kernel does not protect files against it.
        fs::hard_link(&victims.0[0], &path).expect("root");
        let message = machine.assert_denied(ROOT).await;
        assert!(message.contains(file) && message.contains("hard link"), "{message}");
        victims.assert_unchanged();
        fs::remove_file(&path).expect("there");
    }
}

/// A file that root creates elsewhere would belong to ALICE.
async fn a_link_in_place_of_the_clients_directory_is_not_followed(fixture: Fixture) {
    let machine = SharedMachine::with_store_of_alice(fixture).await;
    let elsewhere = machine.fixture.file("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    set_mode(&elsewhere, 0o700);
    fs::remove_dir_all(machine.clients()).expect("there");
    symlink(&elsewhere, machine.clients()).expect("root");
    let message = machine.assert_denied(ROOT).await;
    assert!(message.contains("locks.clients is a symbolic link"), "{message}");
    assert_eq!(fs::read_dir(&elsewhere).expect("a directory").count(), 0);
    assert_eq!(owner_and_mode(&elsewhere), (0, 0, 0o700));
}

/// Its owner could remove the files of others, and so end their locks.
async fn a_clients_directory_of_another_user_is_refused(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o1777);
    fs::create_dir(machine.clients()).expect("root");
    set_mode(&machine.clients(), 0o777);
    chown(machine.clients(), Some(BOB.id), Some(BOB.group)).expect("root");
    let message = machine.assert_denied(ALICE).await;
    assert!(message.contains("belongs to user 47002"), "{message}");
    assert!(!machine.store().exists());
}

/// As to a disk with more space.
async fn ones_own_link_to_a_store_is_followed(fixture: Fixture) {
    let machine = SharedMachine::new(fixture, 0o755);
    let target = machine.fixture.file("target");
    fs::write(&target, "").expect("written");
    symlink(&target, machine.store()).expect("root");
    machine.assert_free(ROOT, true).await;
    assert!(fs::metadata(&target).expect("there").len() > 0);
}
