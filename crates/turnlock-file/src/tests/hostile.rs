//! Stores that another user prepares: nothing of them is executed, and no other file is changed.

use std::os::unix::fs::{MetadataExt, chown, symlink};

use rusqlite::config::DbConfig;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::{clients_directory::ClientsDirectory, presence, wake_pipe};

/// Counts its calls, as code of another user would.
const TRIGGER: &str = "CREATE TABLE stolen (x);
    CREATE TRIGGER planted AFTER INSERT ON items BEGIN INSERT INTO stolen VALUES (new.row); END";

fn raw(store: &TestStore) -> Connection {
    Connection::open(&store.store_path.database).expect("the file")
}

#[test]
fn a_trigger_that_is_planted_in_a_store_in_use_does_not_run() {
    let store = TestStore::new();
    let mut database = store.open(client(1)).expect("a new store");
    raw(&store).execute_batch(TRIGGER).expect("planted");
    database.execute(&steps(Kind::Lock)).expect("executed");
    let count = |table| {
        raw(&store).query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))
    };
    assert_eq!((count("items"), count("stolen")), (Ok(1), Ok(0)));
    // It runs for a program that trusts the file.
    raw(&store).execute("INSERT INTO items VALUES ('x', '{}')", []).expect("inserted");
    assert_eq!(count("stolen"), Ok(1));
}

#[test]
fn a_store_with_code_in_it_is_refused_and_left_unchanged() {
    for (planted, named) in [
        (TRIGGER, "trigger planted"),
        ("CREATE VIEW planted AS SELECT load_extension('x.so')", "view planted"),
        ("CREATE VIRTUAL TABLE planted USING fts3(x)", "table planted"),
        (
            "ALTER TABLE items RENAME TO kept; CREATE VIEW items AS SELECT key, upper(row) AS row FROM kept",
            "view items",
        ),
    ] {
        let store = TestStore::new();
        drop(store.open(client(1)).expect("a new store"));
        raw(&store).execute_batch(planted).expect("planted");
        let failure = store.open(client(2)).err().expect("refused");
        let failure = failure.into_failure(&store.store_path, Sent::never());
        let is_named = failure.to_string().contains(named) && failure.to_string().contains("another program");
        assert!(is_named && !failure.is_retryable(), "{planted}: {failure}");
        let rows = raw(&store).query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name = 'planted' OR type = 'view'",
            [],
            |row| row.get::<_, i64>(0),
        );
        assert_eq!(rows, Ok(1), "{planted}");
    }
}

/// Members of a group cannot create the log again.
#[test]
fn a_file_that_is_rejected_keeps_its_log() {
    let store = TestStore::new();
    drop(store.open(client(1)).expect("a new store"));
    let other = raw(&store);
    other.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).expect("set");
    other.pragma_update(None, "application_id", 1).expect("written");
    drop(other);
    let before = fs::read(store.log()).expect("a log");
    assert!(schema::set_up(&mut raw(&store), &store.store_path).is_err());
    assert_eq!(fs::read(store.log()).expect("a log"), before);
}

#[test]
fn statistics_and_tables_of_an_operator_do_not_matter() {
    let store = TestStore::new();
    store.use_all().expect("a new store");
    raw(&store)
        .execute_batch("CREATE TABLE notes (x UNIQUE); INSERT INTO notes VALUES (1); ANALYZE")
        .expect("changed");
    store.use_all().expect("a store");
}

/// In the directory of the clients, another user may know the id of a client that is just being started.
#[test]
fn links_in_place_of_the_files_of_a_client_are_not_followed() {
    let store = TestStore::new();
    drop(store.open(client(2)).expect("a new store"));
    let victim = store.directory.path().join("victim");
    fs::write(&victim, "secret").expect("written");
    let before = fs::metadata(&victim).expect("there");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        // Root gives its files to the owner of a private store.
        chown(&store.store_path.database, Some(47_001), Some(47_001)).expect("root");
    }
    let file = store.store_path.clients.join(client(1).to_string());
    let pipe = store.store_path.clients.join(wake_pipe::name_of(client(1)));
    for path in [&file, &pipe] {
        symlink(&victim, path).expect("a link");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let _entered = runtime.enter();
    let database = store.open(client(1)).expect("a store");
    let _pipe = wake_pipe::WakePipe::open(&store.store_path, client(1)).expect("a pipe");
    let after = fs::metadata(&victim).expect("there");
    let of = |found: &fs::Metadata| (found.uid(), found.gid(), found.mode(), found.mtime_nsec());
    assert_eq!((of(&after), fs::read(&victim).expect("text")), (of(&before), b"secret".to_vec()));
    for path in [&file, &pipe] {
        let found = fs::symlink_metadata(path).expect("there");
        assert!(!found.is_symlink() && (!is_root || found.uid() == 47_001), "{found:?}");
    }
    assert!(presence::is_alive(&store.store_path, client(1)));
    drop(database);
}

#[test]
fn nothing_is_written_into_a_file_in_place_of_a_pipe() {
    let store = TestStore::new();
    drop(store.open(client(2)).expect("a new store"));
    let victim = store.directory.path().join("victim");
    fs::write(&victim, "secret").expect("written");
    let pipe = store.store_path.clients.join(wake_pipe::name_of(client(1)));
    let wake = || wake_pipe::wake(&store.store_path, client(1), 1);
    symlink(&victim, &pipe).expect("a link");
    wake();
    fs::remove_file(&pipe).expect("there");
    fs::hard_link(&victim, &pipe).expect("a link");
    assert!(!wake(), "not a pipe");
    assert_eq!(fs::read(&victim).expect("text"), b"secret");
    fs::remove_file(&pipe).expect("there");
    // Without a reader, to open it must not block.
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    assert!(!wake(), "no reader");
    // In place of the file of a client, too.
    let file = store.store_path.clients.join(client(1).to_string());
    fs::rename(&pipe, &file).expect("there");
    assert!(!presence::is_alive(&store.store_path, client(1)));
}

#[test]
fn a_link_in_place_of_the_clients_directory_is_not_followed() {
    let store = TestStore::new();
    drop(store.open(client(2)).expect("a new store"));
    let elsewhere = store.directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    fs::write(elsewhere.join(client(7).to_string()), "").expect("written");
    fs::remove_dir_all(&store.store_path.clients).expect("there");
    symlink(&elsewhere, &store.store_path.clients).expect("a link");
    assert!(ClientsDirectory::open(&store.store_path).is_err());
    assert!(!presence::remove_dead(&store.store_path));
    assert!(elsewhere.join(client(7).to_string()).exists());
    assert!(store.open(client(1)).is_err() && fs::read_dir(&elsewhere).expect("a directory").count() == 1);
}
