//! A replica takes over the slots of a master that was killed.

use std::time::Instant;

use turnlock::{Client, Error, MultiLock};
use turnlock_testkit::{ClusterSet, RedisServer, eventually, within};

use super::{ROUNDS, Teams, now};
use crate::rig::{NO_POLL, PROMPT, ms, until_waiting};

pub(super) async fn no_turn_is_lost_in_ten_promotions() {
    let mut set = ClusterSet::start().await;
    // In one slot, so that one promotion is for both.
    let (safe, quick) = ("{turns}:safe", "{turns}:quick");
    let teams = Teams::start(&set.url(), 1, safe, quick).await;
    let slot = set.slot_of(safe).await;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        let old = set.owner_of(slot).await;
        // Both ways that it happens: by death, and in an orderly way.
        if round % 2 == 0 {
            set.kill(old).await;
            set.wait_promoted(set.partner_of(old)).await;
            let promoted = begun.elapsed();
            teams.quick.takes_a_turn_after(now(), ms(10_000)).await;
            set.restart(old).await;
            println!("round {round}: promoted after {promoted:?}, complete after {:?}", begun.elapsed());
        } else {
            set.promote(set.partner_of(old)).await;
            set.wait_healthy().await;
            println!("round {round}: promoted in order after {:?}", begun.elapsed());
        }
        teams.take_turns_within(ms(10_000)).await;
    }
    teams.check(safe, quick).await;
}

pub(super) async fn what_is_held_and_waited_for_goes_on() {
    let mut set = ClusterSet::start().await;
    let builder = || Client::builder().poll(NO_POLL);
    let holder = builder().acknowledged_by(1).connect(&set.url()).await.expect("a cluster");
    let waiter = builder().connect(&set.url()).await.expect("a cluster");
    // On all three masters, as a whole.
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
        let is_held = async || waiter.lock(name).is_locked().await;
        eventually("the new master is found", ms(10_000), async || is_held().await.is_ok()).await;
        assert!(is_held().await.expect("an answer"), "{name}");
    }
    assert!(all.is_valid());
    set.restart(old).await;
    assert!(waiting.iter().all(|waits| !waits.is_finished()));
    all.unlock().await.expect("held over the promotion");
    for waits in waiting {
        within(PROMPT, "a message of the new master", waits).await.expect("no panic").expect("held");
    }
}

pub(super) async fn names_that_fall_apart_are_refused() {
    let set = ClusterSet::start().await;
    let client = Client::connect(&set.url()).await.expect("a cluster");
    for name in ["a}b", "a{", "a{}b", "}{"] {
        let error = client.lock(name).try_lock().await.expect_err(name);
        assert!(matches!(&error, Error::Unsupported(text) if text.contains("slots")), "{name}: {error}");
        let error = client.fair_lock(name).inspect().await.expect_err(name);
        assert!(matches!(error, Error::Unsupported(_)), "{name}: {error}");
        // One key and no channel cannot fall apart.
        client.plain_lock(name).lock().await.expect("free").unlock().await.expect("held");
    }
    let braced =
        client.latch("{a}:b").try_set_count(1).await.expect_err("its channel has braces around all of it");
    assert!(matches!(braced, Error::Unsupported(_)), "{braced}");
    client.lock("{a}:b").lock().await.expect("free").unlock().await.expect("held");
}

pub(super) async fn wrong_addresses_are_told_at_once() {
    let alone = RedisServer::start().await;
    let connect = async |url: &str| within(ms(10_000), "an answer", Client::connect(url)).await;
    let error =
        connect(&format!("redis+cluster://127.0.0.1:{}", alone.port())).await.expect_err("no cluster");
    assert!(error.to_string().contains("it is a server alone"), "{error}");
    let error = connect("redis+cluster://127.0.0.1:1").await.expect_err("nobody there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let set = ClusterSet::start().await;
    let owner = set.owner_of(set.slot_of("x").await).await;
    let other = (owner + 1) % 3;
    let client =
        connect(&format!("redis://127.0.0.1:{}", set.nodes()[other].port())).await.expect("a server");
    let error = client.lock("x").lock().await.expect_err("its slot is elsewhere");
    assert!(matches!(&error, Error::Unsupported(text) if text.contains("redis+cluster://")), "{error}");
}

pub(super) async fn the_word_of_a_deposed_node_does_not_count() {
    let set = ClusterSet::start().await;
    let (name, neighbour) = ("{slot}:a", "{slot}:b");
    let old = set.owner_of(set.slot_of(name).await).await;
    // Patient enough for an answer to come after all that happens meanwhile.
    let patient = Client::builder().response_timeout(ms(9_000)).connect(&set.url()).await.expect("a cluster");
    let other = Client::connect(&set.url()).await.expect("a cluster");
    for name in [name, neighbour] {
        patient.lock(name).lock().await.expect("free").unlock().await.expect("held");
    }
    set.nodes()[old].pause();
    let lock = patient.lock(name);
    let mut asked = tokio::spawn(async move { lock.lock().await });
    set.wait_promoted(set.partner_of(old)).await;
    let held = within(ms(10_000), "the new master", other.lock(name).lock()).await.expect("free");
    // By this, the client that has asked the old one knows of the new one.
    let knows = async || {
        let lock = patient.lock(&format!("{neighbour}:{}", fastrand::u64(..)));
        matches!(tokio::time::timeout(ms(400), lock.try_lock()).await, Ok(Ok(Some(_))))
    };
    eventually("the new master is known", ms(7_500), knows).await;
    set.nodes()[old].resume();
    assert!(tokio::time::timeout(ms(1_500), &mut asked).await.is_err(), "granted by a node that was deposed");
    assert!(held.is_valid());
    held.unlock().await.expect("held");
    within(ms(10_000), "its turn", asked)
        .await
        .expect("no panic")
        .expect("a turn")
        .unlock()
        .await
        .expect("held");
}
