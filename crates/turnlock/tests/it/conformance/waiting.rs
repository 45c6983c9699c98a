//! Waiting for a turn: by message, in order, and never longer than was said.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

use turnlock::{Client, Lock};
use turnlock_testkit::{eventually, in_time, within};

use crate::rig::{A_SECOND, NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_release_wakes_a_waiter_of_another_client,
    a_dropped_guard_wakes_a_waiter,
    waiters_of_one_client_are_served_in_order_of_arrival,
    who_gives_up_leaves_the_queue_and_nothing_else,
    who_will_not_wait_does_not_push_in,
    a_lost_message_costs_a_second_and_not_a_lease,
    a_waiter_behind_its_own_process_sees_a_forced_unlock,
    a_waiter_needs_no_runtime_of_its_own,
];

/// A task that waits for `lock`, once it is known to wait.
async fn waiter(lock: &Lock, before: usize) -> tokio::task::JoinHandle<turnlock::Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(lock, before + 1).await;
    task
}

async fn a_release_wakes_a_waiter_of_another_client(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    let mut guard = one.lock().await.expect("free");
    let mut times = Vec::new();
    for turn in 0..20 {
        let (holder, next) = if turn % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let task = waiter(next, 0).await;
        assert!(holder.is_locked().await.expect("an answer"));
        let start = Instant::now();
        guard.unlock().await.expect("held");
        guard = within(PROMPT, "the waiter is woken by the message", task).await.expect("no panic");
        times.push(start.elapsed());
    }
    // Some kinds look once a second all the same. Each waiter has looked just before, so this can only be the message: half of
    // the turns have to show it, on a busy machine too.
    times.sort_unstable();
    assert!(times[times.len() / 2 - 1] < ms(500), "{times:?}");
}

async fn a_dropped_guard_wakes_a_waiter(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    for lock in [&one, &two] {
        let guard = one.lock().await.expect("free");
        let task = waiter(lock, 0).await;
        drop(guard);
        let guard = within(PROMPT, "the waiter is woken", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn waiters_of_one_client_are_served_in_order_of_arrival(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..20 {
        let (waiting, served) = (lock.clone(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let guard = waiting.lock().await.expect("a turn");
            served.lock().unwrap().push(number);
            guard.unlock().await.expect("held");
        }));
        until_waiting(&lock, number + 1).await;
    }
    guard.unlock().await.expect("held");
    for task in tasks {
        within(ms(20_000), "each gets its turn", task).await.expect("no panic");
    }
    assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

async fn who_gives_up_leaves_the_queue_and_nothing_else(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    let guard = one.lock().await.expect("free");
    for lock in [&one, &two] {
        let start = Instant::now();
        assert!(lock.try_lock_for(ms(120)).await.expect("an answer").is_none());
        assert!(start.elapsed() >= ms(120), "{:?}", start.elapsed());
        in_time("it gives up", start, ms(120) + PROMPT);
        until_waiting(lock, 0).await;
    }
    guard.unlock().await.expect("held");
    let guard = two.try_lock_for(PROMPT).await.expect("an answer").expect("free");
    assert_eq!(two.inspect().await.expect("an answer").holders.len(), 1);
    guard.unlock().await.expect("held");
    assert!(!one.is_locked().await.expect("an answer"));
}

async fn who_will_not_wait_does_not_push_in(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    let mut waiter = Box::pin(lock.lock());
    // It has its place in the queue, and is not polled again: the lock is free, and somebody waits.
    assert!(std::future::poll_fn(|context| Poll::Ready(waiter.as_mut().poll(context).is_pending())).await);
    guard.unlock().await.expect("held");
    // At once, or when it did not take in time what it was handed.
    eventually("it is free", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
    assert!(lock.try_lock().await.expect("an answer").is_none(), "it pushed in before the one who waited");
    let guard = within(PROMPT, "the waiter has its turn", waiter).await.expect("a turn");
    guard.unlock().await.expect("held");
    assert!(lock.try_lock().await.expect("an answer").is_some());
}

async fn a_lost_message_costs_a_second_and_not_a_lease(rig: Rig) {
    // With the usual poll.
    let client = rig.client_with(Client::builder()).await;
    let name = rig.name();
    let holder = rig.client().await.lock(&name).lock().await.expect("free");
    let task = waiter(&client.lock(&name), 0).await;
    rig.release_unheard(holder).await;
    let guard = within(A_SECOND, "the waiter looks by itself", task).await.expect("no panic");
    assert!(guard.is_valid());
}

async fn a_waiter_behind_its_own_process_sees_a_forced_unlock(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client_with(Client::builder().poll(NO_POLL)).await, rig.client().await);
    let guard = one.lock(&name).lock().await.expect("free");
    let task = waiter(&one.lock(&name), 0).await;
    // Long enough for the waiter to stop trusting that its own process will release.
    tokio::time::sleep(ms(200)).await;
    assert!(two.lock(&name).force_unlock().await.expect("an answer"));
    let next = within(PROMPT, "the waiter hears of it", task).await.expect("no panic");
    assert!(next.is_valid());
    // The grant to the waiter is proof enough.
    within(PROMPT, "the old holder is told", guard.lost()).await;
    assert!(guard.unlock().await.is_err());
}

async fn a_waiter_needs_no_runtime_of_its_own(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    let waiting = lock.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || {
        // A runtime without timers, and not the one of the client.
        let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let gave_up = bare.block_on(waiting.try_lock_for(ms(50))).expect("an answer").is_none();
        tell.send(gave_up).expect("somebody wants to know");
        let guard = bare.block_on(waiting.lock()).expect("a turn");
        drop(bare);
        drop(guard);
    });
    assert!(told.await.expect("no panic"), "it was held by another");
    until_waiting(&lock, 1).await;
    guard.unlock().await.expect("held");
    tokio::task::spawn_blocking(|| thread.join()).await.expect("no panic").expect("no panic");
    eventually("its guard is released", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
}
