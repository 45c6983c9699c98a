//! Latches under faults of the server and the network: a count-down counts once.

use redis::AsyncCommands;
use turnlock::{Client, Error};
use turnlock_testkit::{eventually, within};

use super::semaphore_faults::{
    deliver_late_copy, limit_memory, number, proxied, proxied_for, request_ids, request_on,
    until_no_request_ids,
};
use crate::fixture::{Fixture, NO_POLL, PROMPT, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_lost_reply_to_a_count_down_counts_once,
    a_resent_delete_spares_a_new_latch,
    request_ids_of_latches_are_removed_after_the_reply,
    a_late_count_down_counts_once,
    at_maxmemory_a_latch_counts_down,
    a_key_of_another_type_is_not_used_as_a_latch,
    waiters_for_a_latch_survive_a_restart,
];

async fn a_lost_reply_to_a_count_down_counts_once(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture).await;
    let latch = client.latch("lossy");
    let lose = || proxy.swallow_replies_to(&request_on("lossy"));
    lose();
    assert!(latch.try_set_count(3).await.expect("resent"), "this request set it");
    proxy.fired().await;
    for left in [2, 1, 0] {
        lose();
        assert_eq!(latch.count_down().await.expect("resent"), left);
        proxy.fired().await;
        assert_eq!(number(&fixture, "lossy").await.unwrap_or_default(), left);
    }
    lose();
    assert!(latch.wait_for(ms(2_000)).await.expect("resent"));
    proxy.fired().await;
}

async fn a_resent_delete_spares_a_new_latch(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture).await;
    let latch = client.latch("gone");
    assert!(latch.try_set_count(3).await.expect("a reply"));
    proxy.hold_request(&request_on("gone"));
    assert!(latch.delete().await.expect("resent on a new connection"));
    proxy.fired().await;
    assert!(fixture.client().await.latch("gone").try_set_count(5).await.expect("a reply"));
    deliver_late_copy(&fixture, &proxy).await;
    assert_eq!(number(&fixture, "gone").await, Some(5));
    proxy.swallow_replies_to(&request_on("gone"));
    assert!(latch.delete().await.expect("resent"), "this request deleted it");
    proxy.fired().await;
    assert_eq!(number(&fixture, "gone").await, None);
}

async fn request_ids_of_latches_are_removed_after_the_reply(fixture: Fixture) {
    let (proxy, client) = proxied_for(&fixture, PROMPT).await;
    let latch = client.latch("neat");
    assert!(latch.try_set_count(3).await.expect("a reply"));
    assert!(!latch.try_set_count(3).await.expect("a reply"));
    assert_eq!(latch.count_down().await.expect("a reply"), 2);
    until_no_request_ids(&fixture, "neat").await;
    proxy.swallow_replies_to(&request_on("neat"));
    assert_eq!(latch.count_down().await.expect("resent"), 1);
    proxy.fired().await;
    assert!(latch.delete().await.expect("a reply"));
    eventually("only the request in doubt is left", PROMPT, async || {
        request_ids(&fixture, "neat").await.len() == 1
    })
    .await;
    tokio::time::sleep(ms(200)).await;
    assert_eq!(request_ids(&fixture, "neat").await.len(), 1, "its reply was lost");
}

async fn a_late_count_down_counts_once(fixture: Fixture) {
    let (proxy, client) = proxied(&fixture).await;
    let latch = client.latch("late");
    assert!(latch.try_set_count(3).await.expect("a reply"));
    for left in [2, 1] {
        proxy.hold_request(&request_on("late"));
        assert_eq!(latch.count_down().await.expect("resent on a new connection"), left);
        proxy.fired().await;
        let before = fixture.server().calls().await;
        proxy.release_held().await;
        eventually("the first send was executed", PROMPT, async || {
            fixture.server().calls().await.since(&before).of("evalsha") >= 1
        })
        .await;
        assert_eq!(number(&fixture, "late").await, Some(left));
    }
}

async fn at_maxmemory_a_latch_counts_down(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().poll_interval(NO_POLL).retry_for(ms(200))).await;
    let latch = client.latch("full");
    assert!(latch.try_set_count(2).await.expect("a reply"));
    limit_memory(&fixture, 1).await;
    let error = client.latch("new").try_set_count(1).await.expect_err("no memory");
    assert!(
        matches!(&error, Error::Unavailable { .. }) && turnlock_testkit::error_chain(&error).contains("OOM"),
        "{error}"
    );
    let waiting = latch.clone();
    let task = tokio::spawn(async move { waiting.wait().await.expect("the latch opens") });
    assert_eq!(latch.count_down().await.expect("a count-down needs no memory"), 1);
    assert_eq!(latch.count_down().await.expect("a count-down needs no memory"), 0);
    within(PROMPT, "the latch opens", task).await.expect("no panic");
    limit_memory(&fixture, 0).await;
}

async fn a_key_of_another_type_is_not_used_as_a_latch(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let client = fixture.client().await;
    let _: () = connection.set("text", "precious").await.expect("set");
    let _: () = connection.hset("hash", "field", "precious").await.expect("set");
    for key in ["text", "hash"] {
        let latch = client.latch(key);
        for outcome in [
            latch.count_down().await.map(drop),
            latch.count().await.map(drop),
            within(PROMPT, "the wait fails", latch.wait()).await,
            latch.wait_for(ms(20)).await.map(drop),
        ] {
            let error = outcome.expect_err("not a latch");
            assert!(matches!(&error, Error::NotALock { key: found, .. } if found == key), "{key}: {error}");
        }
    }
    assert!(matches!(client.latch("hash").try_set_count(1).await, Err(Error::NotALock { .. })));
    assert!(matches!(client.latch("hash").delete().await, Err(Error::NotALock { .. })));
    assert_eq!(connection.get::<_, String>("text").await.expect("a reply"), "precious");
    assert_eq!(connection.hget::<_, _, String>("hash", "field").await.expect("a reply"), "precious");
}

async fn waiters_for_a_latch_survive_a_restart(mut fixture: Fixture) {
    let client = fixture.client().await;
    let latch = client.latch("again");
    assert!(latch.try_set_count(1).await.expect("a reply"));
    let waiting = latch.clone();
    let task = tokio::spawn(async move { waiting.wait().await.expect("the latch opens") });
    eventually("the waiter waits", ms(20_000), async || {
        latch.inspect().await.is_ok_and(|seen| seen.waiting_here == 1)
    })
    .await;
    fixture.server_mut().restart().await;
    within(PROMPT, "an unset latch is open", task).await.expect("no panic");
}
