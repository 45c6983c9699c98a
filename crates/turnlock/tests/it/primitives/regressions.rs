//! Cases for defects that were found in review.

use std::time::{Duration, Instant};

use turnlock::{Client, MultiLock};
use turnlock_testkit::{RedisServer, within};

use crate::fixture::{Fixture, NO_POLL, PROMPT, ms};
use crate::{Case, cases};

/// The cases that need a Redis server.
pub(super) const CASES: &[Case] = cases![
    a_downgrade_fails_when_the_write_lock_is_lost,
    a_multi_lock_with_a_hung_store_releases_its_other_members,
    callers_share_one_failed_connection_attempt,
];

async fn a_downgrade_fails_when_the_write_lock_is_lost(fixture: Fixture) {
    let settings =
        Client::builder().poll_interval(NO_POLL).response_timeout(ms(300)).connect_timeout(ms(5_000));
    let client = fixture.client_with(settings).await;
    let lock = client.read_write_lock(&fixture.name()).with_lease(ms(1_500));
    let writer = lock.write().await.expect("free");
    fixture.server().pause();
    let outcome = within(ms(10_000), "the downgrade ends with the lease", writer.downgrade()).await;
    fixture.server().resume();
    let refused = outcome.expect_err("no reply");
    drop(refused.into_guard().expect("the write guard is returned"));
    let writer = within(ms(20_000), "nothing is left behind", lock.writer().lock()).await.expect("free");
    writer.unlock().await.expect("held");
}

async fn a_multi_lock_with_a_hung_store_releases_its_other_members(fixture: Fixture) {
    let hung = RedisServer::start().await;
    let settings =
        || Client::builder().poll_interval(NO_POLL).response_timeout(ms(500)).connect_timeout(ms(5_000));
    let here = fixture.client_with(settings()).await;
    let there = settings().connect(&hung.url()).await.expect("a server");
    let name = fixture.name();
    let both = MultiLock::new([here.reentrant(&name), there.lock("away")]).expect("two locks");
    let other = fixture.client().await.reentrant(&name);
    hung.pause();
    let waiting = tokio::spawn(async move { both.lock().await.map(drop) });
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    // However often it acquires the reachable member, it releases it soon.
    while start.elapsed() < ms(4_000) {
        let requested = Instant::now();
        let guard = within(PROMPT, "the reachable member is released", other.lock()).await;
        longest = longest.max(requested.elapsed());
        guard.expect("acquired").unlock().await.expect("held");
    }
    println!("unavailable to others for at most {longest:?}");
    hung.resume();
    waiting.abort();
}

async fn callers_share_one_failed_connection_attempt(mut fixture: Fixture) {
    let settings = Client::builder().connect_timeout(ms(500)).retry_for(ms(1)).response_timeout(ms(300));
    let client = fixture.client_with(settings).await;
    fixture.server().pause();
    let start = Instant::now();
    let tries = (0..20).map(|number| {
        let lock = client.reentrant(&format!("free:{number}"));
        tokio::spawn(async move { lock.try_lock().await.map(drop) })
    });
    for outcome in tries.collect::<Vec<_>>() {
        assert!(outcome.await.expect("no panic").is_err());
    }
    let took = start.elapsed();
    fixture.server_mut().resume();
    assert!(took < ms(6_000), "twenty callers, one after the other: {took:?}");
}
