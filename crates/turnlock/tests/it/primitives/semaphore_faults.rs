//! Both kinds of semaphore under faults of the server and the network: a request counts once or not at all.

use std::time::Duration;

use redis::AsyncCommands;
use turnlock::{Client, Error};
use turnlock_testkit::{FaultProxy, eventually, within};

use turnlock_testkit::conformance::primitives::any_semaphore::AnySemaphore;

use crate::child::child;
use crate::fixture::{Fixture, Kind, KindClient, NO_POLL, PROMPT, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_lost_reply_to_an_acquire_takes_permits_once,
    a_lost_reply_to_a_release_returns_permits_once,
    a_lost_reply_to_a_change_counts_once,
    a_resent_delete_spares_a_new_semaphore,
    request_ids_of_semaphores_are_removed_after_the_reply,
    an_acquire_that_arrives_after_its_cancellation_takes_nothing,
    a_resent_acquire_whose_first_send_arrives_late_takes_permits_once,
    at_maxmemory_permits_can_be_released,
    a_key_of_another_type_is_not_used_as_a_semaphore,
    flushed_semaphore_scripts_are_loaded_again,
    waiters_for_permits_survive_a_restart,
];

/// The cases of permits with leases.
pub(super) const PERMIT_CASES: &[Case] = cases![permits_of_a_killed_process_expire_with_the_lease];

/// Connects a client through a proxy, with a response time-out of 200 ms.
///
/// On a busy machine, slow replies time out as well as lost ones.
pub(super) async fn proxied(fixture: &Fixture) -> (FaultProxy, KindClient) {
    proxied_for(fixture, ms(200)).await
}

/// Connects a client through a proxy, with this response time-out.
pub(super) async fn proxied_for(fixture: &Fixture, response_timeout: Duration) -> (FaultProxy, KindClient) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let builder =
        Client::builder().poll_interval(NO_POLL).response_timeout(response_timeout).retry_for(ms(20_000));
    let client = fixture.client_at(builder, &proxy.url()).await;
    (proxy, client)
}

/// Creates a semaphore with three permits, used through a proxy.
async fn three(fixture: &Fixture, name: &str) -> (FaultProxy, AnySemaphore) {
    let (proxy, client) = proxied(fixture).await;
    let semaphore = AnySemaphore::new(&client, name);
    assert!(semaphore.try_set_permits(3).await.expect("a reply"));
    (proxy, semaphore)
}

/// Returns the number that the store has at this key.
pub(super) async fn number(fixture: &Fixture, key: &str) -> Option<i64> {
    fixture.raw_connection().await.get(key).await.expect("a number")
}

/// Returns a pattern for requests on this key: the name as an argument of its own.
///
/// The removal of a request id does not match it.
pub(super) fn request_on(name: &str) -> Vec<u8> {
    format!("\r\n{name}\r\n").into_bytes()
}

/// Returns the request ids that the store has for this name.
pub(super) async fn request_ids(fixture: &Fixture, name: &str) -> Vec<String> {
    fixture.raw_connection().await.keys(format!("turnlock_request:{{{name}}}:*")).await.expect("a reply")
}

pub(super) async fn until_no_request_ids(fixture: &Fixture, name: &str) {
    eventually("no request id is left", PROMPT, async || request_ids(fixture, name).await.is_empty()).await;
}

/// Delivers the request that the proxy holds, and waits until the server has executed it.
pub(super) async fn deliver_late_copy(fixture: &Fixture, proxy: &FaultProxy) {
    // Requests that are in flight must not be counted as the late one.
    tokio::time::sleep(ms(100)).await;
    let before = fixture.server().calls().await;
    proxy.release_held().await;
    eventually("the late request was executed", PROMPT, async || {
        fixture.server().calls().await.since(&before).of("evalsha") >= 1
    })
    .await;
}

pub(super) async fn limit_memory(fixture: &Fixture, bytes: u64) {
    let mut cmd = redis::cmd("CONFIG");
    let _: () = cmd
        .arg("SET")
        .arg("maxmemory")
        .arg(bytes)
        .query_async(&mut fixture.raw_connection().await)
        .await
        .expect("set");
}

async fn a_lost_reply_to_an_acquire_takes_permits_once(fixture: Fixture) {
    let (proxy, semaphore) = three(&fixture, "lossy").await;
    for permits in [1, 2, 3] {
        proxy.swallow_replies_to(&request_on("lossy"));
        let held = semaphore.acquire(permits).await.expect("resent");
        proxy.fired().await;
        assert_eq!(number(&fixture, "lossy").await, Some(3 - i64::from(permits)));
        held.release().await.expect("held");
        assert_eq!(number(&fixture, "lossy").await, Some(3));
        // An acquire that is cancelled while its reply is lost.
        proxy.swallow_replies_to(&request_on("lossy"));
        drop(tokio::time::timeout(ms(20), semaphore.acquire(permits)).await);
        proxy.fired().await;
        eventually("it is released", PROMPT, async || number(&fixture, "lossy").await == Some(3)).await;
    }
}

async fn a_lost_reply_to_a_release_returns_permits_once(fixture: Fixture) {
    let (proxy, semaphore) = three(&fixture, "lossy").await;
    for permits in [1, 2, 3] {
        let held = semaphore.acquire(permits).await.expect("free");
        proxy.swallow_replies_to(&request_on("lossy"));
        held.release().await.expect("the second send finds the effect of the first");
        proxy.fired().await;
        assert_eq!(number(&fixture, "lossy").await, Some(3));
        let dropped = semaphore.acquire(permits).await.expect("free");
        proxy.swallow_replies_to(&request_on("lossy"));
        drop(dropped);
        proxy.fired().await;
        within(PROMPT, "all are available", semaphore.acquire(3))
            .await
            .expect("acquired")
            .release()
            .await
            .expect("held");
        assert_eq!(number(&fixture, "lossy").await, Some(3));
    }
}

async fn a_lost_reply_to_a_change_counts_once(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture).await;
    let semaphore = AnySemaphore::new(&client, "changed");
    let lose = || proxy.swallow_replies_to(&request_on("changed"));
    lose();
    assert!(semaphore.try_set_permits(3).await.expect("resent"), "this request set it");
    proxy.fired().await;
    for (difference, sum) in [(4, 7), (-2, 5)] {
        lose();
        assert_eq!(semaphore.add_permits(difference).await.expect("resent"), sum);
        proxy.fired().await;
    }
    lose();
    let (reply, expected) = match &semaphore {
        AnySemaphore::Plain(semaphore) => {
            assert_eq!(semaphore.release(2).await.expect("resent"), 7);
            proxy.fired().await;
            lose();
            (semaphore.drain().await.expect("resent"), (7, Some(0)))
        }
        AnySemaphore::Leased(semaphore) => (semaphore.set_permits(9).await.expect("resent"), (9, Some(9))),
    };
    proxy.fired().await;
    assert_eq!((reply, number(&fixture, "changed").await), expected);
    lose();
    assert!(semaphore.delete().await.expect("resent"), "this request deleted it");
    proxy.fired().await;
    assert_eq!(number(&fixture, "changed").await, None);
}

async fn a_resent_delete_spares_a_new_semaphore(fixture: Fixture) {
    let (proxy, semaphore) = three(&fixture, "gone").await;
    // The first send arrives after another client has created a new semaphore.
    proxy.hold_request(&request_on("gone"));
    assert!(semaphore.delete().await.expect("resent on a new connection"));
    proxy.fired().await;
    let other = AnySemaphore::new(&fixture.client().await, "gone");
    assert!(other.try_set_permits(5).await.expect("a reply"));
    deliver_late_copy(&fixture, &proxy).await;
    assert_eq!(number(&fixture, "gone").await, Some(5));
}

async fn request_ids_of_semaphores_are_removed_after_the_reply(fixture: Fixture) {
    let (proxy, client) = proxied_for(&fixture, PROMPT).await;
    let semaphore = AnySemaphore::new(&client, "neat");
    assert!(semaphore.try_set_permits(3).await.expect("a reply"));
    let held = semaphore.acquire(2).await.expect("free");
    held.release().await.expect("held");
    drop(semaphore.acquire(1).await.expect("free"));
    eventually("it is released", PROMPT, async || number(&fixture, "neat").await == Some(3)).await;
    assert_eq!(semaphore.add_permits(1).await.expect("a reply"), 4);
    until_no_request_ids(&fixture, "neat").await;
    assert!(semaphore.delete().await.expect("a reply"));
    assert!(semaphore.try_set_permits(3).await.expect("a reply"));
    until_no_request_ids(&fixture, "neat").await;
    proxy.swallow_replies_to(&request_on("neat"));
    assert_eq!(semaphore.add_permits(1).await.expect("resent"), 4);
    proxy.fired().await;
    tokio::time::sleep(ms(200)).await;
    assert_eq!(request_ids(&fixture, "neat").await.len(), 1, "its reply was lost");
    if fixture.kind == Kind::Semaphore {
        proxy.swallow_replies_to(&request_on("neat"));
        let held = semaphore.acquire(2).await.expect("resent");
        proxy.fired().await;
        held.release().await.expect("held");
        let held = semaphore.acquire(2).await.expect("free");
        proxy.swallow_replies_to(&request_on("neat"));
        held.release().await.expect("resent");
        proxy.fired().await;
        tokio::time::sleep(ms(200)).await;
        assert_eq!(request_ids(&fixture, "neat").await.len(), 3, "a reply to each was lost");
    }
}

async fn an_acquire_that_arrives_after_its_cancellation_takes_nothing(fixture: Fixture) {
    let (proxy, semaphore) = three(&fixture, "late").await;
    for _ in 0..3 {
        proxy.hold_request(&request_on("late"));
        // Cancelled while the proxy holds the request.
        assert!(tokio::time::timeout(ms(40), semaphore.acquire(2)).await.is_err());
        proxy.fired().await;
        // Time for the first undo, which finds nothing yet.
        tokio::time::sleep(ms(300)).await;
        assert_eq!(number(&fixture, "late").await, Some(3));
        let before = fixture.server().calls().await;
        proxy.release_held().await;
        eventually("the late request was executed", PROMPT, async || {
            fixture.server().calls().await.since(&before).of("evalsha") >= 1
        })
        .await;
        eventually("the count is unchanged", PROMPT, async || number(&fixture, "late").await == Some(3))
            .await;
    }
    semaphore.acquire(3).await.expect("all are free").release().await.expect("held");
}

async fn a_resent_acquire_whose_first_send_arrives_late_takes_permits_once(fixture: Fixture) {
    let (proxy, semaphore) = three(&fixture, "twice").await;
    proxy.hold_request(&request_on("twice"));
    // Few enough that a second acquire would succeed.
    let held = semaphore.acquire(1).await.expect("resent on a new connection");
    proxy.fired().await;
    deliver_late_copy(&fixture, &proxy).await;
    assert_eq!(number(&fixture, "twice").await, Some(2), "the first send had no effect after the second");
    proxy.hold_request(&request_on("twice"));
    held.release().await.expect("resent");
    proxy.fired().await;
    deliver_late_copy(&fixture, &proxy).await;
    assert_eq!(number(&fixture, "twice").await, Some(3), "the first send had no effect after the second");
}

async fn at_maxmemory_permits_can_be_released(fixture: Fixture) {
    let builder = Client::builder().poll_interval(NO_POLL).retry_for(ms(200)).watchdog_timeout(ms(3_000));
    let semaphore = AnySemaphore::new(&fixture.client_with(builder).await, "full");
    assert!(semaphore.try_set_permits(3).await.expect("a reply"));
    let (one, two) = (semaphore.acquire(1).await.expect("free"), semaphore.acquire(1).await.expect("free"));
    limit_memory(&fixture, 1).await;
    let error = semaphore.acquire(1).await.expect_err("no memory to take a permit");
    assert!(
        matches!(&error, Error::Unavailable { .. }) && turnlock_testkit::error_chain(&error).contains("OOM"),
        "{error}"
    );
    one.release().await.expect("a release needs no memory");
    assert_eq!(number(&fixture, "full").await, Some(2));
    if fixture.kind == Kind::Permits {
        let end = two.valid_until();
        eventually("it is renewed", PROMPT, async || two.valid_until() > end + ms(200)).await;
    }
    drop(two);
    eventually("a drop releases", PROMPT, async || number(&fixture, "full").await == Some(3)).await;
    limit_memory(&fixture, 0).await;
    semaphore.acquire(3).await.expect("memory is available again").release().await.expect("held");
}

async fn a_key_of_another_type_is_not_used_as_a_semaphore(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let client = fixture.client().await;
    let _: () = connection.set("text", "precious").await.expect("set");
    let _: () = connection.rpush("list", "precious").await.expect("pushed");
    let _: () = connection.set("huge", "99999999999999999999").await.expect("set");
    for key in ["text", "list", "huge"] {
        let semaphore = AnySemaphore::new(&client, key);
        for outcome in [
            semaphore.acquire(1).await.map(drop),
            semaphore.try_acquire(1).await.map(drop),
            semaphore.add_permits(1).await.map(drop),
            semaphore.available().await.map(drop),
        ] {
            let error = outcome.expect_err("not a semaphore");
            assert!(matches!(&error, Error::NotALock { key: found, .. } if found == key), "{key}: {error}");
        }
    }
    assert!(matches!(AnySemaphore::new(&client, "list").delete().await, Err(Error::NotALock { .. })));
    assert!(matches!(
        AnySemaphore::new(&client, "list").try_set_permits(1).await,
        Err(Error::NotALock { .. })
    ));
    // A semaphore whose key is overwritten while permits are out.
    let semaphore = AnySemaphore::new(&client, "mine");
    assert!(semaphore.try_set_permits(2).await.expect("a reply"));
    let held = semaphore.acquire(1).await.expect("free");
    let _: () = connection.set("mine", "precious").await.expect("set");
    assert!(matches!(held.release().await, Err(Error::NotALock { .. })));
    for (key, text) in [("mine", "precious"), ("text", "precious"), ("huge", "99999999999999999999")] {
        assert_eq!(connection.get::<_, String>(key).await.expect("a reply"), text);
    }
    assert_eq!(connection.lrange::<_, Vec<String>>("list", 0, -1).await.expect("a reply"), ["precious"]);
}

async fn flushed_semaphore_scripts_are_loaded_again(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let semaphore = AnySemaphore::new(&fixture.client().await, "forgotten");
    let mut flush = async || {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.expect("flushed");
    };
    flush().await;
    assert!(semaphore.try_set_permits(2).await.expect("a reply"));
    flush().await;
    let held = semaphore.acquire(2).await.expect("free");
    flush().await;
    assert!(semaphore.try_acquire(1).await.expect("a reply").is_busy());
    flush().await;
    held.release().await.expect("held");
    flush().await;
    assert_eq!(semaphore.available().await.expect("a reply"), 2);
}

async fn waiters_for_permits_survive_a_restart(mut fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (semaphore, other) = (AnySemaphore::new(&one, "again"), AnySemaphore::new(&two, "again"));
    assert!(semaphore.try_set_permits(1).await.expect("a reply"));
    let held = semaphore.acquire(1).await.expect("free");
    let waiting = other.clone();
    let task = tokio::spawn(async move { waiting.acquire(1).await.expect("acquired") });
    eventually("the waiter waits", ms(20_000), async || {
        other.inspect().await.is_ok_and(|seen| seen.waiting_here == 1)
    })
    .await;
    fixture.server_mut().restart().await;
    if fixture.kind == Kind::Permits {
        within(PROMPT, "the check after the reconnect detects the loss", held.lost()).await;
    }
    assert!(matches!(held.release().await, Err(Error::Lost { .. })), "the count was lost with the data");
    // If the message comes while the waiter reconnects, the waiter sends a request after that.
    assert!(semaphore.try_set_permits(1).await.expect("a reply"));
    within(PROMPT, "the waiter acquires", task).await.expect("no panic").release().await.expect("held");
}

async fn permits_of_a_killed_process_expire_with_the_lease(fixture: Fixture) {
    let semaphore = fixture.client().await.permit_semaphore("child");
    assert!(semaphore.try_set_permits(2).await.expect("a reply"));
    let mut child = child(&fixture, "permits");
    eventually("the child holds the permits", ms(30_000), async || {
        matches!(semaphore.available().await, Ok(0))
    })
    .await;
    assert!(semaphore.try_acquire(1).await.expect("a reply").is_busy());
    child.kill().await.expect("killed");
    let permits = within(ms(3_000) + PROMPT, "the lease ends", semaphore.acquire(2)).await.expect("acquired");
    permits.release().await.expect("held");
}
