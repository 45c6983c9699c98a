//! A master that was taken for dead wakes up, and believes that it still is one.

use std::collections::HashMap;
use std::time::Instant;

use turnlock::{Client, Error};
use turnlock_testkit::{RedisServer, SentinelSet, eventually, within};

use crate::rig::ms;

pub(super) async fn a_client_that_knows_better_never_goes_back() {
    let set = SentinelSet::start().await;
    let client = Client::connect(&set.url()).await.expect("a master");
    let lock = client.lock("x");
    lock.lock().await.expect("free").unlock().await.expect("held");
    let old = set.pause_master().await;
    let new = set.wait_for_new_master(old).await;
    within(ms(10_000), "the new master", lock.lock()).await.expect("free").unlock().await.expect("held");
    let before = set.servers()[new].calls().await;
    set.servers()[old].resume();
    let woken = set.servers()[old].calls().await;
    // What it was sent before it slept, and what others ask, is not ours; scripts are.
    let mut turns = 0;
    let start = Instant::now();
    while start.elapsed() < ms(3_000) {
        lock.lock().await.expect("free").unlock().await.expect("held");
        turns += 1;
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(set.servers()[old].calls().await.since(&woken).of("evalsha"), 0, "asked the old master");
    assert!(set.servers()[new].calls().await.since(&before).of("evalsha") >= 2 * turns);
}

pub(super) async fn a_client_that_knows_nothing_is_kept_from_a_second_grant() {
    let set = SentinelSet::start().await;
    let old = set.master().await;
    // These two were given the address of the server and hear of no sentinels.
    let url = format!("redis://127.0.0.1:{}", set.servers()[old].port());
    let naive = Client::connect(&url).await.expect("a master");
    let careful = Client::builder().acknowledged_by(2).connect(&url).await.expect("a master");
    for client in [&naive, &careful] {
        client.lock("warm").lock().await.expect("free").unlock().await.expect("held");
    }
    let knowing = Client::builder().connect(&set.url()).await.expect("a master");
    set.pause_master().await;
    set.wait_for_new_master(old).await;
    let guard = within(ms(10_000), "the new master", knowing.lock("x").lock()).await.expect("free");
    set.servers()[old].resume();
    let woken = Instant::now();
    let (mut second_grants, mut last, mut answered) = (0, None, 0);
    // Until the sentinels have made it a replica.
    while woken.elapsed() < ms(20_000) {
        match careful.lock("x").try_lock().await {
            Ok(Some(_)) => panic!("granted twice, although two replicas had to acknowledge it"),
            Ok(None) | Err(Error::NotEnoughReplicas { .. }) => answered += 1,
            Err(error) if error.to_string().to_uppercase().contains("READONLY") => break,
            Err(_) if is_replica(&set.servers()[old]).await => break,
            // The connection died while the master slept, or the machine is busy.
            Err(_) => tokio::time::sleep(ms(10)).await,
        }
        if let Ok(Some(second)) = naive.lock("x").try_lock().await {
            (second_grants, last) = (second_grants + 1, Some(woken.elapsed()));
            let _ = second.unlock().await;
        }
    }
    println!(
        "without replicas, {second_grants} grants of what another held, the last {last:?} after it woke"
    );
    assert!(answered > 0, "the old master refused nothing: this proves nothing");
    assert!(guard.is_valid());
    guard.unlock().await.expect("held");
}

async fn is_replica(server: &RedisServer) -> bool {
    let info = server.ask::<String>(&["INFO", "replication"]).await;
    info.is_ok_and(|info| info.contains("role:slave"))
}

pub(super) async fn a_long_fail_over_leads_nobody_back() {
    // Nobody is taken for dead, so that the sentinels wait for the replica that is frozen below.
    let set = SentinelSet::start_with(ms(60_000), None, &[]).await;
    let old = set.master().await;
    let (frozen, next) = ((old + 1) % 3, (old + 2) % 3);
    let mut config = redis::cmd("CONFIG");
    config.arg("SET").arg("replica-priority").arg(0);
    let _: () = config.query_async(&mut set.servers()[frozen].client().await).await.expect("set");
    let leader = set.sentinels()[0].client().await;
    let ask = |word: &str| {
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg(word).arg(SentinelSet::NAME);
        cmd
    };
    let is_passed_over = async || {
        let replicas: Vec<HashMap<String, String>> =
            ask("REPLICAS").query_async(&mut leader.clone()).await.expect("an answer");
        replicas.iter().any(|replica| replica.get("slave-priority").is_some_and(|priority| priority == "0"))
    };
    eventually("the leader knows whom not to promote", ms(20_000), is_passed_over).await;
    let client = Client::connect(&set.url()).await.expect("a master");
    let lock = client.lock("x");
    lock.lock().await.expect("free").unlock().await.expect("held");
    set.servers()[frozen].pause();
    set.sentinels()[2].pause();
    let _: () = ask("FAILOVER").query_async(&mut leader.clone()).await.expect("begun");
    let is_master = async || {
        // Who is promoted hangs up on everybody.
        let next = redis::Client::open(set.servers()[next].url()).expect("a good URL");
        let Ok(mut next) = next.get_multiplexed_async_connection().await else { return false };
        let mut info = redis::cmd("INFO");
        let info = info.arg("replication").query_async::<String>(&mut next).await;
        info.is_ok_and(|info| info.contains("role:master"))
    };
    eventually("another is promoted", ms(20_000), is_master).await;
    let has_moved = async || {
        let before = set.servers()[next].calls().await;
        lock.lock().await.expect("free").unlock().await.expect("held");
        set.servers()[next].calls().await.since(&before).of("evalsha") > 0
    };
    eventually("the client follows", ms(10_000), has_moved).await;
    let before = set.servers()[old].calls().await;
    let start = Instant::now();
    while start.elapsed() < ms(6_000) {
        lock.lock().await.expect("free").unlock().await.expect("held");
        tokio::time::sleep(ms(20)).await;
    }
    assert_eq!(
        set.servers()[old].calls().await.since(&before).of("evalsha"),
        0,
        "went back to the old master"
    );
    set.sentinels()[2].resume();
    set.servers()[frozen].resume();
}
