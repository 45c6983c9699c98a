//! Fewer replicas than asked for: nothing counts, and nothing is left behind.

use std::time::{Duration, Instant};

use turnlock::{Client, MultiLock, RedLock};
use turnlock_testkit::{FaultProxy, eventually, in_time, within};

use super::{Rig, Thing, hasty, in_touch, ms, replica_by, replicas, shortfall};
use crate::rig::{NO_POLL, PROMPT};
use crate::{Case, cases};

pub(crate) const KIND_CASES: &[Case] = cases![
    with_too_few_replicas_it_is_given_back,
    it_is_tried_again_and_counts_once_when_the_replica_is_back,
];

pub(crate) const CASES: &[Case] = cases![
    without_replicas_nothing_is_granted,
    a_replica_that_hears_nothing_does_not_count,
    a_shortfall_is_borne_for_as_long_as_a_store_that_is_away,
    a_reentry_that_too_few_acknowledge_is_taken_down_again,
    groups_give_back_all_members,
];

async fn with_too_few_replicas_it_is_given_back(rig: Rig) {
    let replicas = replicas(&rig, 2).await;
    let client = rig.client_with(hasty()).await;
    let thing = Thing::new(&client, "a").await;
    in_touch(&rig, 2).await;
    replicas[1].pause();
    assert_eq!(shortfall(thing.take(2, Duration::ZERO).await), (2, 1));
    assert!(thing.is_free().await, "given back before the error was told");
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        let held = thing.take(1, Duration::ZERO).await.expect("one is there").expect("free");
        fastest = fastest.min(began.elapsed());
        assert_eq!(held.replicas(), 1);
        held.give_back().await;
    }
    assert!(fastest < ms(350), "one is there, and nobody waits for the other: {fastest:?}");
    replicas[1].resume();
}

async fn it_is_tried_again_and_counts_once_when_the_replica_is_back(rig: Rig) {
    let replicas = replicas(&rig, 2).await;
    let client = rig.client_with(hasty().retry_for(ms(30_000))).await;
    let thing = Thing::new(&client, "a").await;
    in_touch(&rig, 2).await;
    replicas[1].pause();
    let before = rig.server().calls().await;
    let taking = thing.take(2, ms(20_000));
    let resuming = async {
        let tried = async || rig.server().calls().await.since(&before).of("wait") >= 2;
        eventually("it is tried twice", ms(15_000), tried).await;
        replicas[1].resume();
    };
    let (held, ()) = tokio::join!(taking, resuming);
    let held = held.expect("both are there").expect("free");
    assert_eq!(held.replicas(), 2);
    held.give_back().await;
    assert!(thing.is_free().await, "it counted once");
}

async fn without_replicas_nothing_is_granted(rig: Rig) {
    let client = rig.client_with(hasty()).await;
    let lock = client.lock("a").acknowledged_by(1);
    assert_eq!(shortfall(lock.try_lock().await), (1, 0));
    assert!(!lock.is_locked().await.expect("an answer"));
    let refused = lock.try_lock().await.expect_err("no replicas").to_string();
    assert!(refused.contains("\"a\"") && refused.contains("0 of 1 replicas"), "{refused}");
}

async fn a_replica_that_hears_nothing_does_not_count(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let replica = replica_by(&rig, proxy.port()).await;
    in_touch(&rig, 1).await;
    let client = rig.client_with(hasty()).await;
    let lock = client.lock("a").acknowledged_by(1);
    let guard = lock.lock().await.expect("it hears");
    assert_eq!(guard.replicas(), 1);
    guard.unlock().await.expect("held");
    proxy.black_hole();
    assert_eq!(shortfall(lock.try_lock().await), (1, 0));
    assert!(!lock.is_locked().await.expect("an answer"));
    proxy.pass();
    in_touch(&rig, 1).await;
    assert_eq!(lock.lock().await.expect("it hears again").replicas(), 1);
    drop(replica);
}

async fn a_shortfall_is_borne_for_as_long_as_a_store_that_is_away(rig: Rig) {
    let client = rig.client_with(hasty().retry_for(ms(1_500))).await;
    let lock = client.lock("a").acknowledged_by(1);
    let began = Instant::now();
    assert_eq!(shortfall(lock.try_lock().await), (1, 0));
    assert!(began.elapsed() >= ms(440), "once: {:?}", began.elapsed());
    in_time("once", began, PROMPT);
    let began = Instant::now();
    assert_eq!(shortfall(lock.try_lock_for(ms(1_200)).await), (1, 0));
    assert!(began.elapsed() >= ms(1_100), "for the wait: {:?}", began.elapsed());
    in_time("for the wait", began, ms(1_200) + PROMPT);
    let began = Instant::now();
    assert_eq!(shortfall(lock.lock().await), (1, 0));
    assert!(began.elapsed() >= ms(1_400), "for a time: {:?}", began.elapsed());
    in_time("for a time", began, ms(1_500) + PROMPT);
    assert!(!lock.is_locked().await.expect("an answer"));
}

async fn a_reentry_that_too_few_acknowledge_is_taken_down_again(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let client = rig.client_with(hasty()).await;
    let me = client.owner();
    let lock = client.lock("a").owned_by(&me);
    let guard = lock.acknowledged_by(1).lock().await.expect("free");
    replicas[0].pause();
    assert_eq!(shortfall(guard.reenter().await), (1, 0));
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 1, "before the error was told");
    assert_eq!(shortfall(lock.acknowledged_by(0).lock().await), (1, 0), "no fewer than the hold itself");
    assert!(guard.is_valid() && guard.hold_count() == 1);
    replicas[0].resume();
    let inner = guard.reenter().await.expect("it is back");
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 2);
    drop(inner);
    guard.unlock().await.expect("held");
}

async fn groups_give_back_all_members(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let client = rig.client_with(Client::builder().poll(NO_POLL).response_timeout(ms(800))).await;
    let [one, two] = ["one", "two"].map(|name| client.lock(name).acknowledged_by(1));
    let both = MultiLock::new([one.clone(), client.lock("two")]).expect("two locks");
    let red = RedLock::new([two.clone()]).expect("a lock").node_timeout(ms(2_000));
    both.lock().await.expect("free").unlock().await.expect("held");
    red.lock().await.expect("free").unlock().await.expect("held");
    replicas[0].pause();
    assert_eq!(shortfall(both.try_lock().await), (1, 0));
    let refused = red.try_lock().await.expect_err("too few");
    assert!(refused.to_string().contains("0 of 1 replicas"), "{refused}");
    let free = async || matches!((one.is_locked().await, two.is_locked().await), (Ok(false), Ok(false)));
    eventually("all is given back", PROMPT, free).await;
    let waiting = both.lock();
    let resuming = async { replicas[0].resume() };
    let (guard, ()) = tokio::join!(within(ms(10_000), "it is tried again", waiting), resuming);
    guard.expect("it is back").unlock().await.expect("held");
}
