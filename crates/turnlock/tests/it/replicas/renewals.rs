//! A renewal counts when it was acknowledged: else it is unknown, and tried again until the local end of the lease.

use std::time::Instant;

use redis::AsyncCommands;
use turnlock::{Client, Error, LostReason};
use turnlock_testkit::{eventually, in_time, within};

use super::{Rig, hasty, ms, replicas};
use crate::revoked::an_acknowledged_hold_that_is_denied_costs_no_other;
use crate::rig::{NO_POLL, PROMPT};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_hold_that_is_not_acknowledged_is_lost_at_its_end_and_not_before,
    a_replica_that_comes_back_in_time_saves_the_hold,
    what_is_gone_is_lost_at_once_whatever_the_replicas_say,
    what_is_kept_is_acknowledged,
    fewer_renewals_than_holds_and_each_by_its_number,
    an_acknowledged_hold_that_is_denied_costs_no_other,
];

async fn a_hold_that_is_not_acknowledged_is_lost_at_its_end_and_not_before(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let plain = client.lock("plain").lock().await.expect("free");
    let guard = client.lock("a").acknowledged_by(1).lock().await.expect("free");
    let end = guard.valid_until();
    eventually("it is renewed", PROMPT, async || guard.valid_until() > end + ms(200)).await;
    replicas[0].pause();
    // A renewal that was acknowledged just before may still come in.
    let waits = rig.server().calls().await;
    let unknown = async || rig.server().calls().await.since(&waits).of("wait") >= 2;
    eventually("it is tried again and again", ms(3_000), unknown).await;
    let end = guard.valid_until();
    assert!(guard.is_valid(), "unknown is not lost");
    let reason = within(PROMPT, "the lease ends", guard.lost()).await;
    assert!(matches!(reason, LostReason::NotRenewed { .. }), "{reason}");
    assert!(Instant::now() + ms(5) >= end, "lost before its end");
    in_time("it is told at its end", end, PROMPT);
    assert!(plain.is_valid(), "who asked for none goes on");
    drop(guard);
    let free = async || matches!(client.lock("a").is_locked().await, Ok(false));
    eventually("what the store still had is given back", PROMPT, free).await;
    replicas[0].resume();
}

async fn a_replica_that_comes_back_in_time_saves_the_hold(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let guard = client.lock("a").acknowledged_by(1).lock().await.expect("free");
    replicas[0].pause();
    let waits = rig.server().calls().await;
    let unknown = async || rig.server().calls().await.since(&waits).of("wait") >= 1;
    eventually("a renewal is not acknowledged", ms(2_500), unknown).await;
    let end = guard.valid_until();
    replicas[0].resume();
    eventually("it goes on", ms(2_500), async || guard.valid_until() > end + ms(200)).await;
    assert!(guard.is_valid() && guard.replicas() == 1);
    guard.unlock().await.expect("held");
}

async fn what_is_gone_is_lost_at_once_whatever_the_replicas_say(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let client = rig.client_with(Client::builder().watchdog(ms(6_000)).poll(NO_POLL)).await;
    let [gone, stays] = ["gone", "stays"].map(|name| client.lock(name).acknowledged_by(1));
    let (gone, stays) = (gone.lock().await.expect("free"), stays.lock().await.expect("free"));
    replicas[0].pause();
    let _: () = redis::cmd("DEL").arg("gone").query_async(&mut rig.plain().await).await.expect("gone");
    assert_eq!(within(ms(6_000), "the next renewal tells", gone.lost()).await, LostReason::Taken);
    assert!(stays.is_valid(), "of the same request, and unknown");
    replicas[0].resume();
}

async fn what_is_kept_is_acknowledged(rig: Rig) {
    let replicas = replicas(&rig, 1).await;
    let client = rig.client_with(hasty()).await;
    let [one, two] = ["one", "two"].map(|name| client.lock(name).acknowledged_by(1));
    let (one, two) = (one.lock().await.expect("free"), two.lock().await.expect("free"));
    one.keep_for(ms(90_000)).await.expect("held");
    let ttl: i64 = replicas[0].client().await.pttl("one").await.expect("an answer");
    assert!(ttl > 80_000, "the replica has it for {ttl} ms");
    replicas[0].pause();
    let error = two.keep_for(ms(90_000)).await.expect_err("nobody acknowledges");
    assert!(matches!(error, Error::InDoubt { .. }), "{error}");
    assert!(client.lock("two").is_locked().await.expect("an answer"));
    replicas[0].resume();
    let left = client.shutdown(ms(10_000)).await;
    assert!(left.is_clean(), "it goes on until it is acknowledged: {left:?}");
}

async fn fewer_renewals_than_holds_and_each_by_its_number(rig: Rig) {
    let _replicas = replicas(&rig, 2).await;
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let mut guards = Vec::new();
    for number in 0..30 {
        let lock = client.lock(&format!("lock {number}")).acknowledged_by(number % 3);
        guards.push(lock.lock().await.expect("free"));
    }
    let ends: Vec<_> = guards.iter().map(turnlock::Guard::valid_until).collect();
    let before = rig.server().calls().await;
    let renewed =
        async || guards.iter().zip(&ends).all(|(guard, end)| guard.valid_until() > *end + ms(1_400));
    eventually("all are renewed", ms(10_000), renewed).await;
    let calls = rig.server().calls().await.since(&before);
    assert!((1..=20).contains(&calls.of("wait")), "{calls:?}");
    for (number, guard) in (0..30).zip(&guards) {
        assert!(guard.is_valid() && guard.replicas() >= number % 3, "lock {number}");
    }
}
