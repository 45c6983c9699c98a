//! Mutual exclusion: the same cases for every lock, and for semaphores with one permit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Instant;

use tokio::task::JoinHandle;

use super::mutex::{Held, Mutex};
use crate::conformance::{Case, Fixture, Kind, PROMPT, cases, joined, ms};
use crate::{eventually, in_time, within};

/// Returns the cases that apply to a kind. A plain semaphore has no leases: permits of dead holders stay out.
pub fn cases(kind: Kind) -> impl Iterator<Item = Case> {
    let has_leases =
        move |case: &Case| kind != Kind::Semaphore || case.name != "mutex_a_hold_ends_before_the_next_begins";
    CASES.iter().copied().filter(has_leases)
}

const CASES: &[Case] = cases![
    mutex_no_increment_is_lost,
    mutex_is_refused_until_the_release,
    mutex_a_release_and_a_drop_wake_a_waiter,
    mutex_a_timed_out_waiter_leaves_nothing,
    mutex_a_waiter_dropped_after_any_poll_leaves_nothing,
    mutex_a_cancelled_waiter_does_not_lose_the_wake_up,
    mutex_a_hold_ends_before_the_next_begins,
];

async fn two(fixture: &Fixture) -> (Mutex, Mutex) {
    let name = fixture.name();
    (Mutex::new(fixture, &name).await, Mutex::new(fixture, &name).await)
}

/// Spawns a task that waits, and returns once it waits.
async fn waiter(mutex: &Mutex, before: usize) -> JoinHandle<Held> {
    let waiting = mutex.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    // A waiter for a RedLock is in no queue between rounds, and stays so when it is not polled.
    let waiters = if matches!(mutex, Mutex::Red(_)) { 1 } else { before + 1 };
    let waits = async || mutex.waiting_here().await.is_ok_and(|waiting| waiting >= waiters);
    eventually("the waiter waits", ms(20_000), waits).await;
    task
}

/// Waits until it has no holder and no waiter. A `RedLock` does not wait for the release of its last member.
async fn until_free(mutex: &Mutex) {
    let is_free = async || matches!(mutex.is_free().await, Ok(true));
    eventually("no holder and no waiter is left", PROMPT, is_free).await;
}

/// Waits until no task of this client waits.
///
/// The request of a dropped waiter completes, and leaves its queue, in the background.
async fn until_no_waiters(mutex: &Mutex) {
    eventually("no task waits", PROMPT, async || matches!(mutex.waiting_here().await, Ok(0))).await;
}

async fn mutex_no_increment_is_lost(fixture: Fixture) {
    const CLIENTS: u64 = 3;
    const TASKS: u64 = 4;
    const TURNS: u64 = 20;
    let (value, inside) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let name = fixture.name();
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let mutex = Mutex::new(&fixture, &name).await;
        for task in 0..TASKS {
            let (mutex, value, inside) = (mutex.clone(), Arc::clone(&value), Arc::clone(&inside));
            tasks.push(tokio::spawn(async move {
                for turn in 0..TURNS {
                    let held = mutex.lock().await.expect("acquired");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "another task is inside");
                    let seen = value.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    value.store(seen + 1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    // Alternate between unlock and drop.
                    if (turn + task) % 2 == 0 { held.unlock().await.expect("held") } else { drop(held) }
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("no other task was inside");
    }
    assert_eq!(value.load(Ordering::SeqCst), CLIENTS * TASKS * TURNS);
}

async fn mutex_is_refused_until_the_release(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let held = one.lock().await.expect("free");
    for other in [&one, &two] {
        assert!(other.try_lock().await.expect("a reply").is_none());
        assert!(other.try_lock_for(ms(20)).await.expect("a reply").is_none());
    }
    assert!(held.is_valid());
    held.unlock().await.expect("held");
    let held = two.try_lock().await.expect("a reply").expect("free now");
    assert!(one.try_lock().await.expect("a reply").is_none());
    held.unlock().await.expect("held");
    let held = one.try_lock_for(PROMPT).await.expect("a reply").expect("free again");
    assert!(two.try_lock().await.expect("a reply").is_none());
    held.unlock().await.expect("held");
    until_free(&one).await;
}

async fn mutex_a_release_and_a_drop_wake_a_waiter(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    for turn in 0..12 {
        let next = if turn % 4 < 2 { &two } else { &one };
        let held = one.lock().await.expect("free");
        let task = waiter(next, 0).await;
        if turn % 2 == 0 {
            held.unlock().await.expect("held");
        } else {
            drop(held);
        }
        let held = within(PROMPT, "the waiter is woken", task).await.expect("no panic");
        held.unlock().await.expect("held");
    }
}

async fn mutex_a_timed_out_waiter_leaves_nothing(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let held = one.lock().await.expect("free");
    for mutex in [&one, &two] {
        let start = Instant::now();
        assert!(mutex.try_lock_for(ms(100)).await.expect("a reply").is_none());
        assert!(start.elapsed() >= ms(100), "{:?}", start.elapsed());
        in_time("the wait times out", start, ms(100) + PROMPT);
        until_no_waiters(mutex).await;
    }
    held.unlock().await.expect("held");
    until_free(&one).await;
    for mutex in [&two, &one] {
        let held = mutex.try_lock().await.expect("a reply").expect("free");
        held.unlock().await.expect("held");
    }
}

/// Drops futures after every number of polls, many times over, while other tasks take turns.
async fn mutex_a_waiter_dropped_after_any_poll_leaves_nothing(fixture: Fixture) {
    const MAX_POLLS: usize = 12;
    let all = fixture.rounds(500).await;
    let (one, two) = two(&fixture).await;
    let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut others = Vec::new();
    for mutex in [&one, &two] {
        let (mutex, stop, turns) = (mutex.clone(), Arc::clone(&stop), Arc::clone(&turns));
        others.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let held = within(ms(20_000), "the other tasks make progress", mutex.lock())
                    .await
                    .expect("acquired");
                turns.fetch_add(1, Ordering::Relaxed);
                drop(held);
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut unfinished = 0;
    for drops in 0..all {
        let mut future = Box::pin(one.lock());
        let mut polls = drops % MAX_POLLS;
        let polled = std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Pending if polls > 0 => {
                polls -= 1;
                Poll::Pending
            }
            outcome => Poll::Ready(outcome.is_pending()),
        });
        unfinished += usize::from(within(ms(20_000), "it is polled", polled).await);
    }
    stop.store(true, Ordering::Relaxed);
    for task in others {
        joined(task).await;
    }
    assert!(unfinished > 0 && turns.load(Ordering::Relaxed) > 0);
    until_free(&two).await;
    until_no_waiters(&one).await;
    until_no_waiters(&two).await;
    two.try_lock().await.expect("a reply").expect("free").unlock().await.expect("held");
}

async fn mutex_a_cancelled_waiter_does_not_lose_the_wake_up(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    for round in 0..20 {
        let held = two.lock().await.expect("free");
        let mut first = Box::pin(one.lock());
        // Until it is at the head of the queue, refused and asleep.
        let _ = tokio::time::timeout(ms(15), &mut first).await;
        let second = waiter(&one, 1).await;
        // The message wakes the first waiter, which is dropped before or after it is polled again.
        held.unlock().await.expect("held");
        if round % 2 == 0 {
            let _ = tokio::time::timeout(ms(0), &mut first).await;
        }
        drop(first);
        let held = within(PROMPT, "the second waiter acquires", second).await.expect("no panic");
        held.unlock().await.expect("held");
    }
}

/// Alternates holders that never release, as if they had died, with holders that do.
async fn mutex_a_hold_ends_before_the_next_begins(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    for next in [&two, &one] {
        let dead = one.with_lease(ms(3_000)).lock().await.expect("acquired");
        assert!(dead.is_valid());
        let task = waiter(next, 0).await;
        let held = within(ms(3_000) + PROMPT, "the lease ends", task).await.expect("no panic");
        assert!(!dead.is_valid(), "two holders at once");
        held.unlock().await.expect("held");
        assert!(dead.unlock().await.is_err(), "its hold had ended");
        let live = two.with_lease(ms(20_000)).lock().await.expect("acquired");
        assert!(live.is_valid());
        live.unlock().await.expect("held");
    }
}
