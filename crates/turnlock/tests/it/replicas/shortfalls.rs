//! Fewer replicas than required: nothing is granted, and nothing is left behind.

use std::time::{Duration, Instant};

use turnlock::{Client, MultiLock, RedLock};
use turnlock_testkit::{FaultProxy, eventually, in_time, within};

use super::{
    Fixture, Resource, ms, short_timeouts, shortfall, start_replica, start_replicas, until_replicated,
};
use crate::fixture::{NO_POLL, PROMPT};
use crate::{Case, cases};

pub(crate) const KIND_CASES: &[Case] =
    cases![a_grant_with_too_few_replicas_is_released, a_retried_grant_counts_once_when_the_replica_is_back,];

pub(crate) const CASES: &[Case] = cases![
    without_replicas_nothing_is_granted,
    a_disconnected_replica_does_not_count,
    a_shortfall_is_retried_for_as_long_as_an_outage,
    a_reentry_with_too_few_replicas_is_undone,
    groups_release_all_members,
];

async fn a_grant_with_too_few_replicas_is_released(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 2).await;
    let client = fixture.client_with(short_timeouts()).await;
    let resource = Resource::new(&client, "a").await;
    until_replicated(&fixture, 2).await;
    replicas[1].pause();
    assert_eq!(shortfall(resource.acquire(2, Duration::ZERO).await), (2, 1));
    assert!(resource.is_free().await, "released before the error is returned");
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        let held = resource.acquire(1, Duration::ZERO).await.expect("one replica").expect("free");
        fastest = fastest.min(began.elapsed());
        assert_eq!(held.replicas(), 1);
        held.expect_release().await;
    }
    assert!(fastest < ms(350), "it waited for a second replica: {fastest:?}");
    replicas[1].resume();
}

async fn a_retried_grant_counts_once_when_the_replica_is_back(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 2).await;
    let client = fixture.client_with(short_timeouts().retry_for(ms(30_000))).await;
    let resource = Resource::new(&client, "a").await;
    until_replicated(&fixture, 2).await;
    replicas[1].pause();
    let before = fixture.server().calls().await;
    let taking = resource.acquire(2, ms(20_000));
    let resuming = async {
        let tried = async || fixture.server().calls().await.since(&before).of("wait") >= 2;
        eventually("it is sent twice", ms(15_000), tried).await;
        replicas[1].resume();
    };
    let (held, ()) = tokio::join!(taking, resuming);
    let held = held.expect("both replicas").expect("free");
    assert_eq!(held.replicas(), 2);
    held.expect_release().await;
    assert!(resource.is_free().await, "it counted once");
}

async fn without_replicas_nothing_is_granted(fixture: Fixture) {
    let client = fixture.client_with(short_timeouts()).await;
    let lock = client.lock("a").with_replicas(1);
    assert_eq!(shortfall(lock.try_lock().await), (1, 0));
    assert!(!lock.is_locked().await.expect("a reply"));
    let refused = lock.try_lock().await.expect_err("no replicas").to_string();
    assert!(refused.contains("\"a\"") && refused.contains("0 of 1 replicas"), "{refused}");
}

async fn a_disconnected_replica_does_not_count(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let replica = start_replica(&fixture, proxy.port()).await;
    until_replicated(&fixture, 1).await;
    let client = fixture.client_with(short_timeouts()).await;
    let lock = client.lock("a").with_replicas(1);
    let guard = lock.lock().await.expect("it is connected");
    assert_eq!(guard.replicas(), 1);
    guard.unlock().await.expect("held");
    proxy.black_hole();
    assert_eq!(shortfall(lock.try_lock().await), (1, 0));
    assert!(!lock.is_locked().await.expect("a reply"));
    proxy.pass();
    until_replicated(&fixture, 1).await;
    assert_eq!(lock.lock().await.expect("it is connected again").replicas(), 1);
    drop(replica);
}

async fn a_shortfall_is_retried_for_as_long_as_an_outage(fixture: Fixture) {
    let client = fixture.client_with(short_timeouts().retry_for(ms(1_500))).await;
    let lock = client.lock("a").with_replicas(1);
    let began = Instant::now();
    assert_eq!(shortfall(lock.try_lock().await), (1, 0));
    assert!(began.elapsed() >= ms(440), "it did not wait for replicas: {:?}", began.elapsed());
    in_time("one attempt", began, PROMPT);
    let began = Instant::now();
    assert_eq!(shortfall(lock.try_lock_for(ms(1_200)).await), (1, 0));
    assert!(began.elapsed() >= ms(1_100), "it gave up early: {:?}", began.elapsed());
    in_time("within the wait", began, ms(1_200) + PROMPT);
    let began = Instant::now();
    assert_eq!(shortfall(lock.lock().await), (1, 0));
    assert!(began.elapsed() >= ms(1_400), "it gave up early: {:?}", began.elapsed());
    in_time("within retry_for", began, ms(1_500) + PROMPT);
    assert!(!lock.is_locked().await.expect("a reply"));
}

async fn a_reentry_with_too_few_replicas_is_undone(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 1).await;
    let client = fixture.client_with(short_timeouts()).await;
    let me = client.owner();
    let lock = client.lock("a").with_owner(&me);
    let guard = lock.with_replicas(1).lock().await.expect("free");
    replicas[0].pause();
    assert_eq!(shortfall(guard.reenter().await), (1, 0));
    assert_eq!(lock.hold_count(&me).await.expect("a reply"), 1, "undone before the error is returned");
    assert_eq!(shortfall(lock.with_replicas(0).lock().await), (1, 0), "no fewer than for the hold");
    assert!(guard.is_valid() && guard.hold_count() == 1);
    replicas[0].resume();
    let inner = guard.reenter().await.expect("it is back");
    assert_eq!(lock.hold_count(&me).await.expect("a reply"), 2);
    drop(inner);
    guard.unlock().await.expect("held");
}

async fn groups_release_all_members(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 1).await;
    let client =
        fixture.client_with(Client::builder().poll_interval(NO_POLL).response_timeout(ms(800))).await;
    let [one, two] = ["one", "two"].map(|name| client.lock(name).with_replicas(1));
    let both = MultiLock::new([one.clone(), client.lock("two")]).expect("two locks");
    let red = RedLock::new([two.clone()]).expect("a lock").with_node_timeout(ms(2_000));
    both.lock().await.expect("free").unlock().await.expect("held");
    red.lock().await.expect("free").unlock().await.expect("held");
    replicas[0].pause();
    assert_eq!(shortfall(both.try_lock().await), (1, 0));
    let refused = red.try_lock().await.expect_err("too few");
    assert!(turnlock_testkit::error_chain(&refused).contains("0 of 1 replicas"), "{refused}");
    let free = async || matches!((one.is_locked().await, two.is_locked().await), (Ok(false), Ok(false)));
    eventually("all members are released", PROMPT, free).await;
    let waiting = both.lock();
    let resuming = async { replicas[0].resume() };
    let (guard, ()) = tokio::join!(within(ms(10_000), "it is retried", waiting), resuming);
    guard.expect("it is back").unlock().await.expect("held");
}
