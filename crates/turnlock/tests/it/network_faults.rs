//! Network faults, injected by a proxy.

use std::time::Instant;

use futures_util::future::join_all;
use redis::AsyncCommands;
use turnlock::{Client, Error};
use turnlock_testkit::{Calls, FaultProxy, eventually, within};

use crate::fixture::{Fixture, Kind, KindClient, NO_POLL, ONE_POLL, PROMPT, lock_keys, ms};
use crate::half_open::a_half_open_hold_is_lost_before_the_server_expires_it;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_lost_reply_to_an_acquire_counts_once,
    a_lost_reply_to_a_reentry_counts_once,
    a_lost_reply_to_a_release_counts_as_a_release,
    a_lost_reply_to_a_delayed_unlock_adds_no_time,
    a_request_that_arrives_after_its_client_gave_up_is_undone,
    a_resent_acquire_whose_first_send_arrives_late_is_undone,
    a_batch_that_arrives_after_its_callers_gave_up_is_undone,
    a_killed_pubsub_connection_costs_a_second,
    a_restored_pubsub_connection_wakes_all_waiters,
    a_half_open_hold_is_lost_before_the_server_expires_it,
    a_short_outage_is_unknown_and_not_lost,
    a_broken_connection_is_replaced,
    a_guard_dropped_during_an_outage_is_released_after_it,
    an_unlock_cancelled_during_a_long_outage_is_completed_after_it,
    a_delayed_unlock_during_a_long_outage_is_completed_after_it,
    guards_that_unlock_together_agree_about_a_lost_reply,
    a_slow_connection_works,
    a_release_between_refusal_and_subscription_is_seen,
];

/// The cases that are run for other kinds of locks too.
pub(crate) fn kind_cases(kind: Kind) -> impl Iterator<Item = Case> {
    const REENTRANT_CASES: &[&str] =
        &["a_lost_reply_to_a_reentry_counts_once", "guards_that_unlock_together_agree_about_a_lost_reply"];
    let all: &[Case] = cases![
        a_lost_reply_to_an_acquire_counts_once,
        a_lost_reply_to_a_reentry_counts_once,
        a_lost_reply_to_a_release_counts_as_a_release,
        a_lost_reply_to_a_delayed_unlock_adds_no_time,
        a_request_that_arrives_after_its_client_gave_up_is_undone,
        a_resent_acquire_whose_first_send_arrives_late_is_undone,
        a_half_open_hold_is_lost_before_the_server_expires_it,
        a_broken_connection_is_replaced,
        a_guard_dropped_during_an_outage_is_released_after_it,
        guards_that_unlock_together_agree_about_a_lost_reply,
    ];
    all.iter().copied().filter(move |(name, _)| kind != Kind::Plain || !REENTRANT_CASES.contains(name))
}

pub(crate) async fn proxied(fixture: &Fixture, builder: turnlock::Builder) -> (FaultProxy, KindClient) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let client = fixture.client_at(builder, &proxy.url()).await;
    (proxy, client)
}

/// The hold counts at a key.
async fn hold_counts(fixture: &Fixture, key: &str) -> Vec<u64> {
    let mut plain = fixture.raw_connection().await;
    if fixture.kind == Kind::Plain {
        return vec![1; plain.exists(key).await.expect("a reply")];
    }
    let fields: Vec<(String, String)> = plain.hgetall(key).await.expect("a reply");
    let counts = fields.into_iter().filter(|(field, _)| field != "mode");
    counts.map(|(_, count)| count.parse().expect("a number")).collect()
}

/// The number of grants of the fixture's kind among these calls.
fn grants(fixture: &Fixture, calls: &Calls) -> u64 {
    calls.of(if fixture.kind == Kind::Plain { "set" } else { "hset" })
}

async fn a_lost_reply_to_an_acquire_counts_once(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture, Client::builder().poll_interval(NO_POLL)).await;
    for round in 0..10 {
        let name = format!("lost-acquire-{round}");
        proxy.swallow_replies_to(name.as_bytes());
        let guard = client.lock(&name).lock().await.expect("sent again");
        proxy.fired().await;
        assert_eq!(hold_counts(&fixture, &name).await, [1]);
        assert!(guard.is_valid());
        guard.unlock().await.expect("held");
        assert_eq!(hold_counts(&fixture, &name).await, Vec::<u64>::new());
    }
}

async fn a_lost_reply_to_a_reentry_counts_once(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture, Client::builder().poll_interval(NO_POLL)).await;
    let guard = client.lock("deep").lock().await.expect("free");
    proxy.swallow_replies_to(b"deep");
    let inner = guard.reenter().await.expect("sent again");
    proxy.fired().await;
    assert_eq!(hold_counts(&fixture, "deep").await, [2]);
    proxy.swallow_replies_to(b"deep");
    inner.unlock().await.expect("held");
    proxy.fired().await;
    assert_eq!(hold_counts(&fixture, "deep").await, [1]);
    guard.unlock().await.expect("held");
    assert_eq!(hold_counts(&fixture, "deep").await, Vec::<u64>::new());
}

async fn a_lost_reply_to_a_release_counts_as_a_release(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture, Client::builder().poll_interval(NO_POLL)).await;
    for round in 0..10 {
        let name = format!("lost-release-{round}");
        let guard = client.lock(&name).lock().await.expect("free");
        proxy.swallow_replies_to(name.as_bytes());
        guard.unlock().await.expect("the resent release finds that the first one succeeded");
        proxy.fired().await;
        assert_eq!(hold_counts(&fixture, &name).await, Vec::<u64>::new());
    }
}

async fn a_lost_reply_to_a_delayed_unlock_adds_no_time(fixture: Fixture) {
    let (proxy, client) =
        proxied(&fixture, Client::builder().poll_interval(NO_POLL).response_timeout(ms(700))).await;
    for time in [ms(60_000), ms(10_000)] {
        let name = fixture.name();
        let guard = client.lock(&name).lock().await.expect("free");
        proxy.swallow_replies_to(name.as_bytes());
        let begun = Instant::now();
        guard.unlock_after(time).await.expect("sent again");
        proxy.fired().await;
        assert_eq!(hold_counts(&fixture, &name).await, [1]);
        let ttl: i64 = fixture.raw_connection().await.pttl(&name).await.expect("a reply");
        let end = begun.elapsed() + ms(u64::try_from(ttl).expect("an end"));
        assert!(end + ms(5) >= time && end < time + PROMPT, "it ends after {end:?} and not {time:?}");
    }
}

async fn a_delayed_unlock_during_a_long_outage_is_completed_after_it(fixture: Fixture) {
    let builder = Client::builder()
        .poll_interval(NO_POLL)
        .response_timeout(ms(100))
        .retry_for(ms(200))
        .connect_timeout(ms(1_500));
    let (proxy, client) = proxied(&fixture, builder).await;
    let [long, short] = ["long", "short"].map(|name| client.lock(name));
    let (long, short) = (long.lock().await.expect("free"), short.lock().await.expect("free"));
    proxy.black_hole();
    let begun = Instant::now();
    let outcomes = tokio::join!(long.unlock_after(ms(60_000)), short.unlock_after(ms(600)));
    for outcome in [outcomes.0, outcomes.1] {
        assert!(matches!(outcome.map_err(Error::from), Err(Error::InDoubt { .. })));
    }
    // The time of the short delayed unlock is over, and the store has not received it.
    tokio::time::sleep(ms(900)).await;
    assert_eq!(hold_counts(&fixture, "short").await, [1]);
    proxy.pass();
    eventually("it is free", PROMPT, async || hold_counts(&fixture, "short").await.is_empty()).await;
    let mut plain = fixture.raw_connection().await;
    eventually("the other has its new lease", PROMPT, async || {
        let ttl: i64 = plain.clone().pttl("long").await.expect("a reply");
        ttl > 31_000
    })
    .await;
    let ttl: i64 = plain.pttl("long").await.expect("a reply");
    let end = begun.elapsed() + ms(u64::try_from(ttl).expect("an end"));
    assert!(end < ms(60_000) + PROMPT, "it ends after {end:?}");
    let left = client.shutdown(PROMPT).await;
    assert!(left.is_clean(), "{left:?}");
}

async fn a_request_that_arrives_after_its_client_gave_up_is_undone(fixture: Fixture) {
    let builder = Client::builder().poll_interval(NO_POLL).response_timeout(ms(500)).retry_for(ms(1_000));
    let (proxy, client) = proxied(&fixture, builder).await;
    let mut plain = fixture.raw_connection().await;
    for round in 0..5 {
        let name = format!("late-{round}");
        proxy.hold_request(name.as_bytes());
        let lock = client.lock(&name);
        // Cancelled while the proxy holds the request.
        let outcome = tokio::time::timeout(ms(60), lock.lock()).await;
        assert!(outcome.is_err(), "{outcome:?}");
        proxy.fired().await;
        // Time for the first undo, which finds nothing yet.
        tokio::time::sleep(ms(800)).await;
        assert!(!plain.exists::<_, bool>(&name).await.unwrap());
        let before = fixture.server().calls().await;
        proxy.release_held().await;
        eventually("the late request is executed", PROMPT, async || {
            grants(&fixture, &fixture.server().calls().await.since(&before)) >= 1
        })
        .await;
        eventually("it is undone", PROMPT, async || {
            !fixture.raw_connection().await.exists::<_, bool>(&name).await.unwrap()
        })
        .await;
        let guard = within(PROMPT, "the lock is free", client.lock(&name).lock()).await.expect("a turn");
        guard.unlock().await.expect("held");
    }
}

async fn a_resent_acquire_whose_first_send_arrives_late_is_undone(fixture: Fixture) {
    let (proxy, client) =
        proxied(&fixture, Client::builder().poll_interval(NO_POLL).response_timeout(ms(500))).await;
    proxy.hold_request(b"twice");
    let guard = client.lock("twice").lock().await.expect("sent again on a new connection");
    proxy.fired().await;
    guard.unlock().await.expect("held");
    let before = fixture.server().calls().await;
    proxy.release_held().await;
    eventually("the first send is executed", PROMPT, async || {
        grants(&fixture, &fixture.server().calls().await.since(&before)) >= 1
    })
    .await;
    eventually("it is undone", PROMPT, async || hold_counts(&fixture, "twice").await.is_empty()).await;
}

async fn a_batch_that_arrives_after_its_callers_gave_up_is_undone(fixture: Fixture) {
    let builder = Client::builder().poll_interval(NO_POLL).response_timeout(ms(500)).retry_for(ms(1_000));
    let (proxy, client) = proxied(&fixture, builder).await;
    let locks: Vec<_> = (0..16).map(|number| client.lock(&format!("many-{number}"))).collect();
    proxy.hold_request(b"many-9");
    // Cancelled while the proxy holds the call.
    let all = join_all(locks.iter().map(turnlock::Lock::lock));
    assert!(tokio::time::timeout(ms(60), all).await.is_err(), "the call is held");
    proxy.fired().await;
    let before = fixture.server().calls().await;
    proxy.release_held().await;
    // More than two concurrent acquires are batched.
    eventually("the late call is executed", PROMPT, async || {
        grants(&fixture, &fixture.server().calls().await.since(&before)) > 2
    })
    .await;
    eventually("all of it is undone", PROMPT, async || {
        lock_keys(&mut fixture.raw_connection().await).await.is_empty()
    })
    .await;
    for lock in &locks {
        let guard = within(PROMPT, "the lock is free", lock.lock()).await.expect("a turn");
        guard.unlock().await.expect("held");
    }
}

async fn kill_pubsub_connections(fixture: &Fixture) {
    let mut plain = fixture.raw_connection().await;
    let mut cmd = redis::cmd("CLIENT");
    let killed: u64 =
        cmd.arg("KILL").arg("TYPE").arg("pubsub").query_async(&mut plain).await.expect("killed");
    assert!(killed >= 1, "there was no subscriber");
}

async fn is_subscribed(fixture: &Fixture, name: &str) -> bool {
    let mut cmd = redis::cmd("PUBSUB");
    cmd.arg("NUMSUB").arg(format!("redisson_lock__channel:{{{name}}}"));
    let (_, count): (String, u64) =
        cmd.query_async(&mut fixture.raw_connection().await).await.expect("a reply");
    count > 0
}

/// Spawns a waiter, and breaks its pub/sub connection for good. Returns once it has tried again.
async fn spawn_unsubscribed_waiter(
    fixture: &Fixture,
    proxy: &FaultProxy,
    client: &KindClient,
    name: &str,
) -> tokio::task::JoinHandle<turnlock::Guard> {
    let waiting = client.lock(name);
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    eventually("it is subscribed", PROMPT, async || is_subscribed(fixture, name).await).await;
    // After the request that follows the subscription.
    eventually("it is idle", PROMPT, async || {
        let before = fixture.server().calls().await;
        tokio::time::sleep(ms(250)).await;
        fixture.server().calls().await.since(&before).of("evalsha") == 0
    })
    .await;
    let before = fixture.server().calls().await;
    proxy.refuse(true);
    kill_pubsub_connections(fixture).await;
    eventually("it has tried again", PROMPT, async || {
        fixture.server().calls().await.since(&before).of("evalsha") >= 1
    })
    .await;
    task
}

async fn a_killed_pubsub_connection_costs_a_second(fixture: Fixture) {
    // With the default poll interval. The connection cannot be restored, since the proxy refuses connections.
    let (proxy, client) = proxied(&fixture, Client::builder()).await;
    let holder = fixture.client().await.lock("quiet").lock().await.expect("free");
    let task = spawn_unsubscribed_waiter(&fixture, &proxy, &client, "quiet").await;
    holder.unlock().await.expect("held");
    let guard = within(ONE_POLL, "it polls", task).await.expect("no panic");
    guard.unlock().await.expect("held");
}

async fn a_restored_pubsub_connection_wakes_all_waiters(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture, Client::builder().poll_interval(NO_POLL)).await;
    for round in 0..3 {
        let name = format!("woken-{round}");
        let holder = fixture.client().await.lock(&name).lock().await.expect("free");
        let task = spawn_unsubscribed_waiter(&fixture, &proxy, &client, &name).await;
        // No client receives this message.
        holder.unlock().await.expect("held");
        tokio::time::sleep(ms(50)).await;
        assert!(!task.is_finished(), "something other than the new subscription woke it");
        proxy.refuse(false);
        let guard = within(PROMPT, "the new subscription makes it try again", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn a_short_outage_is_unknown_and_not_lost(fixture: Fixture) {
    let (proxy, client) =
        proxied(&fixture, Client::builder().watchdog_timeout(ms(4_000)).response_timeout(ms(100))).await;
    let guard = client.lock("outage").lock().await.expect("free");
    let before = guard.valid_until();
    proxy.black_hole();
    // Past the moment at which the first renewal is due, so that it fails.
    tokio::time::sleep(ms(1_600)).await;
    assert!(guard.is_valid(), "a failed renewal is not a loss");
    proxy.pass();
    eventually("it is renewed", PROMPT, async || guard.valid_until() > before + ms(500)).await;
    assert!(guard.is_valid());
    guard.unlock().await.expect("held");
}

async fn a_broken_connection_is_replaced(fixture: Fixture) {
    // Time to connect again on a busy machine: `try_lock` gets one response time-out for it.
    let builder = Client::builder().poll_interval(NO_POLL).response_timeout(ms(5_000));
    let (proxy, client) = proxied(&fixture, builder).await;
    for round in 0..10 {
        let guard = client.lock("again").lock().await.expect("free");
        proxy.reset_all();
        if round % 2 == 0 {
            assert!(
                client.lock("other").try_lock().await.expect("one failure is retried").acquired().is_some()
            );
        }
        guard.unlock().await.expect("held");
    }
    assert_eq!(hold_counts(&fixture, "again").await, Vec::<u64>::new());
    // A connection that was dead before anything was sent leaves nothing in doubt.
    let (proxy, client) = proxied(&fixture, Client::builder().poll_interval(NO_POLL)).await;
    let guard = client.lock("idle").lock().await.expect("free");
    proxy.reset_all();
    tokio::time::sleep(ms(100)).await;
    guard.unlock().await.expect("held");
    let left = client.shutdown(PROMPT).await;
    assert!(left.is_clean(), "{left:?}");
}

async fn a_guard_dropped_during_an_outage_is_released_after_it(fixture: Fixture) {
    let (proxy, client) =
        proxied(&fixture, Client::builder().poll_interval(NO_POLL).response_timeout(ms(100))).await;
    let guard = client.lock("dropped").lock().await.expect("free");
    let unlocked = client.lock("unlocked").lock().await.expect("free");
    proxy.black_hole();
    drop(guard);
    let unlocking = tokio::spawn(unlocked.unlock());
    tokio::time::sleep(ms(300)).await;
    assert!(!unlocking.is_finished());
    assert_eq!(hold_counts(&fixture, "dropped").await, [1]);
    proxy.pass();
    within(PROMPT, "it is confirmed", unlocking).await.expect("no panic").expect("held until then");
    eventually("the dropped guard is released too", PROMPT, async || {
        hold_counts(&fixture, "dropped").await.is_empty()
    })
    .await;
}

async fn a_slow_connection_works(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture, Client::builder().poll_interval(NO_POLL)).await;
    proxy.delay(ms(40));
    let guard = client.lock("slow").lock().await.expect("free");
    let waiting = client.lock("slow");
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    let other = fixture.client().await;
    assert!(other.lock("slow").try_lock().await.expect("a reply").is_busy());
    guard.unlock().await.expect("held");
    let guard = within(PROMPT, "the next waiter", task).await.expect("no panic");
    // The lease counts from before the request was sent, so the delay does not extend it.
    assert!(guard.valid_until() < Instant::now() + ms(29_700 - 40));
    guard.unlock().await.expect("held");
    let error = client.lock("slow").with_lease(ms(40)).lock().await;
    match error {
        // A lease shorter than the round trip ends before it can be used, or cannot be confirmed in time.
        Ok(guard) => assert!(!guard.is_valid()),
        Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
    }
}

async fn a_release_between_refusal_and_subscription_is_seen(fixture: Fixture) {
    let (proxy, client) =
        proxied(&fixture, Client::builder().poll_interval(NO_POLL).response_timeout(ms(5_000))).await;
    let other = fixture.client().await;
    // On a slow connection, the subscription reaches the server long after the refusal has left it.
    proxy.delay(ms(400));
    for round in 0..3 {
        let name = format!("between-{round}");
        let holder = other.lock(&name).lock().await.expect("free");
        let before = fixture.server().calls().await;
        let waiting = client.lock(&name);
        let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        eventually("it was refused", PROMPT, async || {
            fixture.server().calls().await.since(&before).of("hget") >= 1
        })
        .await;
        assert!(!is_subscribed(&fixture, &name).await);
        holder.unlock().await.expect("held");
        let guard = within(PROMPT, "it tries again once it is subscribed", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn an_unlock_cancelled_during_a_long_outage_is_completed_after_it(fixture: Fixture) {
    let builder = Client::builder()
        .poll_interval(NO_POLL)
        .response_timeout(ms(100))
        .retry_for(ms(200))
        .connect_timeout(ms(1_500));
    let (proxy, client) = proxied(&fixture, builder).await;
    let awaited = client.lock("awaited").lock().await.expect("free");
    let cancelled = client.lock("cancelled").lock().await.expect("free");
    proxy.black_hole();
    assert!(tokio::time::timeout(ms(50), cancelled.unlock()).await.is_err());
    let error = awaited.unlock().await.expect_err("no reply");
    assert!(matches!(error, Error::InDoubt { .. }), "{error}");
    // Longer than an unlock waits.
    tokio::time::sleep(ms(600)).await;
    proxy.pass();
    for name in ["awaited", "cancelled"] {
        eventually(name, PROMPT, async || hold_counts(&fixture, name).await.is_empty()).await;
    }
}

async fn guards_that_unlock_together_agree_about_a_lost_reply(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture, Client::builder().poll_interval(NO_POLL)).await;
    for round in 0..5 {
        let name = format!("together-{round}");
        let one = client.lock(&name).lock().await.expect("free");
        let (two, three) = (one.reenter().await.expect("held"), one.reenter().await.expect("held"));
        // Whichever guard sends the release: the reply is lost, and the next one finds no hold.
        proxy.swallow_replies_to(name.as_bytes());
        let outcomes = tokio::join!(one.unlock(), two.unlock(), three.unlock());
        proxy.fired().await;
        assert!(matches!(outcomes, (Ok(()), Ok(()), Ok(()))), "{outcomes:?}");
        assert!(hold_counts(&fixture, &name).await.is_empty());
    }
}
