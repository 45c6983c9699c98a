//! Several locks as one, against the network: five servers, each 5 ms away in each direction.
//!
//! `cargo bench -p turnlock` starts the servers and the proxies that delay. All is measured in turn, round
//! by round, and in units of one bare round trip through the same proxies. Since all members are asked at once, taking
//! them has to cost little more than one.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use turnlock::{Client, Lock, MultiLock, RedLock};
use turnlock_testkit::{FaultProxy, RedisServer};

const SERVERS: usize = 5;
const ROUNDS: usize = 51;
const ONE_WAY: Duration = Duration::from_millis(5);
/// The most round trips that taking a group may cost.
const MOST: f64 = 1.5;

#[tokio::main]
async fn main() {
    if let Some(reason) = RedisServer::missing() {
        return eprintln!("not measured: {reason}");
    }
    let (mut servers, mut proxies, mut locks, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SERVERS {
        let server = RedisServer::start().await;
        let proxy = FaultProxy::start(server.port()).await;
        let client = Client::connect(&proxy.url()).await.expect("a server that was just started");
        locks.push(client.lock("group"));
        let plain = redis::Client::open(proxy.url()).expect("a good URL");
        bare.push(plain.get_multiplexed_async_connection().await.expect("a connection"));
        proxy.delay(ONE_WAY);
        servers.push(server);
        proxies.push(proxy);
    }
    let multi = MultiLock::new(locks.clone()).expect("five locks");
    let red =
        RedLock::new(locks.clone()).expect("five servers").with_node_timeout(Duration::from_millis(500));
    // In this order: the trip, then what is compared with it.
    let works = [
        "one round trip",
        "MultiLock, acquire",
        "MultiLock, acquire and unlock",
        "RedLock, acquire",
        "RedLock, acquire and unlock",
        "five locks one after the other, acquire",
        "five locks one after the other, acquire and unlock",
    ];
    let mut times: [Vec<f64>; 7] = std::array::from_fn(|_| Vec::new());
    // The first round warms up.
    for round in 0..=ROUNDS {
        let trip = round_trip(&mut bare[round % SERVERS]).await;
        let start = Instant::now();
        let guard = multi.lock().await.expect("free");
        let multi_acquired = start.elapsed();
        guard.unlock().await.expect("held");
        let multi_done = start.elapsed();
        let start = Instant::now();
        let guard = red.lock().await.expect("free");
        let red_acquired = start.elapsed();
        guard.unlock().await.expect("held");
        let red_done = start.elapsed();
        until_free(&locks).await;
        let (in_turn, in_turn_done) = one_after_the_other(&locks).await;
        let measured = [trip, multi_acquired, multi_done, red_acquired, red_done, in_turn, in_turn_done];
        for (times, time) in times.iter_mut().zip(measured).filter(|_| round > 0) {
            times.push(time.as_secs_f64() * 1_000.0);
        }
    }
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!("| five servers, {ONE_WAY:?} away | ms | round trips |");
    println!("|---|---|---|");
    for (work, median) in works.iter().zip(medians) {
        println!("| {work} | {median:.2} | {:.2} |", median / medians[0]);
    }
    for place in [1, 3] {
        let ratio = medians[place] / medians[0];
        assert!(ratio <= MOST, "{} costs {ratio:.2} round trips, and may cost {MOST}", works[place]);
    }
}

async fn round_trip(connection: &mut MultiplexedConnection) -> Duration {
    let start = Instant::now();
    redis::cmd("PING").query_async::<()>(connection).await.expect("a reply");
    start.elapsed()
}

/// An unlock of a majority leaves the others to the background.
async fn until_free(locks: &[Lock]) {
    for lock in locks {
        while lock.is_locked().await.expect("a reply") {}
    }
}

async fn one_after_the_other(locks: &[Lock]) -> (Duration, Duration) {
    let start = Instant::now();
    let mut guards = Vec::new();
    for lock in locks {
        guards.push(lock.lock().await.expect("free"));
    }
    let acquired = start.elapsed();
    for guard in guards {
        guard.unlock().await.expect("held");
    }
    (acquired, start.elapsed())
}
