//! Keys that last longer than anybody needs, as after a step of the server's clock back.

use std::time::Instant;

use redis::AsyncCommands;
use turnlock::Client;
use turnlock_testkit::{FaultProxy, eventually};

use crate::rig::{NO_POLL, Rig, keys_of_locks, ms};
use crate::{Case, cases, revoked};

/// For every kind of lock.
pub(crate) const KIND_CASES: &[Case] = cases![a_ttl_that_became_long_is_set_right];

pub(crate) const CASES: &[Case] = cases![
    permits_that_became_long_are_set_right,
    a_shortening_that_arrives_late_costs_no_guard,
    a_shortening_that_is_refused_is_repeated,
];

const WATCHDOG: i64 = 3_000;
const HOUR: i64 = 3_600_000;

fn builder() -> turnlock::Builder {
    Client::builder().watchdog(ms(WATCHDOG.unsigned_abs())).poll(NO_POLL)
}

async fn a_ttl_that_became_long_is_set_right(rig: Rig) {
    let client = rig.client_with(builder()).await;
    let guard = client.lock("long").lock().await.expect("free");
    let mut plain = rig.plain().await;
    let mut longer = 0;
    for key in keys_of_locks(&mut plain).await {
        if plain.pttl::<_, i64>(&key).await.expect("an answer") > 0 {
            longer += 1;
            let _: () = plain.pexpire(&key, HOUR).await.expect("longer");
        }
    }
    assert!(longer > 0);
    let is_right = async || {
        let mut plain = rig.plain().await;
        for key in keys_of_locks(&mut plain).await {
            if plain.pttl::<_, i64>(&key).await.expect("an answer") > WATCHDOG {
                return false;
            }
        }
        true
    };
    eventually("the next renewal sets it right", ms(6_000), is_right).await;
    let end = guard.valid_until();
    eventually("it is renewed", ms(9_000), async || guard.valid_until() > end + ms(1_000)).await;
    guard.unlock().await.expect("held all the time");
}

async fn permits_that_became_long_are_set_right(rig: Rig) {
    let client = rig.client_with(builder()).await;
    let semaphore = client.permit_semaphore("long");
    assert!(semaphore.try_set_permits(3).await.expect("an answer"));
    let permits = semaphore.acquire(2).await.expect("free");
    let mut plain = rig.plain().await;
    let taken: Vec<String> = plain.keys("*timeout*").await.expect("an answer");
    assert_eq!(taken.len(), 1, "{taken:?}");
    let ids: Vec<Vec<u8>> = plain.zrange(&taken[0], 0, -1).await.expect("an answer");
    assert_eq!(ids.len(), 2);
    for id in ids {
        let _: f64 = plain.zincr(&taken[0], id, HOUR).await.expect("longer");
    }
    let is_right = async || {
        let mut plain = rig.plain().await;
        let (seconds, _): (f64, f64) = redis::cmd("TIME").query_async(&mut plain).await.expect("a time");
        let ends: Vec<(Vec<u8>, f64)> = plain.zrange_withscores(&taken[0], 0, -1).await.expect("an answer");
        ends.iter().all(|(_, end)| *end <= (seconds + 4.0) * 1_000.0)
    };
    assert!(!is_right().await);
    eventually("the next renewal sets them right", ms(6_000), is_right).await;
    assert!(permits.is_valid());
    permits.release().await.expect("held all the time");
}

/// The request that sets the lease to what a renewed guard needs arrives when only a guard with a longer lease is left.
async fn a_shortening_that_arrives_late_costs_no_guard(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let client = rig.client_at(builder().response_timeout(ms(400)), &proxy.url()).await;
    let me = client.owner();
    let lock = client.lock("late").owned_by(&me);
    let outer = lock.lock().await.expect("free");
    // Renewals do not name the channel.
    proxy.hold_request(b"redisson_lock__channel:{late}");
    let _: () = rig.plain().await.pexpire("late", HOUR).await.expect("longer");
    proxy.fired().await;
    let fixed = lock.lease(ms(60_000)).lock().await.expect("mine already");
    outer.unlock().await.expect("held");
    let before = rig.server().calls().await;
    proxy.release_held().await;
    eventually("the late request was done", ms(3_000), async || {
        rig.server().calls().await.since(&before).of("publish") >= 1
    })
    .await;
    let later = Instant::now() + ms(9_000);
    let other = rig.client().await.lock("late");
    eventually("three leases have passed", ms(30_000), async || {
        assert!(fixed.is_valid(), "the guard has a lease of a minute");
        assert!(other.is_locked().await.expect("an answer"), "the store has it");
        Instant::now() > later
    })
    .await;
    fixed.unlock().await.expect("held all the time");
}

/// Nothing is renewed: both leases are fixed.
async fn a_shortening_that_is_refused_is_repeated(rig: Rig) {
    revoked::make_user(rig.server()).await;
    let client = rig.client_at(builder(), &revoked::url(rig.server())).await;
    let me = client.owner();
    let lock = client.lock("refused").owned_by(&me);
    let outer = lock.lease(ms(60_000)).lock().await.expect("free");
    let inner = lock.lease(ms(HOUR.unsigned_abs())).lock().await.expect("mine already");
    let allow = async |word: &str| {
        let _: () = rig.server().ask(&["ACL", "SETUSER", "app", word]).await.expect("changed");
    };
    allow("-pexpire").await;
    inner.unlock().await.expect("held");
    eventually("the shortening is refused", ms(5_000), async || {
        let refusals: Vec<redis::Value> = rig.server().ask(&["ACL", "LOG"]).await.expect("an answer");
        !refusals.is_empty()
    })
    .await;
    allow("+pexpire").await;
    let is_short = async || rig.plain().await.pttl::<_, i64>("refused").await.expect("an answer") <= 60_000;
    eventually("the lease is what the guard that is left needs", ms(10_000), is_short).await;
    assert!(outer.is_valid());
    outer.unlock().await.expect("held all the time");
}
