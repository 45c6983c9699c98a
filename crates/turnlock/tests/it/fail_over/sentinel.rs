//! Sentinels replace a master that was killed.

use std::time::Instant;

use turnlock::{Client, Error};
use turnlock_testkit::{RedisServer, SentinelSet, within};

use super::{ROUNDS, Teams, now};
use crate::rig::{NO_POLL, PROMPT, ms, until_waiting};

pub(super) async fn no_turn_is_lost_in_ten_fail_overs() {
    let mut set = SentinelSet::start().await;
    let teams = Teams::start(&set.url(), 2, "safe", "quick").await;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        let old = set.kill_master().await;
        set.wait_for_new_master(old).await;
        let failed_over = begun.elapsed();
        teams.quick.takes_a_turn_after(now(), ms(10_000)).await;
        // With both replicas there again, those who ask for two go on as well.
        set.bring_back(old).await;
        teams.safe.takes_a_turn_after(now(), ms(10_000)).await;
        println!("round {round}: another master after {failed_over:?}, complete after {:?}", begun.elapsed());
    }
    teams.check("safe", "quick").await;
}

pub(super) async fn what_is_held_and_waited_for_goes_on() {
    let mut set = SentinelSet::start().await;
    let builder = || Client::builder().poll(NO_POLL);
    let holder = builder().acknowledged_by(2).connect(&set.url()).await.expect("a master");
    let waiter = builder().connect(&set.url()).await.expect("a master");
    let fixed = holder.lock("fixed").lease(ms(120_000)).lock().await.expect("free");
    let renewed = holder.lock("renewed").lock().await.expect("free");
    let fair = holder.fair_lock("fair").lock().await.expect("free");
    let mut waiting = Vec::new();
    for lock in [waiter.lock("fixed"), waiter.lock("renewed"), waiter.fair_lock("fair")] {
        let waits = lock.clone();
        waiting.push(tokio::spawn(async move { waits.lock().await.expect("a turn").unlock().await }));
        until_waiting(&lock, 1).await;
    }
    let old = set.kill_master().await;
    set.wait_for_new_master(old).await;
    set.bring_back(old).await;
    for guard in [fixed, renewed, fair] {
        let name = guard.name().to_owned();
        assert!(guard.is_valid(), "{name}");
        assert!(waiter.lock(&name).is_locked().await.expect("an answer"), "{name}");
        let waits = waiting.remove(0);
        assert!(!waits.is_finished(), "{name}");
        guard.unlock().await.expect("held over the fail-over");
        within(PROMPT, "a message of the new master", waits).await.expect("no panic").expect("held");
    }
}

pub(super) async fn wrong_addresses_are_told_at_once() {
    let set = SentinelSet::start().await;
    let url = set.url();
    let replica = (set.master().await + 1) % 3;
    let replica = format!("redis://127.0.0.1:{}", set.servers()[replica].port());
    let sentinel = format!("redis://{}", set.addresses()[0]);
    let alone = RedisServer::start().await;
    let no_sentinel = format!("redis+sentinel://127.0.0.1:{}/{}", alone.port(), SentinelSet::NAME);
    let nobody = format!("redis+sentinel://127.0.0.1:1/{}", SentinelSet::NAME);
    for (url, words) in [
        (url.replace(SentinelSet::NAME, "somebody"), "know no master of the name \"somebody\""),
        (replica, "is a replica"),
        (sentinel, "is a sentinel"),
        (no_sentinel, "0 of 1 sentinels"),
        (nobody, "0 of 1 sentinels"),
    ] {
        let connecting = Client::builder().connect_timeout(ms(5_000)).connect(&url);
        let error = within(ms(10_000), "an answer", connecting).await.expect_err(&url);
        assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains(words), "{error}");
    }
    // One of three that is asked knows the others, and they are asked too.
    let one = format!("redis+sentinel://{}/{}", set.addresses()[2], SentinelSet::NAME);
    let client = Client::connect(&one).await.expect("a majority");
    client.lock("x").lock().await.expect("free").unlock().await.expect("held");
}
