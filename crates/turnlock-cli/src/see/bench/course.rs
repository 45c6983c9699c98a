use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tokio::task::JoinSet;
use turnlock::{Client, Error, Lock};

use super::latencies::Latencies;
use super::measure::{Concurrent, HandOver, Measure, Serial};
use crate::arguments::BenchArguments;

/// So many pairs in a row, then somebody else may run: a store in memory never makes us wait.
const IN_A_ROW: u64 = 32;
/// How long one who waits is given to be told of the release, at the least.
const SETTLE: Duration = Duration::from_millis(2);
/// How long to wait for one who should wait and is not seen to.
const LIMIT: Duration = Duration::from_secs(1);

/// The parts of a measurement, one after the other.
#[derive(Debug)]
pub(super) struct Course<'a> {
    clients: &'a [Client; 2],
    /// The beginning of our names, which nobody else has.
    names: String,
    time: Duration,
    tasks: usize,
}

impl<'a> Course<'a> {
    pub(super) fn new(clients: &'a [Client; 2], arguments: &BenchArguments) -> Self {
        let names = format!("{}{}", arguments.names, clients[0].id());
        Self { clients, names, time: arguments.time, tasks: arguments.tasks }
    }

    /// How long all of it takes, about.
    pub(super) fn duration(&self) -> Duration {
        self.time * 3
    }

    pub(super) async fn run(&self, bar: ProgressBar) -> anyhow::Result<Measure> {
        bar.set_message("serial pairs");
        let (serial, latency) = self.serial().await?;
        bar.set_message("concurrent pairs");
        let concurrent = self.concurrent().await?;
        bar.set_message("hand-over");
        let hand_over = self.hand_over(latency.median()).await?;
        Ok(Measure::new(serial, concurrent, hand_over, &latency))
    }

    /// One pair after the other.
    async fn serial(&self) -> anyhow::Result<(Serial, Latencies)> {
        let lock = self.clients[0].lock(&format!("{}:serial", self.names));
        // The first one also loads scripts.
        pair(&lock).await?;
        let mut latencies = Latencies::new()?;
        let (start, mut pairs) = (Instant::now(), 0);
        while start.elapsed() < self.time || pairs == 0 {
            let begun = Instant::now();
            pair(&lock).await?;
            latencies.record(begun.elapsed());
            pairs += 1;
            rest_after(pairs).await;
        }
        Ok((Serial { pairs, pairs_per_second: rate(pairs, start.elapsed()) }, latencies))
    }

    /// Pairs of many tasks, each with a lock of its own.
    async fn concurrent(&self) -> anyhow::Result<Concurrent> {
        let start = Instant::now();
        let deadline = start + self.time;
        let mut running = JoinSet::new();
        for task in 0..self.tasks {
            let lock = self.clients[0].lock(&format!("{}:{task}", self.names));
            running.spawn(async move {
                let mut pairs = 0;
                while Instant::now() < deadline {
                    pair(&lock).await?;
                    pairs += 1;
                    rest_after(pairs).await;
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

    /// A lock that goes back and forth between two clients, each of which waits for the other.
    async fn hand_over(&self, usual: Duration) -> anyhow::Result<HandOver> {
        let [one, other] =
            self.clients.each_ref().map(|client| client.lock(&format!("{}:hand-over", self.names)));
        let mut latencies = Latencies::new()?;
        let settle = SETTLE.max(usual * 4);
        let start = Instant::now();
        let mut guard = one.lock().await?;
        for next in [&other, &one].into_iter().cycle() {
            let give = async {
                until_waited_for(next, settle).await?;
                let released = Instant::now();
                guard.unlock().await?;
                Ok::<_, Error>(released)
            };
            let take = async {
                let guard = next.lock().await?;
                Ok::<_, Error>((guard, Instant::now()))
            };
            let (released, (taken, granted)) = tokio::try_join!(give, take)?;
            latencies.record(granted.saturating_duration_since(released));
            guard = taken;
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

async fn rest_after(pairs: u64) {
    if pairs.is_multiple_of(IN_A_ROW) {
        tokio::task::yield_now().await;
    }
}

/// Returns when somebody at this client waits for the lock, and has had time to ask to be told.
async fn until_waited_for(lock: &Lock, settle: Duration) -> Result<(), Error> {
    let start = Instant::now();
    while lock.inspect().await?.waiting_here == 0 && start.elapsed() < LIMIT {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(settle).await;
    Ok(())
}

fn rate(pairs: u64, time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of pairs is far below 2^52")]
    let pairs = pairs as f64;
    pairs / time.as_secs_f64()
}
