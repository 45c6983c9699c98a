//! Waits that will not end by themselves are logged, once for each call site.

use std::sync::{LazyLock, Mutex, Once};
use std::time::Duration;

use tracing::Level;
use turnlock::{Builder, Client, Error, MemoryStore};
use turnlock_testkit::{LogLine, LogSubscriber, eventually};

const LIMIT: Duration = Duration::from_secs(30);

/// The warnings of all tests: each has its own lock name.
static WARNINGS: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

fn client() -> Client {
    client_with(Client::builder())
}

fn client_with(builder: Builder) -> Client {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let note = |line: LogLine| WARNINGS.lock().expect("unpoisoned").push(line.to_string());
        let log = LogSubscriber::new(Level::WARN, note);
        tracing::subscriber::set_global_default(log).expect("the only subscriber");
    });
    builder.memory(&MemoryStore::new()).expect("a memory store")
}

fn warnings_about(name: &str) -> Vec<String> {
    WARNINGS.lock().expect("unpoisoned").iter().filter(|line| line.contains(name)).cloned().collect()
}

async fn warned_about(name: &str) -> String {
    eventually("it is logged", LIMIT, async || !warnings_about(name).is_empty()).await;
    warnings_about(name).remove(0)
}

#[tokio::test]
async fn a_task_that_waits_for_its_own_lock_is_logged_with_both_call_sites() {
    let client = client();
    let waits = tokio::spawn(async move {
        let _guard = client.lock("own-lock").await.unwrap();
        client.lock("own-lock").lock().await.map(drop)
    });
    let line = warned_about("own-lock").await;
    assert!(line.contains("acquired before"), "{line}");
    waits.abort();
    let call_sites: Vec<_> = line.split_whitespace().filter(|word| word.contains("_at=")).collect();
    let [held, waiting] = call_sites[..] else { panic!("{line}") };
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
async fn a_call_site_is_logged_once() {
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

#[tokio::test(start_paused = true)]
async fn a_deadlock_of_three_clients_is_logged_within_three_seconds() {
    const LABELS: [&str; 3] = ["first", "second", "third"];
    // Installs the subscriber.
    let (_, store) = (client(), MemoryStore::new());
    let meeting = std::sync::Arc::new(tokio::sync::Barrier::new(4));
    let name = |number: usize| format!("in-a-circle-{}", number % 3);
    let tasks: Vec<_> = LABELS
        .iter()
        .enumerate()
        .map(|(number, label)| {
            let client = Client::builder().label(*label).memory(&store).expect("a memory store");
            let (held, wanted) = (client.lock(&name(number)), client.lock(&name(number + 1)));
            let meeting = std::sync::Arc::clone(&meeting);
            tokio::spawn(async move {
                let _held = held.lock().await.expect("free");
                meeting.wait().await;
                wanted.lock().await.map(drop)
            })
        })
        .collect();
    meeting.wait().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let lines = warnings_about("in-a-circle");
    assert_eq!(lines.len(), 3, "one of each client: {lines:#?}");
    for line in &lines {
        assert!(line.starts_with("deadlock: "), "{line}");
        for part in LABELS.iter().map(|label| format!("({label})")).chain((0..3).map(name)) {
            assert!(line.contains(&part), "{part} in {line}");
        }
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(warnings_about("in-a-circle").len(), 3, "it is logged once");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_holder_is_logged_also_if_nothing_is_announced() {
    let lock = client_with(Client::builder().announce_waits(false)).lock("stuck-body");
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    // On a runtime of its own: it blocks one of its threads.
    let blocking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(lock.run(|_| async move { blocked.recv().expect("unblocked") })).expect("held");
    });
    assert!(warned_about("stuck-body").await.contains("seems to be stuck"));
    unblock.send(()).expect("it waits");
    tokio::task::spawn_blocking(move || blocking.join()).await.expect("no panic").expect("no panic");
}
