//! A network that falls apart: one sentinel stays with the old master, the others replace it.

use turnlock::{Client, Error};
use turnlock_testkit::{FaultProxy, RedisServer, SentinelSet, eventually, within};

use crate::rig::ms;

/// The servers that stay in touch with a majority of the sentinels, and those sentinels.
fn other_side(set: &SentinelSet, old: usize) -> impl Iterator<Item = &RedisServer> {
    let servers = set.servers().iter().enumerate().filter(move |(number, _)| *number != old);
    servers.map(|(_, server)| server).chain(&set.sentinels()[1..])
}

pub(super) async fn sentinels_without_a_majority_lead_nobody_to_the_old_master() {
    let mut set = SentinelSet::start().await;
    let old = set.master().await;
    // What the clients of this side see of the sentinels.
    let mut ways = Vec::new();
    for sentinel in set.sentinels() {
        ways.push(FaultProxy::start(sentinel.port()).await);
    }
    let addresses: Vec<_> = ways.iter().map(|way| format!("127.0.0.1:{}", way.port())).collect();
    let url = format!("redis+sentinel://{}/{}", addresses.join(","), SentinelSet::NAME);
    let builder = || Client::builder().retry_for(ms(2_000)).connect_timeout(ms(10_000));
    let careful = builder().acknowledged_by(2).connect(&url).await.expect("a master");
    let quick = builder().connect(&url).await.expect("a master");
    for client in [&careful, &quick] {
        client.lock("warm").lock().await.expect("free").unlock().await.expect("held");
    }

    // Apart: first the other side goes on alone, then this one. Nobody on this side hears of the change: what was sent to a
    // frozen sentinel would be heard when it wakes, so that one is stopped.
    ways[1..].iter().for_each(FaultProxy::black_hole);
    set.sentinel_mut(0).stop().await;
    set.servers()[old].pause();
    let new = set.wait_for_new_master(old).await;
    let there = Client::connect(&set.url()).await.expect("a master");
    let first = there.lock("x").lease(ms(240_000)).lock().await.expect("free");
    for server in other_side(&set, old) {
        server.pause();
    }
    set.servers()[old].resume();
    set.sentinel_mut(0).restart().await;

    // Who knows nothing yet is not led to the old master by the one sentinel that names it.
    let named: Vec<String> = set.sentinels()[0]
        .ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelSet::NAME])
        .await
        .expect("an answer");
    assert_eq!(named[1], set.servers()[old].port().to_string(), "else this proves nothing");
    let is_master = async || {
        let role: Vec<redis::Value> = set.servers()[old].ask(&["ROLE"]).await.expect("an answer");
        matches!(&role[0], redis::Value::BulkString(role) if role == b"master")
    };
    assert!(is_master().await, "the old one believes that it is the master: else this proves nothing");
    let refused = builder().connect(&url).await.expect_err("no majority");
    assert!(refused.to_string().contains("1 of 3 sentinels"), "{refused}");
    // Who has a connection is granted nothing that replicas have to acknowledge.
    let outcome = careful.lock("x").try_lock().await;
    assert!(!matches!(outcome, Ok(Some(_))), "granted twice, although two replicas had to acknowledge it");
    // Without that it goes on with the connection that it has, and with no other.
    let second = quick.lock("x").try_lock_for(ms(5_000)).await.expect("an open connection");
    let second = second.expect("the old master knows nothing of the grant of the new one");
    let calls = set.servers()[old].calls().await;
    set.servers()[old].ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]).await.expect("cut");
    for client in [&quick, &careful] {
        let error = client.lock("y").try_lock_for(ms(2_500)).await.expect_err("no master");
        assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
    }
    assert_eq!(set.servers()[old].calls().await.since(&calls).of("evalsha"), 0, "asked the old master");
    assert!(is_master().await);

    // Together again: all are led to the new master, and who had the second grant is told that it was none.
    for server in other_side(&set, old) {
        server.resume();
    }
    ways[1..].iter().for_each(FaultProxy::pass);
    if second.is_valid() {
        within(ms(20_000), "it is told", second.lost()).await;
    }
    assert!(matches!(second.unlock().await, Err(Error::Lost { .. })));
    let is_there = async |client: &Client| {
        let before = set.servers()[new].calls().await;
        let outcome = client.lock("x").try_lock().await;
        assert!(!matches!(outcome, Ok(Some(_))), "granted twice");
        matches!(outcome, Ok(None)) && set.servers()[new].calls().await.since(&before).of("evalsha") > 0
    };
    for client in [&quick, &careful] {
        eventually("it asks the new master", ms(20_000), async || is_there(client).await).await;
    }
    first.unlock().await.expect("held all the time");
    eventually("all replicas acknowledge", ms(60_000), async || match careful.lock("x").try_lock().await {
        Ok(Some(guard)) => guard.unlock().await.is_ok(),
        _ => false,
    })
    .await;
}
