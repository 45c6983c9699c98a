//! The table of activity records: in a file of an older version, and with what others may have written there.

use turnlock_store::{ActivityRecord, MAX_ACTIVITY_RECORDS};

use super::*;

pub(super) fn record() -> ActivityRecord {
    ActivityRecord { text: "{}".to_owned(), is_linked: true, lasts: Duration::from_secs(10) }
}

fn raw(store: &TestStore) -> Connection {
    Connection::open(&store.store_path.database).expect("the file")
}

#[test]
fn a_file_of_an_older_version_gets_the_table() {
    let store = TestStore::new();
    drop(store.open(client(1)).expect("a new store"));
    raw(&store).execute_batch("DROP TABLE activity").expect("as before");
    let mut database = store.open(client(1)).expect("a store");
    database.write_activity(client(1), Some(&record())).expect("written");
    let read = database.activity(ActivityScope::All).expect("read");
    assert_eq!((read.records.len(), read.is_complete), (1, true));
    database.write_activity(client(1), None).expect("removed");
    assert_eq!(database.activity(ActivityScope::All).expect("read").records, []);
}

#[test]
fn hostile_and_expired_records_are_left_out() {
    let store = TestStore::new();
    let mut database = store.open(client(1)).expect("a new store");
    let now = i64::try_from(clock::now().as_micros()).expect("a small number");
    let sql = raw(&store);
    let insert = |id: &str, written: &str, ends: &str, record: &str| {
        let columns = format!("INSERT INTO activity VALUES ({id}, {written}, {ends}, 1, {record})");
        sql.execute_batch(&columns).expect("planted");
    };
    // A client that is alive, so that only its record can be what is wrong.
    let alive: Vec<_> = (2..9).map(|number| store.open(client(number)).expect("a store")).collect();
    let (at, end, id) = (now.to_string(), i64::MAX.to_string(), |number| format!("'{}'", client(number)));
    insert(&id(2), "-1", &end, "'{}'");
    insert(&id(3), "'x'", &end, "'{}'");
    insert(&id(4), &end, &end, "'{}'");
    insert(&id(5), &at, &at, "'{}'");
    insert(&id(6), &at, &end, "x'fffe'");
    insert(&id(7), &at, &end, "NULL");
    insert(&id(8), &at, &end, &format!("'{}'", "x".repeat(MAX_ACTIVITY_LEN + 1)));
    insert("'x'", &at, &end, "'{}'");
    insert("x'ff'", &at, &end, "'{}'");
    // Not alive.
    insert(&id(99), &at, &end, "'{}'");
    database.write_activity(client(1), Some(&record())).expect("written");
    for scope in [ActivityScope::All, ActivityScope::Linked] {
        let read = database.activity(scope).expect("read");
        let clients: Vec<_> = read.records.iter().map(|record| record.client).collect();
        assert_eq!((clients, read.is_complete), (vec![client(1)], true), "{scope:?}");
    }
    let expired = format!("SELECT count(*) FROM activity WHERE client = {}", id(5));
    assert_eq!(sql.query_row(&expired, [], |row| row.get(0)), Ok(0), "each write removes those");
    drop(alive);
}

#[test]
fn no_more_records_are_read_than_one_request_may_have() {
    let store = TestStore::new();
    let mut database = store.open(client(1)).expect("a new store");
    let sql = raw(&store);
    let plant = |number: usize| {
        let row = (format!("{number}"), 1, i64::MAX, 0, "{}");
        sql.execute("INSERT INTO activity VALUES (?1, ?2, ?3, ?4, ?5)", row).expect("planted");
    };
    (0..MAX_ACTIVITY_RECORDS).for_each(plant);
    assert!(database.activity(ActivityScope::All).expect("read").is_complete);
    plant(MAX_ACTIVITY_RECORDS);
    assert!(!database.activity(ActivityScope::All).expect("read").is_complete);
}
