//! A network that misbehaves, by way of a proxy.

use std::time::Instant;

use futures_util::future::join_all;
use redis::AsyncCommands;
use turnlock::{Client, Error};
use turnlock_testkit::{Calls, FaultProxy, eventually, within};

use crate::half_open::a_half_open_connection_is_told_before_the_server_lets_go;
use crate::rig::{A_SECOND, Kind, KindClient, NO_POLL, PROMPT, Rig, keys_of_locks, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_lost_answer_to_an_acquire_counts_once,
    a_lost_answer_to_a_reentry_counts_once,
    a_lost_answer_to_a_release_is_a_release,
    a_lost_answer_to_a_keeping_makes_it_no_longer,
    a_request_that_arrives_after_its_client_gave_up_is_swept,
    a_resent_acquire_whose_first_send_arrives_late_is_swept,
    a_call_of_many_that_arrives_after_they_gave_up_is_swept,
    a_killed_message_connection_costs_a_second,
    a_message_connection_that_comes_back_wakes_everybody,
    a_half_open_connection_is_told_before_the_server_lets_go,
    a_short_outage_is_unknown_and_not_lost,
    a_broken_connection_is_replaced,
    a_guard_dropped_during_an_outage_is_released_after_it,
    an_unlock_cancelled_during_a_long_outage_is_finished_after_it,
    a_keeping_during_a_long_outage_is_finished_after_it,
    guards_that_unlock_together_agree_about_a_lost_answer,
    a_slow_line_works,
    a_release_between_refusal_and_subscription_is_seen,
];

/// The cases that other kinds of locks have to go through as well.
pub(crate) fn kind_cases(kind: Kind) -> impl Iterator<Item = Case> {
    const HELD_TWICE: &[&str] =
        &["a_lost_answer_to_a_reentry_counts_once", "guards_that_unlock_together_agree_about_a_lost_answer"];
    let all: &[Case] = cases![
        a_lost_answer_to_an_acquire_counts_once,
        a_lost_answer_to_a_reentry_counts_once,
        a_lost_answer_to_a_release_is_a_release,
        a_lost_answer_to_a_keeping_makes_it_no_longer,
        a_request_that_arrives_after_its_client_gave_up_is_swept,
        a_resent_acquire_whose_first_send_arrives_late_is_swept,
        a_half_open_connection_is_told_before_the_server_lets_go,
        a_broken_connection_is_replaced,
        a_guard_dropped_during_an_outage_is_released_after_it,
        guards_that_unlock_together_agree_about_a_lost_answer,
    ];
    all.iter().copied().filter(move |(name, _)| kind != Kind::Plain || !HELD_TWICE.contains(name))
}

pub(crate) async fn proxied(rig: &Rig, builder: turnlock::Builder) -> (FaultProxy, KindClient) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let client = rig.client_at(builder, &proxy.url()).await;
    (proxy, client)
}

/// The hold counts that stand at a key.
async fn count(rig: &Rig, key: &str) -> Vec<u64> {
    let mut plain = rig.plain().await;
    if rig.kind == Kind::Plain {
        return vec![1; plain.exists(key).await.expect("an answer")];
    }
    let fields: Vec<(String, String)> = plain.hgetall(key).await.expect("an answer");
    let counts = fields.into_iter().filter(|(field, _)| field != "mode");
    counts.map(|(_, count)| count.parse().expect("a number")).collect()
}

/// How many grants of the rig's kind a server has made.
fn grants(rig: &Rig, calls: &Calls) -> u64 {
    calls.of(if rig.kind == Kind::Plain { "set" } else { "hset" })
}

async fn a_lost_answer_to_an_acquire_counts_once(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL)).await;
    for round in 0..10 {
        let name = format!("lost-acquire-{round}");
        proxy.swallow_replies_to(name.as_bytes());
        let guard = client.lock(&name).lock().await.expect("asked again");
        proxy.fired().await;
        assert_eq!(count(&rig, &name).await, [1]);
        assert!(guard.is_valid());
        guard.unlock().await.expect("held");
        assert_eq!(count(&rig, &name).await, Vec::<u64>::new());
    }
}

async fn a_lost_answer_to_a_reentry_counts_once(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL)).await;
    let guard = client.lock("deep").lock().await.expect("free");
    proxy.swallow_replies_to(b"deep");
    let inner = guard.reenter().await.expect("asked again");
    proxy.fired().await;
    assert_eq!(count(&rig, "deep").await, [2]);
    proxy.swallow_replies_to(b"deep");
    inner.unlock().await.expect("lowered");
    proxy.fired().await;
    assert_eq!(count(&rig, "deep").await, [1]);
    guard.unlock().await.expect("held");
    assert_eq!(count(&rig, "deep").await, Vec::<u64>::new());
}

async fn a_lost_answer_to_a_release_is_a_release(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL)).await;
    for round in 0..10 {
        let name = format!("lost-release-{round}");
        let guard = client.lock(&name).lock().await.expect("free");
        proxy.swallow_replies_to(name.as_bytes());
        guard.unlock().await.expect("the second send finds the first one's work");
        proxy.fired().await;
        assert_eq!(count(&rig, &name).await, Vec::<u64>::new());
    }
}

async fn a_lost_answer_to_a_keeping_makes_it_no_longer(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL).response_timeout(ms(700))).await;
    for time in [ms(60_000), ms(10_000)] {
        let name = rig.name();
        let guard = client.lock(&name).lock().await.expect("free");
        proxy.swallow_replies_to(name.as_bytes());
        let begun = Instant::now();
        guard.keep_for(time).await.expect("asked again");
        proxy.fired().await;
        assert_eq!(count(&rig, &name).await, [1]);
        let ttl: i64 = rig.plain().await.pttl(&name).await.expect("an answer");
        let end = begun.elapsed() + ms(u64::try_from(ttl).expect("an end"));
        assert!(end + ms(5) >= time && end < time + PROMPT, "it ends after {end:?} and not {time:?}");
    }
}

async fn a_keeping_during_a_long_outage_is_finished_after_it(rig: Rig) {
    let builder = Client::builder()
        .poll(NO_POLL)
        .response_timeout(ms(100))
        .retry_for(ms(200))
        .connect_timeout(ms(1_500));
    let (proxy, client) = proxied(&rig, builder).await;
    let [long, short] = ["long", "short"].map(|name| client.lock(name));
    let (long, short) = (long.lock().await.expect("free"), short.lock().await.expect("free"));
    proxy.black_hole();
    let begun = Instant::now();
    let outcomes = tokio::join!(long.keep_for(ms(60_000)), short.keep_for(ms(600)));
    assert!(matches!(outcomes, (Err(Error::InDoubt { .. }), Err(Error::InDoubt { .. }))), "{outcomes:?}");
    // The time that the short one was to be kept is over, and the store does not know.
    tokio::time::sleep(ms(900)).await;
    assert_eq!(count(&rig, "short").await, [1]);
    proxy.pass();
    eventually("it is free then", PROMPT, async || count(&rig, "short").await.is_empty()).await;
    let mut plain = rig.plain().await;
    eventually("the other is kept", PROMPT, async || {
        let ttl: i64 = plain.clone().pttl("long").await.expect("an answer");
        ttl > 31_000
    })
    .await;
    let ttl: i64 = plain.pttl("long").await.expect("an answer");
    let end = begun.elapsed() + ms(u64::try_from(ttl).expect("an end"));
    assert!(end < ms(60_000) + PROMPT, "it ends after {end:?}");
    let left = client.shutdown(PROMPT).await;
    assert!(left.is_clean(), "{left:?}");
}

async fn a_request_that_arrives_after_its_client_gave_up_is_swept(rig: Rig) {
    let builder = Client::builder().poll(NO_POLL).response_timeout(ms(500)).retry_for(ms(1_000));
    let (proxy, client) = proxied(&rig, builder).await;
    let mut plain = rig.plain().await;
    for round in 0..5 {
        let name = format!("late-{round}");
        proxy.hold_request(name.as_bytes());
        let lock = client.lock(&name);
        // Cancelled while the request is held on the way.
        let outcome = tokio::time::timeout(ms(60), lock.lock()).await;
        assert!(outcome.is_err(), "{outcome:?}");
        proxy.fired().await;
        // Time for the first undo, which finds nothing yet.
        tokio::time::sleep(ms(800)).await;
        assert!(!plain.exists::<_, bool>(&name).await.unwrap());
        let before = rig.server().calls().await;
        proxy.release_held().await;
        eventually("the late request was done", PROMPT, async || {
            grants(&rig, &rig.server().calls().await.since(&before)) >= 1
        })
        .await;
        eventually("and undone", PROMPT, async || !rig.plain().await.exists::<_, bool>(&name).await.unwrap())
            .await;
        let guard = within(PROMPT, "the lock is free", client.lock(&name).lock()).await.expect("a turn");
        guard.unlock().await.expect("held");
    }
}

async fn a_resent_acquire_whose_first_send_arrives_late_is_swept(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL).response_timeout(ms(500))).await;
    proxy.hold_request(b"twice");
    let guard = client.lock("twice").lock().await.expect("asked again on a new connection");
    proxy.fired().await;
    guard.unlock().await.expect("held");
    let before = rig.server().calls().await;
    proxy.release_held().await;
    eventually("the first send was done", PROMPT, async || {
        grants(&rig, &rig.server().calls().await.since(&before)) >= 1
    })
    .await;
    eventually("and undone", PROMPT, async || count(&rig, "twice").await.is_empty()).await;
}

async fn a_call_of_many_that_arrives_after_they_gave_up_is_swept(rig: Rig) {
    let builder = Client::builder().poll(NO_POLL).response_timeout(ms(500)).retry_for(ms(1_000));
    let (proxy, client) = proxied(&rig, builder).await;
    let locks: Vec<_> = (0..16).map(|number| client.lock(&format!("many-{number}"))).collect();
    proxy.hold_request(b"many-9");
    // Cancelled while the call is held on the way.
    let all = join_all(locks.iter().map(turnlock::Lock::lock));
    assert!(tokio::time::timeout(ms(60), all).await.is_err(), "the call is held");
    proxy.fired().await;
    let before = rig.server().calls().await;
    proxy.release_held().await;
    // More than two do not go each by itself.
    eventually("the late call was done", PROMPT, async || {
        grants(&rig, &rig.server().calls().await.since(&before)) > 2
    })
    .await;
    eventually("and all of it undone", PROMPT, async || {
        keys_of_locks(&mut rig.plain().await).await.is_empty()
    })
    .await;
    for lock in &locks {
        let guard = within(PROMPT, "the lock is free", lock.lock()).await.expect("a turn");
        guard.unlock().await.expect("held");
    }
}

async fn kill_message_connections(rig: &Rig) {
    let mut plain = rig.plain().await;
    let mut cmd = redis::cmd("CLIENT");
    let killed: u64 =
        cmd.arg("KILL").arg("TYPE").arg("pubsub").query_async(&mut plain).await.expect("killed");
    assert!(killed >= 1, "nobody listened");
}

async fn listens(rig: &Rig, name: &str) -> bool {
    let mut cmd = redis::cmd("PUBSUB");
    cmd.arg("NUMSUB").arg(format!("redisson_lock__channel:{{{name}}}"));
    let (_, count): (String, u64) = cmd.query_async(&mut rig.plain().await).await.expect("an answer");
    count > 0
}

/// A waiter whose connection for messages was cut and cannot come back, and that has looked once since.
async fn deafened(
    rig: &Rig,
    proxy: &FaultProxy,
    client: &KindClient,
    name: &str,
) -> tokio::task::JoinHandle<turnlock::Guard> {
    let waiting = client.lock(name);
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    eventually("it listens", PROMPT, async || listens(rig, name).await).await;
    // The question that follows the subscription.
    eventually("it sleeps", PROMPT, async || {
        let before = rig.server().calls().await;
        tokio::time::sleep(ms(250)).await;
        rig.server().calls().await.since(&before).of("evalsha") == 0
    })
    .await;
    let before = rig.server().calls().await;
    proxy.refuse(true);
    kill_message_connections(rig).await;
    eventually("it has looked", PROMPT, async || {
        rig.server().calls().await.since(&before).of("evalsha") >= 1
    })
    .await;
    task
}

async fn a_killed_message_connection_costs_a_second(rig: Rig) {
    // The usual poll, and the connection cannot come back: the proxy lets nobody in.
    let (proxy, client) = proxied(&rig, Client::builder()).await;
    let holder = rig.client().await.lock("quiet").lock().await.expect("free");
    let task = deafened(&rig, &proxy, &client, "quiet").await;
    holder.unlock().await.expect("held");
    let guard = within(A_SECOND, "it looks by itself", task).await.expect("no panic");
    guard.unlock().await.expect("held");
}

async fn a_message_connection_that_comes_back_wakes_everybody(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL)).await;
    for round in 0..3 {
        let name = format!("woken-{round}");
        let holder = rig.client().await.lock(&name).lock().await.expect("free");
        let task = deafened(&rig, &proxy, &client, &name).await;
        // Nobody hears this.
        holder.unlock().await.expect("held");
        tokio::time::sleep(ms(50)).await;
        assert!(!task.is_finished(), "something else than the new subscription woke it");
        proxy.refuse(false);
        let guard = within(PROMPT, "the new subscription makes it look", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn a_short_outage_is_unknown_and_not_lost(rig: Rig) {
    let (proxy, client) =
        proxied(&rig, Client::builder().watchdog(ms(4_000)).response_timeout(ms(100))).await;
    let guard = client.lock("kept").lock().await.expect("free");
    let before = guard.valid_until();
    proxy.black_hole();
    // Past the moment at which the first renewal is due, so that it fails.
    tokio::time::sleep(ms(1_600)).await;
    assert!(guard.is_valid(), "a failed renewal is not the end");
    proxy.pass();
    eventually("it is renewed", PROMPT, async || guard.valid_until() > before + ms(500)).await;
    assert!(guard.is_valid());
    guard.unlock().await.expect("held");
}

async fn a_broken_connection_is_replaced(rig: Rig) {
    // Time to connect again on a busy machine: `try_lock` gets one response time-out for it.
    let builder = Client::builder().poll(NO_POLL).response_timeout(ms(5_000));
    let (proxy, client) = proxied(&rig, builder).await;
    for round in 0..10 {
        let guard = client.lock("again").lock().await.expect("free");
        proxy.reset_all();
        if round % 2 == 0 {
            assert!(client.lock("other").try_lock().await.expect("one failure is borne").is_some());
        }
        guard.unlock().await.expect("held");
    }
    assert_eq!(count(&rig, "again").await, Vec::<u64>::new());
    // A connection that was dead before anything was sent leaves nothing in doubt.
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL)).await;
    let guard = client.lock("idle").lock().await.expect("free");
    proxy.reset_all();
    tokio::time::sleep(ms(100)).await;
    guard.unlock().await.expect("held");
    let left = client.shutdown(PROMPT).await;
    assert!(left.is_clean(), "{left:?}");
}

async fn a_guard_dropped_during_an_outage_is_released_after_it(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL).response_timeout(ms(100))).await;
    let guard = client.lock("dropped").lock().await.expect("free");
    let unlocked = client.lock("unlocked").lock().await.expect("free");
    proxy.black_hole();
    drop(guard);
    let unlocking = tokio::spawn(unlocked.unlock());
    tokio::time::sleep(ms(300)).await;
    assert!(!unlocking.is_finished());
    assert_eq!(count(&rig, "dropped").await, [1]);
    proxy.pass();
    within(PROMPT, "it is confirmed", unlocking).await.expect("no panic").expect("held until then");
    eventually("and the other too", PROMPT, async || count(&rig, "dropped").await.is_empty()).await;
}

async fn a_slow_line_works(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL)).await;
    proxy.delay(ms(40));
    let guard = client.lock("slow").lock().await.expect("free");
    let waiting = client.lock("slow");
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    let other = rig.client().await;
    assert!(other.lock("slow").try_lock().await.expect("an answer").is_none());
    guard.unlock().await.expect("held");
    let guard = within(PROMPT, "the next", task).await.expect("no panic");
    // Counted from before the request was sent: the delay is not believed in.
    assert!(guard.valid_until() < Instant::now() + ms(29_700 - 40));
    guard.unlock().await.expect("held");
    let error = client.lock("slow").lease(ms(40)).lock().await;
    match error {
        // A lease shorter than the line is slow ends before it can be of use, or cannot be confirmed in time.
        Ok(guard) => assert!(!guard.is_valid()),
        Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
    }
}

async fn a_release_between_refusal_and_subscription_is_seen(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL).response_timeout(ms(5_000))).await;
    let other = rig.client().await;
    // On a slow line, the subscription reaches the server long after the refusal has left it.
    proxy.delay(ms(400));
    for round in 0..3 {
        let name = format!("between-{round}");
        let holder = other.lock(&name).lock().await.expect("free");
        let before = rig.server().calls().await;
        let waiting = client.lock(&name);
        let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        eventually("it was refused", PROMPT, async || {
            rig.server().calls().await.since(&before).of("hget") >= 1
        })
        .await;
        assert!(!listens(&rig, &name).await);
        holder.unlock().await.expect("held");
        let guard = within(PROMPT, "it asks again once it listens", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn an_unlock_cancelled_during_a_long_outage_is_finished_after_it(rig: Rig) {
    let builder = Client::builder()
        .poll(NO_POLL)
        .response_timeout(ms(100))
        .retry_for(ms(200))
        .connect_timeout(ms(1_500));
    let (proxy, client) = proxied(&rig, builder).await;
    let awaited = client.lock("awaited").lock().await.expect("free");
    let cancelled = client.lock("cancelled").lock().await.expect("free");
    proxy.black_hole();
    assert!(tokio::time::timeout(ms(50), cancelled.unlock()).await.is_err());
    let error = awaited.unlock().await.expect_err("no answer");
    assert!(matches!(error, Error::InDoubt { .. }), "{error}");
    // Longer than an unlock waits.
    tokio::time::sleep(ms(600)).await;
    proxy.pass();
    for name in ["awaited", "cancelled"] {
        eventually(name, PROMPT, async || count(&rig, name).await.is_empty()).await;
    }
}

async fn guards_that_unlock_together_agree_about_a_lost_answer(rig: Rig) {
    let (proxy, client) = proxied(&rig, Client::builder().poll(NO_POLL)).await;
    for round in 0..5 {
        let name = format!("together-{round}");
        let one = client.lock(&name).lock().await.expect("free");
        let (two, three) = (one.reenter().await.expect("held"), one.reenter().await.expect("held"));
        // Whichever of them sends it: the answer is lost, and the next one that asks finds nothing.
        proxy.swallow_replies_to(name.as_bytes());
        let outcomes = tokio::join!(one.unlock(), two.unlock(), three.unlock());
        proxy.fired().await;
        assert!(matches!(outcomes, (Ok(()), Ok(()), Ok(()))), "{outcomes:?}");
        assert!(count(&rig, &name).await.is_empty());
    }
}
