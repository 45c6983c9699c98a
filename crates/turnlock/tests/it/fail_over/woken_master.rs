//! A master that was declared dead resumes, still in the role of a master.

use std::collections::HashMap;
use std::time::Instant;

use turnlock::{Client, Error, TryAcquire};
use turnlock_testkit::{RedisServer, SentinelSet, eventually, record_repeat, within};

use crate::fixture::ms;

pub(super) async fn a_client_of_the_new_master_never_returns_to_the_old_one() {
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
    // Only scripts count: other commands come from sentinels and replicas, or were sent before the pause.
    let mut pairs = 0;
    let start = Instant::now();
    while start.elapsed() < ms(3_000) {
        lock.lock().await.expect("free").unlock().await.expect("held");
        pairs += 1;
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(set.servers()[old].calls().await.since(&woken).of("evalsha"), 0, "used the old master");
    assert!(set.servers()[new].calls().await.since(&before).of("evalsha") >= 2 * pairs);
}

pub(super) async fn a_client_without_sentinels_gets_no_second_acknowledged_grant() {
    const MAX_ROUNDS: usize = 5;
    for _ in 0..MAX_ROUNDS {
        if refused_by_woken_master().await > 0 {
            return;
        }
        // On a busy machine, the sentinels can be faster than the first request.
        record_repeat("a void round: the old master became a replica before it was asked");
    }
    panic!("all rounds are void: the old master refused nothing");
}

/// How often a client without sentinels, whose grants two replicas must acknowledge, is refused by an old master until that
/// becomes a replica. It is never granted what the new master has granted.
async fn refused_by_woken_master() -> u32 {
    let set = SentinelSet::start().await;
    let old = set.master().await;
    // These two have the address of the server, and use no sentinels.
    let url = format!("redis://127.0.0.1:{}", set.servers()[old].port());
    let unacknowledged = Client::connect(&url).await.expect("a master");
    let acknowledged = Client::builder().replicas(2).connect(&url).await.expect("a master");
    for client in [&unacknowledged, &acknowledged] {
        client.lock("warm").lock().await.expect("free").unlock().await.expect("held");
    }
    let by_sentinels = Client::builder().connect(&set.url()).await.expect("a master");
    set.pause_master().await;
    set.wait_for_new_master(old).await;
    let guard = within(ms(10_000), "the new master", by_sentinels.lock("x").lock()).await.expect("free");
    set.servers()[old].resume();
    let resumed = Instant::now();
    let (mut second_grants, mut last, mut refused) = (0, None, 0);
    // Until the sentinels make it a replica.
    while resumed.elapsed() < ms(20_000) {
        match acknowledged.lock("x").try_lock().await {
            Ok(TryAcquire::Acquired(_)) => {
                panic!("granted twice, although two replicas had to acknowledge it")
            }
            Ok(TryAcquire::Busy) | Err(Error::NotEnoughReplicas { .. }) => refused += 1,
            Err(error) if turnlock_testkit::error_chain(&error).to_uppercase().contains("READONLY") => break,
            Err(_) if is_replica(&set.servers()[old]).await => break,
            // The connection broke while the master was paused, or the machine is busy.
            Err(_) => tokio::time::sleep(ms(10)).await,
        }
        if let Ok(TryAcquire::Acquired(second)) = unacknowledged.lock("x").try_lock().await {
            (second_grants, last) = (second_grants + 1, Some(resumed.elapsed()));
            let _ = second.unlock().await;
        }
    }
    println!("without replicas: {second_grants} second grants, the last {last:?} after the master resumed");
    assert!(guard.is_valid());
    guard.unlock().await.expect("held");
    refused
}

async fn is_replica(server: &RedisServer) -> bool {
    let info = server.query::<String>(&["INFO", "replication"]).await;
    info.is_ok_and(|info| info.contains("role:slave"))
}

pub(super) async fn a_long_fail_over_leads_no_client_back() {
    // No server is declared dead, so that the sentinels wait for the replica that is frozen below.
    let set = SentinelSet::start_with(ms(60_000), None, &[]).await;
    let old = set.master().await;
    let (frozen, next) = ((old + 1) % 3, (old + 2) % 3);
    let mut config = redis::cmd("CONFIG");
    config.arg("SET").arg("replica-priority").arg(0);
    let _: () = config.query_async(&mut set.servers()[frozen].client().await).await.expect("set");
    let leader = set.sentinels()[0].client().await;
    let sentinel = |subcommand: &str| {
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg(subcommand).arg(SentinelSet::NAME);
        cmd
    };
    let is_not_eligible = async || {
        let replicas: Vec<HashMap<String, String>> =
            sentinel("REPLICAS").query_async(&mut leader.clone()).await.expect("a reply");
        replicas.iter().any(|replica| replica.get("slave-priority").is_some_and(|priority| priority == "0"))
    };
    eventually("the leader knows the priority of the frozen replica", ms(20_000), is_not_eligible).await;
    let client = Client::connect(&set.url()).await.expect("a master");
    let lock = client.lock("x");
    lock.lock().await.expect("free").unlock().await.expect("held");
    set.servers()[frozen].pause();
    set.sentinels()[2].pause();
    let _: () = sentinel("FAILOVER").query_async(&mut leader.clone()).await.expect("begun");
    let is_master = async || {
        // A server that is promoted closes all connections.
        let next = redis::Client::open(set.servers()[next].url()).expect("a good URL");
        let Ok(mut next) = next.get_multiplexed_async_connection().await else { return false };
        let mut info = redis::cmd("INFO");
        let info = info.arg("replication").query_async::<String>(&mut next).await;
        info.is_ok_and(|info| info.contains("role:master"))
    };
    eventually("another server is promoted", ms(20_000), is_master).await;
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
        "returned to the old master"
    );
    set.sentinels()[2].resume();
    set.servers()[frozen].resume();
}
