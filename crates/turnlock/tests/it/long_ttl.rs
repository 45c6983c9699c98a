//! Keys that last longer than any guard needs, as after a backward step of the server's clock.

use std::time::Instant;

use redis::AsyncCommands;
use turnlock::Client;
use turnlock_testkit::{FaultProxy, eventually};

use crate::fixture::{Fixture, NO_POLL, lock_keys, ms};
use crate::{Case, cases, revoked};

/// For every kind of lock.
pub(crate) const KIND_CASES: &[Case] = cases![a_ttl_that_is_too_long_is_corrected];

pub(crate) const CASES: &[Case] = cases![
    permit_leases_that_are_too_long_are_corrected,
    a_shortening_that_arrives_late_ends_no_guard,
    a_refused_shortening_is_repeated,
];

const WATCHDOG: i64 = 3_000;
const HOUR: i64 = 3_600_000;

fn builder() -> turnlock::Builder {
    Client::builder().watchdog_timeout(ms(WATCHDOG.unsigned_abs())).poll_interval(NO_POLL)
}

async fn a_ttl_that_is_too_long_is_corrected(fixture: Fixture) {
    let client = fixture.client_with(builder()).await;
    let guard = client.lock("long").lock().await.expect("free");
    let mut plain = fixture.raw_connection().await;
    let mut prolonged = 0;
    for key in lock_keys(&mut plain).await {
        if plain.pttl::<_, i64>(&key).await.expect("a reply") > 0 {
            prolonged += 1;
            let _: () = plain.pexpire(&key, HOUR).await.expect("prolonged");
        }
    }
    assert!(prolonged > 0);
    let is_corrected = async || {
        let mut plain = fixture.raw_connection().await;
        for key in lock_keys(&mut plain).await {
            if plain.pttl::<_, i64>(&key).await.expect("a reply") > WATCHDOG {
                return false;
            }
        }
        true
    };
    eventually("the next renewal corrects it", ms(6_000), is_corrected).await;
    let end = guard.valid_until();
    eventually("it is renewed", ms(9_000), async || guard.valid_until() > end + ms(1_000)).await;
    guard.unlock().await.expect("held throughout");
}

async fn permit_leases_that_are_too_long_are_corrected(fixture: Fixture) {
    let client = fixture.client_with(builder()).await;
    let semaphore = client.permit_semaphore("long");
    assert!(semaphore.try_set_permits(3).await.expect("a reply"));
    let permits = semaphore.acquire(2).await.expect("free");
    let mut plain = fixture.raw_connection().await;
    let timeouts: Vec<String> = plain.keys("*timeout*").await.expect("a reply");
    assert_eq!(timeouts.len(), 1, "{timeouts:?}");
    let ids: Vec<Vec<u8>> = plain.zrange(&timeouts[0], 0, -1).await.expect("a reply");
    assert_eq!(ids.len(), 2);
    for id in ids {
        let _: f64 = plain.zincr(&timeouts[0], id, HOUR).await.expect("prolonged");
    }
    let is_corrected = async || {
        let mut plain = fixture.raw_connection().await;
        let (seconds, _): (f64, f64) = redis::cmd("TIME").query_async(&mut plain).await.expect("a time");
        let ends: Vec<(Vec<u8>, f64)> = plain.zrange_withscores(&timeouts[0], 0, -1).await.expect("a reply");
        ends.iter().all(|(_, end)| *end <= (seconds + 4.0) * 1_000.0)
    };
    assert!(!is_corrected().await);
    eventually("the next renewal corrects them", ms(6_000), is_corrected).await;
    assert!(permits.is_valid());
    permits.release().await.expect("held throughout");
}

/// The request that shortens the lease to what a renewed guard needs arrives when only a guard with a longer lease is left.
async fn a_shortening_that_arrives_late_ends_no_guard(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let client = fixture.client_at(builder().response_timeout(ms(400)), &proxy.url()).await;
    let me = client.owner();
    let lock = client.lock("late").with_owner(&me);
    let outer = lock.lock().await.expect("free");
    // Renewals do not contain the channel.
    proxy.hold_request(b"redisson_lock__channel:{late}");
    let _: () = fixture.raw_connection().await.pexpire("late", HOUR).await.expect("prolonged");
    proxy.fired().await;
    let fixed = lock.with_lease(ms(60_000)).lock().await.expect("reentered");
    outer.unlock().await.expect("held");
    let before = fixture.server().calls().await;
    proxy.release_held().await;
    eventually("the late request is executed", ms(3_000), async || {
        fixture.server().calls().await.since(&before).of("publish") >= 1
    })
    .await;
    let later = Instant::now() + ms(9_000);
    let other = fixture.client().await.lock("late");
    eventually("three leases have passed", ms(30_000), async || {
        assert!(fixed.is_valid(), "the guard has a lease of a minute");
        assert!(other.is_locked().await.expect("a reply"), "it is held on the store");
        Instant::now() > later
    })
    .await;
    fixed.unlock().await.expect("held throughout");
}

/// Both leases are fixed: nothing is renewed.
async fn a_refused_shortening_is_repeated(fixture: Fixture) {
    revoked::create_user(fixture.server()).await;
    let client = fixture.client_at(builder(), &revoked::url(fixture.server())).await;
    let me = client.owner();
    let lock = client.lock("refused").with_owner(&me);
    let outer = lock.with_lease(ms(60_000)).lock().await.expect("free");
    let inner = lock.with_lease(ms(HOUR.unsigned_abs())).lock().await.expect("reentered");
    let allow = async |rule: &str| {
        let _: () = fixture.server().query(&["ACL", "SETUSER", "app", rule]).await.expect("changed");
    };
    allow("-pexpire").await;
    inner.unlock().await.expect("held");
    eventually("the shortening is refused", ms(5_000), async || {
        let refusals: Vec<redis::Value> = fixture.server().query(&["ACL", "LOG"]).await.expect("a reply");
        !refusals.is_empty()
    })
    .await;
    allow("+pexpire").await;
    let is_short =
        async || fixture.raw_connection().await.pttl::<_, i64>("refused").await.expect("a reply") <= 60_000;
    eventually("the lease is what the remaining guard needs", ms(10_000), is_short).await;
    assert!(outer.is_valid());
    outer.unlock().await.expect("held throughout");
}
