//! Waits that will not end by themselves are logged, once for each place in the code.

use std::fmt::{Debug, Write};
use std::sync::{LazyLock, Mutex, Once};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use turnlock::{Client, Error, MemoryStore};
use turnlock_testkit::eventually;

const LIMIT: Duration = Duration::from_secs(30);

/// The warnings of all tests: each has its own lock name.
static WARNINGS: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

struct WarningLog;

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string");
    }
}

#[derive(Default)]
struct Line(String);

impl Subscriber for WarningLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("turnlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        WARNINGS.lock().expect("unpoisoned").push(line.0);
    }
}

fn client() -> Client {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| tracing::subscriber::set_global_default(WarningLog).expect("the only subscriber"));
    Client::builder().memory(&MemoryStore::new()).expect("a memory store")
}

fn warnings_about(name: &str) -> Vec<String> {
    WARNINGS.lock().expect("unpoisoned").iter().filter(|line| line.contains(name)).cloned().collect()
}

async fn warned_about(name: &str) -> String {
    eventually("it is logged", LIMIT, async || !warnings_about(name).is_empty()).await;
    warnings_about(name).remove(0)
}

#[tokio::test]
async fn a_task_that_waits_for_its_own_lock_is_logged_with_both_places() {
    let client = client();
    let waits = tokio::spawn(async move {
        let _guard = client.lock("own-lock").await.unwrap();
        client.lock("own-lock").lock().await.map(drop)
    });
    let line = warned_about("own-lock").await;
    assert!(line.contains("acquired before"), "{line}");
    waits.abort();
    let places: Vec<_> = line.split_whitespace().filter(|word| word.contains("_at=")).collect();
    let [held, waiting] = places[..] else { panic!("{line}") };
    assert!(held.starts_with("held_at=") && waiting.starts_with("waiting_at="), "{line}");
    assert!(held.contains("wait_warnings.rs:") && waiting.contains("wait_warnings.rs:"), "{line}");
    assert_ne!(held.split_once('=').unwrap().1, waiting.split_once('=').unwrap().1, "{line}");
}

#[tokio::test]
async fn a_reader_that_waits_to_write_is_logged() {
    let client = client();
    let waits = tokio::spawn(async move {
        let lock = client.read_write_lock("read-then-write");
        let _reader = lock.read().await.unwrap();
        lock.write().await.map(drop)
    });
    assert!(warned_about("read-then-write").await.contains("acquired before"));
    waits.abort();
}

#[tokio::test]
async fn a_waiter_behind_others_is_logged_too() {
    let client = client();
    let own = client.clone();
    let other = tokio::spawn({
        let lock = client.lock("behind-others");
        async move {
            // The first in the queue is another task.
            let _first = lock.try_lock_for(LIMIT).await;
        }
    });
    let waits = tokio::spawn(async move {
        let lock = own.lock("behind-others");
        let _guard = lock.lock().await.unwrap();
        lock.lock().await.map(drop)
    });
    assert!(warned_about("behind-others").await.contains("acquired before"));
    waits.abort();
    other.abort();
}

#[tokio::test]
async fn a_place_is_logged_once() {
    let client = client();
    for _ in 0..3 {
        let client = client.clone();
        let waits = tokio::spawn(async move {
            let lock = client.lock("logged-once");
            let _guard = lock.lock().await.unwrap();
            let _again = lock.try_lock_for(Duration::from_millis(2_500)).await.unwrap().acquired();
        });
        waits.await.unwrap();
    }
    assert_eq!(warnings_about("logged-once").len(), 1);
}

#[tokio::test]
async fn another_task_that_waits_is_not_logged() {
    let client = client();
    let guard = client.lock("other-task").await.unwrap();
    let lock = client.lock("other-task");
    let waits = tokio::spawn(async move { lock.try_lock_for(Duration::from_millis(2_500)).await });
    assert!(waits.await.unwrap().unwrap().is_busy());
    drop(guard);
    assert_eq!(warnings_about("other-task"), [""; 0]);
}

#[tokio::test]
async fn a_semaphore_that_was_never_set_is_logged() {
    let client = client();
    for (name, is_leased) in [("unset-permits", true), ("unset-semaphore", false)] {
        let client = client.clone();
        let waits = tokio::spawn(async move {
            if is_leased {
                client.permit_semaphore(name).acquire(1).await.map(drop)
            } else {
                client.semaphore(name).acquire(1).await.map(drop)
            }
        });
        assert!(warned_about(name).await.contains("try_set_permits"));
        waits.abort();
    }
    let set = client.semaphore("numbered");
    set.try_set_permits(1).await.unwrap();
    let permit = set.acquire(1).await.unwrap();
    assert!(set.try_acquire_for(1, Duration::from_millis(2_500)).await.unwrap().is_busy());
    drop(permit);
    assert_eq!(warnings_about("numbered"), [""; 0]);
}

#[tokio::test]
async fn a_certain_deadlock_is_an_error() {
    let client = client();
    let owner = client.owner();
    let lock = client.read_write_lock("certain").with_owner(&owner);
    let _reader = lock.read().await.unwrap();
    assert!(matches!(lock.write().await, Err(Error::WouldDeadlock { .. })));
}
