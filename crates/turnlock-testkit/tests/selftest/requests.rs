//! Faults that a certain request triggers.

use redis::AsyncCommands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use turnlock_testkit::{eventually, within};

use crate::{LIMIT, QUIET, connect, setup, value};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_lost_reply_is_executed_once() {
    let (server, proxy, mut client) = setup().await;
    proxy.swallow_replies_to(b"trigger");
    client.incr::<_, _, i64>("other", 1).await.expect("other requests pass");
    assert!(client.incr::<_, _, i64>("trigger", 1).await.is_err());
    proxy.fired().await;
    assert_eq!(value(&server, "trigger").await, Some(1));
    assert_eq!(proxy.connections(), 0);
    let mut client = connect(&proxy.url()).await.expect("a new connection");
    assert_eq!(client.incr::<_, _, i64>("trigger", 1).await.expect("it fires once"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_needle_in_two_chunks_is_found() {
    let (server, proxy, _client) = setup().await;
    let mut raw = TcpStream::connect(("127.0.0.1", proxy.port())).await.expect("a connection");
    raw.set_nodelay(true).expect("no delay");
    proxy.hold_request(b"trigger");
    raw.write_all(b"PING\r\nINCR trig").await.expect("the first part");
    within(LIMIT, "the reply to the first part", raw.read_exact(&mut [0; 7])).await.expect("PONG");
    raw.write_all(b"ger\r\n").await.expect("the second part");
    proxy.fired().await;
    assert_eq!(value(&server, "trigger").await, None);
    proxy.release_held().await;
    eventually("the request is executed", LIMIT, async || value(&server, "trigger").await == Some(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_request_arrives_after_its_client_has_closed() {
    let (server, proxy, mut client) = setup().await;
    proxy.hold_request(b"trigger");
    let mut request = tokio::spawn(async move { client.incr::<_, _, i64>("trigger", 1).await });
    proxy.fired().await;
    assert!(timeout(QUIET, &mut request).await.is_err(), "the client waits");
    assert_eq!(proxy.connections(), 1);
    request.abort();
    eventually("the client is gone", LIMIT, async || proxy.connections() == 0).await;
    assert_eq!(value(&server, "trigger").await, None);
    let mut other = connect(&proxy.url()).await.expect("others pass");
    assert_eq!(other.incr::<_, _, i64>("trigger", 10).await.expect("it fires once"), 10);
    proxy.release_held().await;
    eventually("the held request is executed", LIMIT, async || value(&server, "trigger").await == Some(11))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_leaves_a_held_request_held() {
    let (server, proxy, mut client) = setup().await;
    proxy.hold_request(b"trigger");
    let request = tokio::spawn(async move { client.incr::<_, _, i64>("trigger", 1).await });
    proxy.fired().await;
    proxy.reset_all();
    assert!(within(LIMIT, "the request fails", request).await.expect("no panic").is_err());
    assert_eq!(value(&server, "trigger").await, None);
    proxy.release_held().await;
    eventually("the held request is executed", LIMIT, async || value(&server, "trigger").await == Some(1))
        .await;
}
