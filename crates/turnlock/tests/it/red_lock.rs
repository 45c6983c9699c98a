//! `RedLock` on several servers, some of which are slow, dead or have lost their data.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use turnlock::{Builder, Client, Error, MultiGuard, MultiLock, RedLock};
use turnlock_testkit::{FaultProxy, RedisServer, eventually, in_time, within};

use crate::fixture::{Fixture, NO_POLL, PROMPT, ms};
use crate::{Case, cases};
use turnlock_testkit::conformance::lock::exclusion::UnprotectedCounter;

pub(crate) const CASES: &[Case] = cases![
    all_members_are_requested_at_once,
    an_expired_member_grant_does_not_count,
    a_dead_minority_costs_no_waiting,
    a_missing_majority_is_reported_in_time,
    requests_to_dead_servers_are_undone_when_they_are_back,
    the_loss_of_a_majority_is_reported,
    renewal_continues_with_two_servers_down,
    a_late_server_joins_the_hold,
    a_lost_reply_leaves_no_lock_behind,
    no_increment_is_lost_over_three_servers,
    a_red_lock_dropped_at_any_time_leaves_nothing,
];

/// A time-out that no attempt may wait for: much longer than an attempt takes on a busy machine.
const NEVER_WAITED_FOR: Duration = Duration::from_secs(15);

/// The limit for a release while servers are dead: less than the leases that it must not wait for.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

struct Servers {
    servers: Vec<RedisServer>,
    clients: Vec<Client>,
}

impl Servers {
    async fn start(count: usize) -> Self {
        Self::start_with(count, &Client::builder().poll_interval(NO_POLL)).await
    }

    /// Starts servers whose clients wait long for the reply of a dead one.
    async fn start_patient(count: usize) -> Self {
        let settings = Client::builder().poll_interval(NO_POLL).response_timeout(NEVER_WAITED_FOR);
        let settings = settings.watchdog_timeout(NEVER_WAITED_FOR * 4);
        Self::start_with(count, &settings).await
    }

    async fn start_with(count: usize, settings: &Builder) -> Self {
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(RedisServer::start().await);
        }
        let clients = Self::connect(&servers, settings).await;
        Self { servers, clients }
    }

    async fn connect(servers: &[RedisServer], settings: &Builder) -> Vec<Client> {
        let mut clients = Vec::new();
        for server in servers {
            clients.push(settings.clone().connect(&server.url()).await.expect("a server"));
        }
        clients
    }

    fn red(&self, name: &str) -> RedLock {
        RedLock::new(self.clients.iter().map(|client| client.lock(name))).expect("a good set")
    }

    fn pause(&self, numbers: &[usize]) {
        for number in numbers {
            self.servers[*number].pause();
        }
    }

    fn resume(&self, numbers: &[usize]) {
        for number in numbers {
            self.servers[*number].resume();
        }
    }

    /// Waits until the key is on none of the servers.
    async fn until_free(&self, name: &str) {
        for (number, server) in self.servers.iter().enumerate() {
            until_free(&format!("server {number} is free"), server, name).await;
        }
    }
}

async fn until_free(what: &str, server: &RedisServer, name: &str) {
    let plain = server.client().await;
    let is_free = async || !plain.clone().exists::<_, bool>(name).await.expect("a reply");
    eventually(what, PROMPT, is_free).await;
}

/// Five servers with a round trip of 0.8 s each: one after the other would take four seconds.
async fn all_members_are_requested_at_once(_: Fixture) {
    let five = Servers::start(5).await;
    let (mut proxies, mut locks) = (Vec::new(), Vec::new());
    for server in &five.servers {
        let proxy = FaultProxy::start(server.port()).await;
        let client = Client::builder().poll_interval(NO_POLL).connect(&proxy.url()).await.expect("a server");
        proxy.delay(ms(400));
        proxies.push(proxy);
        locks.push(client.lock("orders"));
    }
    let multi = MultiLock::new(locks.clone()).expect("a good set");
    let red = RedLock::new(locks).expect("a good set").with_node_timeout(PROMPT);
    let guard = within(ms(2_500), "one round trip, about", multi.lock()).await.expect("free");
    within(ms(2_500), "one round trip, about", guard.unlock()).await.expect("held");
    let guard = within(ms(2_500), "one round trip, about", red.lock()).await.expect("free");
    within(ms(2_500), "one round trip, about", guard.unlock()).await.expect("held");
    five.until_free("orders").await;
}

/// The second server grants when the grant of the first has expired, and the third is dead: that is no majority.
async fn an_expired_member_grant_does_not_count(_: Fixture) {
    let three = Servers::start(3).await;
    let proxy = FaultProxy::start(three.servers[1].port()).await;
    let slow = Client::builder().poll_interval(NO_POLL).connect(&proxy.url()).await.expect("a server");
    proxy.delay(ms(100));
    three.pause(&[2]);
    let short = three.clients[0].lock("orders").with_lease(ms(100));
    let locks = [short, slow.lock("orders"), three.clients[2].lock("orders")];
    let red = RedLock::new(locks).expect("a good set").with_node_timeout(ms(1_000));
    let error = red.try_lock().await.expect_err("never two valid grants");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    three.resume(&[2]);
    three.until_free("orders").await;
}

async fn a_dead_minority_costs_no_waiting(_: Fixture) {
    let five = Servers::start_patient(5).await;
    let red = five.red("orders").with_node_timeout(NEVER_WAITED_FOR);
    red.lock().await.expect("free").unlock().await.expect("held");
    for dead in [[0, 1], [3, 4], [1, 3]] {
        five.pause(&dead);
        for _ in 0..10 {
            let acquired = within(PROMPT, "two of five dead: it is acquired", red.try_lock()).await;
            let guard = acquired.expect("a majority replies").acquired().expect("free");
            assert!(guard.is_valid() && guard.held() == 3);
            within(PROMPT, "two of five dead: it is released", guard.unlock()).await.expect("held");
        }
        five.resume(&dead);
        five.until_free("orders").await;
    }
}

async fn a_missing_majority_is_reported_in_time(_: Fixture) {
    let five = Servers::start_patient(5).await;
    let red = five.red("orders");
    red.lock().await.expect("free").unlock().await.expect("held");
    five.pause(&[0, 2, 4]);
    // The same name each time, and new ones: the dead servers are requested, or known to owe a reply.
    for names in [["orders"; 4], ["a", "b", "c", "d"]] {
        for name in names {
            let attempt = five.red(name);
            let refused = within(PROMPT, "three of five dead: it fails", attempt.try_lock()).await;
            let error = refused.expect_err("two are no majority");
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        }
    }
    // With enough time for the replies of the live servers, also on a busy machine.
    let text =
        red.with_node_timeout(ms(1_500)).try_lock().await.expect_err("two are no majority").to_string();
    assert!(text.contains("granted: 2, refused: 0, no reply: 3"), "{text}");
    let start = Instant::now();
    let error = red.try_lock_for(ms(300)).await.expect_err("an error is not busy");
    let waited = start.elapsed();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(waited >= ms(250), "{waited:?}");
    in_time("it gives up", start, ms(300) + PROMPT);
    // A waiter is granted it when the servers are back.
    let waiting = red.clone();
    let task = tokio::spawn(async move { waiting.lock().await });
    five.servers[0].resume();
    let guard = within(PROMPT, "a majority is back", task).await.expect("no panic").expect("a turn");
    guard.unlock().await.expect("held");
    five.resume(&[2, 4]);
    for name in ["orders", "a", "b", "c", "d"] {
        five.until_free(name).await;
    }
}

async fn requests_to_dead_servers_are_undone_when_they_are_back(_: Fixture) {
    let five = Servers::start(5).await;
    // Shorter than the response time-out, and longer: then connections are closed too.
    for outage in [ms(200), ms(2_500)] {
        five.pause(&[1, 2, 3]);
        let end = Instant::now() + outage;
        let mut refused = 0;
        while Instant::now() < end {
            five.red("orders").try_lock().await.expect_err("no majority");
            refused += 1;
        }
        five.resume(&[1, 2, 3]);
        let back = Instant::now();
        five.until_free("orders").await;
        println!(
            "{refused} refusals in {outage:?}; all free {:?} after the servers came back",
            back.elapsed()
        );
        let guard = within(PROMPT, "it is granted", five.red("orders").lock()).await.expect("a turn");
        guard.unlock().await.expect("held");
        five.until_free("orders").await;
    }
}

async fn until_all_five_hold(guard: &MultiGuard) {
    eventually("all five hold it", PROMPT, async || guard.held() == 5).await;
}

async fn the_loss_of_a_majority_is_reported(_: Fixture) {
    let mut five =
        Servers::start_with(5, &Client::builder().poll_interval(NO_POLL).watchdog_timeout(ms(3_000))).await;
    let guard = five.red("orders").lock().await.expect("free");
    until_all_five_hold(&guard).await;
    for server in [0, 3] {
        five.servers[server].restart().await;
    }
    eventually("two are gone", PROMPT, async || guard.held() == 3).await;
    assert!(guard.is_valid(), "three are a majority");
    let end = guard.valid_until();
    eventually("they are renewed", PROMPT, async || guard.valid_until() > end + ms(300)).await;
    assert!(
        tokio::time::timeout(ms(20), guard.lost()).await.is_err(),
        "the loss of a minority is not reported"
    );
    let mut plain = five.servers[1].client().await;
    let _: () = plain.del("orders").await.expect("deleted");
    let lost = within(PROMPT, "the loss of a majority is reported", guard.lost()).await;
    assert!([0, 1, 3].contains(&lost.member), "{lost:?}");
    assert!(!guard.is_valid());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    five.until_free("orders").await;
}

async fn renewal_continues_with_two_servers_down(_: Fixture) {
    let five =
        Servers::start_with(5, &Client::builder().poll_interval(NO_POLL).watchdog_timeout(ms(2_000))).await;
    let others = Servers::connect(&five.servers, &Client::builder().poll_interval(NO_POLL)).await;
    let guard = five.red("orders").lock().await.expect("free");
    until_all_five_hold(&guard).await;
    five.pause(&[0, 1]);
    let start = Instant::now();
    eventually("the dead servers are dropped", PROMPT, async || guard.held() == 3).await;
    eventually("it lasts for three leases", ms(20_000), async || start.elapsed() > ms(6_000)).await;
    assert!(guard.is_valid());
    let other = RedLock::new(others.iter().map(|client| client.lock("orders"))).expect("a good set");
    let other = other.with_node_timeout(PROMPT);
    assert!(other.try_lock().await.expect("a majority replies").is_busy());
    within(RELEASE_LIMIT, "it does not wait for dead servers", guard.unlock())
        .await
        .expect("held to the end");
    drop(other.try_lock().await.expect("a majority replies").acquired().expect("free now"));
    five.resume(&[0, 1]);
    five.until_free("orders").await;
}

async fn a_late_server_joins_the_hold(_: Fixture) {
    let three = Servers::start(3).await;
    let red = three.red("orders");
    three.servers[1].pause();
    let guard = red.lock().await.expect("a majority");
    assert_eq!(guard.held(), 2);
    three.servers[1].resume();
    eventually("it joins", PROMPT, async || guard.held() == 3).await;
    let mut plain = three.servers[1].client().await;
    assert!(plain.exists::<_, bool>("orders").await.expect("a reply"));
    three.servers[0].pause();
    assert!(guard.is_valid());
    // The late server counts for the release too.
    within(RELEASE_LIMIT, "it does not wait for the dead server", guard.unlock())
        .await
        .expect("two have confirmed");
    three.servers[0].resume();
    three.until_free("orders").await;
    // A grant that arrives after the guard is gone is released.
    three.servers[2].pause();
    red.lock().await.expect("a majority").unlock().await.expect("held");
    three.servers[2].resume();
    three.until_free("orders").await;
}

async fn a_lost_reply_leaves_no_lock_behind(_: Fixture) {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let two = Servers::start(2).await;
    let proxied = Client::builder().poll_interval(NO_POLL).connect(&proxy.url()).await.expect("a server");
    let clients = two.clients.iter().chain([&proxied]);
    let red = RedLock::new(clients.map(|client| client.lock("orders"))).expect("a good set");
    for round in 0..5 {
        proxy.swallow_replies_to(b"orders");
        let guard = red.lock().await.expect("a majority");
        proxy.fired().await;
        if round % 2 == 0 {
            guard.unlock().await.expect("held");
        } else {
            drop(guard);
        }
        until_free("it is undone", &server, "orders").await;
        two.until_free("orders").await;
    }
}

async fn no_increment_is_lost_over_three_servers(_: Fixture) {
    const TASKS: u64 = 3;
    const TURNS: u64 = 12;
    let three = Servers::start(3).await;
    let counter = Arc::new(UnprotectedCounter::default());
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let clients = Servers::connect(&three.servers, &Client::builder().poll_interval(NO_POLL)).await;
        let locks = clients.iter().map(|client| client.lock("orders"));
        // On a machine that is busy with other tests, servers are slow but not dead.
        let red = RedLock::new(locks).expect("a good set").with_node_timeout(PROMPT);
        for task in 0..TASKS {
            let (red, counter) = (red.clone(), Arc::clone(&counter));
            tasks.push(tokio::spawn(async move {
                for turn in 0..TURNS {
                    let guard = red.lock().await.expect("a turn");
                    counter.add_one().await;
                    assert!(guard.is_valid());
                    if (turn + task) % 2 == 0 { guard.unlock().await.expect("held") } else { drop(guard) }
                }
            }));
        }
    }
    for task in tasks {
        within(ms(120_000), "all are granted the lock", task).await.expect("no other holder");
    }
    println!("{} turns in {:?}", 3 * TASKS * TURNS, start.elapsed());
    assert_eq!(counter.value.load(Ordering::SeqCst), 3 * TASKS * TURNS);
    three.until_free("orders").await;
}

async fn a_red_lock_dropped_at_any_time_leaves_nothing(_: Fixture) {
    let three = Servers::start(3).await;
    let holder = Servers::connect(&three.servers, &Client::builder().poll_interval(NO_POLL)).await;
    let other = RedLock::new(holder.iter().map(|client| client.lock("orders"))).expect("a good set");
    let other = other.with_node_timeout(PROMPT);
    let red = three.red("orders");
    for round in 0_u64..120 {
        let held = if round % 3 == 0 { other.try_lock().await.expect("a reply").acquired() } else { None };
        let limit = Duration::from_micros(round * 97 % 7_000);
        drop(tokio::time::timeout(limit, red.lock()).await);
        drop(held);
    }
    three.until_free("orders").await;
    eventually("no waiter is left", PROMPT, async || {
        red.inspect().await.into_iter().all(|seen| seen.is_ok_and(|seen| seen.waiting_here == 0))
    })
    .await;
}
