//! What driven locks of other families do.

use redis::AsyncCommands;
use turnlock_testkit::{NodeRedlock, PyLock, RedisServer};

pub(crate) async fn redis_py() {
    let server = RedisServer::start().await;
    let py = PyLock::start(&server.url()).await;
    let (one, two) = (py.thread("one"), py.thread("two"));
    assert_eq!(one.call("lock orders acquire 60000").await.expect("free"), "true");
    assert_eq!(two.call("lock orders acquire 60000 0").await.expect("an answer"), "false");
    assert_eq!(two.call("lock orders acquire 60000 50").await.expect("an answer"), "false");
    let turn = two.begin("lock orders acquire");
    assert_eq!(one.call("lock orders extend 90000").await.expect("held"), "true");
    let ttl: i64 = server.client().await.pttl("orders").await.expect("an answer");
    assert!((60_001..=90_000).contains(&ttl), "{ttl}");
    assert_eq!(one.call("lock orders owned").await.expect("an answer"), "true");
    assert_eq!(one.call("lock orders release").await.expect("held"), "-");
    assert_eq!(turn.await.expect("a turn"), "true");
    assert_eq!(one.call("lock orders locked").await.expect("an answer"), "true");
    assert_eq!(one.call("lock orders release").await.expect_err("not held").name, "LockError");
}

pub(crate) async fn redlock() {
    let server = RedisServer::start().await;
    let mut node = NodeRedlock::start(&server.url()).await;
    let (one, two) = (node.thread("one"), node.thread("two"));
    let value = one.call("lock orders acquire 60000").await.expect("free");
    let mut plain = server.client().await;
    assert_eq!(plain.get::<_, String>("orders").await.expect("a value"), value);
    let refused = two.call("lock orders acquire 60000 50").await.expect_err("it is held");
    assert_eq!(refused.name, "ExecutionError");
    let turn = two.begin("lock orders acquire 60000");
    one.call("lock orders extend 90000").await.expect("held");
    let ttl: i64 = plain.pttl("orders").await.expect("an answer");
    assert!((60_001..=90_000).contains(&ttl), "{ttl}");
    one.call("lock orders release").await.expect("held");
    turn.await.expect("a turn");
    node.kill().await;
    assert!(plain.exists::<_, bool>("orders").await.expect("an answer"), "nobody released it");
}
