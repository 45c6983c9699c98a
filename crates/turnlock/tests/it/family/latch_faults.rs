//! The latch on a server and a network that misbehave: a count-down counts once.

use redis::AsyncCommands;
use turnlock::{Client, Error};
use turnlock_testkit::{eventually, within};

use super::semaphore_faults::{
    late_copy_comes, limit_memory, nothing_is_remembered, number, on, proxied, proxied_for, remembered,
};
use crate::rig::{NO_POLL, PROMPT, Rig, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_lost_answer_to_a_count_down_counts_once,
    a_removal_of_a_latch_that_is_sent_again_removes_nothing_new,
    requests_on_latches_are_forgotten_when_they_are_answered,
    a_count_down_that_arrives_late_counts_once,
    at_maxmemory_a_latch_counts_down,
    a_key_of_another_type_is_no_latch,
    waiters_for_a_latch_survive_a_restart,
];

async fn a_lost_answer_to_a_count_down_counts_once(rig: Rig) {
    let (proxy, client) = proxied(&rig).await;
    let latch = client.latch("lossy");
    let lose = || proxy.swallow_replies_to(&on("lossy"));
    lose();
    assert!(latch.try_set_count(3).await.expect("asked again"), "it was this one that set it");
    proxy.fired().await;
    for left in [2, 1, 0] {
        lose();
        assert_eq!(latch.count_down().await.expect("asked again"), left);
        proxy.fired().await;
        assert_eq!(number(&rig, "lossy").await.unwrap_or_default(), left);
    }
    lose();
    assert!(latch.wait_for(ms(2_000)).await.expect("asked again"));
    proxy.fired().await;
}

async fn a_removal_of_a_latch_that_is_sent_again_removes_nothing_new(rig: Rig) {
    let (proxy, client) = proxied(&rig).await;
    let latch = client.latch("gone");
    assert!(latch.try_set_count(3).await.expect("an answer"));
    proxy.hold_request(&on("gone"));
    assert!(latch.delete().await.expect("asked again on a new connection"));
    proxy.fired().await;
    assert!(rig.client().await.latch("gone").try_set_count(5).await.expect("an answer"));
    late_copy_comes(&rig, &proxy).await;
    assert_eq!(number(&rig, "gone").await, Some(5));
    proxy.swallow_replies_to(&on("gone"));
    assert!(latch.delete().await.expect("asked again"), "it was this one that removed it");
    proxy.fired().await;
    assert_eq!(number(&rig, "gone").await, None);
}

async fn requests_on_latches_are_forgotten_when_they_are_answered(rig: Rig) {
    let (proxy, client) = proxied_for(&rig, PROMPT).await;
    let latch = client.latch("neat");
    assert!(latch.try_set_count(3).await.expect("an answer"));
    assert!(!latch.try_set_count(3).await.expect("an answer"));
    assert_eq!(latch.count_down().await.expect("an answer"), 2);
    nothing_is_remembered(&rig, "neat").await;
    proxy.swallow_replies_to(&on("neat"));
    assert_eq!(latch.count_down().await.expect("asked again"), 1);
    proxy.fired().await;
    assert!(latch.delete().await.expect("an answer"));
    eventually("only what was in doubt is left", PROMPT, async || remembered(&rig, "neat").await.len() == 1)
        .await;
    tokio::time::sleep(ms(200)).await;
    assert_eq!(remembered(&rig, "neat").await.len(), 1, "its answer was lost");
}

async fn a_count_down_that_arrives_late_counts_once(rig: Rig) {
    let (proxy, client) = proxied(&rig).await;
    let latch = client.latch("late");
    assert!(latch.try_set_count(3).await.expect("an answer"));
    for left in [2, 1] {
        proxy.hold_request(&on("late"));
        assert_eq!(latch.count_down().await.expect("asked again on a new connection"), left);
        proxy.fired().await;
        let before = rig.server().calls().await;
        proxy.release_held().await;
        eventually("the first send came", PROMPT, async || {
            rig.server().calls().await.since(&before).of("evalsha") >= 1
        })
        .await;
        assert_eq!(number(&rig, "late").await, Some(left));
    }
}

async fn at_maxmemory_a_latch_counts_down(rig: Rig) {
    let client = rig.client_with(Client::builder().poll(NO_POLL).retry_for(ms(200))).await;
    let latch = client.latch("full");
    assert!(latch.try_set_count(2).await.expect("an answer"));
    limit_memory(&rig, 1).await;
    let error = client.latch("new").try_set_count(1).await.expect_err("no room");
    assert!(matches!(&error, Error::Unavailable { .. }) && error.to_string().contains("OOM"), "{error}");
    let waiting = latch.clone();
    let task = tokio::spawn(async move { waiting.wait().await.expect("it opens") });
    assert_eq!(latch.count_down().await.expect("to count down needs no room"), 1);
    assert_eq!(latch.count_down().await.expect("to count down needs no room"), 0);
    within(PROMPT, "it opens", task).await.expect("no panic");
    limit_memory(&rig, 0).await;
}

async fn a_key_of_another_type_is_no_latch(rig: Rig) {
    let mut plain = rig.plain().await;
    let client = rig.client().await;
    let _: () = plain.set("text", "precious").await.expect("set");
    let _: () = plain.hset("hash", "field", "precious").await.expect("set");
    for key in ["text", "hash"] {
        let latch = client.latch(key);
        for outcome in [
            latch.count_down().await.map(drop),
            latch.count().await.map(drop),
            within(PROMPT, "a wait ends", latch.wait()).await,
            latch.wait_for(ms(20)).await.map(drop),
        ] {
            let error = outcome.expect_err("no latch");
            assert!(matches!(&error, Error::Corrupt { key: found, .. } if found == key), "{key}: {error}");
        }
    }
    assert!(matches!(client.latch("hash").try_set_count(1).await, Err(Error::Corrupt { .. })));
    assert!(matches!(client.latch("hash").delete().await, Err(Error::Corrupt { .. })));
    assert_eq!(plain.get::<_, String>("text").await.expect("an answer"), "precious");
    assert_eq!(plain.hget::<_, _, String>("hash", "field").await.expect("an answer"), "precious");
}

async fn waiters_for_a_latch_survive_a_restart(mut rig: Rig) {
    let client = rig.client().await;
    let latch = client.latch("again");
    assert!(latch.try_set_count(1).await.expect("an answer"));
    let waiting = latch.clone();
    let task = tokio::spawn(async move { waiting.wait().await.expect("it opens") });
    eventually("it waits", ms(20_000), async || {
        latch.inspect().await.is_ok_and(|seen| seen.waiting_here == 1)
    })
    .await;
    rig.server_mut().restart().await;
    within(PROMPT, "what is not there is open", task).await.expect("no panic");
}
