//! Bounds: sizes of requests, numbers of viewers and connections.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use turnlock_testkit::eventually;

use crate::fixture::Fixture;
use crate::{AWHILE, Case, cases, http};

pub(crate) const CASES: &[Case] = cases![
    large_requests_are_refused,
    the_number_of_viewers_is_limited,
    connections_without_a_request_do_not_use_up_the_memory,
];

async fn large_requests_are_refused(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let secret = dashboard.csrf_header().await;
    let response = dashboard.send("POST", "/api/unlock", &[&*secret], &"x".repeat(100_000)).await;
    assert_eq!(response.status, 413, "{response:?}");
    let response = dashboard.send("GET", "/", &[&format!("X-Large: {}", "x".repeat(100_000))], "").await;
    assert_eq!(response.status, 431, "{response:?}");
    for body in ["", "{}", "[]", "\u{0}", "{\"name\":1}", "{\"name\":\"a\",\"kind\":\"lock\"}"] {
        let response = dashboard.send("POST", "/api/unlock", &[&*secret], body).await;
        assert_eq!(response.status, 400, "{body:?}: {response:?}");
    }
    assert_eq!(dashboard.get("/").await.status, 200);
}

async fn the_number_of_viewers_is_limited(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let mut viewers = Vec::new();
    for _ in 0..32 {
        viewers.push(dashboard.events().await);
    }
    assert!(viewers.iter().all(|viewer| viewer.status == 200));
    assert_eq!(dashboard.events().await.status, 503);
    viewers.pop();
    eventually("a viewer leaves room", AWHILE, || async { dashboard.events().await.status == 200 }).await;
}

async fn connections_without_a_request_do_not_use_up_the_memory(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let mut idle = Vec::new();
    for _ in 0..128 {
        let mut stream = TcpStream::connect(dashboard.address).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        idle.push(stream);
    }
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", dashboard.address);
    eventually("one connection too many is closed", AWHILE, || async {
        http::send(dashboard.address, &request).await.status == 0
    })
    .await;
    idle.clear();
    eventually("a closed connection leaves room", AWHILE, || async {
        http::send(dashboard.address, &request).await.status == 200
    })
    .await;
}
