//! A renewal counts once it is acknowledged. Until then it is unknown, and retried until the local end of the lease.

use std::time::Instant;

use redis::AsyncCommands;
use turnlock::{Client, Error, LostReason};
use turnlock_testkit::{eventually, in_time, within};

use super::{Fixture, ms, short_timeouts, start_replicas};
use crate::fixture::{NO_POLL, PROMPT};
use crate::revoked::a_denied_acknowledged_renewal_loses_no_other_hold;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    an_unacknowledged_hold_is_lost_at_its_end_and_not_before,
    a_replica_that_comes_back_in_time_saves_the_hold,
    a_deleted_hold_is_lost_at_once_whatever_replicas_acknowledge,
    a_delayed_unlock_is_acknowledged,
    renewals_are_batched_and_each_has_its_replica_count,
    a_denied_acknowledged_renewal_loses_no_other_hold,
];

async fn an_unacknowledged_hold_is_lost_at_its_end_and_not_before(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 1).await;
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let plain = client.lock("plain").lock().await.expect("free");
    let guard = client.lock("a").with_replicas(1).lock().await.expect("free");
    let end = guard.valid_until();
    eventually("it is renewed", PROMPT, async || guard.valid_until() > end + ms(200)).await;
    replicas[0].pause();
    // The reply to a renewal that was acknowledged just before may still arrive.
    let waits = fixture.server().calls().await;
    let unknown = async || fixture.server().calls().await.since(&waits).of("wait") >= 2;
    eventually("it is retried", ms(3_000), unknown).await;
    let end = guard.valid_until();
    assert!(guard.is_valid(), "unknown is not lost");
    let reason = within(PROMPT, "the lease ends", guard.lost()).await;
    assert!(matches!(reason, LostReason::NotRenewed { .. }), "{reason}");
    assert!(Instant::now() + ms(5) >= end, "lost before its end");
    in_time("it is reported at its end", end, PROMPT);
    assert!(plain.is_valid(), "a hold without replicas is renewed");
    drop(guard);
    let free = async || matches!(client.lock("a").is_locked().await, Ok(false));
    eventually("the hold on the store is released", PROMPT, free).await;
    replicas[0].resume();
}

async fn a_replica_that_comes_back_in_time_saves_the_hold(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 1).await;
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let guard = client.lock("a").with_replicas(1).lock().await.expect("free");
    replicas[0].pause();
    let waits = fixture.server().calls().await;
    let unknown = async || fixture.server().calls().await.since(&waits).of("wait") >= 1;
    eventually("a renewal is not acknowledged", ms(2_500), unknown).await;
    let end = guard.valid_until();
    replicas[0].resume();
    eventually("it is renewed again", ms(2_500), async || guard.valid_until() > end + ms(200)).await;
    assert!(guard.is_valid() && guard.replicas() == 1);
    guard.unlock().await.expect("held");
}

async fn a_deleted_hold_is_lost_at_once_whatever_replicas_acknowledge(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 1).await;
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(6_000)).poll_interval(NO_POLL)).await;
    let [deleted, other] = ["deleted", "other"].map(|name| client.lock(name).with_replicas(1));
    let (deleted, other) = (deleted.lock().await.expect("free"), other.lock().await.expect("free"));
    replicas[0].pause();
    let _: () = redis::cmd("DEL")
        .arg("deleted")
        .query_async(&mut fixture.raw_connection().await)
        .await
        .expect("deleted");
    assert_eq!(within(ms(6_000), "the next renewal finds it", deleted.lost()).await, LostReason::Taken);
    assert!(other.is_valid(), "in the same batch, and unknown");
    replicas[0].resume();
}

async fn a_delayed_unlock_is_acknowledged(fixture: Fixture) {
    let replicas = start_replicas(&fixture, 1).await;
    let client = fixture.client_with(short_timeouts()).await;
    let [one, two] = ["one", "two"].map(|name| client.lock(name).with_replicas(1));
    let (one, two) = (one.lock().await.expect("free"), two.lock().await.expect("free"));
    one.unlock_after(ms(90_000)).await.expect("held");
    let ttl: i64 = replicas[0].client().await.pttl("one").await.expect("a reply");
    assert!(ttl > 80_000, "the replica has it for {ttl} ms");
    replicas[0].pause();
    let error = Error::from(two.unlock_after(ms(90_000)).await.expect_err("no replica acknowledges"));
    assert!(matches!(error, Error::InDoubt { .. }), "{error}");
    assert!(client.lock("two").is_locked().await.expect("a reply"));
    replicas[0].resume();
    let left = client.shutdown(ms(10_000)).await;
    assert!(left.is_clean(), "it is retried until it is acknowledged: {left:?}");
}

async fn renewals_are_batched_and_each_has_its_replica_count(fixture: Fixture) {
    let _replicas = start_replicas(&fixture, 2).await;
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let mut guards = Vec::new();
    for number in 0..30 {
        let lock = client.lock(&format!("lock {number}")).with_replicas(number % 3);
        guards.push(lock.lock().await.expect("free"));
    }
    let ends: Vec<_> = guards.iter().map(turnlock::Guard::valid_until).collect();
    let before = fixture.server().calls().await;
    let renewed =
        async || guards.iter().zip(&ends).all(|(guard, end)| guard.valid_until() > *end + ms(1_400));
    eventually("all are renewed", ms(10_000), renewed).await;
    let calls = fixture.server().calls().await.since(&before);
    assert!((1..=20).contains(&calls.of("wait")), "{calls:?}");
    for (number, guard) in (0..30).zip(&guards) {
        assert!(guard.is_valid() && guard.replicas() >= number % 3, "lock {number}");
    }
}
