//! Faults of whole connections.

use std::time::Duration;

use redis::AsyncCommands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use turnlock_testkit::{RedisServer, eventually, within};

use crate::{LIMIT, QUIET, connect, setup, value};

#[tokio::test(flavor = "multi_thread")]
async fn everything_passes_initially() {
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
async fn a_black_hole_loses_requests_permanently() {
    let (server, proxy, mut client) = setup().await;
    let mut idle = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("a connection");
    eventually("both are accepted", LIMIT, async || proxy.connections() == 2).await;
    proxy.black_hole();
    let mut request = tokio::spawn(async move { client.incr::<_, _, i64>("n", 1).await });
    let mut new = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("new ones are accepted");
    new.write_all(b"INCR n\r\n").await.expect("a request");
    assert!(timeout(QUIET, &mut request).await.is_err(), "no reply from a black hole");
    assert!(timeout(QUIET, new.read_u8()).await.is_err(), "nor on a new connection");
    assert_eq!(proxy.connections(), 3);
    assert_eq!(value(&server, "n").await, None);
    proxy.pass();
    assert!(
        within(LIMIT, "the connection ends", request).await.expect("no panic").is_err(),
        "the connection is reset"
    );
    assert!(within(LIMIT, "the connection ends", new.read_u8()).await.is_err(), "the new one as well");
    assert_eq!(value(&server, "n").await, None, "lost requests stay lost");
    idle.write_all(b"PING\r\n").await.expect("a request");
    let mut reply = [0; 7];
    within(LIMIT, "a reply", idle.read_exact(&mut reply)).await.expect("a connection without losses works");
    assert_eq!(&reply, b"+PONG\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_hides_a_close() {
    let (mut server, proxy, client) = setup().await;
    let mut other = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("a connection");
    other.write_all(b"PING\r\n").await.expect("a request");
    within(LIMIT, "a reply", other.read_exact(&mut [0; 7])).await.expect("PONG");
    proxy.black_hole();
    drop(client);
    eventually("the client is gone", LIMIT, async || proxy.connections() == 1).await;
    let list: String =
        redis::cmd("CLIENT").arg("LIST").query_async(&mut server.client().await).await.expect("LIST");
    assert_eq!(list.lines().count(), 3, "the server still sees both clients, and this one");
    server.stop().await;
    assert!(
        timeout(QUIET, other.read_u8()).await.is_err(),
        "the client does not see that the server has closed"
    );
    proxy.pass();
    assert!(within(LIMIT, "the connection ends", other.read_u8()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_applies_to_both_directions_and_keeps_the_order() {
    let (_server, proxy, mut client) = setup().await;
    proxy.delay(Duration::from_millis(60));
    let start = Instant::now();
    assert_eq!(client.incr::<_, _, i64>("n", 1).await.expect("INCR"), 1);
    assert!(start.elapsed() >= Duration::from_millis(120), "{:?}", start.elapsed());
    let mut raw = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("a connection");
    // The change of mode below delivers this; otherwise it exceeds the limit of the wait.
    proxy.delay(Duration::from_secs(3600));
    for part in ["SET a 1\r\n", "SET a 2\r\n", "GET a\r\n"] {
        raw.write_all(part.as_bytes()).await.expect("a request");
    }
    assert!(timeout(QUIET, raw.read_u8()).await.is_err(), "still delayed");
    proxy.pass();
    let mut replies = [0; 17];
    within(LIMIT, "the delayed replies", raw.read_exact(&mut replies)).await.expect("replies");
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
async fn new_connections_are_refused_and_existing_ones_stay() {
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
async fn a_redirect_connects_new_clients_to_the_other_server() {
    let (server, proxy, mut client) = setup().await;
    let other = RedisServer::start().await;
    proxy.redirect_to(other.port());
    client.incr::<_, _, i64>("n", 1).await.expect("existing connections stay");
    let mut new = connect(&proxy.url()).await.expect("a server");
    new.incr::<_, _, i64>("n", 5).await.expect("INCR");
    assert_eq!((value(&server, "n").await, value(&other, "n").await), (Some(1), Some(5)));
}
