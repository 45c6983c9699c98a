//! Local hand-over: for a short window, a lock passes between waiters of one client without a request to the store, and without
//! weaker guarantees.

use std::time::{Duration, Instant};

use turnlock::Client;
use turnlock_testkit::conformance::hand_over::{
    LONG_WINDOW, client_with, granted, holders, poll_once, spawn_waiter,
};
use turnlock_testkit::{FaultProxy, within};

use crate::fixture::{Fixture, NO_POLL, PROMPT, ms, until_waiting};
use crate::{Case, cases};

/// For a server of their own, whose calls can be counted.
pub(crate) const CASES: &[Case] = cases![
    a_hand_over_window_costs_two_calls,
    a_thousand_waiters_cost_few_calls,
    a_reentry_in_flight_is_not_handed_over,
    a_slow_connection_does_not_use_up_the_window,
    a_free_lock_is_requested_before_a_wait_times_out,
];

async fn a_reentry_in_flight_is_not_handed_over(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let builder = Client::builder().poll_interval(NO_POLL).hand_over_window(LONG_WINDOW);
    let lock = fixture.client_at(builder, &proxy.url()).await.lock(&fixture.name());
    for _ in 0..10 {
        let guard = lock.lock().await.expect("free");
        let task = spawn_waiter(&lock, 0).await;
        proxy.delay(LONG_WINDOW);
        let mut inner = Box::pin(guard.reenter());
        poll_once(&mut inner).await;
        // It was sent, and completes without its caller.
        drop(inner);
        let mut release = Box::pin(guard.unlock());
        poll_once(&mut release).await;
        proxy.pass();
        release.await.expect("held");
        let guard = granted(task).await;
        assert_eq!(holders(&lock).await, [(guard.owner_id().clone(), 1)]);
        guard.unlock().await.expect("held");
    }
}

async fn a_slow_connection_does_not_use_up_the_window(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let builder =
        Client::builder().poll_interval(NO_POLL).hand_over_window(ms(2_000)).response_timeout(ms(8_000));
    let lock = fixture.client_at(builder, &proxy.url()).await.lock(&fixture.name());
    let holder = fixture.client().await.lock(lock.name()).lock().await.expect("free");
    let mut turns = Vec::new();
    for before in 0..3 {
        turns.push(spawn_waiter(&lock, before).await);
    }
    // A round trip takes longer than the window.
    proxy.delay(ms(1_100));
    holder.unlock().await.expect("held");
    let mut owners = Vec::new();
    for turn in turns {
        let guard = within(ms(5_000) + PROMPT, "it is granted the lock", turn).await.expect("no panic");
        owners.push(guard.owner_id().clone());
        drop(guard);
    }
    assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
}

async fn a_hand_over_window_costs_two_calls(fixture: Fixture) {
    let lock = client_with(&fixture, LONG_WINDOW).await.lock(&fixture.name());
    let before = fixture.server().calls().await;
    let guard = lock.lock().await.expect("free");
    let mut turns = Vec::new();
    for _ in 0..100 {
        let waiting = lock.clone();
        turns.push(tokio::spawn(async move {
            let guard = waiting.lock().await.expect("a turn");
            tokio::task::yield_now().await;
            guard.unlock().await.expect("held");
        }));
    }
    until_waiting(&lock, 100).await;
    let polls = fixture.server().calls().await.since(&before).of("evalsha") - 1;
    let start = Instant::now();
    guard.unlock().await.expect("held");
    for turn in turns {
        within(ms(20_000), "it is granted the lock", turn).await.expect("no panic");
    }
    let calls = fixture.server().calls().await.since(&before);
    assert_eq!((calls.of("hset"), calls.of("publish")), (1, 1), "one acquire, one release");
    // A waiter that is not handed the lock for a tenth of a second subscribes, and tries once more.
    let late = u64::try_from(start.elapsed().as_millis()).unwrap() / 100;
    assert!(calls.of("evalsha") - polls <= 2 + 2 * (1 + late), "{calls:?}");
}

async fn a_thousand_waiters_cost_few_calls(fixture: Fixture) {
    const WAITERS: usize = 1_000;
    let lock = client_with(&fixture, ms(1_000)).await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    let mut turns = Vec::new();
    for _ in 0..WAITERS {
        let waiting = lock.clone();
        turns.push(tokio::spawn(async move {
            waiting.lock().await.expect("a turn").unlock().await.expect("held");
        }));
    }
    until_waiting(&lock, WAITERS).await;
    let before = fixture.server().calls().await;
    guard.unlock().await.expect("held");
    for turn in turns {
        within(ms(60_000), "it is granted the lock", turn).await.expect("no panic");
    }
    let calls = fixture.server().calls().await.since(&before);
    let calls = calls.of("evalsha") + calls.of("subscribe");
    println!("{WAITERS} turns for {calls} calls");
    assert!(calls <= 100, "{calls} calls for {WAITERS} turns");
}

/// A waiter yields to other subscribers of the release. When its wait ends before their turns are over, it tries once.
async fn a_free_lock_is_requested_before_a_wait_times_out(fixture: Fixture) {
    let client =
        fixture.client_with(Client::builder().poll_interval(NO_POLL).hand_over_window(Duration::ZERO)).await;
    let mut subscribers = Vec::new();
    for _ in 0..5 {
        let server = redis::Client::open(fixture.server().url()).expect("an address");
        let mut subscriber = server.get_async_pubsub().await.expect("a connection");
        subscriber.subscribe("redisson_lock__channel:{x}").await.expect("subscribed");
        subscribers.push(subscriber);
    }
    let lock = client.lock("x");
    let mut rounds = 0;
    // On a busy machine the release may come too late to be received within the wait: such a round shows nothing.
    for _ in 0..500 {
        let guard = lock.lock().await.expect("free");
        let start = Instant::now();
        let release = async {
            guard.unlock().await.expect("held");
            start.elapsed()
        };
        let (waited, took) = tokio::join!(lock.try_lock_for(ms(8)), release);
        let waited = waited.expect("a reply").acquired();
        if took < ms(4) {
            rounds += 1;
            assert!(waited.is_some(), "timed out without a request, although it was free after {took:?}");
        }
        if let Some(guard) = waited {
            guard.unlock().await.expect("held");
        }
        if rounds == 20 {
            return;
        }
    }
    panic!("no release took less than 4 ms often enough: {rounds} times");
}
