//! A network partition: one sentinel is on the side of the old master, the others replace it.

use turnlock::{Client, Error, TryAcquire};
use turnlock_testkit::{FaultProxy, RedisServer, SentinelSet, eventually, within};

use crate::fixture::ms;

/// The servers on the side of the majority of the sentinels, and those sentinels.
fn majority_side(set: &SentinelSet, old: usize) -> impl Iterator<Item = &RedisServer> {
    let servers = set.servers().iter().enumerate().filter(move |(number, _)| *number != old);
    servers.map(|(_, server)| server).chain(&set.sentinels()[1..])
}

pub(super) async fn sentinels_without_a_majority_lead_no_client_to_the_old_master() {
    let mut set = SentinelSet::start().await;
    let old = set.master().await;
    // The paths of the minority's clients to the sentinels.
    let mut proxies = Vec::new();
    for sentinel in set.sentinels() {
        proxies.push(FaultProxy::start(sentinel.port()).await);
    }
    let addresses: Vec<_> = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
    let url = format!("redis+sentinel://{}/{}", addresses.join(","), SentinelSet::NAME);
    let builder = || Client::builder().retry_for(ms(2_000)).connect_timeout(ms(10_000));
    let acknowledged = builder().replicas(2).connect(&url).await.expect("a master");
    let quick = builder().connect(&url).await.expect("a master");
    for client in [&acknowledged, &quick] {
        client.lock("warm").lock().await.expect("free").unlock().await.expect("held");
    }

    // Partition: first only the majority runs, then only the minority. The minority's sentinel must not learn of the change. It
    // is stopped, since a frozen one would read what was sent to it when it resumes.
    proxies[1..].iter().for_each(FaultProxy::black_hole);
    set.sentinel_mut(0).stop().await;
    set.servers()[old].pause();
    let new = set.wait_for_new_master(old).await;
    let majority_client = Client::connect(&set.url()).await.expect("a master");
    let first = majority_client.lock("x").with_lease(ms(240_000)).lock().await.expect("free");
    for server in majority_side(&set, old) {
        server.pause();
    }
    set.servers()[old].resume();
    set.sentinel_mut(0).restart().await;

    // A new client is not led to the old master by the one sentinel that names it.
    let named: Vec<String> = set.sentinels()[0]
        .query(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelSet::NAME])
        .await
        .expect("a reply");
    assert_eq!(named[1], set.servers()[old].port().to_string(), "else this proves nothing");
    let is_master = async || {
        let role: Vec<redis::Value> = set.servers()[old].query(&["ROLE"]).await.expect("a reply");
        matches!(&role[0], redis::Value::BulkString(role) if role == b"master")
    };
    assert!(is_master().await, "the old one still has the role of a master: else this proves nothing");
    let refused = builder().connect(&url).await.expect_err("no majority");
    assert!(turnlock_testkit::error_chain(&refused).contains("1 of 3 sentinels"), "{refused}");
    // A connected client is granted nothing that replicas have to acknowledge.
    let outcome = acknowledged.lock("x").try_lock().await;
    assert!(
        !matches!(outcome, Ok(TryAcquire::Acquired(_))),
        "granted twice, although two replicas had to acknowledge it"
    );
    // Without replicas, a client uses its open connection, and makes no new one.
    let second = quick.lock("x").try_lock_for(ms(5_000)).await.expect("an open connection");
    let second = second.acquired().expect("the old master knows nothing of the grant of the new one");
    let calls = set.servers()[old].calls().await;
    set.servers()[old].query::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]).await.expect("cut");
    for client in [&quick, &acknowledged] {
        let error = client.lock("y").try_lock_for(ms(2_500)).await.expect_err("no master");
        assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
    }
    assert_eq!(set.servers()[old].calls().await.since(&calls).of("evalsha"), 0, "used the old master");
    assert!(is_master().await);

    // The partition heals: all are led to the new master, and the holder of the second grant learns that it is lost.
    for server in majority_side(&set, old) {
        server.resume();
    }
    proxies[1..].iter().for_each(FaultProxy::pass);
    if second.is_valid() {
        within(ms(20_000), "the hold is lost", second.lost()).await;
    }
    assert!(matches!(second.unlock().await, Err(Error::Lost { .. })));
    let uses_new_master = async |client: &Client| {
        let before = set.servers()[new].calls().await;
        let outcome = client.lock("x").try_lock().await;
        assert!(!matches!(outcome, Ok(TryAcquire::Acquired(_))), "granted twice");
        matches!(outcome, Ok(TryAcquire::Busy))
            && set.servers()[new].calls().await.since(&before).of("evalsha") > 0
    };
    for client in [&quick, &acknowledged] {
        eventually("it uses the new master", ms(20_000), async || uses_new_master(client).await).await;
    }
    first.unlock().await.expect("held all the time");
    eventually("all replicas acknowledge", ms(60_000), async || {
        match acknowledged.lock("x").try_lock().await {
            Ok(TryAcquire::Acquired(guard)) => guard.unlock().await.is_ok(),
            _ => false,
        }
    })
    .await;
}
