use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tokio::task::JoinSet;
use turnlock::{Client, Error, Lock};

use super::latencies::Latencies;
use super::measurement::{Concurrent, HandOver, Measurement, Serial};
use crate::arguments::BenchArguments;

/// Pairs between two yields to the runtime: a store in memory is always ready and never yields.
const PAIRS_PER_YIELD: u64 = 32;
/// The shortest time for a waiter to subscribe before the release.
const MIN_SUBSCRIBE_TIME: Duration = Duration::from_millis(2);
/// How long to wait until the other client is seen to wait.
const WAITER_LIMIT: Duration = Duration::from_secs(1);

/// Runs the three parts of a measurement in sequence.
#[derive(Debug)]
pub(super) struct BenchRun<'a> {
    clients: &'a [Client; 2],
    /// Prefix of the lock names, unique to this run.
    prefix: String,
    time: Duration,
    tasks: usize,
}

impl<'a> BenchRun<'a> {
    pub(super) fn new(clients: &'a [Client; 2], arguments: &BenchArguments) -> Self {
        let prefix = format!("{}{}", arguments.names, clients[0].id());
        Self { clients, prefix, time: arguments.time, tasks: arguments.tasks }
    }

    /// The approximate duration of all parts.
    pub(super) fn duration(&self) -> Duration {
        self.time * 3
    }

    pub(super) async fn run(&self, bar: ProgressBar) -> anyhow::Result<Measurement> {
        bar.set_message("serial pairs");
        let (serial, latency) = self.serial().await?;
        bar.set_message("concurrent pairs");
        let concurrent = self.concurrent().await?;
        bar.set_message("hand-over");
        let hand_over = self.hand_over(latency.median()).await?;
        Ok(Measurement::new(serial, concurrent, hand_over, &latency))
    }

    /// Measures pairs in sequence.
    async fn serial(&self) -> anyhow::Result<(Serial, Latencies)> {
        let lock = self.clients[0].lock(&format!("{}:serial", self.prefix));
        // The first pair also loads the scripts.
        pair(&lock).await?;
        let mut latencies = Latencies::new()?;
        let (start, mut pairs) = (Instant::now(), 0);
        while start.elapsed() < self.time || pairs == 0 {
            let pair_start = Instant::now();
            pair(&lock).await?;
            latencies.record(pair_start.elapsed());
            pairs += 1;
            yield_regularly(pairs).await;
        }
        Ok((Serial { pairs, pairs_per_second: rate(pairs, start.elapsed()) }, latencies))
    }

    /// Measures pairs of many tasks, each with a lock of its own.
    async fn concurrent(&self) -> anyhow::Result<Concurrent> {
        let start = Instant::now();
        let deadline = start + self.time;
        let mut running = JoinSet::new();
        for task in 0..self.tasks {
            let lock = self.clients[0].lock(&format!("{}:{task}", self.prefix));
            running.spawn(async move {
                let mut pairs = 0;
                while Instant::now() < deadline {
                    pair(&lock).await?;
                    pairs += 1;
                    yield_regularly(pairs).await;
                }
                Ok::<u64, Error>(pairs)
            });
        }
        let mut pairs = 0;
        while let Some(done) = running.join_next().await {
            pairs += done??;
        }
        let pairs_per_second = rate(pairs, start.elapsed());
        Ok(Concurrent { tasks: self.tasks, pairs, pairs_per_second })
    }

    /// Measures the hand-over of a lock that alternates between two clients.
    async fn hand_over(&self, median_latency: Duration) -> anyhow::Result<HandOver> {
        let [one, other] =
            self.clients.each_ref().map(|client| client.lock(&format!("{}:hand-over", self.prefix)));
        let mut latencies = Latencies::new()?;
        let subscribe_time = MIN_SUBSCRIBE_TIME.max(median_latency * 4);
        let start = Instant::now();
        let mut guard = one.lock().await?;
        for next in [&other, &one].into_iter().cycle() {
            let release = async {
                wait_for_waiter(next, subscribe_time).await?;
                let released = Instant::now();
                guard.unlock().await?;
                Ok::<_, Error>(released)
            };
            let acquire = async {
                let guard = next.lock().await?;
                Ok::<_, Error>((guard, Instant::now()))
            };
            let (released, (acquired, granted)) = tokio::try_join!(release, acquire)?;
            latencies.record(granted.saturating_duration_since(released));
            guard = acquired;
            if start.elapsed() >= self.time {
                break;
            }
        }
        guard.unlock().await?;
        Ok(HandOver { times: latencies.count(), took: latencies.percentiles() })
    }
}

async fn pair(lock: &Lock) -> Result<(), Error> {
    lock.lock().await?.unlock().await
}

async fn yield_regularly(pairs: u64) {
    if pairs.is_multiple_of(PAIRS_PER_YIELD) {
        tokio::task::yield_now().await;
    }
}

/// Waits until this client has a waiter for the lock, and then gives it time to subscribe.
async fn wait_for_waiter(lock: &Lock, subscribe_time: Duration) -> Result<(), Error> {
    let start = Instant::now();
    while lock.inspect().await?.waiting_here == 0 && start.elapsed() < WAITER_LIMIT {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(subscribe_time).await;
    Ok(())
}

fn rate(pairs: u64, time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of pairs is far below 2^52")]
    let pairs = pairs as f64;
    pairs / time.as_secs_f64()
}
