//! Damaged rows and files: an error or a valid value, and never a panic.

mod activity;
mod hostile;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rusqlite::{Connection, Transaction};
use turnlock_core::model::{AcquireOptions, Claim, CounterOp, Reply, Step};
use turnlock_core::{ClientId, Glob, Kind, Lease, LockName, OwnerId};
use turnlock_store::row::{self, Table};
use turnlock_store::{Activity, ActivityScope, Failure, FailureKind, MAX_ACTIVITY_LEN, Search, Sent, clock};
use turnlock_testkit::TempDir;

use super::database::{Database, set_busy_deadline};
use super::file_error::FileError;
use super::file_table::FileTable;
use super::presence::Presence;
use super::schema;
use super::store_path::{FileSettings, StorePath};
use super::wakeups::Wakeups;

/// The same cases in every run; `PROPTEST_RNG_SEED` selects others.
fn runner() -> TestRunner {
    let config = Config::default();
    let rng_seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        fixed @ RngSeed::Fixed(_) => fixed,
    };
    TestRunner::new(Config { cases: 10_000, failure_persistence: None, rng_seed, ..config })
}

/// One change of some bytes.
#[derive(Clone, Debug)]
enum Damage {
    FlipBit(Index, u8),
    SetBytes(Index, Vec<u8>),
    Cut(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes =
        prop_oneof![vec(any::<u8>(), 1..5), Just(vec![0xff; 8]), Just(b"18446744073709551615".to_vec())];
    prop_oneof![
        4 => (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Damage::FlipBit(at, bit)),
        2 => (any::<Index>(), bytes).prop_map(|(at, bytes)| Damage::SetBytes(at, bytes)),
        1 => any::<Index>().prop_map(Damage::Cut),
    ]
}

fn damaged(bytes: &[u8], damage: &[Damage]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for damage in damage {
        if bytes.is_empty() {
            break;
        }
        match damage {
            Damage::FlipBit(at, bit) => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            Damage::SetBytes(at, other) => {
                let at = at.index(bytes.len());
                let end = (at + other.len()).min(bytes.len());
                bytes.splice(at..end, other.iter().copied());
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
        }
    }
    bytes
}

fn name(kind: Kind) -> LockName {
    LockName::of(kind, "", &format!("{kind:?}")).expect("a valid name")
}

fn client(number: u8) -> ClientId {
    ClientId::from_random([number; 16])
}

/// Steps of two owners that leave something in the row of any kind.
fn steps(kind: Kind) -> Vec<Step> {
    let (name, options) =
        (name(kind), AcquireOptions { lease: Lease::WATCHDOG, waits: true, highest_token: 7 });
    let owners = [1, 2].map(|number| client(number).owner(1));
    let mut steps = vec![Step::Perform(name.clone(), CounterOp::SetOnce(3), OwnerId::from_wire("set"))];
    for owner in &owners {
        steps.push(Step::Acquire(Claim::new(&name, owner, 1), options));
    }
    steps
}

fn any_step(kind: Kind, number: usize) -> Step {
    let (name, owner) = (name(kind), client(1).owner(1));
    let claim = Claim::new(&name, &owner, 1);
    match number {
        0 => Step::Acquire(
            claim,
            AcquireOptions { lease: Lease::LONGEST, waits: true, highest_token: u64::MAX },
        ),
        1 => Step::Release(Claim { target: 0, ..claim }),
        2 => Step::Renew(claim, Some(Lease::LONGEST)),
        3 => Step::SetLease { claim, lease: Lease::LONGEST, outlasts_client: true },
        4 => Step::ForceUnlock(name),
        5 => Step::Heartbeat(name, owner),
        6 => Step::Perform(name, CounterOp::Add(i64::MAX), owner),
        7 => Step::Forget(name, owner),
        _ => Step::Inspect(name),
    }
}

fn set_row(sql: &Transaction<'_>, key: &str, row: &[u8]) {
    // As text, whatever the bytes are.
    let insert = "INSERT OR REPLACE INTO items VALUES (?1, CAST(?2 AS TEXT))";
    sql.execute(insert, (key, row)).expect("a row");
}

fn tables(connection: &mut Connection) -> Transaction<'_> {
    let transaction = connection.transaction().expect("a transaction");
    schema::migrate(&transaction, None, clock::both(), false).expect("the tables");
    transaction
}

/// A path at which there is nothing.
fn nowhere() -> StorePath {
    StorePath::new(Path::new("/nowhere/at/all"), &FileSettings::default()).expect("a path")
}

/// The text of a row of each kind.
fn rows() -> Vec<(Kind, String)> {
    let mut connection = Connection::open_in_memory().expect("a database");
    let (sql, store_path) = (tables(&mut connection), nowhere());
    let row = |kind| {
        let mut table = FileTable::new(&sql, &store_path);
        // A kind without one of the steps does nothing in it.
        row::execute(&mut table, &steps(kind), clock::both(), client(1)).expect("rows");
        let select = "SELECT row FROM items WHERE key = ?1";
        (kind, sql.query_row(select, [name(kind).key()], |row| row.get(0)).expect("a row"))
    };
    Kind::ALL.map(row).into()
}

/// Executes a step on a row of these bytes.
fn execute(sql: &Transaction<'_>, step: Step, row: &[u8]) -> Result<Reply, Failure> {
    let store_path = nowhere();
    set_row(sql, step.name().key(), row);
    let mut table = FileTable::new(sql, &store_path);
    let executed = row::execute(&mut table, &[step], clock::both(), client(1));
    executed.expect("no failure of the table").replies.remove(0)
}

#[test]
fn a_damaged_row_is_an_error_of_its_name_or_a_valid_row() {
    let (rows, mut connection) = (rows(), Connection::open_in_memory().expect("a database"));
    let sql = tables(&mut connection);
    let cases = (select(rows), vec(damage(), 1..4), 0..9_usize);
    let outcome = runner().run(&cases, |((kind, text), damage, number)| {
        let step = any_step(kind, number);
        let name = step.name().clone();
        if let Err(failure) = execute(&sql, step, &damaged(text.as_bytes(), &damage)) {
            let is_wrong_kind = matches!(failure.kind, FailureKind::WrongKind { .. });
            prop_assert!(is_wrong_kind || failure.concerns_only(&name), "{}", failure);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_row_that_is_not_utf_8_is_unreadable_and_no_outage() {
    let mut connection = Connection::open_in_memory().expect("a database");
    let sql = tables(&mut connection);
    let failure = execute(&sql, any_step(Kind::Lock, 0), b"\xff{}").expect_err("not a row");
    assert!(matches!(&failure.kind, FailureKind::NotALock { key, .. } if key == "Lock"), "{failure}");
    assert!(!failure.is_retryable());
}

#[test]
fn a_damaged_row_does_not_keep_the_store_closed_after_a_reboot() {
    let mut connection = Connection::open_in_memory().expect("a database");
    let now = clock::both();
    let sql = connection.transaction().expect("a transaction");
    schema::migrate(&sql, Some("one"), now, false).expect("the tables");
    set_row(&sql, "Lock", b"\xff");
    set_row(&sql, "Fair", b"{}");
    schema::migrate(&sql, Some("two"), now, false).expect("open after a reboot");
    let store_path = nowhere();
    let mut table = FileTable::new(&sql, &store_path);
    assert!(table.load("Lock").is_err() && table.load("Fair").is_err(), "an error of their own names");
}

/// A store in a directory of its own.
struct TestStore {
    directory: TempDir,
    store_path: StorePath,
}

impl TestStore {
    fn new() -> Self {
        // In memory, since some tests write thousands of files.
        let directory = TempDir::in_memory();
        let settings = FileSettings { any_file_system: Some(true) };
        let store_path = StorePath::new(&directory.path().join("locks"), &settings).expect("a path");
        Self { directory, store_path }
    }

    fn open(&self, client: ClientId) -> Result<Database, FileError> {
        set_busy_deadline(clock::now() + Duration::from_secs(1));
        let presence = Arc::new(Presence::new(&self.store_path, client));
        Database::open(self.store_path.clone(), presence, Arc::new(Wakeups::new(self.store_path.clone())))
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("locks-wal")
    }

    /// Opens the store, and uses what it has.
    fn use_all(&self) -> Result<(), FileError> {
        let mut database = self.open(client(1))?;
        let search = Search { names: Glob::new("*"), prefix: String::new(), at_most: 100 };
        database.find(&search)?;
        database.client_records(&[client(1), client(2)])?;
        let Activity { now, records, .. } = database.activity(ActivityScope::All)?;
        assert!(records.iter().all(|record| record.written <= now && record.text.len() <= MAX_ACTIVITY_LEN));
        database.write_activity(client(1), Some(&activity::record()))?;
        database.subscribe(&name(Kind::Lock), 1)?;
        let steps = [any_step(Kind::Lock, 0), any_step(Kind::Fair, 1), any_step(Kind::Lock, 4)];
        let (replies, _) = database.execute(&steps)?;
        replies.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(())
    }
}

#[test]
fn a_damaged_file_or_log_is_an_error_or_a_store() {
    let original = TestStore::new();
    let mut database = original.open(client(1)).expect("a new store");
    for kind in Kind::ALL {
        database.execute(&steps(kind)).expect("executed");
        database.subscribe(&name(kind), 1).expect("subscribed");
    }
    database.write_client_record(client(1), "{}").expect("written");
    database.write_activity(client(1), Some(&activity::record())).expect("written");
    let (log, in_log) = (original.log(), fs::read(&original.store_path.database).expect("a file"));
    let log = fs::read(log).expect("a log");
    drop(database);
    let connection = Connection::open(&original.store_path.database).expect("the store");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    drop(connection);
    let in_file = fs::read(&original.store_path.database).expect("a file");
    assert!(in_file.len() > 4 * in_log.len().min(4_096) && log.len() > in_log.len());

    let store = TestStore::new();
    let cases = (any::<bool>(), vec(damage(), 1..4));
    let outcome = runner().run(&cases, |(is_in_log, damage)| {
        let (file, log) = if is_in_log {
            (in_log.clone(), damaged(&log, &damage))
        } else {
            (damaged(&in_file, &damage), Vec::new())
        };
        let _ = fs::remove_file(store.directory.path().join("locks-shm"));
        fs::write(store.log(), log).expect("written");
        fs::write(&store.store_path.database, file).expect("written");
        if let Err(error) = store.use_all() {
            let failure = error.into_failure(&store.store_path, Sent::never());
            // A file that is cut reads like a bad disk.
            let is_io = failure.to_string().contains("disk I/O error");
            prop_assert!(is_io || !failure.is_retryable(), "{}", failure);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_damaged_column_is_an_error_or_ignored() {
    for (change, is_ignored) in [
        ("UPDATE boot SET id = CAST(X'FF' AS TEXT)", false),
        ("UPDATE boot SET id = X'FF'", false),
        ("UPDATE boot SET id = 'clock:x'", true),
        ("UPDATE clients SET card = CAST(X'FF' AS TEXT)", true),
        ("UPDATE clients SET card = X'FF'", true),
        ("UPDATE clients SET id = X'FF'", true),
        ("UPDATE listeners SET client = CAST(X'FF' AS TEXT)", true),
        ("UPDATE listeners SET client = X'FF'", true),
        ("UPDATE listeners SET client = 'x'", true),
        ("UPDATE listeners SET number = 'x'", true),
        ("UPDATE activity SET client = X'FF'", true),
        ("UPDATE activity SET client = CAST(X'FF' AS TEXT)", true),
        ("UPDATE activity SET written = 'x'", true),
        ("UPDATE activity SET written = -1", true),
        ("UPDATE activity SET ends = 'x'", true),
        ("UPDATE activity SET ends = X'FF'", true),
        ("UPDATE activity SET is_linked = 'x'", true),
        ("UPDATE activity SET record = CAST(X'FF' AS TEXT)", true),
        ("UPDATE activity SET record = X'FF'", true),
        ("UPDATE items SET key = X'FF' WHERE key = 'Lock'", true),
        ("UPDATE items SET row = X'FF' WHERE key = 'Lock'", false),
    ] {
        let store = TestStore::new();
        let mut database = store.open(client(1)).expect("a new store");
        for kind in [Kind::Lock, Kind::Fair] {
            database.execute(&steps(kind)).expect("executed");
            database.subscribe(&name(kind), 1).expect("subscribed");
        }
        database.write_client_record(client(1), "{}").expect("written");
        database.write_activity(client(1), Some(&activity::record())).expect("written");
        drop(database);
        let other = Connection::open(&store.store_path.database).expect("the file");
        assert!(other.execute(change, []).expect(change) > 0, "{change}");
        drop(other);
        let outcome = store.use_all().map_err(|error| error.into_failure(&store.store_path, Sent::never()));
        match outcome {
            Ok(()) => assert!(is_ignored, "{change}"),
            Err(failure) => assert!(!is_ignored && !failure.is_retryable(), "{change}: {failure}"),
        }
    }
}

#[test]
fn tables_that_change_are_an_outage_of_a_running_store_and_damage_of_one_that_is_opened() {
    for change in [
        "DROP TABLE items",
        "DROP TABLE listeners",
        "DROP TABLE clients",
        "ALTER TABLE items ADD x",
        "ALTER TABLE listeners RENAME number TO x",
    ] {
        let store = TestStore::new();
        let mut database = store.open(client(1)).expect("a new store");
        let mut perform_all = || {
            database.execute(&[any_step(Kind::Lock, 0)])?;
            database.write_client_record(client(1), "{}")?;
            database.subscribe(&name(Kind::Lock), 1)?;
            database.execute(&[any_step(Kind::Lock, 4)]).map(|_| ())
        };
        perform_all().expect("a store");
        let other = Connection::open(&store.store_path.database).expect("the file");
        other.execute_batch(change).expect("changed");
        let outage = perform_all().expect_err(change).into_failure(&store.store_path, Sent::never());
        assert!(outage.is_retryable(), "{change}: {outage}");
        let damage = store.open(client(2)).err().expect(change);
        let damage = damage.into_failure(&store.store_path, Sent::never());
        assert!(damage.to_string().contains("damaged store file"), "{change}: {damage}");
    }
}

#[test]
fn other_files_among_those_of_the_clients_are_left_alone() {
    let store = TestStore::new();
    store.use_all().expect("a new store");
    let clients = &store.store_path.clients;
    let odd = ["x", "07070707-0707-4707-8707-07070707070", "😀", ".wake"].map(|name| clients.join(name));
    for path in &odd {
        fs::write(path, b"\xff\0").expect("written");
    }
    // Where the files of clients should be.
    let directory = clients.join(client(7).to_string());
    fs::create_dir(&directory).expect("created");
    fs::write(clients.join(client(8).to_string()), [0xff; 100]).expect("written");
    store.use_all().expect("opened again");
    assert!(odd.iter().all(|path| path.exists()) && directory.exists());
    assert!(!clients.join(client(8).to_string()).exists(), "no process has it locked");
}

#[test]
fn a_database_of_another_program_is_named_whatever_its_id() {
    for id in [i64::from(i32::MIN), -1, 7] {
        let store = TestStore::new();
        let connection = Connection::open(&store.store_path.database).expect("a database");
        connection
            .execute_batch(&format!("PRAGMA application_id = {id}; CREATE TABLE t (x)"))
            .expect("a table");
        drop(connection);
        let failure =
            store.open(client(1)).err().expect("refused").into_failure(&store.store_path, Sent::never());
        assert!(failure.to_string().contains("another program"), "{id}: {failure}");
    }
}
