//! turnlock against the floor: the same crate, the same connection settings and the leanest script pair, no library.
//!
//! `cargo bench -p turnlock` starts a redis-server of its own and measures both in turn, round by round. The ratio is the
//! median of the rounds' ratios. Compare only within one run: machines are noisy, ratios less so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo};
use turnlock::Client;
use turnlock_testkit::RedisServer;

const ROUNDS: usize = 21;

#[tokio::main]
async fn main() {
    if let Some(reason) = RedisServer::missing() {
        return eprintln!("not measured: {reason}");
    }
    let server = RedisServer::start().await;
    let floor = Floor::connect(&server).await;
    let client = Client::connect(&server.url()).await.expect("a server that was just started");

    println!("| work | floor, pairs/s | turnlock, pairs/s | ratio | server calls a pair |");
    println!("|---|---|---|---|---|");
    for (work, tasks, pairs) in [("free lock, serial", 1, 1_500), ("free locks, 64 tasks", 64, 300)] {
        let mut floors = Vec::new();
        let mut ours = Vec::new();
        let mut calls = 0;
        // The first round warms up.
        for round in 0..=ROUNDS {
            let floor_rate = floor.rate(tasks, pairs).await;
            let before = server.calls().await;
            let our_rate = turnlock_rate(&client, tasks, pairs).await;
            let spent = server.calls().await.since(&before);
            if round > 0 {
                floors.push(floor_rate);
                ours.push(our_rate);
                calls += spent.of("evalsha") + spent.of("eval") + spent.of("subscribe");
            }
        }
        let mut ratios: Vec<f64> = ours.iter().zip(&floors).map(|(ours, floor)| ours / floor).collect();
        let (floor_rate, our_rate, ratio) = (median(&mut floors), median(&mut ours), median(&mut ratios));
        #[expect(clippy::cast_precision_loss, reason = "a count of calls is far below 2^52")]
        let calls = calls as f64 / (ROUNDS * tasks * pairs) as f64;
        println!("| {work} | {floor_rate:.0} | {our_rate:.0} | {ratio:.2} | {calls:.2} |");
    }

    println!("\n| waiters of one process | turns | server calls a turn | drained in ms |");
    println!("|---|---|---|---|");
    for waiters in [2, 10, 100, 1_000] {
        herd(&server, &client, waiters).await;
    }
}

/// `waiters` tasks wait for one lock, and each takes `TURNS / waiters` turns.
async fn herd(server: &RedisServer, client: &Client, waiters: usize) {
    const TURNS: usize = 4_000;
    let lock = client.lock(&format!("herd:{waiters}"));
    let held = lock.lock().await.expect("a free lock");
    let tasks: Vec<_> = (0..waiters)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for _ in 0..TURNS / waiters {
                    let guard = lock.lock().await.expect("a turn");
                    guard.unlock().await.expect("a lock that is held");
                }
            })
        })
        .collect();
    while lock.inspect().await.expect("a lock").waiting_here < waiters {
        tokio::task::yield_now().await;
    }
    let before = server.calls().await;
    let start = Instant::now();
    held.unlock().await.expect("a lock that is held");
    for task in tasks {
        task.await.expect("a task that does not panic");
    }
    let drained = start.elapsed().as_millis();
    let spent = server.calls().await.since(&before);
    let calls = spent.of("evalsha") + spent.of("subscribe") + spent.of("unsubscribe");
    #[expect(clippy::cast_precision_loss, reason = "a count of calls is far below 2^52")]
    let calls = calls as f64 / TURNS as f64;
    println!("| {waiters} | {TURNS} | {calls:.2} | {drained} |");
}

async fn turnlock_rate(client: &Client, tasks: usize, pairs: usize) -> f64 {
    let start = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let lock = client.lock(&format!("ours:{task}"));
            tokio::spawn(async move {
                for _ in 0..pairs {
                    let guard = lock.lock().await.expect("a free lock");
                    guard.unlock().await.expect("a lock that is held");
                }
            })
        })
        .collect();
    for task in running {
        task.await.expect("a task that does not panic");
    }
    rate(tasks * pairs, start)
}

/// The bare script pair.
#[derive(Clone)]
struct Floor {
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    release: Arc<str>,
}

const ACQUIRE: &str = "\
local ttl = redis.call('pttl', KEYS[1])
if ttl == -2 then
  redis.call('hset', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  return nil
end
return ttl";

const RELEASE: &str = "\
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then return nil end
return redis.call('publish', ARGV[2], '0')";

impl Floor {
    async fn connect(server: &RedisServer) -> Self {
        let info = server.url().into_connection_info().expect("a good URL");
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = redis::Client::open(info.set_tcp_settings(tcp)).expect("a good URL");
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(1)));
        let mut connection =
            client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection");
        let mut hashes = Vec::new();
        for text in [ACQUIRE, RELEASE] {
            let mut load = redis::cmd("SCRIPT");
            let hash: String = load.arg("LOAD").arg(text).query_async(&mut connection).await.expect("a hash");
            hashes.push(Arc::from(hash));
        }
        Self { connection, acquire: Arc::clone(&hashes[0]), release: Arc::clone(&hashes[1]) }
    }

    async fn rate(&self, tasks: usize, pairs: usize) -> f64 {
        let start = Instant::now();
        let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(self.clone().pairs(task, pairs))).collect();
        for task in running {
            task.await.expect("a task that does not panic");
        }
        rate(tasks * pairs, start)
    }

    async fn pairs(mut self, task: usize, pairs: usize) {
        let (key, channel) = (format!("floor:{task}"), format!("redisson_lock__channel:{{floor:{task}}}"));
        let owner = format!("a7e5f1de-35b6-4c2a-9d0e-6b6c4d1e7f11:{task}");
        for _ in 0..pairs {
            let mut cmd = redis::cmd("EVALSHA");
            cmd.arg(&*self.acquire).arg(1).arg(&key).arg(&owner).arg(30_000);
            let refused: Option<i64> = cmd.query_async(&mut self.connection).await.expect("an answer");
            assert_eq!(refused, None, "nobody else uses this key");
            let mut cmd = redis::cmd("EVALSHA");
            cmd.arg(&*self.release).arg(1).arg(&key).arg(&owner).arg(&channel);
            let heard: Option<i64> = cmd.query_async(&mut self.connection).await.expect("an answer");
            assert_eq!(heard, Some(0), "it was held, and nobody listens");
        }
    }
}

fn rate(pairs: usize, start: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of pairs is far below 2^52")]
    let pairs = pairs as f64;
    pairs / start.elapsed().as_secs_f64()
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
