//! Fair locks on Redis: keys, heartbeats and waiters that are gone.

use std::pin::Pin;
use std::time::Instant;

use turnlock::{Client, Error, Guard, Lock};
use turnlock_testkit::conformance::primitives::fair::{until_queued, waiter};
use turnlock_testkit::{FaultProxy, eventually, within};

use super::herds::cost_per_turn;
use crate::child::child;
use crate::fixture::{Fixture, NO_POLL, PROMPT, lock_keys, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_waiter_that_leaves_the_queue_leaves_no_key,
    a_killed_head_of_the_queue_is_skipped_within_six_seconds,
    a_disconnected_waiter_queues_again,
    waiters_of_a_client_share_one_heartbeat,
    a_turn_costs_the_same_for_any_number_of_waiters,
    clients_that_take_turns_send_few_requests,
    a_lost_reply_to_a_release_that_passes_the_lock_on_loses_nothing,
    a_waiter_cancelled_while_the_lock_is_passed_on_leaves_nothing,
    a_waiter_dropped_before_it_sees_its_grant_leaves_nothing,
    a_waiter_that_does_not_run_loses_its_grant_and_queues_again,
    a_grant_that_is_seen_late_is_not_an_expired_one,
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
    // Announced waits are other requests.
    let options = Client::builder().poll_interval(NO_POLL).announce_waits(false);
    let silent = async || fixture.client_with(options.clone()).await;
    let (one, two) = (silent().await.lock("herd"), silent().await.lock("herd"));
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

async fn a_turn_costs_the_same_for_any_number_of_waiters(fixture: Fixture) {
    let lock = fixture.client().await.lock("herd");
    // Scripts are loaded, and the client record is written.
    lock.lock().await.expect("free").unlock().await.expect("held");
    let mut costs = Vec::new();
    for waiters in [16, 500] {
        let before = fixture.server().calls().await;
        let guard = lock.lock().await.expect("free");
        let mut turns = Vec::new();
        for _ in 0..waiters {
            let waiting = lock.clone();
            turns.push(tokio::spawn(async move {
                waiting.lock().await.expect("a turn").unlock().await.expect("held");
            }));
        }
        until_queued(&lock, waiters).await;
        guard.unlock().await.expect("held");
        for turn in turns {
            within(ms(60_000), "it is granted the lock", turn).await.expect("no panic");
        }
        let (sent, commands) = cost_per_turn(&fixture, &before, waiters).await;
        // Besides: the subscription, the inspections of this test, and heartbeats, for which it may be late.
        let others = 20.0 / f64::from(u32::try_from(waiters).unwrap());
        assert!(sent <= 3.0 + others && commands <= 25.0 + 10.0 * others, "{sent}, {commands}");
        costs.push(commands);
        let calls = fixture.server().calls().await.since(&before);
        assert_eq!(calls.of("zrange"), 0, "the deadlines of all waiters were read");
    }
    assert!(costs[1] <= 1.2 * costs[0], "{costs:?}");
}

async fn clients_that_take_turns_send_few_requests(fixture: Fixture) {
    const TURNS: usize = 50;
    let mut locks = Vec::new();
    for _ in 0..4 {
        let lock = fixture.client().await.lock("shared");
        lock.lock().await.expect("free").unlock().await.expect("held");
        locks.push(lock);
    }
    let before = fixture.server().calls().await;
    let mut tasks = Vec::new();
    for number in 0..16 {
        let lock = locks[number % locks.len()].clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..TURNS {
                lock.lock().await.expect("a turn").unlock().await.expect("held");
            }
        }));
    }
    for task in tasks {
        within(ms(60_000), "it takes its turns", task).await.expect("no panic");
    }
    let (sent, commands) = cost_per_turn(&fixture, &before, 16 * TURNS).await;
    // The tasks start and end with fewer waiters, and heartbeats are sent meanwhile.
    assert!(sent <= 3.2 && commands <= 25.5, "{sent}, {commands}");
}

async fn a_lost_reply_to_a_release_that_passes_the_lock_on_loses_nothing(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let builder = Client::builder().poll_interval(NO_POLL).response_timeout(ms(300));
    let lossy = fixture.client_at(builder, &proxy.url()).await.lock("passed");
    let other = fixture.client().await.lock("passed");
    for _ in 0..5 {
        let holder = lossy.lock().await.expect("free");
        let first = waiter(&lossy, 0).await;
        let second = waiter(&other, 1).await;
        proxy.swallow_replies_to(b"passed");
        holder.unlock().await.expect("released by the first copy or the second");
        proxy.fired().await;
        for task in [first, second] {
            let guard = within(PROMPT, "each waiter acquires in order", task).await.expect("no panic");
            assert_eq!(other.inspect().await.expect("a reply").holders.len(), 1);
            guard.unlock().await.expect("held");
        }
        eventually("nothing is left", PROMPT, async || keys(&fixture).await.is_empty()).await;
    }
}

async fn a_waiter_cancelled_while_the_lock_is_passed_on_leaves_nothing(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let builder = Client::builder().poll_interval(NO_POLL);
    let slow = fixture.client_at(builder, &proxy.url()).await.lock("cancelled");
    let other = fixture.client().await.lock("cancelled");
    for pause in [0, 50, 150, 250] {
        let holder = slow.lock().await.expect("free");
        let task = waiter(&slow, 0).await;
        proxy.delay(ms(100));
        let release = tokio::spawn(holder.unlock());
        tokio::time::sleep(ms(pause)).await;
        task.abort();
        // If it has the guard already, that is dropped.
        drop(task);
        within(PROMPT, "it is released", release).await.expect("no panic").expect("held");
        proxy.pass();
        let guard = other.try_lock_for(PROMPT).await.expect("a reply").acquired().expect("free");
        guard.unlock().await.expect("held");
        eventually("nothing is left", PROMPT, async || keys(&fixture).await.is_empty()).await;
    }
}

/// Passes the lock on to a waiter that is not polled any more. Returns the future of that waiter.
async fn passed_on_unseen(lock: &Lock) -> Pin<Box<impl Future<Output = Result<Guard, Error>> + use<'_>>> {
    let guard = lock.lock().await.expect("free");
    let mut waiter = Box::pin(lock.lock());
    while lock.inspect().await.expect("a reply").queue.is_empty() {
        assert!(tokio::time::timeout(ms(20), &mut waiter).await.is_err(), "it waits");
    }
    guard.unlock().await.expect("held");
    waiter
}

async fn a_waiter_that_does_not_run_loses_its_grant_and_queues_again(fixture: Fixture) {
    let (lock, other) = (fixture.client().await.lock("asleep"), fixture.client().await.lock("asleep"));
    let mut waiter = passed_on_unseen(&lock).await;
    let passed_on = lock.inspect().await.expect("a reply").holders;
    assert_eq!(passed_on.len(), 1, "the release granted the lock to the waiter");
    // Taken back after 4 s, and skipped 4 s later; each is noticed within a second.
    let guard = within(ms(10_000) + PROMPT, "another client acquires", other.lock()).await.expect("a reply");
    assert!(tokio::time::timeout(ms(500), &mut waiter).await.is_err(), "the lock is held");
    assert!(guard.is_valid());
    assert_eq!(lock.inspect().await.expect("a reply").queue.len(), 1, "it has queued again");
    guard.unlock().await.expect("held");
    let guard = within(PROMPT, "it acquires", waiter).await.expect("a reply");
    assert!(guard.is_valid() && lock.inspect().await.expect("a reply").holders.len() == 1);
    guard.unlock().await.expect("held");
    eventually("nothing is left", PROMPT, async || keys(&fixture).await.is_empty()).await;
}

async fn a_grant_that_is_seen_late_is_not_an_expired_one(fixture: Fixture) {
    let lock = fixture.client().await.lock("late").with_lease(ms(2_000));
    let waiter = passed_on_unseen(&lock).await;
    // Longer than a response time-out for this lease. By then the grant may have been taken back, or not.
    tokio::time::sleep(ms(700)).await;
    let guard = within(PROMPT, "it acquires", waiter).await.expect("a reply");
    let rest = guard.valid_until().saturating_duration_since(Instant::now());
    assert!(rest > ms(1_000), "the rest of the lease is {rest:?}");
    guard.unlock().await.expect("held");
    eventually("nothing is left", PROMPT, async || keys(&fixture).await.is_empty()).await;
}

async fn a_waiter_dropped_before_it_sees_its_grant_leaves_nothing(fixture: Fixture) {
    let (lock, other) = (fixture.client().await.lock("unseen"), fixture.client().await.lock("unseen"));
    let waiter = passed_on_unseen(&lock).await;
    assert!(other.try_lock().await.expect("a reply").is_busy());
    drop(waiter);
    let guard = other.try_lock_for(PROMPT).await.expect("a reply").acquired().expect("free");
    guard.unlock().await.expect("held");
    eventually("nothing is left", PROMPT, async || keys(&fixture).await.is_empty()).await;
}
