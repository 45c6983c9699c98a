//! A replica takes over the slots of a master that is killed.

use std::time::Instant;

use turnlock::{Client, Error, MultiLock, TryAcquire};
use turnlock_testkit::{ClusterSet, RedisServer, eventually, within};

use super::{ROUNDS, Workload, now};
use crate::fixture::{NO_POLL, PROMPT, ms, until_waiting};

pub(super) async fn no_increment_is_lost_in_ten_promotions() {
    let mut set = ClusterSet::start().await;
    // In one slot, so that a promotion affects both.
    let (acknowledged, unacknowledged) = ("{turns}:acknowledged", "{turns}:unacknowledged");
    let workload = Workload::start(&set.url(), 1, acknowledged, unacknowledged).await;
    let slot = set.slot_of(acknowledged).await;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        let old = set.owner_of(slot).await;
        // In turn: the master is killed, and an orderly promotion.
        if round % 2 == 0 {
            set.kill(old).await;
            set.wait_promoted(set.partner_of(old)).await;
            let promoted = begun.elapsed();
            workload.unacknowledged.until_held_after(now(), ms(10_000)).await;
            set.restart(old).await;
            println!("round {round}: promoted after {promoted:?}, complete after {:?}", begun.elapsed());
        } else {
            set.promote(set.partner_of(old)).await;
            set.wait_healthy().await;
            println!("round {round}: orderly promotion after {:?}", begun.elapsed());
        }
        workload.until_both_held(ms(10_000)).await;
    }
    workload.check(acknowledged, unacknowledged).await;
}

pub(super) async fn holds_and_waits_survive_a_promotion() {
    let mut set = ClusterSet::start().await;
    let builder = || Client::builder().poll_interval(NO_POLL);
    let holder = builder().replicas(1).connect(&set.url()).await.expect("a cluster");
    let waiter = builder().connect(&set.url()).await.expect("a cluster");
    // A multi lock with members on all three masters.
    let names: Vec<_> = (0..12).map(|number| format!("member:{number}")).collect();
    let members = || names.iter().map(|name| holder.lock(name));
    let all = MultiLock::new(members()).expect("members").lock().await.expect("free");
    let mut waiting = Vec::new();
    for name in &names {
        let lock = waiter.lock(name);
        let waits = lock.clone();
        waiting.push(tokio::spawn(async move { waits.lock().await.expect("a turn").unlock().await }));
        until_waiting(&lock, 1).await;
    }
    let slot = set.slot_of(&names[0]).await;
    let old = set.owner_of(slot).await;
    set.kill(old).await;
    set.wait_promoted(set.partner_of(old)).await;
    for name in &names {
        let is_locked = async || waiter.lock(name).is_locked().await;
        eventually("the new master is found", ms(10_000), async || is_locked().await.is_ok()).await;
        assert!(is_locked().await.expect("a reply"), "{name}");
    }
    assert!(all.is_valid());
    set.restart(old).await;
    assert!(waiting.iter().all(|waits| !waits.is_finished()));
    all.unlock().await.expect("held during the promotion");
    for waits in waiting {
        within(PROMPT, "a message from the new master", waits).await.expect("no panic").expect("held");
    }
}

pub(super) async fn names_that_span_slots_are_refused() {
    let set = ClusterSet::start().await;
    let client = Client::connect(&set.url()).await.expect("a cluster");
    for name in ["a}b", "a{", "a{}b", "}{"] {
        let error = client.lock(name).try_lock().await.expect_err(name);
        assert!(matches!(&error, Error::Unsupported(text) if text.contains("slots")), "{name}: {error}");
        let error = client.fair_lock(name).inspect().await.expect_err(name);
        assert!(matches!(error, Error::Unsupported(_)), "{name}: {error}");
        // One key without a channel cannot span slots.
        client.plain_lock(name).lock().await.expect("free").unlock().await.expect("held");
    }
    let braced =
        client.latch("{a}:b").try_set_count(1).await.expect_err("its channel puts the whole name in braces");
    assert!(matches!(braced, Error::Unsupported(_)), "{braced}");
    client.lock("{a}:b").lock().await.expect("free").unlock().await.expect("held");
}

pub(super) async fn wrong_addresses_are_reported_at_once() {
    let alone = RedisServer::start().await;
    let connect = async |url: &str| within(ms(10_000), "a reply", Client::connect(url)).await;
    let error =
        connect(&format!("redis+cluster://127.0.0.1:{}", alone.port())).await.expect_err("no cluster");
    assert!(turnlock_testkit::error_chain(&error).contains("it is a standalone server"), "{error}");
    let error = connect("redis+cluster://127.0.0.1:1").await.expect_err("no server there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let set = ClusterSet::start().await;
    let owner = set.owner_of(set.slot_of("x").await).await;
    let other = (owner + 1) % 3;
    let client =
        connect(&format!("redis://127.0.0.1:{}", set.nodes()[other].port())).await.expect("a server");
    let error = client.lock("x").lock().await.expect_err("its slot is elsewhere");
    assert!(matches!(&error, Error::Unsupported(text) if text.contains("redis+cluster://")), "{error}");
}

pub(super) async fn a_reply_from_a_deposed_node_is_discarded() {
    let set = ClusterSet::start().await;
    let (name, neighbour) = ("{slot}:a", "{slot}:b");
    let old = set.owner_of(set.slot_of(name).await).await;
    // A response time-out so long that the reply may arrive after all that happens meanwhile.
    let slow = Client::builder().response_timeout(ms(9_000)).connect(&set.url()).await.expect("a cluster");
    let other = Client::connect(&set.url()).await.expect("a cluster");
    for name in [name, neighbour] {
        slow.lock(name).lock().await.expect("free").unlock().await.expect("held");
    }
    set.nodes()[old].pause();
    let lock = slow.lock(name);
    let mut pending = tokio::spawn(async move { lock.lock().await });
    set.wait_promoted(set.partner_of(old)).await;
    let held = within(ms(10_000), "the new master", other.lock(name).lock()).await.expect("free");
    // Once this succeeds, the client with the pending request knows the new master.
    let knows_new_master = async || {
        let lock = slow.lock(&format!("{neighbour}:{}", fastrand::u64(..)));
        matches!(tokio::time::timeout(ms(400), lock.try_lock()).await, Ok(Ok(TryAcquire::Acquired(_))))
    };
    eventually("the new master is known", ms(7_500), knows_new_master).await;
    set.nodes()[old].resume();
    assert!(tokio::time::timeout(ms(1_500), &mut pending).await.is_err(), "granted by a deposed node");
    assert!(held.is_valid());
    held.unlock().await.expect("held");
    within(ms(10_000), "it is granted", pending)
        .await
        .expect("no panic")
        .expect("a turn")
        .unlock()
        .await
        .expect("held");
}
