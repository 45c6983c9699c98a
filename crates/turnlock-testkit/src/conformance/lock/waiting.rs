//! Waiters are woken by messages, are served in order, and respect their deadline.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

use crate::conformance::{Case, Fixture, NO_POLL, ONE_POLL, PROMPT, cases, ms, until_waiting};
use crate::{eventually, in_time, within};
use turnlock::{Client, Lock};

pub(super) const CASES: &[Case] = cases![
    a_release_wakes_a_waiter_of_another_client,
    a_dropped_guard_wakes_a_waiter,
    waiters_of_one_client_are_served_in_order_of_arrival,
    a_timed_out_waiter_leaves_the_queue_and_holds_nothing,
    try_lock_does_not_overtake_a_waiter,
    a_lost_message_costs_a_second_and_not_a_lease needs LostMessages,
    a_waiter_behind_a_local_holder_sees_a_forced_unlock,
    a_waiter_works_on_a_runtime_without_timers,
];

/// Spawns a task that waits for `lock`, and returns once it waits.
async fn waiter(lock: &Lock, before: usize) -> tokio::task::JoinHandle<turnlock::Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_waiting(lock, before + 1).await;
    task
}

async fn a_release_wakes_a_waiter_of_another_client(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    let mut guard = one.lock().await.expect("free");
    let mut times = Vec::new();
    for round in 0..20 {
        let (holder, next) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let task = waiter(next, 0).await;
        assert!(holder.is_locked().await.expect("a reply"));
        let start = Instant::now();
        guard.unlock().await.expect("held");
        guard = within(PROMPT, "the waiter is woken by the message", task).await.expect("no panic");
        times.push(start.elapsed());
    }
    // Some kinds poll once a second in any case. Each waiter has polled just before, so a fast wake-up comes
    // from the message. Half of the rounds must show it, also on a busy machine.
    times.sort_unstable();
    assert!(times[times.len() / 2 - 1] < ms(500), "{times:?}");
}

async fn a_dropped_guard_wakes_a_waiter(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    for lock in [&one, &two] {
        let guard = one.lock().await.expect("free");
        let task = waiter(lock, 0).await;
        drop(guard);
        let guard = within(PROMPT, "the waiter is woken", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn waiters_of_one_client_are_served_in_order_of_arrival(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..20 {
        let (waiting, served) = (lock.clone(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let guard = waiting.lock().await.expect("acquired");
            served.lock().unwrap().push(number);
            guard.unlock().await.expect("held");
        }));
        until_waiting(&lock, number + 1).await;
    }
    guard.unlock().await.expect("held");
    for task in tasks {
        within(ms(20_000), "each waiter acquires", task).await.expect("no panic");
    }
    assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

async fn a_timed_out_waiter_leaves_the_queue_and_holds_nothing(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    let guard = one.lock().await.expect("free");
    for lock in [&one, &two] {
        let start = Instant::now();
        assert!(lock.try_lock_for(ms(120)).await.expect("a reply").is_busy());
        assert!(start.elapsed() >= ms(120), "{:?}", start.elapsed());
        in_time("the wait times out", start, ms(120) + PROMPT);
        until_waiting(lock, 0).await;
    }
    guard.unlock().await.expect("held");
    let guard = two.try_lock_for(PROMPT).await.expect("a reply").acquired().expect("free");
    assert_eq!(two.inspect().await.expect("a reply").holders.len(), 1);
    guard.unlock().await.expect("held");
    assert!(!one.is_locked().await.expect("a reply"));
}

async fn try_lock_does_not_overtake_a_waiter(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    let mut waiter = Box::pin(lock.lock());
    // It is in the queue, and is not polled again: the lock becomes free while there is a waiter.
    assert!(std::future::poll_fn(|context| Poll::Ready(waiter.as_mut().poll(context).is_pending())).await);
    guard.unlock().await.expect("held");
    // At once, or when the waiter did not accept the hand-over in time.
    eventually("it is free", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
    assert!(lock.try_lock().await.expect("a reply").is_busy(), "it overtook the waiter");
    let guard = within(PROMPT, "the waiter acquires", waiter).await.expect("acquired");
    guard.unlock().await.expect("held");
    assert!(lock.try_lock().await.expect("a reply").acquired().is_some());
}

async fn a_lost_message_costs_a_second_and_not_a_lease(fixture: Fixture) {
    // With the default poll interval.
    let client = fixture.client_with(Client::builder()).await;
    let name = fixture.name();
    let holder = fixture.client().await.lock(&name).lock().await.expect("free");
    let task = waiter(&client.lock(&name), 0).await;
    fixture.release_without_message(holder).await;
    let guard = within(ONE_POLL, "the waiter polls", task).await.expect("no panic");
    assert!(guard.is_valid());
}

async fn a_waiter_behind_a_local_holder_sees_a_forced_unlock(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) =
        (fixture.client_with(Client::builder().poll_interval(NO_POLL)).await, fixture.client().await);
    let guard = one.lock(&name).lock().await.expect("free");
    let task = waiter(&one.lock(&name), 0).await;
    // Long enough for the waiter to stop relying on a local release.
    tokio::time::sleep(ms(200)).await;
    assert!(two.lock(&name).force_unlock().await.expect("a reply"));
    let next = within(PROMPT, "the waiter acquires", task).await.expect("no panic");
    assert!(next.is_valid());
    // The grant to the waiter proves the loss.
    within(PROMPT, "the old holder is notified", guard.lost()).await;
    assert!(guard.unlock().await.is_err());
}

async fn a_waiter_works_on_a_runtime_without_timers(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    let waiting = lock.clone();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || {
        // A runtime without timers, different from the client's runtime.
        let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let timed_out = bare.block_on(waiting.try_lock_for(ms(50))).expect("a reply").is_busy();
        sender.send(timed_out).expect("the receiver is open");
        let guard = bare.block_on(waiting.lock()).expect("acquired");
        drop(bare);
        drop(guard);
    });
    assert!(receiver.await.expect("no panic"), "the lock was held");
    until_waiting(&lock, 1).await;
    guard.unlock().await.expect("held");
    tokio::task::spawn_blocking(|| thread.join()).await.expect("no panic").expect("no panic");
    eventually("its guard is released", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
}
