//! One at a time, whatever it is that excludes: the same cases for every lock, and for semaphores with one permit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Instant;

use tokio::task::JoinHandle;
use turnlock_testkit::{eventually, in_time, within};

use super::mutex::{Held, Mutex};
use crate::rig::{Kind, PROMPT, Rig, joined, ms};
use crate::{Case, cases};

/// The cases that apply to a kind. A plain semaphore has no leases: what its dead holders took stays out.
pub(crate) fn cases(kind: Kind) -> impl Iterator<Item = Case> {
    let has_leases = move |(name, _): &Case| {
        kind != Kind::Semaphore || *name != "mutex_a_hold_is_over_before_the_next_begins"
    };
    CASES.iter().copied().filter(has_leases)
}

const CASES: &[Case] = cases![
    mutex_no_increment_is_lost,
    mutex_is_refused_until_the_release,
    mutex_a_release_and_a_drop_wake_a_waiter,
    mutex_who_gives_up_leaves_nothing,
    mutex_a_waiter_dropped_after_any_poll_leaves_nothing,
    mutex_a_cancelled_waiter_passes_its_turn_on,
    mutex_a_hold_is_over_before_the_next_begins,
];

async fn two(rig: &Rig) -> (Mutex, Mutex) {
    let name = rig.name();
    (Mutex::new(rig, &name).await, Mutex::new(rig, &name).await)
}

/// A task that waits, once it is known to wait.
async fn waiter(mutex: &Mutex, before: usize) -> JoinHandle<Held> {
    let waiting = mutex.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    // Who waits for a majority is out of all queues for moments, and stays so when it is not polled.
    let waiters = if matches!(mutex, Mutex::Red(_)) { 1 } else { before + 1 };
    let waits = async || mutex.waiting_here().await.is_ok_and(|waiting| waiting >= waiters);
    eventually("it waits", ms(20_000), waits).await;
    task
}

/// Waits until all is given back. A lock of several servers does not wait for the last of them.
async fn until_free(mutex: &Mutex) {
    let is_free = async || matches!(mutex.is_free().await, Ok(true));
    eventually("nobody is left who has it, or waits for it", PROMPT, is_free).await;
}

/// Waits until no task of this client waits. What a dropped one had under way is finished, and leaves its queue, in the
/// background.
async fn until_nobody_waits(mutex: &Mutex) {
    eventually("nobody waits here", PROMPT, async || matches!(mutex.waiting_here().await, Ok(0))).await;
}

async fn mutex_no_increment_is_lost(rig: Rig) {
    const CLIENTS: u64 = 3;
    const TASKS: u64 = 4;
    const TURNS: u64 = 20;
    let (value, inside) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let name = rig.name();
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let mutex = Mutex::new(&rig, &name).await;
        for task in 0..TASKS {
            let (mutex, value, inside) = (mutex.clone(), Arc::clone(&value), Arc::clone(&inside));
            tasks.push(tokio::spawn(async move {
                for turn in 0..TURNS {
                    let held = mutex.lock().await.expect("a turn");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody else is inside");
                    let seen = value.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    value.store(seen + 1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    // By turns the certain and the convenient way.
                    if (turn + task) % 2 == 0 { held.unlock().await.expect("held") } else { drop(held) }
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("a task that saw nobody else inside");
    }
    assert_eq!(value.load(Ordering::SeqCst), CLIENTS * TASKS * TURNS);
}

async fn mutex_is_refused_until_the_release(rig: Rig) {
    let (one, two) = two(&rig).await;
    let held = one.lock().await.expect("free");
    for other in [&one, &two] {
        assert!(other.try_lock().await.expect("an answer").is_none());
        assert!(other.try_lock_for(ms(20)).await.expect("an answer").is_none());
    }
    assert!(held.is_valid());
    held.unlock().await.expect("held");
    let held = two.try_lock().await.expect("an answer").expect("free now");
    assert!(one.try_lock().await.expect("an answer").is_none());
    held.unlock().await.expect("held");
    let held = one.try_lock_for(PROMPT).await.expect("an answer").expect("free again");
    assert!(two.try_lock().await.expect("an answer").is_none());
    held.unlock().await.expect("held");
    until_free(&one).await;
}

async fn mutex_a_release_and_a_drop_wake_a_waiter(rig: Rig) {
    let (one, two) = two(&rig).await;
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

async fn mutex_who_gives_up_leaves_nothing(rig: Rig) {
    let (one, two) = two(&rig).await;
    let held = one.lock().await.expect("free");
    for mutex in [&one, &two] {
        let start = Instant::now();
        assert!(mutex.try_lock_for(ms(100)).await.expect("an answer").is_none());
        assert!(start.elapsed() >= ms(100), "{:?}", start.elapsed());
        in_time("it gives up", start, ms(100) + PROMPT);
        until_nobody_waits(mutex).await;
    }
    held.unlock().await.expect("held");
    until_free(&one).await;
    for mutex in [&two, &one] {
        let held = mutex.try_lock().await.expect("an answer").expect("free");
        held.unlock().await.expect("held");
    }
}

/// For every k, and many times over: the future is dropped after its k-th poll, while others take turns.
async fn mutex_a_waiter_dropped_after_any_poll_leaves_nothing(rig: Rig) {
    const DEEPEST: usize = 12;
    let all = rig.times(500).await;
    let (one, two) = two(&rig).await;
    let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut others = Vec::new();
    for mutex in [&one, &two] {
        let (mutex, stop, turns) = (mutex.clone(), Arc::clone(&stop), Arc::clone(&turns));
        others.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let held = within(ms(20_000), "the others go on", mutex.lock()).await.expect("a turn");
                turns.fetch_add(1, Ordering::Relaxed);
                drop(held);
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut unfinished = 0;
    for drops in 0..all {
        let mut future = Box::pin(one.lock());
        let mut polls = drops % DEEPEST;
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
    until_nobody_waits(&one).await;
    until_nobody_waits(&two).await;
    two.try_lock().await.expect("an answer").expect("free").unlock().await.expect("held");
}

async fn mutex_a_cancelled_waiter_passes_its_turn_on(rig: Rig) {
    let (one, two) = two(&rig).await;
    for round in 0..20 {
        let held = two.lock().await.expect("free");
        let mut first = Box::pin(one.lock());
        // Until it is the head of the queue, refused and asleep.
        let _ = tokio::time::timeout(ms(15), &mut first).await;
        let second = waiter(&one, 1).await;
        // The message wakes the first, which is dropped without ever seeing it, or in the middle of it.
        held.unlock().await.expect("held");
        if round % 2 == 0 {
            let _ = tokio::time::timeout(ms(0), &mut first).await;
        }
        drop(first);
        let held = within(PROMPT, "the second gets it", second).await.expect("no panic");
        held.unlock().await.expect("held");
    }
}

/// Holders that never give back, as if they had died, by turns with others that do.
async fn mutex_a_hold_is_over_before_the_next_begins(rig: Rig) {
    let (one, two) = two(&rig).await;
    for next in [&two, &one] {
        let dead = one.lease(ms(3_000)).lock().await.expect("a turn");
        assert!(dead.is_valid());
        let task = waiter(next, 0).await;
        let held = within(ms(3_000) + PROMPT, "the lease ends", task).await.expect("no panic");
        assert!(!dead.is_valid(), "two holders at once");
        held.unlock().await.expect("held");
        assert!(dead.unlock().await.is_err(), "it was over");
        let living = two.lease(ms(20_000)).lock().await.expect("a turn");
        assert!(living.is_valid());
        living.unlock().await.expect("held");
    }
}
