//! Fair locks on Redis: keys, heartbeats and waiters that are gone.

use std::time::Instant;

use turnlock::Client;
use turnlock_testkit::conformance::primitives::fair::{until_queued, waiter};
use turnlock_testkit::{FaultProxy, eventually, within};

use crate::child::child;
use crate::fixture::{Fixture, NO_POLL, PROMPT, lock_keys, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_waiter_that_leaves_the_queue_leaves_no_key,
    a_killed_head_of_the_queue_is_skipped_within_six_seconds,
    a_disconnected_waiter_queues_again,
    waiters_of_a_client_share_one_heartbeat,
];

/// Returns all keys of locks on the server.
async fn keys(fixture: &Fixture) -> Vec<String> {
    lock_keys(&mut fixture.raw_connection().await).await
}

async fn a_waiter_that_leaves_the_queue_leaves_no_key(fixture: Fixture) {
    let (one, two) = (fixture.client().await.lock("tidy"), fixture.client().await.lock("tidy"));
    let holder = one.lock().await.expect("free");
    for cancelled in [false, true] {
        let waiting = two.clone();
        let head =
            tokio::spawn(async move { waiting.try_lock_for(ms(1_500)).await.expect("a reply").is_busy() });
        until_queued(&one, 1).await;
        assert_eq!(keys(&fixture).await.len(), 4, "the lock, the queue, its deadlines and heartbeats");
        if cancelled {
            head.abort();
        } else {
            assert!(head.await.expect("no panic"));
        }
        eventually("only the lock is left", PROMPT, async || keys(&fixture).await == ["tidy"]).await;
    }
    let next = waiter(&two, 0).await;
    holder.unlock().await.expect("held");
    let guard = within(PROMPT, "the next waiter acquires", next).await.expect("no panic");
    assert_eq!(keys(&fixture).await, ["tidy"], "a holder is in no queue");
    guard.unlock().await.expect("held");
    assert!(keys(&fixture).await.is_empty());
}

async fn a_killed_head_of_the_queue_is_skipped_within_six_seconds(fixture: Fixture) {
    // A waiter that polls less often than every second acquires with the heartbeat after the one that reports
    // the removal.
    for (builder, limit) in
        [(Client::builder(), ms(6_000)), (Client::builder().poll_interval(NO_POLL), ms(7_500))]
    {
        let lock = fixture.client_with(builder).await.lock("child");
        let holder = lock.lock().await.expect("free");
        let mut head = child(&fixture, "queue");
        until_queued(&lock, 1).await;
        let second = waiter(&lock, 1).await;
        head.kill().await.expect("killed");
        holder.unlock().await.expect("held");
        let guard = within(limit, "the dead waiter is skipped", second).await.expect("no panic");
        guard.unlock().await.expect("held");
        assert!(keys(&fixture).await.is_empty(), "{:?}", keys(&fixture).await);
    }
}

async fn a_disconnected_waiter_queues_again(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let builder = Client::builder().poll_interval(NO_POLL).response_timeout(ms(200));
    let disconnected = builder.connect(&proxy.url()).await.expect("the server is reachable");
    let id = disconnected.id();
    let disconnected = disconnected.fair_lock("cut");
    let lock = fixture.client().await.lock("cut");
    let holder = lock.lock().await.expect("free");
    let first = waiter(&disconnected, 0).await;
    let second = waiter(&lock, 1).await;
    proxy.black_hole();
    // Longer than a waiter may go without a heartbeat.
    tokio::time::sleep(ms(5_000)).await;
    eventually("its queue entry is removed", PROMPT, async || {
        lock.inspect().await.is_ok_and(|seen| seen.queue.len() == 1)
    })
    .await;
    let third = waiter(&lock, 1).await;
    proxy.pass();
    eventually("it is at the end of the queue", PROMPT, async || {
        let queue = lock.inspect().await.map(|seen| seen.queue);
        queue.is_ok_and(|queue| queue.len() == 3 && queue.last().is_some_and(|last| last.belongs_to(id)))
    })
    .await;
    holder.unlock().await.expect("held");
    for (task, what) in [
        (second, "the second waiter acquires"),
        (third, "the third waiter acquires"),
        (first, "the disconnected waiter acquires"),
    ] {
        let guard = within(PROMPT, what, task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn waiters_of_a_client_share_one_heartbeat(fixture: Fixture) {
    let (one, two) = (fixture.client().await.lock("herd"), fixture.client().await.lock("herd"));
    let holder = one.lock().await.expect("free");
    let mut tasks = Vec::new();
    for number in 0..20 {
        tasks.push(waiter(if number % 2 == 0 { &one } else { &two }, number).await);
    }
    // Each has subscribed, and has sent one more request since then.
    eventually("all waiters sleep", ms(20_000), async || {
        let before = fixture.server().calls().await;
        tokio::time::sleep(ms(50)).await;
        fixture.server().calls().await.since(&before).of("evalsha") == 0
    })
    .await;
    let (start, before) = (Instant::now(), fixture.server().calls().await);
    tokio::time::sleep(ms(2_000)).await;
    let spent = fixture.server().calls().await.since(&before);
    // One heartbeat per second and client, for all of its waiters. It may be late.
    let most = 2 * (1 + start.elapsed().as_secs());
    assert!((1..=most).contains(&spent.of("evalsha")), "{spent:?}");
    holder.unlock().await.expect("held");
    for task in tasks {
        let guard = within(PROMPT, "each waiter acquires", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}
