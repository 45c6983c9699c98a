//! A server for one test.

use redis::AsyncCommands;
use tokio::net::TcpStream;
use tokio::time::timeout;
use turnlock_testkit::{RedisServer, within};

use crate::{LIMIT, QUIET, connect, value};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_replies_and_leaves_nothing_behind() {
    assert_eq!(RedisServer::missing(), None);
    let server = RedisServer::start_with(&["--maxmemory", "64mb"]).await;
    let (addr, pid) = (server.addr(), server.pid());
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    let mut client = server.client().await;
    let limit: Vec<String> =
        redis::cmd("CONFIG").arg("GET").arg("maxmemory").query_async(&mut client).await.expect("CONFIG GET");
    assert_eq!(limit[1], (64 * 1024 * 1024).to_string());
    let dir: Vec<String> =
        redis::cmd("CONFIG").arg("GET").arg("dir").query_async(&mut client).await.expect("CONFIG GET");
    assert!(dir[1].contains(&format!("turnlock-{}-", std::process::id())));
    drop(server);
    assert!(TcpStream::connect(addr).await.is_err(), "the port is closed");
    assert!(!std::fs::exists(format!("/proc/{pid}")).expect("readable"), "the process has exited");
    assert!(!std::fs::exists(&dir[1]).expect("readable"), "the directory is removed");
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "its log:")]
async fn a_server_that_cannot_start_shows_its_log() {
    RedisServer::start_with(&["--no-such-setting", "1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_password_starts() {
    let server = RedisServer::start_with(&["--requirepass", "secret"]).await;
    let url = format!("redis://:secret@127.0.0.1:{}", server.port());
    let mut client = connect(&url).await.expect("the password is right");
    client.ping::<()>().await.expect("PING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_the_data_and_keeps_the_port() {
    let mut server = RedisServer::start().await;
    let (port, pid) = (server.port(), server.pid());
    server.client().await.set::<_, _, ()>("n", 1).await.expect("SET");
    server.restart().await;
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(value(&server, "n").await, None);
    server.stop().await;
    server.stop().await;
    assert!(TcpStream::connect(server.addr()).await.is_err(), "a stopped server does not listen");
    server.restart().await;
    assert_eq!(value(&server, "n").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_replies_only_after_it_resumes() {
    let server = RedisServer::start().await;
    let mut client = server.client().await;
    client.ping::<()>().await.expect("PING");
    server.pause();
    let mut request = tokio::spawn(async move { client.incr::<_, _, i64>("n", 1).await });
    assert!(timeout(QUIET, &mut request).await.is_err(), "no reply from a paused server");
    server.resume();
    assert_eq!(within(LIMIT, "the reply", request).await.expect("no panic").expect("INCR"), 1);
    // A server that is dropped while paused must end too, or this test hangs here.
    server.pause();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted() {
    let server = RedisServer::start().await;
    let mut client = server.client().await;
    let before = server.calls().await;
    for _ in 0..3 {
        client.incr::<_, _, i64>("n", 1).await.expect("INCR");
    }
    let script = redis::Script::new("return redis.call('GET', KEYS[1])");
    script.key("n").invoke_async::<i64>(&mut client).await.expect("a script");
    let new = server.calls().await.since(&before);
    assert_eq!((new.of("INCRBY"), new.of("get"), new.of("set")), (3, 1, 0), "{new:?}");
    assert!(new.of("evalsha") >= 1, "{new:?}");
    let before = server.calls().await;
    assert_eq!(server.calls().await.since(&before).total(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_can_be_set_while_the_server_runs() {
    if let Some(reason) = RedisServer::clock_shift_missing() {
        return println!("ignored: {reason}");
    }
    let mut server = RedisServer::start_with_clock_ahead(60).await;
    let mut client = server.client().await;
    client.set_ex::<_, _, ()>("n", 1, 600).await.expect("SET");
    for ahead in [60, 0, -3_600, 300] {
        server.set_clock_ahead(ahead);
        let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut client).await.expect("TIME");
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let offset = seconds - i64::try_from(here.as_secs()).expect("before 2500");
        assert!((offset - ahead).abs() < 5, "{offset} s ahead and not {ahead}");
        let rest: i64 = client.ttl("n").await.expect("TTL");
        assert!((rest - (660 - ahead)).abs() < 60, "{rest} s left with a clock {ahead} s ahead");
    }
}
