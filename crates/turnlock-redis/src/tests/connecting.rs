//! What a new connection costs.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use turnlock_core::model::{AcquireOptions, Acquired, Claim};
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::within;

use super::histories::{STEP_OPTIONS, lease};
use super::{connect_to, connected_as};
use crate::{Access, lua, resp};

/// Reads requests until `is_last`. Returns how many there were.
async fn read_until(stream: &mut TcpStream, is_last: impl Fn(usize, &[u8]) -> bool) -> usize {
    let (mut received, mut count) = (Vec::new(), 0);
    loop {
        let read = stream.read_buf(&mut received).await.expect("a request");
        assert!(read > 0, "the client closed the connection");
        let mut rest = &received[..];
        while let Ok(request) = resp::decode(&mut rest) {
            count += 1;
            let Value::Array(args) = request else { panic!("a request is a list") };
            let Some(Value::BulkString(command)) = args.first() else { panic!("a command") };
            if is_last(count, command) {
                assert!(rest.is_empty(), "no request was expected behind {command:?}");
                return count;
            }
        }
        received.drain(..received.len() - rest.len());
    }
}

async fn reply(stream: &mut TcpStream, reply: &str, count: usize) {
    stream.write_all(reply.repeat(count).as_bytes()).await.expect("the client reads");
}

/// A server that replies to nothing until all requests of both connections have arrived.
async fn serve(listener: TcpListener, lock_reply: &'static str) {
    let all_sent = Arc::new(Barrier::new(2));
    let serve_one = |mut stream: TcpStream| {
        let all_sent = Arc::clone(&all_sent);
        async move {
            // ROLE and all scripts, or the PING of the pub/sub connection.
            let scripts = lua::all().count();
            let sent = read_until(&mut stream, |count, command| count == 1 + scripts || command == b"PING");
            let count = sent.await;
            all_sent.wait().await;
            reply(&mut stream, "+OK\r\n", count).await;
            read_until(&mut stream, |_, command| command == b"EVALSHA").await;
            reply(&mut stream, lock_reply, 1).await;
            // Open until the client closes it.
            let _ = stream.read_u8().await;
        }
    };
    let (first, _) = listener.accept().await.expect("a client");
    let (second, _) = listener.accept().await.expect("a second connection");
    tokio::join!(serve_one(first), serve_one(second));
}

/// Connects to such a server, and acquires one lock.
async fn connect_and_lock(lock_reply: &'static str) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let serving = tokio::spawn(serve(listener, lock_reply));
    let used = async {
        // The first round trip opens both streams, the second sets both connections up.
        let redis = connected_as(port, Access::for_tests()).await;
        let name = LockName::of(Kind::Lock, "", "orders").expect("a good name");
        let options = AcquireOptions { lease: lease(30_000), waits: false, highest_token: 0 };
        let claim = Claim::new(&name, &OwnerId::from_wire("client:1"), 1);
        let reply = redis.acquire(claim, options, STEP_OPTIONS).await.expect("a reply");
        assert_eq!(reply.value, Acquired::Granted);
    };
    // A client that waited for a reply in between would wait for ever.
    within(Duration::from_secs(20), "three round trips", used).await;
    serving.abort();
}

#[tokio::test]
async fn connecting_and_the_first_lock_take_three_round_trips() {
    connect_and_lock("$-1\r\n").await;
}

#[tokio::test]
async fn a_reply_before_one_to_no_request_counts() {
    connect_and_lock("$-1\r\n:1\r\n").await;
}

#[tokio::test]
async fn a_server_that_refuses_a_connection_says_why() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let serving = tokio::spawn(async move {
        loop {
            // As a server with too many clients does: at once, without reading.
            let (mut stream, _) = listener.accept().await.expect("a client");
            reply(&mut stream, "-ERR max number of clients reached\r\n", 1).await;
            // Closed when the client has read it, and not reset.
            stream.shutdown().await.expect("the client is there");
            tokio::spawn(async move { while stream.read_u8().await.is_ok() {} });
        }
    });
    let failure = connect_to(port, Access::for_tests()).await.expect_err("refused");
    assert!(failure.to_string().contains("max number of clients"), "{failure}");
    serving.abort();
}
