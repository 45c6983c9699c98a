//! Leases of a memory store follow tokio's clock when it is paused.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::Level;
use turnlock::{Client, LostReason, MemoryStore, blocking};
use turnlock_testkit::LogSubscriber;

fn client() -> Client {
    Client::builder().memory(&MemoryStore::new()).expect("a memory store")
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_on_the_paused_clock() {
    let began = Instant::now();
    let client = client();
    let lock = client.lock("orders").with_lease(Duration::from_secs(3_600));
    let guard = lock.lock().await.expect("free");
    tokio::time::advance(Duration::from_secs(3_500)).await;
    assert!(guard.is_valid());
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    tokio::time::advance(Duration::from_secs(101)).await;
    assert!(!guard.is_valid());
    let next = lock.try_lock().await.expect("a reply").acquired();
    assert!(next.is_some(), "the lease has ended on the store");
    assert!(began.elapsed() < Duration::from_secs(600), "an hour has not passed");
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_without_waiting_in_real_time() {
    let client = client();
    let guard = client.lock("orders").with_lease(Duration::from_secs(3_600)).lock().await.expect("free");
    let began = (Instant::now(), tokio::time::Instant::now());
    assert_eq!(guard.lost().await, LostReason::Expired);
    let (real, virtual_time) = (began.0.elapsed(), began.1.elapsed());
    assert!(virtual_time > Duration::from_secs(3_500), "{virtual_time:?}");
    assert!(real < Duration::from_secs(600), "{real:?}");
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_renews_on_the_paused_clock() {
    let client = client();
    let guard = client.lock("orders").await.expect("free");
    tokio::time::sleep(Duration::from_secs(24 * 3_600)).await;
    assert!(guard.is_valid(), "renewed for a day");
    guard.unlock().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lock_when_the_lease_ends() {
    let client = client();
    let lease = Duration::from_secs(600);
    let guard = client.lock("orders").with_lease(lease).lock().await.expect("free");
    let began = tokio::time::Instant::now();
    let next = client.lock("orders").await.expect("free after the lease");
    let waited = began.elapsed();
    assert!(waited >= lease && waited < lease * 2, "{waited:?}");
    drop((guard, next));
}

#[tokio::test(start_paused = true)]
async fn other_threads_keep_the_real_time() {
    // The paused clock is far ahead of the real one when the first client is made.
    tokio::time::advance(Duration::from_secs(36_000)).await;
    let _client = client();
    let (lost, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let client = blocking::Client::builder().memory(&MemoryStore::new()).expect("a memory store");
        let guard = client.lock("orders").with_lease(Duration::from_millis(50)).lock().expect("free");
        lost.send(guard.wait_lost()).expect("received");
    });
    assert_eq!(received.recv_timeout(Duration::from_secs(60)), Ok(LostReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_far_longer_than_those_before_is_stuck() {
    let client = client();
    let lock = client.lock("orders");
    let is_stuck = async || lock.inspect().await.expect("a reply").holders[0].is_stuck;
    for _ in 0..20 {
        let guard = lock.lock().await.expect("free");
        tokio::time::sleep(Duration::from_secs(2)).await;
        guard.unlock().await.expect("held");
    }
    let _guard = lock.lock().await.expect("free");
    tokio::time::sleep(Duration::from_secs(19)).await;
    assert!(!is_stuck().await, "not ten times as long");
    // The next check is at most 5 s later.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(is_stuck().await);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_panicked_does_not_block_its_thread() {
    let client = client();
    let owner = client.owner();
    let lock = client.lock("orders").with_owner(&owner);
    let _guard = lock.lock().await.expect("free");
    let panics = tokio::spawn(async move { lock.run(|_| async { panic!("of the body") }).await });
    assert!(panics.await.is_err_and(|error| error.is_panic()));
    // Later than the longest poll, and the next check.
    tokio::time::sleep(Duration::from_secs(16)).await;
    let found = client.inspect("orders").await.expect("a reply").expect("held");
    assert!(found.holders[0].task.is_some() && !found.holders[0].is_stuck, "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn many_stuck_holders_of_a_semaphore_are_one_line() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&lines);
    let subscriber =
        LogSubscriber::new(Level::WARN, move |line| received.lock().unwrap().push(line.to_string()));
    // With a single subscriber, `tracing` caches the interest of the thread that first reaches an event.
    let _second = tracing::Dispatch::new(LogSubscriber::new(Level::TRACE, drop));
    let _first = tracing::subscriber::set_default(subscriber);
    let client = client();
    let semaphore = client.permit_semaphore("orders");
    semaphore.set_permits(5).await.expect("set");
    for _ in 0..20 {
        let permit = semaphore.acquire(1).await.expect("free");
        tokio::time::sleep(Duration::from_secs(2)).await;
        permit.release().await.expect("held");
    }
    let mut permits = Vec::new();
    for number in 0..5 {
        permits.push(semaphore.acquire(1).await.expect("free"));
        // The last ones are stuck in a later check.
        tokio::time::sleep(Duration::from_secs(if number == 2 { 7 } else { 0 })).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let lines: Vec<_> = lines.lock().unwrap().iter().filter(|line| line.contains("stuck")).cloned().collect();
    assert!(lines.len() == 1 && lines[0].contains("others=2"), "{lines:?}");
}
