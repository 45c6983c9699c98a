//! Keys, channels and calls as a plain Redis client sees them: Redisson's format, and no more calls than needed.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use redis::AsyncCommands;
use turnlock::{Builder, Client, Lock};
use turnlock_testkit::{Calls, eventually, in_time, within};

use crate::fixture::{Fixture, KindClient, NO_POLL, PROMPT, lock_keys, ms, until_waiting};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_held_lock_has_redissons_format,
    a_release_publishes_zero_on_redissons_channel,
    a_redisson_hold_is_respected,
    a_pair_costs_two_calls,
    a_wait_of_less_than_a_second_is_not_announced,
    a_hundred_waiters_share_an_announcement,
    waits_that_come_and_go_are_announced_once_a_second,
    a_question_about_a_lock_costs_one_call,
    the_activity_record_goes_with_the_last_wait_and_hold,
    a_thousand_waiters_cost_as_many_calls_a_turn_as_two,
    renewals_are_batched,
    checks_of_fixed_leases_are_batched,
    a_renewal_touches_only_its_own_hold,
    a_subscription_outlives_its_last_waiter_for_a_moment,
    a_released_lock_is_not_renewed,
    a_dropped_client_leaves_no_connection,
];

async fn a_held_lock_has_redissons_format(fixture: Fixture) {
    let mut plain = fixture.raw_connection().await;
    let client = fixture.client().await;
    let guard = client.lock("orders").lock().await.expect("free");
    let _inner = guard.reenter().await.expect("held");
    let kind: String = redis::cmd("TYPE").arg("orders").query_async(&mut plain).await.unwrap();
    let fields: Vec<(String, String)> = plain.hgetall("orders").await.unwrap();
    let ttl: u64 = plain.pttl("orders").await.unwrap();
    assert_eq!(kind, "hash");
    assert_eq!(fields, [(guard.owner_id().to_string(), "2".to_owned())]);
    assert!((29_000..=30_000).contains(&ttl), "{ttl}");
    let (uuid, number) = fields[0].0.split_once(':').expect("uuid:number");
    assert_eq!((uuid.len(), uuid), (36, uuid.to_lowercase().as_str()));
    assert!(number.parse::<u64>().is_ok());
    let fixed = client.lock("fixed").with_lease(ms(5_000)).lock().await.expect("free");
    let ttl: u64 = plain.pttl("fixed").await.unwrap();
    assert!((4_000..=5_000).contains(&ttl), "{ttl}");
    assert_ne!(fixed.owner_id(), guard.owner_id());
    let keys = lock_keys(&mut plain).await;
    assert_eq!(keys.len(), 2, "nothing but the two locks: {keys:?}");
}

async fn a_release_publishes_zero_on_redissons_channel(fixture: Fixture) {
    let client = fixture.client().await;
    for (name, channel) in [
        ("orders", "redisson_lock__channel:{orders}"),
        ("a:{tag}", "redisson_lock__channel:a:{tag}"),
        ("x}y", "redisson_lock__channel:{x}y}"),
    ] {
        let mut subscriber =
            redis::Client::open(fixture.server().url()).unwrap().get_async_pubsub().await.unwrap();
        subscriber.subscribe(channel).await.unwrap();
        let guard = client.lock(name).lock().await.expect("free");
        let inner = guard.reenter().await.expect("held");
        inner.unlock().await.expect("held");
        guard.unlock().await.expect("held");
        client.lock(name).lock().await.expect("free").unlock().await.expect("held");
        let _forced = client.lock(name).lock().await.expect("free");
        assert!(client.lock(name).force_unlock().await.expect("a reply"));
        let mut messages = subscriber.on_message();
        for release in 0..3 {
            let message =
                within(PROMPT, "one message for each release", messages.next()).await.expect("a message");
            assert_eq!(message.get_payload::<String>().unwrap(), "0", "release {release} of {name}");
        }
        let more = tokio::time::timeout(ms(50), messages.next()).await;
        assert!(more.is_err(), "none for the inner release");
    }
}

async fn a_redisson_hold_is_respected(fixture: Fixture) {
    let mut plain = fixture.raw_connection().await;
    let lock = fixture.client().await.lock("orders");
    let owner = "cf1e0c1c-55aa-4f0f-8f43-5f3e1b3a9d11:42";
    let _: () = plain.hset("orders", owner, 1).await.unwrap();
    let _: () = plain.pexpire("orders", 20_000).await.unwrap();
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    let seen = lock.inspect().await.expect("a reply");
    assert_eq!((seen.holders[0].owner.as_str(), seen.holders[0].is_mine), (owner, false));
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    eventually("it is subscribed", PROMPT, async || {
        subscribers(&fixture, "redisson_lock__channel:{orders}").await == 1
    })
    .await;
    // As Redisson's unlock does.
    let _: () = plain.del("orders").await.unwrap();
    let _: () = plain.publish("redisson_lock__channel:{orders}", "0").await.unwrap();
    within(PROMPT, "the message wakes it", task).await.expect("no panic").unlock().await.expect("held");
}

async fn subscribers(fixture: &Fixture, channel: &str) -> u64 {
    let mut plain = fixture.raw_connection().await;
    let mut cmd = redis::cmd("PUBSUB");
    let (_, count): (String, u64) = cmd.arg("NUMSUB").arg(channel).query_async(&mut plain).await.unwrap();
    count
}

/// The number of calls that the client sent, without those of the tests.
fn sent(calls: &Calls) -> u64 {
    calls.of("evalsha") + calls.of("eval") + calls.of("subscribe") + calls.of("unsubscribe")
}

/// A client that has written its client record, which it does once, after its first lock.
async fn client_with_record(fixture: &Fixture, builder: Builder) -> KindClient {
    let client = fixture.client_with(builder.poll_interval(NO_POLL)).await;
    client.lock("first").lock().await.expect("free").unlock().await.expect("held");
    let key = format!("turnlock_client:{}", client.id());
    let is_written = async || fixture.raw_connection().await.exists(&key).await.expect("a reply");
    eventually("the record is written", ms(5_000), is_written).await;
    client
}

async fn a_pair_costs_two_calls(fixture: Fixture) {
    let client = client_with_record(&fixture, Client::builder()).await;
    let before = fixture.server().calls().await;
    for pair in 0..100 {
        let began = Instant::now();
        let guard = client.lock(&format!("pair:{}", pair % 7)).lock().await.expect("free");
        guard.unlock().await.expect("held");
        // A hold of a second would be announced.
        in_time("a pair", began, ms(900));
    }
    let spent = fixture.server().calls().await.since(&before);
    assert_eq!(sent(&spent), 200);
    // A free lock: PTTL, HSET, PEXPIRE. A last release: HDEL, PUBLISH.
    for command in ["pttl", "hset", "pexpire", "hdel", "publish"] {
        assert_eq!(spent.of(command), 100, "{command}");
    }
    // An idle connection is pinged, on a slow machine also between two steps.
    assert_eq!(spent.total() - spent.of("ping"), 200 + 500, "{spent:?}");
}

async fn a_wait_of_less_than_a_second_is_not_announced(fixture: Fixture) {
    // Without local hand-over, each turn is a grant of the store.
    let client = client_with_record(&fixture, Client::builder().hand_over_window(Duration::ZERO)).await;
    let lock = client.lock("contended");
    let start = Instant::now();
    loop {
        let before = fixture.server().calls().await;
        // Two wait at any time, and one holds, over more than one check for what is to be announced.
        let took = futures_util::future::join_all((0..3).map(|_| take_turns(lock.clone(), ms(2_500)))).await;
        let spent = fixture.server().calls().await.since(&before);
        if took.iter().flatten().all(|took| *took < ms(900)) {
            let turns = took.iter().map(Vec::len).sum::<usize>() as u64;
            // Both scripts about announcements begin with it.
            assert_eq!(spent.of("hrandfield"), 0, "{spent:?}");
            // A waiter that subscribes asks once more.
            return assert!(sent(&spent) <= 2 * turns + 10, "{turns} turns: {spent:?}");
        }
        in_time("no turn takes a second", start, ms(60_000));
    }
}

/// Takes turns of 20 ms, and returns how long each took with its wait.
async fn take_turns(lock: Lock, time: Duration) -> Vec<Duration> {
    let (start, mut took) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let began = Instant::now();
        let guard = lock.lock().await.expect("a turn");
        tokio::time::sleep(ms(20)).await;
        guard.unlock().await.expect("held");
        took.push(began.elapsed());
    }
    took
}

async fn a_hundred_waiters_share_an_announcement(fixture: Fixture) {
    let holder = fixture.client_with(Client::builder().announce_waits(false)).await;
    let client = client_with_record(&fixture, Client::builder()).await;
    let _held = holder.lock("awaited").lock().await.expect("free");
    let wait = |lock: Lock| tokio::spawn(async move { lock.lock().await.map(drop) });
    let tasks: Vec<_> = (0..100).map(|_| wait(client.lock("awaited"))).collect();
    eventually("all are announced", ms(60_000), async || {
        let waits = holder.waits().await.expect("a reply");
        waits.waiters.len() as u64 + waits.unlisted == 100
    })
    .await;
    let (began, before) = (Instant::now(), fixture.server().calls().await);
    let writes = async || fixture.server().calls().await.since(&before).of("hrandfield");
    eventually("they are written twice", ms(60_000), async || writes().await >= 2).await;
    // Every three seconds, by a timer that may be early.
    let (writes, periods) = (writes().await, (began.elapsed() + ms(500)).as_secs() / 3);
    assert!(writes <= 1 + periods, "{writes} writes in {:?}", began.elapsed());
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn waits_that_come_and_go_are_announced_once_a_second(fixture: Fixture) {
    let holder = fixture.client_with(Client::builder().announce_waits(false)).await;
    let client = client_with_record(&fixture, Client::builder()).await;
    let lock = client.lock("awaited");
    let _held = holder.lock("awaited").lock().await.expect("free");
    let (began, before) = (Instant::now(), fixture.server().calls().await);
    // One after the other, 40 waits are a second old, and end.
    let waits = (0..40).map(|number| {
        let lock = &lock;
        async move {
            tokio::time::sleep(ms(number * 100)).await;
            assert!(lock.try_lock_for(ms(1_050)).await.expect("a reply").is_busy());
        }
    });
    futures_util::future::join_all(waits).await;
    let writes = fixture.server().calls().await.since(&before).of("hrandfield");
    // A timer may be early.
    let seconds = (began.elapsed() + ms(500)).as_secs();
    assert!((1..=1 + seconds).contains(&writes), "{writes} writes in {:?}", began.elapsed());
}

async fn a_question_about_a_lock_costs_one_call(fixture: Fixture) {
    let client = client_with_record(&fixture, Client::builder().announce_waits(false)).await;
    let owner = client.owner();
    let lock = client.lock("asked").with_owner(&owner);
    let _guard = lock.lock().await.expect("free");
    let (semaphore, latch) = (client.semaphore("permits"), client.latch("steps"));
    // Each script is sent as a whole once.
    let ask = async || {
        assert!(lock.is_locked().await.expect("a reply") && lock.is_held_by(&owner).await.expect("a reply"));
        assert_eq!(lock.hold_count(&owner).await.expect("a reply"), 1);
        assert!(lock.remaining().await.expect("a reply").is_some());
        assert_eq!(semaphore.available().await.expect("a reply"), 0);
        assert_eq!(latch.count().await.expect("a reply"), 0);
    };
    ask().await;
    let before = fixture.server().calls().await;
    ask().await;
    let spent = fixture.server().calls().await.since(&before);
    assert_eq!(sent(&spent), 6, "{spent:?}");
}

async fn the_activity_record_goes_with_the_last_wait_and_hold(fixture: Fixture) {
    let client = fixture.client().await;
    let is_announced = async || {
        let client = client.id().to_string();
        fixture.raw_connection().await.hexists::<_, _, bool>("turnlock_waits", client).await.unwrap()
    };
    let guard = client.lock("orders").lock().await.expect("free");
    eventually("the hold is announced", ms(20_000), is_announced).await;
    drop(guard);
    eventually("the record is removed before it expires", ms(40_000), async || !is_announced().await).await;
    let guard = client.lock("orders").lock().await.expect("free");
    eventually("the hold is announced", ms(40_000), is_announced).await;
    drop(guard);
    assert!(client.shutdown(ms(20_000)).await.is_clean() && !is_announced().await);
}

async fn a_thousand_waiters_cost_as_many_calls_a_turn_as_two(fixture: Fixture) {
    // Without local hand-over each turn is a grant of the store and costs two calls, however late the turns are.
    let builder = Client::builder().poll_interval(NO_POLL).hand_over_window(Duration::ZERO);
    let lock = fixture.client_with(builder.announce_waits(false)).await.lock("contended");
    let few = calls_for_turns(&fixture, &lock, 2).await;
    let many = calls_for_turns(&fixture, &lock, 1_000).await;
    assert!(few <= 2.1, "{few} calls a turn with two waiters");
    assert!(many <= few + 0.1, "{many} calls a turn with a thousand waiters, {few} with two");
}

async fn calls_for_turns(fixture: &Fixture, lock: &Lock, waiters: usize) -> f64 {
    const TURNS: usize = 1_000;
    let held = lock.lock().await.expect("free");
    let tasks: Vec<_> = (0..waiters)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for _ in 0..TURNS / waiters {
                    lock.lock().await.expect("a turn").unlock().await.expect("held");
                }
            })
        })
        .collect();
    until_waiting(lock, waiters).await;
    let before = fixture.server().calls().await;
    held.unlock().await.expect("held");
    for task in tasks {
        task.await.expect("no panic");
    }
    let spent = fixture.server().calls().await.since(&before);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let calls = sent(&spent) as f64 / TURNS as f64;
    calls
}

/// The most calls that a thousand locks may cost since `since`, counted for at least two periods: four renewal times in each, and
/// four batches of 256 locks, spread over those times.
fn most_batches(since: Instant, period: Duration) -> u64 {
    12 * u64::try_from(1 + since.elapsed().as_millis() / period.as_millis()).unwrap().max(2)
}

/// Settings of a client that sends nothing but renewals and checks.
fn renewing_every(period: Duration) -> Builder {
    Client::builder().watchdog_timeout(period * 3).poll_interval(NO_POLL).announce_waits(false)
}

async fn renewals_are_batched(fixture: Fixture) {
    const LOCKS: usize = 1_000;
    const PERIOD: Duration = ms(3_000);
    let client = fixture.client_with(renewing_every(PERIOD)).await;
    let mut guards = Vec::new();
    for lock in 0..LOCKS {
        guards.push(client.lock(&format!("held:{lock}")).lock().await.expect("free"));
    }
    let ends: Vec<Instant> = guards.iter().map(turnlock::Guard::valid_until).collect();
    let (start, before) = (Instant::now(), fixture.server().calls().await);
    eventually("all were renewed", ms(15_000), async || {
        guards.iter().zip(&ends).all(|(guard, end)| guard.valid_until() > *end + ms(500))
    })
    .await;
    let spent = fixture.server().calls().await.since(&before);
    assert!(sent(&spent) <= most_batches(start, PERIOD), "{} calls to renew {LOCKS} locks", sent(&spent));
    let (start, before) = (Instant::now(), fixture.server().calls().await);
    let ends: Vec<Instant> = guards.iter().map(turnlock::Guard::valid_until).collect();
    eventually("all were renewed again", ms(15_000), async || {
        guards.iter().zip(&ends).all(|(guard, end)| guard.valid_until() > *end + ms(500))
    })
    .await;
    let spent = fixture.server().calls().await.since(&before);
    assert!(sent(&spent) <= most_batches(start, PERIOD), "{} calls to renew {LOCKS} locks", sent(&spent));
    assert!(guards.iter().all(turnlock::Guard::is_valid));
}

async fn checks_of_fixed_leases_are_batched(fixture: Fixture) {
    const LOCKS: u64 = 1_000;
    const PERIOD: Duration = ms(4_000);
    let client = fixture.client_with(renewing_every(PERIOD)).await;
    let mut guards = Vec::new();
    for lock in 0..LOCKS {
        let lease = ms(600_000 + lock);
        guards.push(client.lock(&format!("held:{lock}")).with_lease(lease).lock().await.expect("free"));
    }
    let (start, before) = (Instant::now(), fixture.server().calls().await);
    eventually("all were checked", ms(30_000), async || {
        fixture.server().calls().await.since(&before).of("hexists") >= LOCKS
    })
    .await;
    let spent = fixture.server().calls().await.since(&before);
    assert!(sent(&spent) <= most_batches(start, PERIOD), "{} calls to check {LOCKS} locks", sent(&spent));
    assert_eq!(spent.of("pexpire"), 0, "a check changes nothing");
    assert!(guards.iter().all(turnlock::Guard::is_valid));
}

async fn a_renewal_touches_only_its_own_hold(fixture: Fixture) {
    let mut plain = fixture.raw_connection().await;
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    // One lock is given to another owner, and one key is replaced by a string.
    let taken = client.lock("taken").lock().await.expect("free");
    let replaced = client.lock("replaced").lock().await.expect("free");
    let untouched = client.lock("untouched").lock().await.expect("free");
    let _: () = redis::pipe()
        .atomic()
        .del("taken")
        .hset("taken", "other:1", 1)
        .pexpire("taken", 60_000)
        .set("replaced", "a string")
        .query_async(&mut plain)
        .await
        .unwrap();
    within(ms(3_000), "the first is lost", taken.lost()).await;
    within(PROMPT, "the second cannot be renewed, and ends", replaced.lost()).await;
    assert!(untouched.is_valid(), "the third is renewed in the same batch");
    let ttl: u64 = plain.pttl("taken").await.unwrap();
    assert!(ttl > 50_000, "the lease of the other owner is unchanged: {ttl}");
    let text: String = plain.get("replaced").await.unwrap();
    assert_eq!(text, "a string");
}

async fn a_subscription_outlives_its_last_waiter_for_a_moment(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let channel = "redisson_lock__channel:{linger}";
    let guard = one.lock("linger").lock().await.expect("free");
    let before = fixture.server().calls().await;
    for _ in 0..20 {
        assert!(two.lock("linger").try_lock_for(ms(50)).await.expect("a reply").is_busy());
    }
    let spent = fixture.server().calls().await.since(&before);
    assert_eq!((spent.of("subscribe"), spent.of("unsubscribe")), (1, 0));
    assert_eq!(subscribers(&fixture, channel).await, 1);
    // Also for waiters that are cancelled meanwhile.
    for number in 0..20 {
        let name = format!("cancelled:{number}");
        let _held = one.lock(&name).lock().await.expect("free");
        let _ = tokio::time::timeout(std::time::Duration::from_micros(200 * number), two.lock(&name).lock())
            .await;
    }
    eventually("all subscriptions end", Duration::from_secs(20), async || {
        let mut cmd = redis::cmd("PUBSUB");
        let channels: Vec<String> =
            cmd.arg("CHANNELS").query_async(&mut fixture.raw_connection().await).await.unwrap();
        channels.is_empty()
    })
    .await;
    eventually("the subscription ends", Duration::from_secs(20), async || {
        subscribers(&fixture, channel).await == 0
    })
    .await;
    // It is made again when it is needed.
    let waiting = two.lock("linger");
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    eventually("it is subscribed again", PROMPT, async || subscribers(&fixture, channel).await == 1).await;
    guard.unlock().await.expect("held");
    within(PROMPT, "the message wakes it", task).await.expect("no panic").unlock().await.expect("held");
}

async fn a_released_lock_is_not_renewed(fixture: Fixture) {
    let builder = Client::builder().watchdog_timeout(ms(1_500)).announce_waits(false);
    let client = client_with_record(&fixture, builder).await;
    for _ in 0..10 {
        client.lock("short").lock().await.expect("free").unlock().await.expect("held");
    }
    let before = fixture.server().calls().await;
    // Three periods: what must not happen cannot be awaited.
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!(sent(&fixture.server().calls().await.since(&before)), 0);
}

async fn a_dropped_client_leaves_no_connection(fixture: Fixture) {
    let mut plain = fixture.raw_connection().await;
    let mut connections = async || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut plain).await.expect("a list");
        list.lines().count()
    };
    assert_eq!(connections().await, 1, "only the connection of this test");
    for _ in 0..3 {
        let client = fixture.client().await;
        assert_eq!(connections().await, 3, "one for commands, one for pub/sub");
        let guard = client.lock("x").lock().await.expect("free");
        let waiting = client.lock("x");
        assert!(waiting.try_lock_for(ms(150)).await.expect("a reply").is_busy());
        drop((client, waiting, guard));
        let blocking = tokio::task::spawn_blocking({
            let client = fixture.blocking_client();
            move || drop(client.lock("y").lock().expect("free"))
        });
        blocking.await.expect("no panic");
        let start = Instant::now();
        while connections().await > 1 {
            in_time("no connection is left", start, ms(20_000));
            tokio::time::sleep(ms(10)).await;
        }
    }
    let keys = lock_keys(&mut plain).await;
    assert!(keys.is_empty(), "{keys:?}");
}
