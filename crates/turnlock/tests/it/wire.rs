//! What a plain client sees on the wire: Redisson's format, and no more calls than needed.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use redis::AsyncCommands;
use turnlock::{Builder, Client, Lock};
use turnlock_testkit::{Calls, eventually, in_time, within};

use crate::rig::{KindClient, NO_POLL, PROMPT, Rig, keys_of_locks, ms, until_waiting};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_held_lock_looks_as_redissons_does,
    a_release_publishes_zero_on_redissons_channel,
    a_redisson_hold_is_respected,
    a_pair_costs_two_calls,
    a_thousand_waiters_cost_what_two_cost,
    renewals_go_out_in_batches,
    looks_at_fixed_leases_go_out_in_batches,
    a_renewal_touches_only_its_own,
    a_subscription_outlives_its_last_waiter_for_a_moment,
    a_released_lock_is_not_renewed,
    a_dropped_client_leaves_no_connection,
];

async fn a_held_lock_looks_as_redissons_does(rig: Rig) {
    let mut plain = rig.plain().await;
    let client = rig.client().await;
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
    let fixed = client.lock("fixed").lease(ms(5_000)).lock().await.expect("free");
    let ttl: u64 = plain.pttl("fixed").await.unwrap();
    assert!((4_000..=5_000).contains(&ttl), "{ttl}");
    assert_ne!(fixed.owner_id(), guard.owner_id());
    let keys = keys_of_locks(&mut plain).await;
    assert_eq!(keys.len(), 2, "nothing but the two locks: {keys:?}");
}

async fn a_release_publishes_zero_on_redissons_channel(rig: Rig) {
    let client = rig.client().await;
    for (name, channel) in [
        ("orders", "redisson_lock__channel:{orders}"),
        ("a:{tag}", "redisson_lock__channel:a:{tag}"),
        ("x}y", "redisson_lock__channel:{x}y}"),
    ] {
        let mut listener = redis::Client::open(rig.server().url()).unwrap().get_async_pubsub().await.unwrap();
        listener.subscribe(channel).await.unwrap();
        let guard = client.lock(name).lock().await.expect("free");
        let inner = guard.reenter().await.expect("held");
        inner.unlock().await.expect("held");
        guard.unlock().await.expect("held");
        client.lock(name).lock().await.expect("free").unlock().await.expect("held");
        let _forced = client.lock(name).lock().await.expect("free");
        assert!(client.lock(name).force_unlock().await.expect("an answer"));
        let mut messages = listener.on_message();
        for end in 0..3 {
            let message =
                within(PROMPT, "one message for each end", messages.next()).await.expect("a message");
            assert_eq!(message.get_payload::<String>().unwrap(), "0", "end {end} of {name}");
        }
        let more = tokio::time::timeout(ms(50), messages.next()).await;
        assert!(more.is_err(), "none for the inner release");
    }
}

async fn a_redisson_hold_is_respected(rig: Rig) {
    let mut plain = rig.plain().await;
    let lock = rig.client().await.lock("orders");
    let owner = "cf1e0c1c-55aa-4f0f-8f43-5f3e1b3a9d11:42";
    let _: () = plain.hset("orders", owner, 1).await.unwrap();
    let _: () = plain.pexpire("orders", 20_000).await.unwrap();
    assert!(lock.try_lock().await.expect("an answer").is_none());
    let seen = lock.inspect().await.expect("an answer");
    assert_eq!((seen.holders[0].owner.as_str(), seen.holders[0].is_mine), (owner, false));
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    eventually("it listens", PROMPT, async || listeners(&rig, "redisson_lock__channel:{orders}").await == 1)
        .await;
    // As Redisson's unlock does it.
    let _: () = plain.del("orders").await.unwrap();
    let _: () = plain.publish("redisson_lock__channel:{orders}", "0").await.unwrap();
    within(PROMPT, "the message wakes it", task).await.expect("no panic").unlock().await.expect("held");
}

async fn listeners(rig: &Rig, channel: &str) -> u64 {
    let mut plain = rig.plain().await;
    let mut cmd = redis::cmd("PUBSUB");
    let (_, count): (String, u64) = cmd.arg("NUMSUB").arg(channel).query_async(&mut plain).await.unwrap();
    count
}

/// What the client sent, less what only the tests send.
fn sent(calls: &Calls) -> u64 {
    calls.of("evalsha") + calls.of("eval") + calls.of("subscribe") + calls.of("unsubscribe")
}

/// A client that has said who it is, which it does once and after its first lock.
async fn known_client(rig: &Rig, builder: Builder) -> KindClient {
    let client = rig.client_with(builder.poll(NO_POLL)).await;
    client.lock("first").lock().await.expect("free").unlock().await.expect("held");
    let key = format!("turnlock_client:{}", client.id());
    let has_said = async || rig.plain().await.exists(&key).await.expect("an answer");
    eventually("it has said so", ms(5_000), has_said).await;
    client
}

async fn a_pair_costs_two_calls(rig: Rig) {
    let client = known_client(&rig, Client::builder()).await;
    let before = rig.server().calls().await;
    for pair in 0..100 {
        let guard = client.lock(&format!("pair:{}", pair % 7)).lock().await.expect("free");
        guard.unlock().await.expect("held");
    }
    let spent = rig.server().calls().await.since(&before);
    assert_eq!(sent(&spent), 200);
    // A free lock: PTTL, HSET, PEXPIRE. A last release: HDEL, PUBLISH.
    for command in ["pttl", "hset", "pexpire", "hdel", "publish"] {
        assert_eq!(spent.of(command), 100, "{command}");
    }
    // An idle connection is asked whether it is there, on a slow machine also between two steps.
    assert_eq!(spent.total() - spent.of("ping"), 200 + 500, "{spent:?}");
}

async fn a_thousand_waiters_cost_what_two_cost(rig: Rig) {
    // Without local hand-over each turn is one of the store: it costs its two calls, however late the turns are.
    let builder = Client::builder().poll(NO_POLL).hand_over_window(Duration::ZERO);
    let lock = rig.client_with(builder).await.lock("herd");
    let few = calls_for_turns(&rig, &lock, 2).await;
    let many = calls_for_turns(&rig, &lock, 1_000).await;
    assert!(few <= 2.1, "{few} calls a turn with two waiters");
    assert!(many <= few + 0.1, "{many} calls a turn with a thousand waiters, {few} with two");
}

async fn calls_for_turns(rig: &Rig, lock: &Lock, waiters: usize) -> f64 {
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
    let before = rig.server().calls().await;
    held.unlock().await.expect("held");
    for task in tasks {
        task.await.expect("no panic");
    }
    let spent = rig.server().calls().await.since(&before);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let calls = sent(&spent) as f64 / TURNS as f64;
    calls
}

/// How many calls a thousand locks may cost since then, and in two periods at the least: four moments in each, and four batches of
/// 256 locks, spread over the moments.
fn most_batches(since: Instant, period: Duration) -> u64 {
    12 * u64::try_from(1 + since.elapsed().as_millis() / period.as_millis()).unwrap().max(2)
}

async fn renewals_go_out_in_batches(rig: Rig) {
    const LOCKS: usize = 1_000;
    const PERIOD: Duration = ms(3_000);
    let client = rig.client_with(Client::builder().watchdog(PERIOD * 3).poll(NO_POLL)).await;
    let mut guards = Vec::new();
    for lock in 0..LOCKS {
        guards.push(client.lock(&format!("held:{lock}")).lock().await.expect("free"));
    }
    let ends: Vec<Instant> = guards.iter().map(turnlock::Guard::valid_until).collect();
    let (start, before) = (Instant::now(), rig.server().calls().await);
    eventually("all were renewed", ms(15_000), async || {
        guards.iter().zip(&ends).all(|(guard, end)| guard.valid_until() > *end + ms(500))
    })
    .await;
    let spent = rig.server().calls().await.since(&before);
    assert!(sent(&spent) <= most_batches(start, PERIOD), "{} calls to renew {LOCKS} locks", sent(&spent));
    let (start, before) = (Instant::now(), rig.server().calls().await);
    let ends: Vec<Instant> = guards.iter().map(turnlock::Guard::valid_until).collect();
    eventually("and again", ms(15_000), async || {
        guards.iter().zip(&ends).all(|(guard, end)| guard.valid_until() > *end + ms(500))
    })
    .await;
    let spent = rig.server().calls().await.since(&before);
    assert!(sent(&spent) <= most_batches(start, PERIOD), "{} calls to renew {LOCKS} locks", sent(&spent));
    assert!(guards.iter().all(turnlock::Guard::is_valid));
}

async fn looks_at_fixed_leases_go_out_in_batches(rig: Rig) {
    const LOCKS: u64 = 1_000;
    const PERIOD: Duration = ms(4_000);
    let client = rig.client_with(Client::builder().watchdog(PERIOD * 3).poll(NO_POLL)).await;
    let mut guards = Vec::new();
    for lock in 0..LOCKS {
        let lease = ms(600_000 + lock);
        guards.push(client.lock(&format!("held:{lock}")).lease(lease).lock().await.expect("free"));
    }
    let (start, before) = (Instant::now(), rig.server().calls().await);
    eventually("all were looked at", ms(30_000), async || {
        rig.server().calls().await.since(&before).of("hexists") >= LOCKS
    })
    .await;
    let spent = rig.server().calls().await.since(&before);
    assert!(sent(&spent) <= most_batches(start, PERIOD), "{} calls to look at {LOCKS} locks", sent(&spent));
    assert_eq!(spent.of("pexpire"), 0, "a look changes nothing");
    assert!(guards.iter().all(turnlock::Guard::is_valid));
}

async fn a_renewal_touches_only_its_own(rig: Rig) {
    let mut plain = rig.plain().await;
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    // One lock is taken away and given to another with a short lease, one is replaced by something else entirely.
    let taken = client.lock("taken").lock().await.expect("free");
    let replaced = client.lock("replaced").lock().await.expect("free");
    let kept = client.lock("kept").lock().await.expect("free");
    let _: () = redis::pipe()
        .atomic()
        .del("taken")
        .hset("taken", "stranger:1", 1)
        .pexpire("taken", 60_000)
        .set("replaced", "a string")
        .query_async(&mut plain)
        .await
        .unwrap();
    within(ms(3_000), "the first is lost", taken.lost()).await;
    within(PROMPT, "the second cannot be renewed, and ends", replaced.lost()).await;
    assert!(kept.is_valid(), "the third is renewed beside them");
    let ttl: u64 = plain.pttl("taken").await.unwrap();
    assert!(ttl > 50_000, "the stranger's lease is as it was: {ttl}");
    let text: String = plain.get("replaced").await.unwrap();
    assert_eq!(text, "a string");
}

async fn a_subscription_outlives_its_last_waiter_for_a_moment(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let channel = "redisson_lock__channel:{linger}";
    let guard = one.lock("linger").lock().await.expect("free");
    let before = rig.server().calls().await;
    for _ in 0..20 {
        assert!(two.lock("linger").try_lock_for(ms(50)).await.expect("an answer").is_none());
    }
    let spent = rig.server().calls().await.since(&before);
    assert_eq!((spent.of("subscribe"), spent.of("unsubscribe")), (1, 0));
    assert_eq!(listeners(&rig, channel).await, 1);
    // Cancelled in the middle of it, too.
    for number in 0..20 {
        let name = format!("cancelled:{number}");
        let _held = one.lock(&name).lock().await.expect("free");
        let _ = tokio::time::timeout(std::time::Duration::from_micros(200 * number), two.lock(&name).lock())
            .await;
    }
    eventually("in the end all are given up", Duration::from_secs(20), async || {
        let mut cmd = redis::cmd("PUBSUB");
        let channels: Vec<String> = cmd.arg("CHANNELS").query_async(&mut rig.plain().await).await.unwrap();
        channels.is_empty()
    })
    .await;
    eventually("in the end it is given up", Duration::from_secs(20), async || {
        listeners(&rig, channel).await == 0
    })
    .await;
    // And comes back when it is needed again.
    let waiting = two.lock("linger");
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    eventually("it listens again", PROMPT, async || listeners(&rig, channel).await == 1).await;
    guard.unlock().await.expect("held");
    within(PROMPT, "the message wakes it", task).await.expect("no panic").unlock().await.expect("held");
}

async fn a_released_lock_is_not_renewed(rig: Rig) {
    let client = known_client(&rig, Client::builder().watchdog(ms(1_500))).await;
    for _ in 0..10 {
        client.lock("short").lock().await.expect("free").unlock().await.expect("held");
    }
    let before = rig.server().calls().await;
    // Three periods: what is not to happen cannot be awaited.
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!(sent(&rig.server().calls().await.since(&before)), 0);
}

async fn a_dropped_client_leaves_no_connection(rig: Rig) {
    let mut plain = rig.plain().await;
    let mut connections = async || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut plain).await.expect("a list");
        list.lines().count()
    };
    assert_eq!(connections().await, 1, "only the one that looks");
    for _ in 0..3 {
        let client = rig.client().await;
        assert_eq!(connections().await, 3, "one for commands, one for messages");
        let guard = client.lock("x").lock().await.expect("free");
        let waiting = client.lock("x");
        assert!(waiting.try_lock_for(ms(150)).await.expect("an answer").is_none());
        drop((client, waiting, guard));
        let blocking = tokio::task::spawn_blocking({
            let client = rig.blocking_client();
            move || drop(client.lock("y").lock().expect("free"))
        });
        blocking.await.expect("no panic");
        let start = Instant::now();
        while connections().await > 1 {
            in_time("no connection is left", start, ms(20_000));
            tokio::time::sleep(ms(10)).await;
        }
    }
    let keys = keys_of_locks(&mut plain).await;
    assert!(keys.is_empty(), "{keys:?}");
}
