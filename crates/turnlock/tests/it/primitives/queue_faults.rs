//! Faults of the server and the network while waiters have entries in the store.

use futures_util::future::join_all;
use redis::AsyncCommands;
use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard, Lock};
use turnlock_testkit::{FaultProxy, eventually, within};

use super::semaphore_faults::limit_memory;
use crate::fixture::{Fixture, NO_POLL, PROMPT, ms, until_waiting};
use crate::{Case, cases};

pub(super) const FAIR_CASES: &[Case] = cases![
    a_lost_reply_to_a_waiter_adds_one_queue_entry,
    a_late_queue_entry_of_a_cancelled_waiter_is_removed,
    at_maxmemory_waiters_stay_in_the_queue,
    a_queue_key_of_another_type_is_left_alone,
    waiters_in_a_queue_survive_a_restart,
];

pub(super) const READ_WRITE_CASES: &[Case] = cases![
    waiting_readers_and_writers_survive_a_restart,
    the_late_waiting_mark_of_a_cancelled_writer_expires,
    at_maxmemory_readers_and_writers_can_release,
    a_lost_reply_to_a_downgrade_leaves_one_read_hold,
    a_fixed_lease_that_another_client_shortened_is_restored,
];

/// Spawns a task that waits, and returns once it waits.
async fn waiter(lock: &Lock, before: usize) -> JoinHandle<Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_waiting(lock, before + 1).await;
    task
}

async fn a_lost_reply_to_a_waiter_adds_one_queue_entry(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let lossy = fixture.client_at(Client::builder().poll_interval(NO_POLL), &proxy.url()).await.lock("lossy");
    let lock = fixture.client().await.lock("lossy");
    for _ in 0..5 {
        let holder = lock.lock().await.expect("free");
        proxy.swallow_replies_to(b"lossy");
        let first = waiter(&lossy, 0).await;
        let second = waiter(&lock, 0).await;
        proxy.fired().await;
        assert_eq!(lock.inspect().await.expect("a reply").queue.len(), 2);
        holder.unlock().await.expect("held");
        for task in [first, second] {
            let guard = within(PROMPT, "the waiter acquires", task).await.expect("no panic");
            guard.unlock().await.expect("held");
        }
        assert!(lock.inspect().await.expect("a reply").queue.is_empty());
    }
}

async fn a_late_queue_entry_of_a_cancelled_waiter_is_removed(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let builder = Client::builder().poll_interval(NO_POLL).response_timeout(ms(100)).retry_for(ms(200));
    let late = fixture.client_at(builder, &proxy.url()).await.lock("late");
    let lock = fixture.client().await.lock("late");
    let holder = lock.lock().await.expect("free");
    proxy.hold_request(b"late");
    assert!(tokio::time::timeout(ms(60), late.lock()).await.is_err(), "cancelled in flight");
    proxy.fired().await;
    // Time for the first undo, which finds nothing yet.
    tokio::time::sleep(ms(200)).await;
    let before = fixture.server().calls().await;
    proxy.release_held().await;
    eventually("the late request was done", PROMPT, async || {
        fixture.server().calls().await.since(&before).of("rpush") >= 1
    })
    .await;
    eventually("the late request was undone", PROMPT, async || {
        lock.inspect().await.is_ok_and(|seen| seen.queue.is_empty())
    })
    .await;
    let next = waiter(&lock, 0).await;
    holder.unlock().await.expect("held");
    within(PROMPT, "no waiter is before it", next).await.expect("no panic").unlock().await.expect("held");
}

async fn at_maxmemory_waiters_stay_in_the_queue(fixture: Fixture) {
    let (one, two) = (fixture.client().await.lock("full"), fixture.client().await.lock("full"));
    let short_retry = fixture.client_with(Client::builder().retry_for(ms(200))).await.lock("full");
    let holder = one.lock().await.expect("free");
    let (first, second) = (waiter(&two, 0).await, waiter(&one, 0).await);
    limit_memory(&fixture, 1).await;
    let error = short_retry.lock().await.expect_err("no memory for another queue entry");
    assert!(
        matches!(&error, Error::Unavailable { .. }) && turnlock_testkit::error_chain(&error).contains("OOM"),
        "{error}"
    );
    // Longer than a waiter may go without a heartbeat.
    tokio::time::sleep(ms(4_500)).await;
    assert_eq!(one.inspect().await.expect("a reply").queue.len(), 2);
    holder.unlock().await.expect("a release needs no memory");
    // An acquire needs memory. When there is some, the first waiter acquires first.
    limit_memory(&fixture, 0).await;
    for task in [first, second] {
        let guard = within(PROMPT, "each waiter acquires in order", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn a_queue_key_of_another_type_is_left_alone(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let lock = fixture.client().await.lock("odd");
    for prefix in ["redisson_lock_queue", "redisson_lock_timeout", "turnlock_waiters"] {
        let key = format!("{prefix}:{{odd}}");
        let holder = lock.lock().await.expect("free");
        let _: () = connection.set(&key, "precious").await.expect("set");
        let outcome = within(PROMPT, "the error is returned", lock.try_lock_for(ms(100))).await;
        assert!(matches!(outcome, Err(Error::NotALock { .. })), "{prefix}: {outcome:?}");
        assert_eq!(connection.get::<_, String>(&key).await.expect("a reply"), "precious");
        let _ = within(PROMPT, "the unlock ends", holder.unlock()).await;
        assert_eq!(connection.get::<_, String>(&key).await.expect("a reply"), "precious");
        let _: () = connection.del(&[key.as_str(), "odd"]).await.expect("deleted");
    }
    lock.lock().await.expect("free").unlock().await.expect("held");
}

async fn waiters_in_a_queue_survive_a_restart(mut fixture: Fixture) {
    let (one, two) = (fixture.client().await.lock("again"), fixture.client().await.lock("again"));
    let holder = one.lock().await.expect("free");
    let mut tasks = Vec::new();
    for before in 0..3 {
        tasks.push(waiter(&one, before).await);
        tasks.push(waiter(&two, before).await);
    }
    fixture.server_mut().restart().await;
    within(PROMPT, "the holder is notified", holder.lost()).await;
    // The order is lost with the data, so each task releases by itself.
    let turns =
        tasks.into_iter().map(|task| async { task.await.expect("no panic").unlock().await.expect("held") });
    within(ms(20_000), "all waiters acquire", join_all(turns)).await;
    two.try_lock().await.expect("a reply").acquired().expect("free").unlock().await.expect("held");
}

async fn waiting_readers_and_writers_survive_a_restart(mut fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (read, written) = (one.read_write_lock("read"), one.read_write_lock("written"));
    let holders = [read.reader().lock().await.expect("free"), written.writer().lock().await.expect("free")];
    let tasks = [
        waiter(&two.read_write_lock("read").writer(), 0).await,
        waiter(&two.read_write_lock("written").reader(), 0).await,
        waiter(&two.read_write_lock("written").reader(), 1).await,
    ];
    fixture.server_mut().restart().await;
    for holder in &holders {
        within(PROMPT, "the holder is notified", holder.lost()).await;
    }
    for task in tasks {
        let guard = within(PROMPT, "the waiter acquires", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn the_late_waiting_mark_of_a_cancelled_writer_expires(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let builder = Client::builder().poll_interval(NO_POLL).response_timeout(ms(100)).retry_for(ms(200));
    let late = fixture.client_at(builder, &proxy.url()).await.read_write_lock("late");
    // With the default poll interval, because the expiry of the mark sends no message.
    let lock = fixture.client_with(Client::builder()).await.read_write_lock("late");
    let reader = lock.reader().lock().await.expect("free");
    proxy.hold_request(b"late");
    assert!(tokio::time::timeout(ms(60), late.writer().lock()).await.is_err(), "cancelled in flight");
    proxy.fired().await;
    tokio::time::sleep(ms(200)).await;
    proxy.release_held().await;
    let second = within(PROMPT, "readers acquire", lock.reader().lock()).await.expect("acquired");
    assert!(reader.is_valid() && second.is_valid());
    drop((reader, second));
    within(PROMPT, "writers acquire", lock.writer().lock())
        .await
        .expect("acquired")
        .unlock()
        .await
        .expect("held");
}

async fn at_maxmemory_readers_and_writers_can_release(fixture: Fixture) {
    let (one, two) =
        (fixture.client().await.read_write_lock("full"), fixture.client().await.read_write_lock("full"));
    let writer = one.writer().lock().await.expect("free");
    let reader = one.reader().lock_with(&writer).await.expect("the same owner");
    limit_memory(&fixture, 1).await;
    writer.unlock().await.expect("a release needs no memory");
    assert!(two.reader().is_locked().await.expect("a reply") && !two.writer().is_locked().await.unwrap());
    assert!(reader.is_valid());
    reader.unlock().await.expect("a release needs no memory");
    assert!(!two.inspect().await.expect("a reply").is_locked());
    limit_memory(&fixture, 0).await;
    two.writer().lock().await.expect("memory is available again").unlock().await.expect("held");
}

async fn a_lost_reply_to_a_downgrade_leaves_one_read_hold(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let lossy = fixture
        .client_at(Client::builder().poll_interval(NO_POLL), &proxy.url())
        .await
        .read_write_lock("lossy");
    let other = fixture.client().await.read_write_lock("lossy");
    for _ in 0..5 {
        let writer = lossy.write().await.expect("free");
        proxy.swallow_replies_to(b"lossy");
        let reader = writer.downgrade().await.expect("resent");
        proxy.fired().await;
        let seen = other.inspect().await.expect("a reply");
        assert_eq!(
            (seen.holders.len(), seen.holders[0].count, &seen.holders[0].owner),
            (1, 1, reader.owner_id())
        );
        let second =
            other.reader().try_lock().await.expect("a reply").acquired().expect("readers share the lock");
        assert!(other.writer().try_lock().await.expect("a reply").is_busy());
        second.unlock().await.expect("held");
        reader.unlock().await.expect("held");
        assert!(!other.inspect().await.expect("a reply").is_locked());
    }
}

/// When Redisson renews a reader, it sets the expiry of the whole lock to its own lease, even if others have
/// longer ones.
async fn a_fixed_lease_that_another_client_shortened_is_restored(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let (read, write) = (client.read_write_lock("read"), client.read_write_lock("write"));
    let guards = [
        read.with_lease(ms(9_000)).reader().lock().await.expect("free"),
        write.with_lease(ms(9_000)).writer().lock().await.expect("free"),
    ];
    for round in 0..2 {
        for guard in &guards {
            let _: () = connection.pexpire(guard.name(), 3_000).await.expect("a reply");
        }
        for guard in &guards {
            eventually("the expiry is restored", ms(2_900), async || {
                connection.clone().pttl::<_, i64>(guard.name()).await.expect("a reply") > 3_000
            })
            .await;
            assert!(guard.is_valid(), "round {round} of {}", guard.name());
        }
    }
    for guard in guards {
        let end = guard.valid_until();
        guard.lost().await;
        assert!(std::time::Instant::now() + ms(100) >= end, "lost before its lease ended");
        let left: i64 = connection.pttl(guard.name()).await.expect("a reply");
        assert!(left <= 200, "no longer than the lease: {left}");
    }
}
