//! Fair locks: one queue for all clients.

use std::sync::{Arc, Mutex};

use crate::conformance::{Case, Fixture, NO_POLL, PROMPT, cases, ms};
use crate::{eventually, within};
use tokio::task::JoinHandle;
use turnlock::{Guard, Lock};

pub(super) const CASES: &[Case] = cases![
    waiters_of_several_clients_are_served_in_order_of_arrival,
    two_hundred_waiters_of_one_client_are_served_in_order,
    a_waiter_that_leaves_is_removed_and_the_next_is_woken,
    no_request_overtakes_the_queue,
    the_head_acquires_after_a_forced_unlock_or_an_expiry,
];

async fn queue_length(lock: &Lock) -> usize {
    lock.inspect().await.expect("a reply").queue.len()
}

pub async fn until_queued(lock: &Lock, count: usize) {
    let is_queued = async || lock.inspect().await.is_ok_and(|seen| seen.queue.len() == count);
    eventually("the waiter is in the queue", ms(20_000), is_queued).await;
}

/// Spawns a task that waits, and returns once it is in the queue behind `before` others.
pub async fn waiter(lock: &Lock, before: usize) -> JoinHandle<Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_queued(lock, before + 1).await;
    task
}

/// Queues `waiters` tasks one after the other, alternating between the locks. Returns the order of their
/// grants.
async fn served(locks: &[Lock], waiters: usize) -> Vec<usize> {
    let holder = locks[0].lock().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..waiters {
        let (waiting, served) = (locks[number % locks.len()].clone(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let guard = waiting.lock().await.expect("acquired");
            served.lock().unwrap().push(number);
            // Alternate between unlock and drop.
            if number % 2 == 0 { guard.unlock().await.expect("held") } else { drop(guard) }
        }));
        until_queued(&locks[0], number + 1).await;
    }
    holder.unlock().await.expect("held");
    for task in tasks {
        within(ms(30_000), "each waiter acquires", task).await.expect("no panic");
    }
    Arc::into_inner(served).expect("all have ended").into_inner().unwrap()
}

pub async fn waiters_of_several_clients_are_served_in_order_of_arrival(fixture: Fixture) {
    let name = fixture.name();
    let mut locks = Vec::new();
    for _ in 0..3 {
        locks.push(fixture.client().await.lock(&name));
    }
    assert_eq!(served(&locks, 18).await, (0..18).collect::<Vec<_>>());
}

async fn two_hundred_waiters_of_one_client_are_served_in_order(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    assert_eq!(served(&[lock], 200).await, (0..200).collect::<Vec<_>>());
}

async fn a_waiter_that_leaves_is_removed_and_the_next_is_woken(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    for round in 0..4 {
        let holder = one.lock().await.expect("free");
        // The head times out while the lock is held, or is cancelled just before the release.
        let head = two.clone();
        let head = tokio::spawn(async move {
            // Long enough for the second waiter to queue, also on a busy machine.
            let wait = if round % 2 == 0 { ms(2_500) } else { NO_POLL };
            head.try_lock_for(wait).await.expect("a reply").is_busy()
        });
        until_queued(&one, 1).await;
        let second = waiter(if round % 4 < 2 { &two } else { &one }, 1).await;
        if round % 2 == 0 {
            assert!(head.await.expect("no panic"));
            assert_eq!(queue_length(&one).await, 1, "the entry is removed before try_lock_for returns");
            holder.unlock().await.expect("held");
        } else {
            head.abort();
            holder.unlock().await.expect("held");
        }
        let guard = within(PROMPT, "the second waiter is woken", second).await.expect("no panic");
        eventually("the queue is empty", PROMPT, async || {
            one.inspect().await.is_ok_and(|seen| seen.queue.is_empty())
        })
        .await;
        guard.unlock().await.expect("held");
    }
}

async fn no_request_overtakes_the_queue(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    let holder = one.lock().await.expect("free");
    let mut head = Box::pin(two.lock());
    let enter = async {
        while queue_length(&one).await == 0 {
            assert!(tokio::time::timeout(ms(1), &mut head).await.is_err(), "the lock is held");
        }
        // Until it sleeps: a request that it has sent would be granted the free lock.
        assert!(tokio::time::timeout(ms(300), &mut head).await.is_err(), "the lock is held");
    };
    within(ms(5_000), "the head is in the queue", enter).await;
    // The lock is free and stays free, because the head is not polled.
    holder.unlock().await.expect("held");
    assert!(!one.is_locked().await.expect("a reply"));
    for lock in [&one, &two] {
        assert!(lock.try_lock().await.expect("a reply").is_busy(), "try_lock overtook the queue");
        assert!(
            lock.try_lock_for(ms(30)).await.expect("a reply").is_busy(),
            "try_lock_for overtook the queue"
        );
    }
    let late = waiter(&one, 1).await;
    let guard = within(PROMPT, "the head acquires", head).await.expect("acquired");
    assert!(!late.is_finished());
    guard.unlock().await.expect("held");
    let guard = within(PROMPT, "then the late waiter acquires", late).await.expect("no panic");
    guard.unlock().await.expect("held");
}

async fn the_head_acquires_after_a_forced_unlock_or_an_expiry(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    for forced in [true, false] {
        let lease = if forced { ms(20_000) } else { ms(3_000) };
        let lost = one.with_lease(lease).lock().await.expect("free");
        let (first, second) = (waiter(&two, 0).await, waiter(&one, 1).await);
        if forced {
            assert!(two.force_unlock().await.expect("a reply"));
        }
        let guard = within(ms(3_000) + PROMPT, "the head acquires", first).await.expect("no panic");
        assert!(!second.is_finished());
        within(PROMPT, "the old holder is notified", async {
            if forced {
                assert!(lost.unlock().await.is_err());
            } else {
                assert!(!lost.is_valid(), "two holders at once");
            }
        })
        .await;
        guard.unlock().await.expect("held");
        let guard = within(PROMPT, "then the second waiter acquires", second).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}
