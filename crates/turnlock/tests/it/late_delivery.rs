//! A request that something on the way delivers so late that its client has stopped looking for it. Then the lock is held
//! by nobody, for one lease and no longer.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use turnlock::Client;
use turnlock_testkit::{FaultProxy, eventually, within};

use crate::rig::{Kind, KindClient, NO_POLL, Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![a_request_later_than_its_lease_holds_the_lock_for_one_lease];

/// They wait for longer than a minute.
pub(crate) const LONG_CASES: &[Case] = cases![a_request_is_undone_for_a_minute_and_not_longer];

/// A request for a lock that is held back on its way, and its client, which has given up.
struct Late {
    proxy: FaultProxy,
    client: KindClient,
    name: String,
    sent: Instant,
}

impl Late {
    async fn send(rig: &Rig, lease: Duration) -> Self {
        let proxy = FaultProxy::start(rig.server().port()).await;
        let builder = Client::builder().watchdog(lease).response_timeout(ms(300)).poll(NO_POLL);
        let client = rig.client_at(builder, &proxy.url()).await;
        let name = rig.name();
        proxy.hold_request(name.as_bytes());
        let lock = client.lock(&name);
        let sent = Instant::now();
        let asking = tokio::spawn(async move { lock.lock().await });
        proxy.fired().await;
        asking.abort();
        let outcome = asking.await;
        assert!(outcome.is_err_and(|error| error.is_cancelled()), "the request is on its way");
        Self { proxy, client, name, sent }
    }

    /// Delivers the request, and waits until it is done.
    async fn deliver(&self, rig: &Rig) {
        let before = rig.server().calls().await;
        self.proxy.release_held().await;
        let grant = if rig.kind == Kind::Plain { "set" } else { "hset" };
        let is_done = async || rig.server().calls().await.since(&before).of(grant) >= 1;
        eventually("the late request is done", ms(5_000), is_done).await;
    }
}

async fn a_request_later_than_its_lease_holds_the_lock_for_one_lease(rig: Rig) {
    let lease = ms(3_000);
    let late = Late::send(&rig, lease).await;
    tokio::time::sleep_until((late.sent + lease).into()).await;
    // Longer than the longest pause between two tries.
    let is_quiet = async || {
        let before = rig.server().calls().await;
        tokio::time::sleep(ms(1_500)).await;
        rig.server().calls().await.since(&before).of("evalsha") == 0
    };
    eventually("its client stops looking for it", lease * 3, is_quiet).await;
    let next = rig.client().await.rival().lock(&late.name);
    assert!(!next.is_locked().await.expect("an answer"));
    late.deliver(&rig).await;
    let delivered = Instant::now();
    let seen = late.client.lock(&late.name).inspect().await.expect("an answer");
    assert!(seen.is_locked(), "it holds the lock: {seen:?}");
    assert!(seen.ttl.is_some_and(|ttl| ttl <= lease), "{seen:?}");
    // Its client lives, and does not renew what it does not have.
    let guard = within(lease + ms(2_000), "the lease ends", next.lock()).await.expect("a turn");
    println!("free {:?} after it was delivered", delivered.elapsed());
    guard.unlock().await.expect("held");
    let left = late.client.shutdown(ms(5_000)).await;
    assert!(left.is_clean(), "{left:?}");
}

async fn a_request_is_undone_for_a_minute_and_not_longer(rig: Rig) {
    let (minute, lease) = (ms(60_000), ms(90_000));
    let (in_time, late) = tokio::join!(Late::send(&rig, lease), Late::send(&rig, lease));
    let mut plain = rig.plain().await;
    tokio::time::sleep_until((in_time.sent + ms(55_000)).into()).await;
    in_time.deliver(&rig).await;
    let is_undone = async || !rig.plain().await.exists::<_, bool>(&in_time.name).await.expect("an answer");
    eventually("what comes within a minute is undone", ms(4_000), is_undone).await;
    let left = within(ms(20_000), "the undoing ends", late.client.shutdown(ms(60_000))).await;
    assert!(left.is_clean(), "{left:?}");
    assert!(late.sent.elapsed() >= minute, "after {:?}, and not before", late.sent.elapsed());
    late.deliver(&rig).await;
    let ttl: i64 = plain.pttl(&late.name).await.expect("an answer");
    assert!((80_000..=90_000).contains(&ttl), "held by nobody for one lease: {ttl} ms");
    let lock = rig.client().await.lock(&late.name);
    assert!(lock.try_lock().await.expect("an answer").is_none());
    assert!(lock.force_unlock().await.expect("an answer"), "who cannot wait takes it away");
    lock.lock().await.expect("free").unlock().await.expect("held");
}
