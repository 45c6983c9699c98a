//! A plain HTTP client, which sends what no browser would.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use turnlock_testkit::within;

use crate::AWHILE;

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Response {
    /// The value of a header; the name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ str| line.to_lowercase().starts_with(&format!("{name}: "));
        self.head.lines().find(|line| value(line)).map(|line| &line[name.len() + 2..])
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

/// Sends a request as it is and reads the response.
pub(crate) async fn send(address: SocketAddr, request: &str) -> Response {
    send_on(TcpStream::connect(address).await.unwrap(), request).await
}

/// The same on a connection.
pub(crate) async fn send_on(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Response {
    // The server may refuse a request before it has read all of it.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut bytes = Vec::new();
    // Not to the end of the connection: a driver keeps it open.
    while !is_complete(&bytes) {
        let count = within(AWHILE, "a response", stream.read_buf(&mut bytes)).await.unwrap_or(0);
        if count == 0 {
            break;
        }
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Response { status, head: head.to_owned(), body: body.to_owned() }
}

/// Returns `true` if the response has all that its `Content-Length` announces.
pub(crate) fn is_complete(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    // The head is ASCII, so that its length is the same in both.
    length.is_some_and(|length| bytes.len() >= head.len() + 4 + length)
}

/// A stream of server-sent events.
#[derive(Debug)]
pub(crate) struct Events {
    lines: BufReader<TcpStream>,
    pub(crate) status: u16,
}

impl Events {
    /// Opens the stream and reads its head.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // HTTP/1.0 has no chunks.
        let request = format!("GET /api/events HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut events = Self { lines: BufReader::new(stream), status: 0 };
        let first = events.line().await.expect("a response");
        events.status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        while events.line().await.is_some_and(|line| !line.is_empty()) {}
        events
    }

    /// Reads the next event: its name and its data. `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<(String, String)> {
        let mut name = String::new();
        loop {
            let line = self.line().await?;
            if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, data.to_owned()));
            }
        }
    }

    /// Reads events until one is wanted, and returns its data.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&str, &Value) -> bool) -> Value {
        within(AWHILE, "the wanted event", async {
            loop {
                let (name, data) = self.next().await.expect("more events");
                let data = serde_json::from_str(&data).unwrap();
                if wanted(&name, &data) {
                    return data;
                }
            }
        })
        .await
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = within(AWHILE, "a line of a stream", self.lines.read_line(&mut line)).await.unwrap_or(0);
        (count > 0).then(|| line.trim_end().to_owned())
    }
}
