//! A lock future may be dropped at any time. It leaves nothing behind, and no other waiter loses a wake-up.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::conformance::{Case, Fixture, NO_POLL, PROMPT, cases, joined, ms, until_waiting};
use crate::{eventually, within};
use turnlock::{Client, Error, Guard};

pub(super) const CASES: &[Case] = cases![
    a_lock_future_dropped_after_any_poll_leaves_nothing,
    a_lock_future_dropped_right_after_the_grant_is_undone,
    a_cancelled_waiter_does_not_lose_the_wake_up,
    a_cancelled_reentry_is_undone,
    a_cancelled_unlock_is_completed,
];

type LockFuture = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// Polls once. Returns the output if the future is complete.
async fn poll_once(future: &mut LockFuture) -> Option<Result<Guard, Error>> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Polls up to `polls` times, each time after a wake-up. Returns `true` if the future is complete.
async fn poll_times(future: &mut LockFuture, polls: usize) -> bool {
    let mut count = 0;
    std::future::poll_fn(|context| {
        count += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(outcome) => {
                drop(outcome.expect("a guard"));
                Poll::Ready(true)
            }
            Poll::Pending if count >= polls => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Drops futures after every number of polls, many times over, while three other tasks take turns.
async fn a_lock_future_dropped_after_any_poll_leaves_nothing(fixture: Fixture) {
    const MAX_POLLS: usize = 12;
    let all = fixture.rounds(2_500).await;
    let name = fixture.name();
    let (one, two) = (fixture.client().await, fixture.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicUsize::new(0));
    let mut others = Vec::new();
    for client in [&one, &two, &two] {
        let (lock, stop, turns) = (client.lock(&name), Arc::clone(&stop), Arc::clone(&turns));
        others.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let guard =
                    within(ms(20_000), "the other tasks make progress", lock.lock()).await.expect("acquired");
                turns.fetch_add(1, Ordering::Relaxed);
                drop(guard);
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut completed = 0;
    for drops in 0..all {
        let lock = one.lock(&name);
        let mut future: LockFuture = Box::pin(async move { lock.lock().await });
        let polls = 1 + drops % MAX_POLLS;
        completed += usize::from(within(ms(20_000), "it is polled", poll_times(&mut future, polls)).await);
        drop(future);
    }
    stop.store(true, Ordering::Relaxed);
    for task in others {
        joined(task).await;
    }
    assert!(completed < all, "some were dropped unfinished");
    assert!(turns.load(Ordering::Relaxed) > 0);
    eventually("the key is free", PROMPT, async || matches!(two.lock(&name).is_locked().await, Ok(false)))
        .await;
    until_waiting(&one.lock(&name), 0).await;
}

/// The future is dropped after the store has granted the lock and before the caller receives it.
async fn a_lock_future_dropped_right_after_the_grant_is_undone(fixture: Fixture) {
    let all = fixture.rounds(2_500).await;
    let (one, two) = (fixture.client().await, fixture.client().await);
    let mut granted = 0;
    for drops in 0..all {
        // A name is reused only long after its last release, so the lock is free and the first poll sends a
        // request.
        let name = fixture.named(&format!("granted:{}", drops % 97));
        let lock = one.lock(&name);
        let mut future: LockFuture = Box::pin(async move { lock.lock().await });
        let finished = poll_once(&mut future).await;
        let sent = Instant::now();
        // In memory the first poll completes the step. On a server the request is in flight, and the future
        // is not polled.
        let mut seen = two.lock(&name).is_locked().await.expect("a reply");
        while !seen && sent.elapsed() < ms(50) {
            seen = two.lock(&name).is_locked().await.expect("a reply");
        }
        granted += usize::from(seen);
        drop((future, finished));
        let guard = within(PROMPT, "the key is free", two.lock(&name).lock()).await.expect("acquired");
        guard.unlock().await.expect("held");
    }
    assert!(granted >= all / 5, "only {granted} of {all} drops came after a grant");
}

async fn a_cancelled_waiter_does_not_lose_the_wake_up(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await, fixture.client().await);
    for round in 0..60 {
        let guard = two.lock(&name).lock().await.expect("free");
        let lock = one.lock(&name);
        let mut first: LockFuture = Box::pin(async move { lock.lock().await });
        let head = async {
            // Until it is at the head of the queue, refused and asleep.
            let _ = tokio::time::timeout(ms(15), &mut first).await;
        };
        head.await;
        let lock = one.lock(&name);
        let second = tokio::spawn(async move { lock.lock().await.expect("acquired") });
        until_waiting(&one.lock(&name), 2).await;
        // The message wakes the first waiter, which is dropped before or after it is polled again.
        guard.unlock().await.expect("held");
        if round % 2 == 0 {
            let _ = poll_once(&mut first).await;
        }
        drop(first);
        let guard = within(PROMPT, "the second waiter acquires", second).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn a_cancelled_reentry_is_undone(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    for round in 0..100 {
        let mut inner = Box::pin(guard.reenter());
        let mut polls = round % 4;
        let done = std::future::poll_fn(|context| match inner.as_mut().poll(context) {
            Poll::Pending if polls > 0 => {
                polls -= 1;
                Poll::Pending
            }
            outcome => Poll::Ready(outcome.is_ready()),
        });
        let _ = within(PROMPT, "it is polled", done).await;
        drop(inner);
    }
    eventually("the count is one again", PROMPT, async || {
        lock.inspect().await.is_ok_and(|seen| seen.holders[0].count == 1)
    })
    .await;
    assert!(guard.is_valid());
    guard.unlock().await.expect("held");
    assert!(!lock.is_locked().await.expect("a reply"));
}

async fn a_cancelled_unlock_is_completed(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().poll_interval(NO_POLL)).await;
    let lock = client.lock(&fixture.name());
    for round in 0..100 {
        let guard = within(PROMPT, "it is free", lock.lock()).await.expect("acquired");
        let unlock = guard.unlock();
        match round % 3 {
            0 => drop(unlock),
            1 => drop(tokio::time::timeout(Duration::ZERO, unlock).await),
            _ => drop(tokio::time::timeout(ms(1), unlock).await),
        }
    }
    eventually("it is free", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
}
