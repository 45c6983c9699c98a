use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use turnlock::doctor::Overview;
use turnlock::{Client, Error, Lock};

use super::series::Series;
use crate::bench_arguments::BenchArguments;
use crate::commands::server_view::ServerView;

/// Pairs between two yields to the runtime: a store in memory is always ready and never yields.
const PAIRS_PER_YIELD: u64 = 32;
/// The shortest time for a waiter to subscribe before the release.
const MIN_SUBSCRIBE_TIME: Duration = Duration::from_millis(2);
/// How long to wait until the other client is seen to wait.
const WAITER_LIMIT: Duration = Duration::from_secs(1);

/// A part of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Ping,
    Serial,
    Concurrent,
    HandOver,
}

impl Part {
    /// All parts, in the order of a round. The hand-over needs the latency of a pair.
    pub(super) const ALL: [Self; 4] = [Self::Ping, Self::Serial, Self::Concurrent, Self::HandOver];

    /// What the progress bar shows.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Ping => "pings",
            Self::Serial => "serial pairs",
            Self::Concurrent => "concurrent pairs",
            Self::HandOver => "hand-over",
        }
    }
}

/// Measures one store with two clients, slice by slice.
#[derive(Debug)]
pub(super) struct BenchRun {
    /// The URL of the store, as it may be printed.
    pub(super) store: String,
    pub(super) servers: Vec<ServerView>,
    clients: [Client; 2],
    /// Prefix of the lock names, unique to this run.
    prefix: String,
    pub(super) tasks: usize,
    /// `None` for a store without a round trip.
    pub(super) ping: Option<Series>,
    pub(super) serial: Series,
    pub(super) concurrent: Series,
    pub(super) hand_over: Series,
}

impl BenchRun {
    pub(super) async fn new(
        store: String,
        clients: [Client; 2],
        arguments: &BenchArguments,
    ) -> anyhow::Result<Self> {
        let prefix = format!("{}{}", arguments.names, clients[0].id());
        let Overview { servers, .. } = clients[0].overview().await?;
        let ping = match clients[0].ping().await {
            Ok(()) => Some(Series::new()?),
            Err(Error::Unsupported(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let run = Self {
            store,
            servers: servers.into_iter().map(ServerView::new).collect(),
            clients,
            prefix,
            tasks: arguments.tasks,
            ping,
            serial: Series::new()?,
            concurrent: Series::new()?,
            hand_over: Series::new()?,
        };
        // The first pair also loads the scripts.
        pair(&run.lock("serial")).await?;
        Ok(run)
    }

    /// Returns the series of all parts, with their names.
    pub(super) fn series(&self) -> impl Iterator<Item = (&'static str, &Series)> {
        let ping = self.ping.iter().map(|ping| ("ping", ping));
        let others =
            [("serial", &self.serial), ("concurrent", &self.concurrent), ("hand-over", &self.hand_over)];
        ping.chain(others)
    }

    fn lock(&self, name: &str) -> Lock {
        self.clients[0].lock(&format!("{}:{name}", self.prefix))
    }

    /// Measures a part for this long, and at least once.
    pub(super) async fn measure(&mut self, part: Part, time: Duration) -> anyhow::Result<()> {
        match part {
            Part::Ping => self.ping(time).await?,
            Part::Serial => self.serial(time).await?,
            Part::Concurrent => self.concurrent(time).await?,
            Part::HandOver => self.hand_over(time).await?,
        }
        Ok(())
    }

    /// Measures round trips in sequence.
    async fn ping(&mut self, time: Duration) -> Result<(), Error> {
        let (client, Some(series)) = (&self.clients[0], &mut self.ping) else { return Ok(()) };
        sequence(series, time, || client.ping()).await
    }

    /// Measures pairs in sequence.
    async fn serial(&mut self, time: Duration) -> Result<(), Error> {
        let lock = self.lock("serial");
        sequence(&mut self.serial, time, || pair(&lock)).await
    }

    /// Measures pairs of many tasks, each with a lock of its own.
    async fn concurrent(&mut self, time: Duration) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut running = JoinSet::new();
        for task in 0..self.tasks {
            let lock = self.lock(&task.to_string());
            running.spawn(async move {
                let mut pairs = 0;
                while start.elapsed() < time || pairs == 0 {
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
        self.concurrent.add_slice(pairs, start.elapsed());
        Ok(())
    }

    /// Measures the hand-over of a lock that alternates between two clients.
    async fn hand_over(&mut self, time: Duration) -> Result<(), Error> {
        let [one, other] =
            self.clients.each_ref().map(|client| client.lock(&format!("{}:hand-over", self.prefix)));
        let subscribe_time = MIN_SUBSCRIBE_TIME.max(self.serial.latencies.median() * 4);
        let (start, mut count, mut total) = (Instant::now(), 0, Duration::ZERO);
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
            let took = granted.saturating_duration_since(released);
            self.hand_over.latencies.record(took);
            (count, total) = (count + 1, total + took);
            guard = acquired;
            if start.elapsed() >= time {
                break;
            }
        }
        guard.unlock().await?;
        self.hand_over.add_slice(count, total);
        Ok(())
    }
}

/// Adds a slice of samples that are measured one after the other.
async fn sequence<F: Future<Output = Result<(), Error>>>(
    series: &mut Series,
    time: Duration,
    sample: impl Fn() -> F,
) -> Result<(), Error> {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < time || count == 0 {
        let sample_start = Instant::now();
        sample().await?;
        series.latencies.record(sample_start.elapsed());
        count += 1;
        yield_regularly(count).await;
    }
    series.add_slice(count, start.elapsed());
    Ok(())
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
