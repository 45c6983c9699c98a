//! Those who wait for replicas have a connection of their own, go together, and stall nobody else.

use std::time::Instant;

use futures_util::future::join_all;
use turnlock::Client;
use turnlock_testkit::{eventually, within};

use super::{Rig, info, ms, replicas, shortfall};
use crate::rig::{NO_POLL, PROMPT};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] =
    cases![many_at_once_cost_few_waits, a_stalled_wait_stalls_nobody_else, who_is_refused_does_not_wait];

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

async fn a_stalled_wait_stalls_nobody_else(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let builder = Client::builder().watchdog(ms(12_000)).response_timeout(ms(3_000)).poll(NO_POLL);
    let client = rig.client_with(builder).await;
    let held = client.lock("held").acknowledged_by(1).lock().await.expect("free");
    replicas[0].pause();
    let stalled = client.lock("stalled").acknowledged_by(1);
    let stalled = tokio::spawn(async move { stalled.try_lock().await });
    let waits = async || info(rig.server(), "clients", "blocked_clients").await == "1";
    eventually("it waits for the replica", ms(2_000), waits).await;
    let began = Instant::now();
    let guard = client.lock("plain").lock().await.expect("free");
    guard.unlock().await.expect("held");
    held.unlock().await.expect("a release waits for no replica");
    assert!(began.elapsed() < ms(200), "{:?}", began.elapsed());
    assert!(!stalled.is_finished());
    assert_eq!(shortfall(stalled.await.expect("no panic")), (1, 0));
    replicas[0].resume();
}

async fn who_is_refused_does_not_wait(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let builder = Client::builder().watchdog(ms(12_000)).response_timeout(ms(3_000)).poll(NO_POLL);
    let (client, other) = (rig.client_with(builder).await, rig.client().await);
    let lock = client.lock("a").acknowledged_by(1);
    lock.lock().await.expect("free").unlock().await.expect("held");
    let _held = other.lock("a").lock().await.expect("free");
    replicas[0].pause();
    let refused = within(PROMPT, "a refusal needs no replica", lock.try_lock()).await;
    assert!(refused.expect("an answer").is_none());
    replicas[0].resume();
}
