//! Cases for the locks that are a plain value: redis-py and node-redlock.

use redis::AsyncCommands;
use turnlock_testkit::{NodeRedlock, PyLock, RedisServer};

pub(crate) async fn redis_py() {
    let server = RedisServer::start().await;
    let py = PyLock::start(&server.url()).await;
    let (one, two) = (py.thread("one"), py.thread("two"));
    assert_eq!(one.call("lock orders acquire 60000").await.expect("free"), "true");
    assert_eq!(two.call("lock orders acquire 60000 0").await.expect("a reply"), "false");
    assert_eq!(two.call("lock orders acquire 60000 50").await.expect("a reply"), "false");
    let acquire = two.begin("lock orders acquire");
    assert_eq!(one.call("lock orders extend 90000").await.expect("held"), "true");
    let ttl: i64 = server.client().await.pttl("orders").await.expect("a reply");
    assert!((60_001..=90_000).contains(&ttl), "{ttl}");
    assert_eq!(one.call("lock orders owned").await.expect("a reply"), "true");
    assert_eq!(one.call("lock orders release").await.expect("held"), "-");
    assert_eq!(acquire.await.expect("acquired"), "true");
    assert_eq!(one.call("lock orders locked").await.expect("a reply"), "true");
    assert_eq!(one.call("lock orders release").await.expect_err("not held").name, "LockError");
}

pub(crate) async fn redlock() {
    let server = RedisServer::start().await;
    let mut node = NodeRedlock::start(&server.url()).await;
    let (one, two) = (node.thread("one"), node.thread("two"));
    let value = one.call("lock orders acquire 60000").await.expect("free");
    let mut connection = server.client().await;
    assert_eq!(connection.get::<_, String>("orders").await.expect("a value"), value);
    let error = two.call("lock orders acquire 60000 50").await.expect_err("held");
    assert_eq!(error.name, "ExecutionError");
    let acquire = two.begin("lock orders acquire 60000");
    one.call("lock orders extend 90000").await.expect("held");
    let ttl: i64 = connection.pttl("orders").await.expect("a reply");
    assert!((60_001..=90_000).contains(&ttl), "{ttl}");
    one.call("lock orders release").await.expect("held");
    acquire.await.expect("acquired");
    node.kill().await;
    assert!(connection.exists::<_, bool>("orders").await.expect("a reply"), "it is not released");
}
