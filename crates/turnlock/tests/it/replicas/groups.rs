//! Those who wait for replicas have connections of their own, go together, and stall nobody else.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard};
use turnlock_testkit::{FaultProxy, RedisServer, eventually, within};

use super::{Rig, in_touch, info, ms, replica_by, replicas, shortfall};
use crate::rig::{NO_POLL, PROMPT};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    many_at_once_cost_few_waits,
    thousands_of_acquires_cost_no_hold,
    what_prolongs_a_hold_does_not_wait_for_acquires,
    a_stalled_wait_stalls_nobody_else,
    who_is_gone_before_its_turn_is_not_sent,
    who_is_refused_does_not_wait,
];

/// A lock that is being taken, and waits for a replica that does not answer.
async fn stalled(rig: &Rig, client: &Client, lease: Duration) -> JoinHandle<Result<Option<Guard>, Error>> {
    let lock = client.lock("stalled").lease(lease).acknowledged_by(1);
    let stalled = tokio::spawn(async move { lock.try_lock().await });
    let waits = async || info(rig.server(), "clients", "blocked_clients").await == "1";
    eventually("it waits for the replica", ms(2_000), waits).await;
    stalled
}

/// How many acquires the server has done.
async fn acquires(server: &RedisServer) -> u64 {
    server.calls().await.of("hset")
}

async fn many_at_once_cost_few_waits(rig: Rig) {
    let _replicas = replicas(&rig, 2).await;
    let client = rig.client().await;
    // The connection is there from now on.
    client.lock("first").acknowledged_by(2).lock().await.expect("free").unlock().await.expect("held");
    let before = rig.server().calls().await;
    let tasks = (0..64).map(|number| {
        let lock = client.lock(&format!("lock {number}")).acknowledged_by(2);
        tokio::spawn(async move { lock.lock().await })
    });
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        assert_eq!(task.expect("no panic").expect("free").replicas(), 2);
    }
    let waits = rig.server().calls().await.since(&before).of("wait");
    assert!((1..=16).contains(&waits), "{waits} for 64 locks");
}

async fn thousands_of_acquires_cost_no_hold(rig: Rig) {
    const LOCKS: u64 = 3_000;
    let proxy = FaultProxy::start(rig.server().port()).await;
    let _replica = replica_by(&rig, proxy.port()).await;
    in_touch(&rig, 1).await;
    let client = rig.client_with(Client::builder().watchdog(ms(6_000)).poll(NO_POLL)).await;
    let held = client.lock("held").acknowledged_by(1).lock().await.expect("free");
    let end = held.valid_until();
    // In both directions: a round trip takes twice as long.
    proxy.delay(ms(100));
    let before = rig.server().calls().await;
    let tasks = (0..LOCKS).map(|number| {
        let lock = client.lock(&format!("lock {number}")).acknowledged_by(1);
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
    let waits = rig.server().calls().await.since(&before).of("wait");
    assert!(waits < LOCKS / 64, "{waits} round trips to the replica for {LOCKS} locks");
    let renewed = async || held.valid_until() > end && held.is_valid();
    eventually("it is renewed, beside all of them", ms(6_000), renewed).await;
    proxy.pass();
    held.unlock().await.expect("held");
}

async fn what_prolongs_a_hold_does_not_wait_for_acquires(rig: Rig) {
    let _replicas = replicas(&rig, 1).await;
    let proxy = FaultProxy::start(rig.server().port()).await;
    let builder = Client::builder().watchdog(ms(30_000)).response_timeout(ms(9_000)).poll(NO_POLL);
    let client = rig.client_at(builder, &proxy.url()).await;
    let held = client.lock("held").acknowledged_by(1).lock().await.expect("free");
    // The connection of the acquires delivers nothing from here on.
    proxy.hold_request(b"stalled");
    let lock = client.lock("stalled").acknowledged_by(1);
    let stalled = tokio::spawn(async move { lock.try_lock().await });
    proxy.fired().await;
    within(ms(4_000), "it is kept for a time", held.keep_for(ms(60_000))).await.expect("acknowledged");
    assert!(!stalled.is_finished(), "else this proves nothing");
    stalled.abort();
}

async fn a_stalled_wait_stalls_nobody_else(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let builder = Client::builder().watchdog(ms(12_000)).response_timeout(ms(3_000)).poll(NO_POLL);
    let client = rig.client_with(builder).await;
    let held = client.lock("held").acknowledged_by(1).lock().await.expect("free");
    replicas[0].pause();
    let stalled = stalled(&rig, &client, ms(12_000)).await;
    let guard = client.lock("plain").lock().await.expect("free");
    guard.unlock().await.expect("held");
    held.unlock().await.expect("a release waits for no replica");
    assert!(!stalled.is_finished(), "they have waited for it");
    assert_eq!(shortfall(stalled.await.expect("no panic")), (1, 0));
    replicas[0].resume();
}

async fn who_is_gone_before_its_turn_is_not_sent(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let builder = Client::builder().watchdog(ms(30_000)).response_timeout(ms(8_000)).poll(NO_POLL);
    let client = rig.client_with(builder).await;
    replicas[0].pause();
    let stalled = stalled(&rig, &client, ms(30_000)).await;
    let before = acquires(rig.server()).await;
    for number in 0..100 {
        let lock = client.lock(&format!("lock {number}")).acknowledged_by(1);
        // Asked for, and given up.
        assert!(Box::pin(lock.lock()).now_or_never().is_none());
    }
    replicas[0].resume();
    let guard = client.lock("last").acknowledged_by(1).lock().await.expect("free");
    assert_eq!(acquires(rig.server()).await - before, 1, "only the last one was there at its turn");
    drop((guard, stalled.await.expect("no panic").expect("the replica is back")));
    let left = client.shutdown(ms(10_000)).await;
    assert!(left.is_clean(), "nothing is left to be done for those that are gone: {left:?}");
    assert_eq!(acquires(rig.server()).await - before, 1);
}

async fn who_is_refused_does_not_wait(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    // Who waits for the replica waits for longer than it may take here.
    let builder = Client::builder().watchdog(ms(30_000)).response_timeout(ms(9_000)).poll(NO_POLL);
    let (client, other) = (rig.client_with(builder).await, rig.client().await);
    let lock = client.lock("a").acknowledged_by(1);
    lock.lock().await.expect("free").unlock().await.expect("held");
    let _held = other.lock("a").lock().await.expect("free");
    replicas[0].pause();
    let refused = within(PROMPT, "a refusal needs no replica", lock.try_lock()).await;
    assert!(refused.expect("an answer").is_none());
    replicas[0].resume();
}
