//! A server that sends nonsense: each call of a client ends in time, with bounded memory.

#![cfg(feature = "redis")]

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use turnlock::{Client, Error};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The most memory that a client may use: two connections with a long reply, and the copies while they grow.
const MAX_MEMORY: usize = 600 * 1024 * 1024;

/// The allocator counts for the whole process, so the cases run one after the other.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// More than the sum of all time-outs of the client, with room for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// What a server sends: the start, and then the same again and again.
#[derive(Clone, Copy, Debug)]
struct Nonsense {
    start: &'static str,
    endless: &'static str,
}

const NONSENSE: &[Nonsense] = &[
    Nonsense { start: "", endless: "" },
    Nonsense { start: "", endless: "x" },
    Nonsense { start: "HTTP/1.1 400 Bad Request\r\n\r\n", endless: "" },
    Nonsense { start: "", endless: "+OK\r\n" },
    Nonsense { start: "+", endless: "x" },
    Nonsense { start: "-", endless: "ERR " },
    Nonsense { start: "", endless: "-ERR no\r\n" },
    Nonsense { start: "", endless: ":9223372036854775807\r\n" },
    Nonsense { start: "", endless: "*1\r\n" },
    Nonsense { start: "", endless: "*-1\r\n" },
    Nonsense { start: "$999999999999\r\n", endless: "x" },
    Nonsense { start: "$60000000\r\n", endless: "x" },
    Nonsense { start: "*9223372036854775807\r\n", endless: "+\r\n" },
    Nonsense { start: "*1000000\r\n", endless: "+\r\n" },
    Nonsense { start: "*1000\r\n", endless: "$20\r\nxxxxxxxxxxxxxxxxxxxx\r\n" },
    Nonsense { start: "", endless: "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n" },
];

impl Nonsense {
    async fn send(self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.write_all(self.start.as_bytes()).await?;
        let endless = self.endless.repeat(4_096);
        loop {
            if endless.is_empty() {
                sleep(LIMIT).await;
            }
            stream.write_all(endless.as_bytes()).await?;
        }
    }
}

/// Replies `+OK` to all requests before the first step of a lock, and then with nonsense.
async fn reply_until_a_step(stream: &mut TcpStream, nonsense: Nonsense) -> std::io::Result<()> {
    let (reader, mut writer) = stream.split();
    let (mut lines, mut line) = (BufReader::new(reader), Vec::new());
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        if !is_start(&line) {
            continue;
        }
        // The length of the command, and the command.
        for _ in 0..2 {
            line.clear();
            lines.read_until(b'\n', &mut line).await?;
        }
        if line.starts_with(b"EVAL") {
            break;
        }
        writer.write_all(b"+OK\r\n").await?;
    }
    nonsense.send(stream).await
}

/// Returns `true` for the number of arguments with which a request starts. Lines of scripts end otherwise.
fn is_start(line: &[u8]) -> bool {
    matches!(line, [b'*', digits @ .., b'\r', b'\n'] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// Starts such a server. Returns its URL.
async fn serve(nonsense: Nonsense, replies_first: bool) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                if replies_first {
                    reply_until_a_step(&mut stream, nonsense).await
                } else {
                    nonsense.send(&mut stream).await
                }
            });
        }
    });
    format!("redis://127.0.0.1:{port}")
}

async fn connect(url: &str) -> Result<Client, Error> {
    let second = Duration::from_secs(1);
    let builder = Client::builder().connect_timeout(second).response_timeout(second).retry_for(second);
    builder.connect(url).await
}

fn memory_in_use() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// Runs `work` within the limit. Returns its output and the most memory that was in use meanwhile.
async fn measured<T>(what: &str, work: impl Future<Output = T>) -> (T, usize) {
    let most = Arc::new(AtomicUsize::new(0));
    let sampling = tokio::spawn({
        let most = Arc::clone(&most);
        async move {
            loop {
                most.fetch_max(memory_in_use(), Ordering::Relaxed);
                sleep(Duration::from_millis(2)).await;
            }
        }
    });
    let output = timeout(LIMIT, work).await.unwrap_or_else(|_| panic!("{what} ends within {LIMIT:?}"));
    sampling.abort();
    (output, most.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_a_server_that_sends_nonsense_gets_an_error_in_time() {
    let _turn = ONE_AT_A_TIME.lock().await;
    for nonsense in NONSENSE {
        let url = serve(*nonsense, false).await;
        let used = async {
            // Some of it looks like a server that accepts everything.
            if let Ok(client) = connect(&url).await {
                let _ = client.lock("orders").try_lock().await;
                let _ = client.find("*", 10).await;
            }
        };
        let ((), memory) = measured(&format!("{nonsense:?}"), used).await;
        assert!(memory < MAX_MEMORY, "{nonsense:?} takes {memory} bytes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_in_reply_to_a_step_is_an_error_in_time() {
    let _turn = ONE_AT_A_TIME.lock().await;
    for nonsense in NONSENSE {
        let url = serve(*nonsense, true).await;
        let used = async {
            let client = connect(&url).await.expect("a connection");
            client.lock("orders").try_lock().await
        };
        let (acquired, memory) = measured(&format!("{nonsense:?}"), used).await;
        assert!(memory < MAX_MEMORY, "{nonsense:?} takes {memory} bytes");
        match acquired {
            // The reply of a script that grants the lock.
            Ok(outcome) => assert!(nonsense.endless == "*-1\r\n" || outcome.is_busy(), "{nonsense:?}"),
            Err(error) => assert!(error.is_retryable(), "{nonsense:?}: {error}"),
        }
    }
}
