//! The cost of metrics: one side of the comparison that `bench/metrics` makes, with the feature `metrics` or without.
//!
//! Reads the name of a scenario per line, measures it for a moment, and prints the rate. With the feature, the recorder of
//! Prometheus is installed, and drained as a scrape does it.

use std::fs::File;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use turnlock::Client;

const ROUND: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == "--worker") else {
        return eprintln!("not measured: run bench/metrics, which compares two builds of this program");
    };
    #[cfg(feature = "metrics")]
    install_recorder();
    let client = Client::connect(&arguments[at + 1]).await.expect("a server");
    let counter =
        File::options().read(true).write(true).open(&arguments[at + 2]).expect("a file for the counter");
    let counter = Arc::new(counter);
    for line in std::io::stdin().lock().lines() {
        let rate = match line.expect("a line").as_str() {
            "W1" => pairs(&client).await,
            "W3" => turns(&client, &counter).await,
            other => panic!("unknown scenario {other}"),
        };
        println!("{rate}");
        std::io::stdout().flush().expect("a reader");
    }
}

#[cfg(feature = "metrics")]
fn install_recorder() {
    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
    let builder = PrometheusBuilder::new();
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let builder = builder.set_buckets_for_metric(seconds, turnlock::metrics::SECONDS).expect("buckets");
    let handle = builder.install_recorder().expect("the first recorder");
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            handle.run_upkeep();
        }
    });
}

/// W1: one task, a free lock.
async fn pairs(client: &Client) -> f64 {
    let lock = client.lock("metrics:W1");
    let (began, mut pairs) = (Instant::now(), 0.0);
    while began.elapsed() < ROUND {
        lock.lock().await.expect("free").unlock().await.expect("held");
        pairs += 1.0;
    }
    pairs / began.elapsed().as_secs_f64()
}

/// W3: 16 tasks, one lock, which protects a counter in a file.
async fn turns(client: &Client, counter: &Arc<File>) -> f64 {
    let (turns, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for _ in 0..16 {
        let (lock, turns, is_over) = (client.lock("metrics:W3"), Arc::clone(&turns), Arc::clone(&is_over));
        let counter = Arc::clone(counter);
        tasks.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let guard = lock.lock().await.expect("a turn");
                let mut bytes = [0; 8];
                counter.read_exact_at(&mut bytes, 0).expect("the counter");
                tokio::task::yield_now().await;
                counter.write_all_at(&(u64::from_le_bytes(bytes) + 1).to_le_bytes(), 0).expect("the counter");
                turns.fetch_add(1, Ordering::Relaxed);
                guard.unlock().await.expect("held");
            }
        });
    }
    tokio::time::sleep(ROUND).await;
    is_over.store(true, Ordering::Relaxed);
    let (turns, seconds) = (turns.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
    tasks.join_all().await;
    f64::from(u32::try_from(turns).expect("not so many")) / seconds
}
