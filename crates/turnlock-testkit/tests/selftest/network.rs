//! The faults that concern whole connections.

use std::time::Duration;

use redis::AsyncCommands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use turnlock_testkit::{RedisServer, eventually, within};

use crate::{LIMIT, QUIET, connect, setup, value};

#[tokio::test(flavor = "multi_thread")]
async fn everything_passes_at_first() {
    let (server, proxy, mut client) = setup().await;
    let large = "x".repeat(3_000_000);
    client.set::<_, _, ()>("large", &large).await.expect("SET");
    assert!(client.get::<_, String>("large").await.expect("GET") == large);
    assert_eq!(proxy.connections(), 1);
    drop(client);
    eventually("the client is gone", LIMIT, async || proxy.connections() == 0).await;
    let addr = ("127.0.0.1", proxy.port());
    drop(proxy);
    eventually("the proxy is gone", LIMIT, async || TcpStream::connect(addr).await.is_err()).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_takes_requests_for_good() {
    let (server, proxy, mut client) = setup().await;
    let mut idle = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("a connection");
    eventually("both are accepted", LIMIT, async || proxy.connections() == 2).await;
    proxy.black_hole();
    let mut asking = tokio::spawn(async move { client.incr::<_, _, i64>("n", 1).await });
    let mut new = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("new ones are accepted");
    new.write_all(b"INCR n\r\n").await.expect("a request");
    assert!(timeout(QUIET, &mut asking).await.is_err(), "no reply out of a black hole");
    assert!(timeout(QUIET, new.read_u8()).await.is_err(), "nor on a new connection");
    assert_eq!(proxy.connections(), 3);
    assert_eq!(value(&server, "n").await, None);
    proxy.pass();
    assert!(within(LIMIT, "the end", asking).await.expect("no panic").is_err(), "the connection is reset");
    assert!(within(LIMIT, "the end", new.read_u8()).await.is_err(), "the new one as well");
    assert_eq!(value(&server, "n").await, None, "what was swallowed stays so");
    idle.write_all(b"PING\r\n").await.expect("a request");
    let mut reply = [0; 7];
    within(LIMIT, "a reply", idle.read_exact(&mut reply))
        .await
        .expect("a connection that lost nothing works");
    assert_eq!(&reply, b"+PONG\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_hides_that_a_side_has_closed() {
    let (mut server, proxy, client) = setup().await;
    let mut other = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("a connection");
    other.write_all(b"PING\r\n").await.expect("a request");
    within(LIMIT, "a reply", other.read_exact(&mut [0; 7])).await.expect("PONG");
    proxy.black_hole();
    drop(client);
    eventually("the client is gone", LIMIT, async || proxy.connections() == 1).await;
    let list: String =
        redis::cmd("CLIENT").arg("LIST").query_async(&mut server.client().await).await.expect("LIST");
    assert_eq!(list.lines().count(), 3, "the server still sees both, and the one that looks");
    server.stop().await;
    assert!(timeout(QUIET, other.read_u8()).await.is_err(), "the client does not see the server's end");
    proxy.pass();
    assert!(within(LIMIT, "the end", other.read_u8()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_holds_for_both_directions_and_keeps_the_order() {
    let (_server, proxy, mut client) = setup().await;
    proxy.delay(Duration::from_millis(60));
    let begun = Instant::now();
    assert_eq!(client.incr::<_, _, i64>("n", 1).await.expect("INCR"), 1);
    assert!(begun.elapsed() >= Duration::from_millis(120), "{:?}", begun.elapsed());
    let mut raw = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("a connection");
    // Without the switch below this would take for ever, compared to the limit of the wait.
    proxy.delay(Duration::from_secs(3600));
    for part in ["SET a 1\r\n", "SET a 2\r\n", "GET a\r\n"] {
        raw.write_all(part.as_bytes()).await.expect("a request");
    }
    assert!(timeout(QUIET, raw.read_u8()).await.is_err(), "still delayed");
    proxy.pass();
    let mut replies = [0; 17];
    within(LIMIT, "the held replies", raw.read_exact(&mut replies)).await.expect("replies");
    assert_eq!(&replies, b"+OK\r\n+OK\r\n$1\r\n2\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_ends_old_connections_only() {
    let (_server, proxy, mut client) = setup().await;
    proxy.reset_all();
    assert!(client.ping::<()>().await.is_err());
    eventually("the old one is gone", LIMIT, async || proxy.connections() == 0).await;
    let mut client = connect(&proxy.url()).await.expect("a new connection");
    client.ping::<()>().await.expect("PING");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusing_concerns_new_connections_only() {
    let (_server, proxy, mut client) = setup().await;
    proxy.refuse(true);
    assert!(connect(&proxy.url()).await.is_err());
    client.ping::<()>().await.expect("the old one works");
    proxy.refuse(false);
    connect(&proxy.url()).await.expect("new ones work again");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_outlives_its_server() {
    let (mut server, proxy, mut client) = setup().await;
    server.stop().await;
    assert!(client.ping::<()>().await.is_err());
    assert!(connect(&proxy.url()).await.is_err());
    server.restart().await;
    connect(&proxy.url()).await.expect("a new connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_moved_leads_to_the_other_server() {
    let (server, proxy, mut client) = setup().await;
    let other = RedisServer::start().await;
    proxy.lead_to(other.port());
    client.incr::<_, _, i64>("n", 1).await.expect("a connection that is there stays");
    let mut new = connect(&proxy.url()).await.expect("a server");
    new.incr::<_, _, i64>("n", 5).await.expect("INCR");
    assert_eq!((value(&server, "n").await, value(&other, "n").await), (Some(1), Some(5)));
}
