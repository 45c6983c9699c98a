//! Sentinels replace a master that is killed.

use std::time::Instant;

use turnlock::{Client, Error};
use turnlock_testkit::{RedisServer, SentinelSet, within};

use super::{ROUNDS, Workload, now};
use crate::fixture::{NO_POLL, PROMPT, ms, until_waiting};

pub(super) async fn no_increment_is_lost_in_ten_fail_overs() {
    let mut set = SentinelSet::start().await;
    let workload = Workload::start(&set.url(), 2, "acknowledged", "unacknowledged").await;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        let old = set.kill_master().await;
        set.wait_for_new_master(old).await;
        let failed_over = begun.elapsed();
        workload.unacknowledged.until_held_after(now(), ms(10_000)).await;
        // With both replicas back, holds that two must acknowledge are granted again.
        set.bring_back(old).await;
        workload.acknowledged.until_held_after(now(), ms(10_000)).await;
        println!("round {round}: new master after {failed_over:?}, complete after {:?}", begun.elapsed());
    }
    workload.check("acknowledged", "unacknowledged").await;
}

pub(super) async fn holds_and_waits_survive_a_fail_over() {
    let mut set = SentinelSet::start().await;
    let builder = || Client::builder().poll_interval(NO_POLL);
    let holder = builder().replicas(2).connect(&set.url()).await.expect("a master");
    let waiter = builder().connect(&set.url()).await.expect("a master");
    let fixed = holder.lock("fixed").with_lease(ms(120_000)).lock().await.expect("free");
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
        assert!(waiter.lock(&name).is_locked().await.expect("a reply"), "{name}");
        let waits = waiting.remove(0);
        assert!(!waits.is_finished(), "{name}");
        guard.unlock().await.expect("held during the fail-over");
        within(PROMPT, "a message from the new master", waits).await.expect("no panic").expect("held");
    }
}

pub(super) async fn wrong_addresses_are_reported_at_once() {
    let set = SentinelSet::start().await;
    let url = set.url();
    let replica = (set.master().await + 1) % 3;
    let replica = format!("redis://127.0.0.1:{}", set.servers()[replica].port());
    let sentinel = format!("redis://{}", set.addresses()[0]);
    let alone = RedisServer::start().await;
    let no_sentinel = format!("redis+sentinel://127.0.0.1:{}/{}", alone.port(), SentinelSet::NAME);
    let no_server = format!("redis+sentinel://127.0.0.1:1/{}", SentinelSet::NAME);
    for (url, text) in [
        (url.replace(SentinelSet::NAME, "unknown"), "know no master named \"unknown\""),
        (replica, "is a replica"),
        (sentinel, "is a sentinel"),
        (no_sentinel, "0 of 1 sentinels"),
        (no_server, "0 of 1 sentinels"),
    ] {
        let connecting = Client::builder().connect_timeout(ms(5_000)).connect(&url);
        let error = within(ms(10_000), "a reply", connecting).await.expect_err(&url);
        assert!(
            matches!(error, Error::Unavailable { .. })
                && turnlock_testkit::error_chain(&error).contains(text),
            "{error}"
        );
    }
    // One of three sentinels is enough: it knows the others, and they are queried too.
    let one = format!("redis+sentinel://{}/{}", set.addresses()[2], SentinelSet::NAME);
    let client = Client::connect(&one).await.expect("a majority");
    client.lock("x").lock().await.expect("free").unlock().await.expect("held");
}
