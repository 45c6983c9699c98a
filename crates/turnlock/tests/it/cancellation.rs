//! A lock future may be dropped at any time: nothing is left behind, and nobody else's turn is lost.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use turnlock::{Client, Error, Guard};
use turnlock_testkit::{eventually, within};

use crate::rig::{Kind, NO_POLL, PROMPT, Rig, joined, ms, until_waiting};
use crate::{Case, cases};

pub(crate) fn cases(kind: Kind) -> impl Iterator<Item = Case> {
    let has_count =
        move |(name, _): &Case| kind != Kind::Plain || *name != "a_cancelled_reentry_is_counted_off";
    CASES.iter().copied().filter(has_count)
}

const CASES: &[Case] = cases![
    dropped_after_every_poll_nothing_is_left_behind,
    dropped_right_after_the_grant_the_lock_is_given_back,
    a_cancelled_waiter_passes_its_turn_on,
    a_cancelled_reentry_is_counted_off,
    a_cancelled_unlock_is_finished,
];

type LockFuture = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

/// Polls once. Whether it is done.
async fn poll_once(future: &mut LockFuture) -> Option<Result<Guard, Error>> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Polls until it was polled `polls` times or is done, each time after it asked for it. Whether it was done.
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

/// For every k, and many times over: the future is dropped after its k-th poll, while three others take turns.
async fn dropped_after_every_poll_nothing_is_left_behind(rig: Rig) {
    const DEEPEST: usize = 12;
    let all = rig.times(2_500).await;
    let name = rig.name();
    let (one, two) = (rig.client().await, rig.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicUsize::new(0));
    let mut others = Vec::new();
    for client in [&one, &two, &two] {
        let (lock, stop, turns) = (client.lock(&name), Arc::clone(&stop), Arc::clone(&turns));
        others.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = within(ms(20_000), "the others go on", lock.lock()).await.expect("a turn");
                turns.fetch_add(1, Ordering::Relaxed);
                drop(guard);
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut done = 0;
    for drops in 0..all {
        let lock = one.lock(&name);
        let mut future: LockFuture = Box::pin(async move { lock.lock().await });
        let polls = 1 + drops % DEEPEST;
        done += usize::from(within(ms(20_000), "it is polled", poll_times(&mut future, polls)).await);
        drop(future);
    }
    stop.store(true, Ordering::Relaxed);
    for task in others {
        joined(task).await;
    }
    assert!(done < all, "some were dropped unfinished");
    assert!(turns.load(Ordering::Relaxed) > 0);
    eventually("the key is free", PROMPT, async || matches!(two.lock(&name).is_locked().await, Ok(false)))
        .await;
    until_waiting(&one.lock(&name), 0).await;
}

/// The future is dropped when the store has granted the lock and nobody has heard of it yet.
async fn dropped_right_after_the_grant_the_lock_is_given_back(rig: Rig) {
    let all = rig.times(2_500).await;
    let (one, two) = (rig.client().await, rig.client().await);
    let mut granted = 0;
    for drops in 0..all {
        // Names come again only when the last release of them is long done: so the lock is free, and the first poll asks.
        let name = rig.named(&format!("granted:{}", drops % 97));
        let lock = one.lock(&name);
        let mut future: LockFuture = Box::pin(async move { lock.lock().await });
        let finished = poll_once(&mut future).await;
        let sent = Instant::now();
        // In memory the step is done with the first poll; on a server the request is under way, and nobody polls.
        let mut seen = two.lock(&name).is_locked().await.expect("an answer");
        while !seen && sent.elapsed() < ms(50) {
            seen = two.lock(&name).is_locked().await.expect("an answer");
        }
        granted += usize::from(seen);
        drop((future, finished));
        let guard = within(PROMPT, "the key is free", two.lock(&name).lock()).await.expect("a turn");
        guard.unlock().await.expect("held");
    }
    assert!(granted >= all / 5, "only {granted} of {all} drops met a grant");
}

async fn a_cancelled_waiter_passes_its_turn_on(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await, rig.client().await);
    for round in 0..60 {
        let guard = two.lock(&name).lock().await.expect("free");
        let lock = one.lock(&name);
        let mut first: LockFuture = Box::pin(async move { lock.lock().await });
        let head = async {
            // Until it is head of the queue, refused and asleep.
            let _ = tokio::time::timeout(ms(15), &mut first).await;
        };
        head.await;
        let lock = one.lock(&name);
        let second = tokio::spawn(async move { lock.lock().await.expect("a turn") });
        until_waiting(&one.lock(&name), 2).await;
        // The message wakes the first, which is dropped without ever seeing it, or in the middle of it.
        guard.unlock().await.expect("held");
        if round % 2 == 0 {
            let _ = poll_once(&mut first).await;
        }
        drop(first);
        let guard = within(PROMPT, "the second gets it", second).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn a_cancelled_reentry_is_counted_off(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
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
    assert!(!lock.is_locked().await.expect("an answer"));
}

async fn a_cancelled_unlock_is_finished(rig: Rig) {
    let client = rig.client_with(Client::builder().poll(NO_POLL)).await;
    let lock = client.lock(&rig.name());
    for round in 0..100 {
        let guard = within(PROMPT, "it is free", lock.lock()).await.expect("a turn");
        let unlock = guard.unlock();
        match round % 3 {
            0 => drop(unlock),
            1 => drop(tokio::time::timeout(Duration::ZERO, unlock).await),
            _ => drop(tokio::time::timeout(ms(1), unlock).await),
        }
    }
    eventually("it is free", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
}
