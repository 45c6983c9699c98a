//! A request that the network delivers after its client has stopped undoing it. Then the lock has no live holder for one lease,
//! and no longer.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use turnlock::Client;
use turnlock_testkit::{FaultProxy, eventually, within};

use crate::fixture::{Fixture, Kind, KindClient, NO_POLL, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![a_request_delivered_after_its_lease_holds_the_lock_for_one_lease];

/// Cases that take longer than a minute.
pub(crate) const LONG_CASES: &[Case] = cases![a_late_request_is_undone_for_a_minute_and_not_longer];

/// An acquire request that a proxy holds back, and its client, which has given up.
struct LateRequest {
    proxy: FaultProxy,
    client: KindClient,
    name: String,
    sent: Instant,
}

impl LateRequest {
    async fn send(fixture: &Fixture, lease: Duration) -> Self {
        let proxy = FaultProxy::start(fixture.server().port()).await;
        let builder =
            Client::builder().watchdog_timeout(lease).response_timeout(ms(300)).poll_interval(NO_POLL);
        let client = fixture.client_at(builder, &proxy.url()).await;
        let name = fixture.name();
        proxy.hold_request(name.as_bytes());
        let lock = client.lock(&name);
        let sent = Instant::now();
        let acquiring = tokio::spawn(async move { lock.lock().await });
        proxy.fired().await;
        acquiring.abort();
        let outcome = acquiring.await;
        assert!(outcome.is_err_and(|error| error.is_cancelled()), "the request is in flight");
        Self { proxy, client, name, sent }
    }

    /// Delivers the request, and waits until it is executed.
    async fn deliver(&self, fixture: &Fixture) {
        let before = fixture.server().calls().await;
        self.proxy.release_held().await;
        let grant = if fixture.kind == Kind::Plain { "set" } else { "hset" };
        let is_executed = async || fixture.server().calls().await.since(&before).of(grant) >= 1;
        eventually("the late request is executed", ms(5_000), is_executed).await;
    }
}

async fn a_request_delivered_after_its_lease_holds_the_lock_for_one_lease(fixture: Fixture) {
    let lease = ms(3_000);
    let late = LateRequest::send(&fixture, lease).await;
    tokio::time::sleep_until((late.sent + lease).into()).await;
    // Longer than the longest pause between two retries.
    let is_quiet = async || {
        let before = fixture.server().calls().await;
        tokio::time::sleep(ms(1_500)).await;
        fixture.server().calls().await.since(&before).of("evalsha") == 0
    };
    eventually("its client stops undoing it", lease * 3, is_quiet).await;
    let next = fixture.client().await.rival().lock(&late.name);
    assert!(!next.is_locked().await.expect("a reply"));
    late.deliver(&fixture).await;
    let delivered = Instant::now();
    let seen = late.client.lock(&late.name).inspect().await.expect("a reply");
    assert!(seen.is_locked(), "it holds the lock: {seen:?}");
    assert!(seen.ttl.is_some_and(|ttl| ttl <= lease), "{seen:?}");
    // Its client is alive, and does not renew a hold that it does not know.
    let guard = within(lease + ms(2_000), "the lease ends", next.lock()).await.expect("a turn");
    println!("free {:?} after the delivery", delivered.elapsed());
    guard.unlock().await.expect("held");
    let left = late.client.shutdown(ms(5_000)).await;
    assert!(left.is_clean(), "{left:?}");
}

async fn a_late_request_is_undone_for_a_minute_and_not_longer(fixture: Fixture) {
    let (minute, lease) = (ms(60_000), ms(90_000));
    let (in_time, late) =
        tokio::join!(LateRequest::send(&fixture, lease), LateRequest::send(&fixture, lease));
    let mut plain = fixture.raw_connection().await;
    tokio::time::sleep_until((in_time.sent + ms(55_000)).into()).await;
    in_time.deliver(&fixture).await;
    let is_undone =
        async || !fixture.raw_connection().await.exists::<_, bool>(&in_time.name).await.expect("a reply");
    eventually("a request within a minute is undone", ms(4_000), is_undone).await;
    let left = within(ms(20_000), "the undoing ends", late.client.shutdown(ms(60_000))).await;
    assert!(left.is_clean(), "{left:?}");
    assert!(late.sent.elapsed() >= minute, "after {:?}, and not before", late.sent.elapsed());
    late.deliver(&fixture).await;
    let ttl: i64 = plain.pttl(&late.name).await.expect("a reply");
    assert!((80_000..=90_000).contains(&ttl), "without a live holder for one lease: {ttl} ms");
    let lock = fixture.client().await.lock(&late.name);
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    assert!(lock.force_unlock().await.expect("a reply"), "a forced unlock frees it earlier");
    lock.lock().await.expect("free").unlock().await.expect("held");
}
