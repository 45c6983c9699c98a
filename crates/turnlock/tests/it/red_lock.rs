//! Several real servers, some of which are slow, dead or forgetful, and a majority of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use turnlock::{Builder, Client, Error, MultiGuard, MultiLock, RedLock};
use turnlock_testkit::{FaultProxy, RedisServer, eventually, in_time, within};

use crate::conformance::exclusion::Unprotected;
use crate::rig::{NO_POLL, PROMPT, Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    all_members_are_asked_at_once,
    a_grant_that_is_over_is_none,
    a_dead_minority_costs_no_waiting,
    without_a_majority_it_says_so_in_time,
    what_dead_servers_were_asked_is_undone_when_they_are_back,
    a_majority_that_loses_its_data_is_told,
    renewal_goes_on_with_two_servers_down,
    a_late_server_joins,
    a_lost_answer_leaves_no_lock_behind,
    no_increment_is_lost_over_three_servers,
    a_red_lock_dropped_at_any_time_leaves_nothing,
];

/// What taking the lock may cost while servers are dead: twice the usual time-out of one server. On a machine that does
/// other things as well, half of the tries have to show it.
const ACQUIRED: Duration = Duration::from_millis(100);

/// What any try may cost there, on a busy machine too: less than the time-outs that it must not wait for.
const AT_THE_MOST: Duration = Duration::from_secs(2);

/// Says what the tries took, and checks it.
fn check(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (fastest, slowest) = (times[0], times[times.len() - 1]);
    println!("{what}: {fastest:?} to {slowest:?}");
    let usual = times[(times.len() - 1) / 2];
    assert!(usual < ACQUIRED && slowest < AT_THE_MOST, "{what}: {times:?}");
}

struct Servers {
    servers: Vec<RedisServer>,
    clients: Vec<Client>,
}

impl Servers {
    async fn start(count: usize) -> Self {
        Self::start_with(count, &Client::builder().poll(NO_POLL)).await
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

    /// Waits until the key is on none of the servers, as plain clients see it.
    async fn until_free(&self, name: &str) {
        for (number, server) in self.servers.iter().enumerate() {
            until_free(&format!("server {number} is free"), server, name).await;
        }
    }
}

async fn until_free(what: &str, server: &RedisServer, name: &str) {
    let plain = server.client().await;
    let is_free = async || !plain.clone().exists::<_, bool>(name).await.expect("an answer");
    eventually(what, PROMPT, is_free).await;
}

/// Five servers that are each 0.8 s away: one after the other would take four seconds.
async fn all_members_are_asked_at_once(_: Rig) {
    let five = Servers::start(5).await;
    let (mut proxies, mut locks) = (Vec::new(), Vec::new());
    for server in &five.servers {
        let proxy = FaultProxy::start(server.port()).await;
        let client = Client::builder().poll(NO_POLL).connect(&proxy.url()).await.expect("a server");
        proxy.delay(ms(400));
        proxies.push(proxy);
        locks.push(client.lock("orders"));
    }
    let multi = MultiLock::new(locks.clone()).expect("a good set");
    let red = RedLock::new(locks).expect("a good set").node_timeout(PROMPT);
    let guard = within(ms(2_500), "one round trip, about", multi.lock()).await.expect("free");
    within(ms(2_500), "one round trip, about", guard.unlock()).await.expect("held");
    let guard = within(ms(2_500), "one round trip, about", red.lock()).await.expect("free");
    within(ms(2_500), "one round trip, about", guard.unlock()).await.expect("held");
    five.until_free("orders").await;
}

/// The second server grants when the grant of the first has run out, and the third is dead: that is no majority.
async fn a_grant_that_is_over_is_none(_: Rig) {
    let three = Servers::start(3).await;
    let proxy = FaultProxy::start(three.servers[1].port()).await;
    let slow = Client::builder().poll(NO_POLL).connect(&proxy.url()).await.expect("a server");
    proxy.delay(ms(100));
    three.pause(&[2]);
    let short = three.clients[0].lock("orders").lease(ms(100));
    let locks = [short, slow.lock("orders"), three.clients[2].lock("orders")];
    let red = RedLock::new(locks).expect("a good set").node_timeout(ms(1_000));
    let error = red.try_lock().await.expect_err("never two at a time");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    three.resume(&[2]);
    three.until_free("orders").await;
}

async fn a_dead_minority_costs_no_waiting(_: Rig) {
    let five = Servers::start(5).await;
    // Who waits for the dead waits for seconds.
    let red = five.red("orders").node_timeout(ms(3_000));
    red.lock().await.expect("free").unlock().await.expect("held");
    for dead in [[0, 1], [3, 4], [1, 3]] {
        five.pause(&dead);
        let (mut taking, mut giving) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let start = Instant::now();
            let guard = red.try_lock().await.expect("a majority answers").expect("free");
            taking.push(start.elapsed());
            assert!(guard.is_valid() && guard.held() == 3);
            let start = Instant::now();
            guard.unlock().await.expect("held");
            giving.push(start.elapsed());
        }
        check("two of five dead, taken in", taking);
        check("two of five dead, given back in", giving);
        five.resume(&dead);
        five.until_free("orders").await;
    }
}

async fn without_a_majority_it_says_so_in_time(_: Rig) {
    let five = Servers::start(5).await;
    let red = five.red("orders");
    red.lock().await.expect("free").unlock().await.expect("held");
    five.pause(&[0, 2, 4]);
    // The same name each time, and new ones: the dead are asked, or known to owe an answer.
    for names in [["orders"; 4], ["a", "b", "c", "d"]] {
        let mut told = Vec::new();
        for name in names {
            let start = Instant::now();
            let error = five.red(name).try_lock().await.expect_err("two are no majority");
            told.push(start.elapsed());
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        }
        check("three of five dead, told in", told);
    }
    // With the time to hear those who live, on a busy machine too.
    let text = red.node_timeout(ms(1_500)).try_lock().await.expect_err("two are no majority").to_string();
    assert!(text.contains("granted: 2, refused: 0, no answer: 3"), "{text}");
    let start = Instant::now();
    let error = red.try_lock_for(ms(300)).await.expect_err("an error is not busy");
    let waited = start.elapsed();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(waited >= ms(250), "{waited:?}");
    in_time("it gives up", start, ms(300) + PROMPT);
    // One who waits gets it when the servers are back.
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

async fn what_dead_servers_were_asked_is_undone_when_they_are_back(_: Rig) {
    let five = Servers::start(5).await;
    // Shorter than the time-out of a request, and longer: then connections are given up, too.
    for away in [ms(200), ms(2_500)] {
        five.pause(&[1, 2, 3]);
        let end = Instant::now() + away;
        let mut refused = 0;
        while Instant::now() < end {
            five.red("orders").try_lock().await.expect_err("no majority");
            refused += 1;
        }
        five.resume(&[1, 2, 3]);
        let back = Instant::now();
        five.until_free("orders").await;
        println!("{refused} refusals in {away:?}; all free {:?} after the servers came back", back.elapsed());
        let guard = within(PROMPT, "it can be had", five.red("orders").lock()).await.expect("a turn");
        guard.unlock().await.expect("held");
        five.until_free("orders").await;
    }
}

async fn all_five(guard: &MultiGuard) {
    eventually("all five are there", PROMPT, async || guard.held() == 5).await;
}

async fn a_majority_that_loses_its_data_is_told(_: Rig) {
    let mut five = Servers::start_with(5, &Client::builder().poll(NO_POLL).watchdog(ms(3_000))).await;
    let guard = five.red("orders").lock().await.expect("free");
    all_five(&guard).await;
    for server in [0, 3] {
        five.servers[server].restart().await;
    }
    eventually("two are gone", PROMPT, async || guard.held() == 3).await;
    assert!(guard.is_valid(), "three are a majority");
    let end = guard.valid_until();
    eventually("they are renewed", PROMPT, async || guard.valid_until() > end + ms(300)).await;
    assert!(tokio::time::timeout(ms(20), guard.lost()).await.is_err(), "a minority's loss is not told");
    let mut plain = five.servers[1].client().await;
    let _: () = plain.del("orders").await.expect("deleted");
    let lost = within(PROMPT, "a majority's loss is told", guard.lost()).await;
    assert!([0, 1, 3].contains(&lost.member), "{lost:?}");
    assert!(!guard.is_valid());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    five.until_free("orders").await;
}

async fn renewal_goes_on_with_two_servers_down(_: Rig) {
    let five = Servers::start_with(5, &Client::builder().poll(NO_POLL).watchdog(ms(2_000))).await;
    let others = Servers::connect(&five.servers, &Client::builder().poll(NO_POLL)).await;
    let guard = five.red("orders").lock().await.expect("free");
    all_five(&guard).await;
    five.pause(&[0, 1]);
    let start = Instant::now();
    eventually("the dead are given up", PROMPT, async || guard.held() == 3).await;
    eventually("it lasts for three leases", ms(20_000), async || start.elapsed() > ms(6_000)).await;
    assert!(guard.is_valid());
    let other = RedLock::new(others.iter().map(|client| client.lock("orders"))).expect("a good set");
    let other = other.node_timeout(PROMPT);
    assert!(other.try_lock().await.expect("a majority answers").is_none());
    within(AT_THE_MOST, "the dead are not waited for", guard.unlock()).await.expect("held to the end");
    drop(other.try_lock().await.expect("a majority answers").expect("free now"));
    five.resume(&[0, 1]);
    five.until_free("orders").await;
}

async fn a_late_server_joins(_: Rig) {
    let three = Servers::start(3).await;
    let red = three.red("orders");
    three.servers[1].pause();
    let guard = red.lock().await.expect("a majority");
    assert_eq!(guard.held(), 2);
    three.servers[1].resume();
    eventually("it joins", PROMPT, async || guard.held() == 3).await;
    let mut plain = three.servers[1].client().await;
    assert!(plain.exists::<_, bool>("orders").await.expect("an answer"));
    three.servers[0].pause();
    assert!(guard.is_valid());
    // The late one counts in the parting, too.
    within(AT_THE_MOST, "the dead one is not waited for", guard.unlock()).await.expect("two have confirmed");
    three.servers[0].resume();
    three.until_free("orders").await;
    // One that comes when the guard has gone is given back.
    three.servers[2].pause();
    red.lock().await.expect("a majority").unlock().await.expect("held");
    three.servers[2].resume();
    three.until_free("orders").await;
}

async fn a_lost_answer_leaves_no_lock_behind(_: Rig) {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let two = Servers::start(2).await;
    let behind = Client::builder().poll(NO_POLL).connect(&proxy.url()).await.expect("a server");
    let clients = two.clients.iter().chain([&behind]);
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

async fn no_increment_is_lost_over_three_servers(_: Rig) {
    const TASKS: u64 = 3;
    const TURNS: u64 = 12;
    let three = Servers::start(3).await;
    let counter = Arc::new(Unprotected::default());
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let clients = Servers::connect(&three.servers, &Client::builder().poll(NO_POLL)).await;
        let locks = clients.iter().map(|client| client.lock("orders"));
        // On a machine that is busy with other tests, servers are slow and not dead.
        let red = RedLock::new(locks).expect("a good set").node_timeout(PROMPT);
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
        within(ms(120_000), "all get their turns", task).await.expect("nobody else inside");
    }
    println!("{} turns in {:?}", 3 * TASKS * TURNS, start.elapsed());
    assert_eq!(counter.value.load(Ordering::SeqCst), 3 * TASKS * TURNS);
    three.until_free("orders").await;
}

async fn a_red_lock_dropped_at_any_time_leaves_nothing(_: Rig) {
    let three = Servers::start(3).await;
    let holder = Servers::connect(&three.servers, &Client::builder().poll(NO_POLL)).await;
    let other = RedLock::new(holder.iter().map(|client| client.lock("orders"))).expect("a good set");
    let other = other.node_timeout(PROMPT);
    let red = three.red("orders");
    for round in 0_u64..120 {
        let held = if round % 3 == 0 { other.try_lock().await.expect("an answer") } else { None };
        let limit = Duration::from_micros(round * 97 % 7_000);
        drop(tokio::time::timeout(limit, red.lock()).await);
        drop(held);
    }
    three.until_free("orders").await;
    eventually("nobody waits", PROMPT, async || {
        red.inspect().await.into_iter().all(|seen| seen.is_ok_and(|seen| seen.waiting_here == 0))
    })
    .await;
}
