//! Requests that wait for replicas are batched on connections of their own, and stall no other request.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard, TryAcquire};
use turnlock_testkit::{FaultProxy, RedisServer, eventually, within};

use super::{Fixture, info, ms, shortfall, start_replica, start_replicas, until_replicated};
use crate::fixture::{NO_POLL, PROMPT};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    many_concurrent_acquires_cost_few_waits,
    thousands_of_acquires_lose_no_hold,
    prolonging_a_hold_does_not_wait_for_acquires,
    a_stalled_wait_stalls_no_other_request,
    a_cancelled_queued_acquire_is_not_sent,
    a_refusal_waits_for_no_replica,
];

/// Spawns an acquire that waits for a replica that does not reply.
async fn spawn_stalled(
    fixture: &Fixture,
    client: &Client,
    lease: Duration,
) -> JoinHandle<Result<TryAcquire<Guard>, Error>> {
    let lock = client.lock("stalled").with_lease(lease).with_replicas(1);
    let stalled = tokio::spawn(async move { lock.try_lock().await });
    let waits = async || info(fixture.server(), "clients", "blocked_clients").await == "1";
    eventually("it waits for the replica", ms(2_000), waits).await;
    stalled
}

/// The number of acquires that the server has executed.
async fn acquires(server: &RedisServer) -> u64 {
    server.calls().await.of("hset")
}

async fn many_concurrent_acquires_cost_few_waits(fixture: Fixture) {
    let _replicas = start_replicas(&fixture, 2).await;
    let client = fixture.client().await;
    // Opens the connection.
    client.lock("first").with_replicas(2).lock().await.expect("free").unlock().await.expect("held");
    let before = fixture.server().calls().await;
    let tasks = (0..64).map(|number| {
        let lock = client.lock(&format!("lock {number}")).with_replicas(2);
        tokio::spawn(async move { lock.lock().await })
    });
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        assert_eq!(task.expect("no panic").expect("free").replicas(), 2);
    }
    let waits = fixture.server().calls().await.since(&before).of("wait");
    assert!((1..=16).contains(&waits), "{waits} for 64 locks");
}

async fn thousands_of_acquires_lose_no_hold(fixture: Fixture) {
    const LOCKS: u64 = 3_000;
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let _replica = start_replica(&fixture, proxy.port()).await;
    until_replicated(&fixture, 1).await;
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(6_000)).poll_interval(NO_POLL)).await;
    let held = client.lock("held").with_replicas(1).lock().await.expect("free");
    let end = held.valid_until();
    // In each direction: a round trip takes twice as long.
    proxy.delay(ms(100));
    let before = fixture.server().calls().await;
    let tasks = (0..LOCKS).map(|number| {
        let lock = client.lock(&format!("lock {number}")).with_replicas(1);
        tokio::spawn(async move { lock.lock().await })
    });
    let all = join_all(tasks.collect::<Vec<_>>());
    let guards = tokio::select! {
        guards = all => guards,
        reason = held.lost() => panic!("lost while others were granted: {reason:?}"),
    };
    for guard in &guards {
        assert_eq!(guard.as_ref().expect("no panic").as_ref().expect("free").replicas(), 1);
    }
    let waits = fixture.server().calls().await.since(&before).of("wait");
    assert!(waits < LOCKS / 64, "{waits} round trips to the replica for {LOCKS} locks");
    let renewed = async || held.valid_until() > end && held.is_valid();
    eventually("it is renewed meanwhile", ms(6_000), renewed).await;
    proxy.pass();
    held.unlock().await.expect("held");
}

async fn prolonging_a_hold_does_not_wait_for_acquires(fixture: Fixture) {
    let _replicas = start_replicas(&fixture, 1).await;
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let builder =
        Client::builder().watchdog_timeout(ms(30_000)).response_timeout(ms(9_000)).poll_interval(NO_POLL);
    let client = fixture.client_at(builder, &proxy.url()).await;
    let held = client.lock("held").with_replicas(1).lock().await.expect("free");
    // The connection for acquires delivers nothing from here on.
    proxy.hold_request(b"stalled");
    let lock = client.lock("stalled").with_replicas(1);
    let stalled = tokio::spawn(async move { lock.try_lock().await });
    proxy.fired().await;
    within(ms(4_000), "a delayed unlock", held.unlock_after(ms(60_000))).await.expect("acknowledged");
    assert!(!stalled.is_finished(), "else this proves nothing");
    stalled.abort();
}

async fn a_stalled_wait_stalls_no_other_request(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 1).await;
    let builder =
        Client::builder().watchdog_timeout(ms(12_000)).response_timeout(ms(3_000)).poll_interval(NO_POLL);
    let client = fixture.client_with(builder).await;
    let held = client.lock("held").with_replicas(1).lock().await.expect("free");
    replicas[0].pause();
    let stalled = spawn_stalled(&fixture, &client, ms(12_000)).await;
    let guard = client.lock("plain").lock().await.expect("free");
    guard.unlock().await.expect("held");
    held.unlock().await.expect("a release waits for no replica");
    assert!(!stalled.is_finished(), "they were delayed by it");
    assert_eq!(shortfall(stalled.await.expect("no panic")), (1, 0));
    replicas[0].resume();
}

async fn a_cancelled_queued_acquire_is_not_sent(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 1).await;
    let builder =
        Client::builder().watchdog_timeout(ms(30_000)).response_timeout(ms(8_000)).poll_interval(NO_POLL);
    let client = fixture.client_with(builder).await;
    replicas[0].pause();
    let stalled = spawn_stalled(&fixture, &client, ms(30_000)).await;
    let before = acquires(fixture.server()).await;
    for number in 0..100 {
        let lock = client.lock(&format!("lock {number}")).with_replicas(1);
        // Queued, then cancelled.
        assert!(Box::pin(lock.lock()).now_or_never().is_none());
    }
    replicas[0].resume();
    let guard = client.lock("last").with_replicas(1).lock().await.expect("free");
    assert_eq!(acquires(fixture.server()).await - before, 1, "only the last one is sent");
    drop((guard, stalled.await.expect("no panic").expect("the replica is back")));
    let left = client.shutdown(ms(10_000)).await;
    assert!(left.is_clean(), "cancelled requests leave no work: {left:?}");
    assert_eq!(acquires(fixture.server()).await - before, 1);
}

async fn a_refusal_waits_for_no_replica(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 1).await;
    // A request that waits for the replica takes longer than the limit below.
    let builder =
        Client::builder().watchdog_timeout(ms(30_000)).response_timeout(ms(9_000)).poll_interval(NO_POLL);
    let (client, other) = (fixture.client_with(builder).await, fixture.client().await);
    let lock = client.lock("a").with_replicas(1);
    lock.lock().await.expect("free").unlock().await.expect("held");
    let _held = other.lock("a").lock().await.expect("free");
    replicas[0].pause();
    let refused = within(PROMPT, "a refusal needs no replica", lock.try_lock()).await;
    assert!(refused.expect("a reply").is_busy());
    replicas[0].resume();
}
