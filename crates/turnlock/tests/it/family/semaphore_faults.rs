//! Both kinds of semaphores, on a server and a network that misbehave: a request counts once, or not at all.

use std::time::Duration;

use redis::AsyncCommands;
use turnlock::{Client, Error};
use turnlock_testkit::{FaultProxy, eventually, within};

use super::slots::Slots;
use crate::rig::{Kind, KindClient, NO_POLL, PROMPT, Rig, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_lost_answer_to_an_acquire_takes_once,
    a_lost_answer_to_a_release_gives_back_once,
    a_lost_answer_to_a_change_counts_once,
    a_removal_that_is_sent_again_removes_nothing_new,
    requests_on_semaphores_are_forgotten_when_they_are_answered,
    an_acquire_that_arrives_after_its_client_gave_up_takes_nothing,
    a_resent_acquire_whose_first_send_arrives_late_takes_once,
    at_maxmemory_permits_come_back,
    a_key_of_another_type_is_no_semaphore,
    scripts_of_semaphores_are_sent_again,
    waiters_for_permits_survive_a_restart,
];

/// Answers that are held on the way are given up soon, so on a busy machine also some that are only slow.
pub(super) async fn proxied(rig: &Rig) -> (FaultProxy, KindClient) {
    proxied_for(rig, ms(200)).await
}

/// The same with a client that gives up an answer only when its connection breaks, or after this time.
pub(super) async fn proxied_for(rig: &Rig, response_timeout: Duration) -> (FaultProxy, KindClient) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let builder = Client::builder().poll(NO_POLL).response_timeout(response_timeout).retry_for(ms(20_000));
    let client = rig.client_at(builder, &proxy.url()).await;
    (proxy, client)
}

/// A semaphore with three permits behind a proxy, and its number.
async fn three(rig: &Rig, name: &str) -> (FaultProxy, Slots) {
    let (proxy, client) = proxied(rig).await;
    let slots = Slots::new(&client, name);
    assert!(slots.try_set_permits(3).await.expect("an answer"));
    (proxy, slots)
}

pub(super) async fn number(rig: &Rig, key: &str) -> Option<i64> {
    rig.plain().await.get(key).await.expect("a number")
}

/// What a step on this number has in it, and the removal of a memory has not: the name as a key of its own.
pub(super) fn on(name: &str) -> Vec<u8> {
    format!("\r\n{name}\r\n").into_bytes()
}

/// The memory of requests on this number.
pub(super) async fn remembered(rig: &Rig, name: &str) -> Vec<String> {
    rig.plain().await.keys(format!("turnlock_request:{{{name}}}:*")).await.expect("an answer")
}

pub(super) async fn nothing_is_remembered(rig: &Rig, name: &str) {
    eventually("no request is remembered", PROMPT, async || remembered(rig, name).await.is_empty()).await;
}

/// Lets the request go that is held on the way, and waits until the server has done it.
pub(super) async fn late_copy_comes(rig: &Rig, proxy: &FaultProxy) {
    // What others have just asked for is not to be taken for it.
    tokio::time::sleep(ms(100)).await;
    let before = rig.server().calls().await;
    proxy.release_held().await;
    eventually("the late request was done", PROMPT, async || {
        rig.server().calls().await.since(&before).of("evalsha") >= 1
    })
    .await;
}

pub(super) async fn limit_memory(rig: &Rig, bytes: u64) {
    let mut cmd = redis::cmd("CONFIG");
    let _: () =
        cmd.arg("SET").arg("maxmemory").arg(bytes).query_async(&mut rig.plain().await).await.expect("set");
}

async fn a_lost_answer_to_an_acquire_takes_once(rig: Rig) {
    let (proxy, slots) = three(&rig, "lossy").await;
    for permits in [1, 2, 3] {
        proxy.swallow_replies_to(&on("lossy"));
        let held = slots.acquire(permits).await.expect("asked again");
        proxy.fired().await;
        assert_eq!(number(&rig, "lossy").await, Some(3 - i64::from(permits)));
        held.release().await.expect("held");
        assert_eq!(number(&rig, "lossy").await, Some(3));
        // One that is cancelled while its answer is lost.
        proxy.swallow_replies_to(&on("lossy"));
        drop(tokio::time::timeout(ms(20), slots.acquire(permits)).await);
        proxy.fired().await;
        eventually("it is given back", PROMPT, async || number(&rig, "lossy").await == Some(3)).await;
    }
}

async fn a_lost_answer_to_a_release_gives_back_once(rig: Rig) {
    let (proxy, slots) = three(&rig, "lossy").await;
    for permits in [1, 2, 3] {
        let held = slots.acquire(permits).await.expect("free");
        proxy.swallow_replies_to(&on("lossy"));
        held.release().await.expect("the second send finds the first one's work");
        proxy.fired().await;
        assert_eq!(number(&rig, "lossy").await, Some(3));
        let dropped = slots.acquire(permits).await.expect("free");
        proxy.swallow_replies_to(&on("lossy"));
        drop(dropped);
        proxy.fired().await;
        within(PROMPT, "all are back", slots.acquire(3))
            .await
            .expect("a turn")
            .release()
            .await
            .expect("held");
        assert_eq!(number(&rig, "lossy").await, Some(3));
    }
}

async fn a_lost_answer_to_a_change_counts_once(rig: Rig) {
    let (proxy, client) = proxied(&rig).await;
    let slots = Slots::new(&client, "changed");
    let lose = || proxy.swallow_replies_to(&on("changed"));
    lose();
    assert!(slots.try_set_permits(3).await.expect("asked again"), "it was this one that set it");
    proxy.fired().await;
    for (difference, sum) in [(4, 7), (-2, 5)] {
        lose();
        assert_eq!(slots.add_permits(difference).await.expect("asked again"), sum);
        proxy.fired().await;
    }
    lose();
    let (answer, left) = match &slots {
        Slots::Plain(semaphore) => {
            assert_eq!(semaphore.release(2).await.expect("asked again"), 7);
            proxy.fired().await;
            lose();
            (semaphore.drain().await.expect("asked again"), (7, Some(0)))
        }
        Slots::Leased(semaphore) => (semaphore.set_permits(9).await.expect("asked again"), (9, Some(9))),
    };
    proxy.fired().await;
    assert_eq!((answer, number(&rig, "changed").await), left);
    lose();
    assert!(slots.delete().await.expect("asked again"), "it was this one that removed it");
    proxy.fired().await;
    assert_eq!(number(&rig, "changed").await, None);
}

async fn a_removal_that_is_sent_again_removes_nothing_new(rig: Rig) {
    let (proxy, slots) = three(&rig, "gone").await;
    // The first send is done when another has set a new number already.
    proxy.hold_request(&on("gone"));
    assert!(slots.delete().await.expect("asked again on a new connection"));
    proxy.fired().await;
    let other = Slots::new(&rig.client().await, "gone");
    assert!(other.try_set_permits(5).await.expect("an answer"));
    late_copy_comes(&rig, &proxy).await;
    assert_eq!(number(&rig, "gone").await, Some(5));
}

async fn requests_on_semaphores_are_forgotten_when_they_are_answered(rig: Rig) {
    let (proxy, client) = proxied_for(&rig, PROMPT).await;
    let slots = Slots::new(&client, "neat");
    assert!(slots.try_set_permits(3).await.expect("an answer"));
    let held = slots.acquire(2).await.expect("free");
    held.release().await.expect("held");
    drop(slots.acquire(1).await.expect("free"));
    eventually("it is given back", PROMPT, async || number(&rig, "neat").await == Some(3)).await;
    assert_eq!(slots.add_permits(1).await.expect("an answer"), 4);
    nothing_is_remembered(&rig, "neat").await;
    assert!(slots.delete().await.expect("an answer"));
    assert!(slots.try_set_permits(3).await.expect("an answer"));
    nothing_is_remembered(&rig, "neat").await;
    proxy.swallow_replies_to(&on("neat"));
    assert_eq!(slots.add_permits(1).await.expect("asked again"), 4);
    proxy.fired().await;
    tokio::time::sleep(ms(200)).await;
    assert_eq!(remembered(&rig, "neat").await.len(), 1, "its answer was lost");
    if rig.kind == Kind::Semaphore {
        proxy.swallow_replies_to(&on("neat"));
        let held = slots.acquire(2).await.expect("asked again");
        proxy.fired().await;
        held.release().await.expect("held");
        let held = slots.acquire(2).await.expect("free");
        proxy.swallow_replies_to(&on("neat"));
        held.release().await.expect("asked again");
        proxy.fired().await;
        tokio::time::sleep(ms(200)).await;
        assert_eq!(remembered(&rig, "neat").await.len(), 3, "an answer to each was lost");
    }
}

async fn an_acquire_that_arrives_after_its_client_gave_up_takes_nothing(rig: Rig) {
    let (proxy, slots) = three(&rig, "late").await;
    for _ in 0..3 {
        proxy.hold_request(&on("late"));
        // Cancelled while the request is held on the way.
        assert!(tokio::time::timeout(ms(40), slots.acquire(2)).await.is_err());
        proxy.fired().await;
        // Time for the first undo, which finds nothing yet.
        tokio::time::sleep(ms(300)).await;
        assert_eq!(number(&rig, "late").await, Some(3));
        let before = rig.server().calls().await;
        proxy.release_held().await;
        eventually("the late request was done", PROMPT, async || {
            rig.server().calls().await.since(&before).of("evalsha") >= 1
        })
        .await;
        eventually("the number is whole", PROMPT, async || number(&rig, "late").await == Some(3)).await;
    }
    slots.acquire(3).await.expect("all are free").release().await.expect("held");
}

async fn a_resent_acquire_whose_first_send_arrives_late_takes_once(rig: Rig) {
    let (proxy, slots) = three(&rig, "twice").await;
    proxy.hold_request(&on("twice"));
    // Few enough that a second one would fit.
    let held = slots.acquire(1).await.expect("asked again on a new connection");
    proxy.fired().await;
    late_copy_comes(&rig, &proxy).await;
    assert_eq!(number(&rig, "twice").await, Some(2), "the first send, after the second");
    proxy.hold_request(&on("twice"));
    held.release().await.expect("sent again");
    proxy.fired().await;
    late_copy_comes(&rig, &proxy).await;
    assert_eq!(number(&rig, "twice").await, Some(3), "the first send, after the second");
}

async fn at_maxmemory_permits_come_back(rig: Rig) {
    let builder = Client::builder().poll(NO_POLL).retry_for(ms(200)).watchdog(ms(3_000));
    let slots = Slots::new(&rig.client_with(builder).await, "full");
    assert!(slots.try_set_permits(3).await.expect("an answer"));
    let (one, two) = (slots.acquire(1).await.expect("free"), slots.acquire(1).await.expect("free"));
    limit_memory(&rig, 1).await;
    let error = slots.acquire(1).await.expect_err("no room to take one");
    assert!(matches!(&error, Error::Unavailable { .. }) && error.to_string().contains("OOM"), "{error}");
    one.release().await.expect("to give back needs no room");
    assert_eq!(number(&rig, "full").await, Some(2));
    if rig.kind == Kind::Permits {
        let end = two.valid_until();
        eventually("it is renewed", PROMPT, async || two.valid_until() > end + ms(200)).await;
    }
    drop(two);
    eventually("also by a drop", PROMPT, async || number(&rig, "full").await == Some(3)).await;
    limit_memory(&rig, 0).await;
    slots.acquire(3).await.expect("room again").release().await.expect("held");
}

async fn a_key_of_another_type_is_no_semaphore(rig: Rig) {
    let mut plain = rig.plain().await;
    let client = rig.client().await;
    let _: () = plain.set("text", "precious").await.expect("set");
    let _: () = plain.rpush("list", "precious").await.expect("pushed");
    let _: () = plain.set("huge", "99999999999999999999").await.expect("set");
    for key in ["text", "list", "huge"] {
        let slots = Slots::new(&client, key);
        for outcome in [
            slots.acquire(1).await.map(drop),
            slots.try_acquire(1).await.map(drop),
            slots.add_permits(1).await.map(drop),
            slots.available().await.map(drop),
        ] {
            let error = outcome.expect_err("no semaphore");
            assert!(matches!(&error, Error::Corrupt { key: found, .. } if found == key), "{key}: {error}");
        }
    }
    assert!(matches!(Slots::new(&client, "list").delete().await, Err(Error::Corrupt { .. })));
    assert!(matches!(Slots::new(&client, "list").try_set_permits(1).await, Err(Error::Corrupt { .. })));
    // One that was overwritten while permits were out.
    let slots = Slots::new(&client, "mine");
    assert!(slots.try_set_permits(2).await.expect("an answer"));
    let held = slots.acquire(1).await.expect("free");
    let _: () = plain.set("mine", "precious").await.expect("set");
    assert!(matches!(held.release().await, Err(Error::Corrupt { .. })));
    for (key, text) in [("mine", "precious"), ("text", "precious"), ("huge", "99999999999999999999")] {
        assert_eq!(plain.get::<_, String>(key).await.expect("an answer"), text);
    }
    assert_eq!(plain.lrange::<_, Vec<String>>("list", 0, -1).await.expect("an answer"), ["precious"]);
}

async fn scripts_of_semaphores_are_sent_again(rig: Rig) {
    let mut plain = rig.plain().await;
    let slots = Slots::new(&rig.client().await, "forgotten");
    let mut flush = async || {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut plain).await.expect("flushed");
    };
    flush().await;
    assert!(slots.try_set_permits(2).await.expect("an answer"));
    flush().await;
    let held = slots.acquire(2).await.expect("free");
    flush().await;
    assert!(slots.try_acquire(1).await.expect("an answer").is_none());
    flush().await;
    held.release().await.expect("held");
    flush().await;
    assert_eq!(slots.available().await.expect("an answer"), 2);
}

async fn waiters_for_permits_survive_a_restart(mut rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let (slots, other) = (Slots::new(&one, "again"), Slots::new(&two, "again"));
    assert!(slots.try_set_permits(1).await.expect("an answer"));
    let held = slots.acquire(1).await.expect("free");
    let waiting = other.clone();
    let task = tokio::spawn(async move { waiting.acquire(1).await.expect("a turn") });
    eventually("it waits", ms(20_000), async || {
        other.inspect().await.is_ok_and(|seen| seen.waiting_here == 1)
    })
    .await;
    rig.server_mut().restart().await;
    if rig.kind == Kind::Permits {
        within(PROMPT, "a new connection confirms what is held", held.lost()).await;
    }
    assert!(matches!(held.release().await, Err(Error::Lost { .. })), "the number went with the data");
    // The message may come while the waiter is still on its way back; then it looks when it is.
    assert!(slots.try_set_permits(1).await.expect("an answer"));
    within(PROMPT, "the waiter goes on", task).await.expect("no panic").release().await.expect("held");
}
