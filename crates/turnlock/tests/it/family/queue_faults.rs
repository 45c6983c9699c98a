//! Those who leave something on the server while they wait, and a server or a network that misbehaves.

use futures_util::future::join_all;
use redis::AsyncCommands;
use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard, Lock};
use turnlock_testkit::{FaultProxy, eventually, within};

use super::semaphore_faults::limit_memory;
use crate::rig::{NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(super) const FAIR_CASES: &[Case] = cases![
    a_lost_answer_to_a_waiter_gives_one_place,
    a_place_that_arrives_after_its_waiter_gave_up_stops_nobody,
    at_maxmemory_waiters_keep_their_places,
    a_queue_of_another_type_is_left_alone,
    a_queue_survives_a_restart,
];

pub(super) const READ_WRITE_CASES: &[Case] = cases![
    a_writer_behind_readers_and_readers_behind_a_writer_survive_a_restart,
    the_word_of_a_writer_that_arrives_late_ends,
    at_maxmemory_a_downgrade_and_both_ends_work,
    a_lost_answer_to_a_downgrade_keeps_the_read_lock,
];

/// A task that waits, once it is known to wait.
async fn waiter(lock: &Lock, before: usize) -> JoinHandle<Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(lock, before + 1).await;
    task
}

async fn a_lost_answer_to_a_waiter_gives_one_place(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let lossy = rig.client_at(Client::builder().poll(NO_POLL), &proxy.url()).await.lock("lossy");
    let lock = rig.client().await.lock("lossy");
    for _ in 0..5 {
        let holder = lock.lock().await.expect("free");
        proxy.swallow_replies_to(b"lossy");
        let first = waiter(&lossy, 0).await;
        let second = waiter(&lock, 0).await;
        proxy.fired().await;
        assert_eq!(lock.inspect().await.expect("an answer").queue.len(), 2);
        holder.unlock().await.expect("held");
        for task in [first, second] {
            let guard = within(PROMPT, "its turn", task).await.expect("no panic");
            guard.unlock().await.expect("held");
        }
        assert!(lock.inspect().await.expect("an answer").queue.is_empty());
    }
}

async fn a_place_that_arrives_after_its_waiter_gave_up_stops_nobody(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let builder = Client::builder().poll(NO_POLL).response_timeout(ms(100)).retry_for(ms(200));
    let late = rig.client_at(builder, &proxy.url()).await.lock("late");
    let lock = rig.client().await.lock("late");
    let holder = lock.lock().await.expect("free");
    proxy.hold_request(b"late");
    assert!(tokio::time::timeout(ms(60), late.lock()).await.is_err(), "cancelled on the way");
    proxy.fired().await;
    // Time for the first undo, which finds nothing yet.
    tokio::time::sleep(ms(200)).await;
    let before = rig.server().calls().await;
    proxy.release_held().await;
    eventually("the late request was done", PROMPT, async || {
        rig.server().calls().await.since(&before).of("rpush") >= 1
    })
    .await;
    eventually("and undone", PROMPT, async || lock.inspect().await.is_ok_and(|seen| seen.queue.is_empty()))
        .await;
    let next = waiter(&lock, 0).await;
    holder.unlock().await.expect("held");
    within(PROMPT, "nobody stands before it", next).await.expect("no panic").unlock().await.expect("held");
}

async fn at_maxmemory_waiters_keep_their_places(rig: Rig) {
    let (one, two) = (rig.client().await.lock("full"), rig.client().await.lock("full"));
    let impatient = rig.client_with(Client::builder().retry_for(ms(200))).await.lock("full");
    let holder = one.lock().await.expect("free");
    let (first, second) = (waiter(&two, 0).await, waiter(&one, 0).await);
    limit_memory(&rig, 1).await;
    let error = impatient.lock().await.expect_err("no room for another place");
    assert!(matches!(&error, Error::Unavailable { .. }) && error.to_string().contains("OOM"), "{error}");
    // Longer than a waiter may be silent.
    tokio::time::sleep(ms(4_500)).await;
    assert_eq!(one.inspect().await.expect("an answer").queue.len(), 2);
    holder.unlock().await.expect("to give back needs no room");
    // To take it does; and then the first comes first.
    limit_memory(&rig, 0).await;
    for task in [first, second] {
        let guard = within(PROMPT, "each in its turn", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn a_queue_of_another_type_is_left_alone(rig: Rig) {
    let mut plain = rig.plain().await;
    let lock = rig.client().await.lock("odd");
    for prefix in ["redisson_lock_queue", "redisson_lock_timeout", "turnlock_waiters"] {
        let key = format!("{prefix}:{{odd}}");
        let holder = lock.lock().await.expect("free");
        let _: () = plain.set(&key, "precious").await.expect("set");
        let outcome = within(PROMPT, "an answer", lock.try_lock_for(ms(100))).await;
        assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{prefix}: {outcome:?}");
        assert_eq!(plain.get::<_, String>(&key).await.expect("an answer"), "precious");
        let _ = within(PROMPT, "an end", holder.unlock()).await;
        assert_eq!(plain.get::<_, String>(&key).await.expect("an answer"), "precious");
        let _: () = plain.del(&[key.as_str(), "odd"]).await.expect("deleted");
    }
    lock.lock().await.expect("as ever").unlock().await.expect("held");
}

async fn a_queue_survives_a_restart(mut rig: Rig) {
    let (one, two) = (rig.client().await.lock("again"), rig.client().await.lock("again"));
    let holder = one.lock().await.expect("free");
    let mut tasks = Vec::new();
    for before in 0..3 {
        tasks.push(waiter(&one, before).await);
        tasks.push(waiter(&two, before).await);
    }
    rig.server_mut().restart().await;
    within(PROMPT, "the holder is told", holder.lost()).await;
    // Whoever comes first after it: the order went with the data. So each gives back by itself.
    let turns =
        tasks.into_iter().map(|task| async { task.await.expect("no panic").unlock().await.expect("held") });
    within(ms(20_000), "all have their turns", join_all(turns)).await;
    two.try_lock().await.expect("an answer").expect("free").unlock().await.expect("held");
}

async fn a_writer_behind_readers_and_readers_behind_a_writer_survive_a_restart(mut rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let (read, written) = (one.read_write_lock("read"), one.read_write_lock("written"));
    let holders = [read.read().lock().await.expect("free"), written.write().lock().await.expect("free")];
    let tasks = [
        waiter(&two.read_write_lock("read").write(), 0).await,
        waiter(&two.read_write_lock("written").read(), 0).await,
        waiter(&two.read_write_lock("written").read(), 1).await,
    ];
    rig.server_mut().restart().await;
    for holder in &holders {
        within(PROMPT, "the holder is told", holder.lost()).await;
    }
    for task in tasks {
        let guard = within(PROMPT, "the waiter goes on", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn the_word_of_a_writer_that_arrives_late_ends(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let builder = Client::builder().poll(NO_POLL).response_timeout(ms(100)).retry_for(ms(200));
    let late = rig.client_at(builder, &proxy.url()).await.read_write_lock("late");
    // With the usual poll: nobody tells when a word runs out.
    let lock = rig.client_with(Client::builder()).await.read_write_lock("late");
    let reader = lock.read().lock().await.expect("free");
    proxy.hold_request(b"late");
    assert!(tokio::time::timeout(ms(60), late.write().lock()).await.is_err(), "cancelled on the way");
    proxy.fired().await;
    tokio::time::sleep(ms(200)).await;
    proxy.release_held().await;
    let second = within(PROMPT, "readers go on", lock.read().lock()).await.expect("a turn");
    assert!(reader.is_valid() && second.is_valid());
    drop((reader, second));
    within(PROMPT, "and writers", lock.write().lock()).await.expect("a turn").unlock().await.expect("held");
}

async fn at_maxmemory_a_downgrade_and_both_ends_work(rig: Rig) {
    let (one, two) = (rig.client().await.read_write_lock("full"), rig.client().await.read_write_lock("full"));
    let writer = one.write().lock().await.expect("free");
    let reader = one.read().lock_with(&writer).await.expect("the same owner");
    limit_memory(&rig, 1).await;
    writer.unlock().await.expect("to give back needs no room");
    assert!(two.read().is_locked().await.expect("an answer") && !two.write().is_locked().await.unwrap());
    assert!(reader.is_valid());
    reader.unlock().await.expect("to give back needs no room");
    assert!(!two.inspect().await.expect("an answer").is_locked());
    limit_memory(&rig, 0).await;
    two.write().lock().await.expect("room again").unlock().await.expect("held");
}

async fn a_lost_answer_to_a_downgrade_keeps_the_read_lock(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let lossy = rig.client_at(Client::builder().poll(NO_POLL), &proxy.url()).await.read_write_lock("lossy");
    let other = rig.client().await.read_write_lock("lossy");
    for _ in 0..5 {
        let writer = lossy.write().lock().await.expect("free");
        proxy.swallow_replies_to(b"lossy");
        let reader = writer.downgrade().await.expect("asked again");
        proxy.fired().await;
        let seen = other.inspect().await.expect("an answer");
        assert_eq!(
            (seen.holders.len(), seen.holders[0].count, &seen.holders[0].owner),
            (1, 1, reader.owner_id())
        );
        let second = other.read().try_lock().await.expect("an answer").expect("readers go together");
        assert!(other.write().try_lock().await.expect("an answer").is_none());
        second.unlock().await.expect("held");
        reader.unlock().await.expect("held");
        assert!(!other.inspect().await.expect("an answer").is_locked());
    }
}
