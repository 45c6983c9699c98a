//! Batched steps have the effects and the replies that each of them has alone.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisError, Value};
use turnlock_core::model::{AcquireOptions, Acquired, Claim, Released, Step};
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::{FaultProxy, RedisServer, within};

use super::histories::{STEP_OPTIONS, lease};
use crate::connection::{Commands, Connection};
use crate::lua::ServerMode;
use crate::reply::Reply;
use crate::script_call::{By, ScriptCall};
use crate::store::Topology;
use crate::tests::{connected, connected_as};
use turnlock_store::Secret;

use crate::{Access, Redis, failure, steps};
use turnlock_store::{Caller, Failure, FailureKind, Sent, StepOptions, StepReply};

const LIMIT: Duration = Duration::from_secs(10);

/// The number of steps that are sent alone, before the others are batched.
const UNBATCHED: usize = 2;

fn lock_name(name: &str) -> LockName {
    LockName::of(Kind::Lock, "", name).expect("a good name")
}

fn owner(number: usize) -> OwnerId {
    OwnerId::from_wire(&format!("client:{number}"))
}

fn options() -> AcquireOptions {
    AcquireOptions { lease: lease(30_000), waits: false, highest_token: 0 }
}

fn connection(redis: &Redis) -> &Arc<Connection> {
    let Topology::One(node) = &redis.topology else { panic!("one server") };
    &node.connection
}

/// Acquires all locks at the same time, each for its own owner.
async fn acquire_all(
    redis: &Redis,
    names: &[LockName],
    step_options: StepOptions,
) -> Vec<Result<StepReply<Acquired>, Failure>> {
    let acquire =
        |(number, name)| redis.acquire(Claim::new(name, &owner(number), 1), options(), step_options.clone());
    join_all(names.iter().enumerate().map(acquire)).await
}

async fn release_all(redis: &Redis, names: &[LockName]) -> Vec<Result<StepReply<Released>, Failure>> {
    let release = |(number, name)| redis.release(Claim::new(name, &owner(number), 0), LIMIT);
    join_all(names.iter().enumerate().map(release)).await
}

fn names(count: usize) -> Vec<LockName> {
    (0..count).map(|number| lock_name(&format!("lock:{number}"))).collect()
}

fn granted(reply: &Result<StepReply<Acquired>, Failure>) -> bool {
    matches!(reply, Ok(StepReply { value: Acquired::Granted, .. }))
}

#[tokio::test]
async fn concurrent_steps_share_calls() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let names = names(64);
    let before = server.calls().await;
    assert!(acquire_all(&redis, &names, STEP_OPTIONS).await.iter().all(granted));
    let freed =
        |reply: &Result<StepReply<_>, _>| matches!(reply, Ok(StepReply { value: Released::Freed, .. }));
    assert!(release_all(&redis, &names).await.iter().all(freed));
    let spent = server.calls().await.since(&before);
    // At most one call for each of the first two, and two for all others; for acquires and for releases.
    assert!((4..=8).contains(&spent.of("evalsha")), "{spent:?}");
    assert_eq!((spent.of("hset"), spent.of("hdel")), (64, 64));
    assert_eq!(spent.of("pttl") + spent.of("pexpire") + spent.of("publish"), 3 * 64);
}

#[tokio::test]
async fn a_single_step_is_sent_alone() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let names = names(1);
    let before = server.calls().await;
    for _ in 0..10 {
        assert!(acquire_all(&redis, &names, STEP_OPTIONS).await.iter().all(granted));
        assert!(release_all(&redis, &names).await[0].is_ok());
    }
    let spent = server.calls().await.since(&before);
    assert_eq!(spent.of("evalsha") + spent.of("eval"), 20);
    assert_eq!(spent.total(), 20 * 2 + 10 * 3, "five commands a pair inside the scripts: {spent:?}");
}

#[tokio::test]
async fn more_steps_than_one_batch_holds_use_several_calls() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let before = server.calls().await;
    assert!(acquire_all(&redis, &names(UNBATCHED + 300), STEP_OPTIONS).await.iter().all(granted));
    assert_eq!(server.calls().await.since(&before).of("evalsha"), 2 + 10);
}

#[tokio::test]
async fn a_corrupt_key_fails_only_its_own_step() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let mut plain = server.client().await;
    let names = names(6);
    let _: i64 = plain.rpush(names[2].key(), "not a lock").await.expect("a reply");
    let _: i64 = plain.hset(names[4].key(), owner(4).as_str(), "many").await.expect("a reply");
    let outcomes = acquire_all(&redis, &names, STEP_OPTIONS).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Err(Failure { kind: FailureKind::NotALock { key, found }, in_doubt: None, .. }) => {
                assert!(number == 2 && found.contains("list") || number == 4 && found.contains("hold count"));
                assert_eq!(key, names[number].key());
            }
            outcome => assert!(granted(outcome) && ![2, 4].contains(&number), "{number}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_denied_key_fails_only_its_own_step() {
    let server = RedisServer::start().await;
    let rules = ["on", "nopass", "~lock:*", "&*", "+@all"];
    server.query::<()>(&[&["ACL", "SETUSER", "limited"], &rules[..]].concat()).await.expect("a user");
    let access = Access {
        username: Some("limited".into()),
        password: Some(Secret::new("any")),
        ..Access::for_tests()
    };
    let redis = connected_as(server.port(), access).await;
    let mut names = names(5);
    names[3] = lock_name("another's");
    let outcomes = acquire_all(&redis, &names, STEP_OPTIONS).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Err(Failure { kind: FailureKind::Denied(_), in_doubt: None, .. }) => assert_eq!(number, 3),
            outcome => assert!(granted(outcome) && number != 3, "{number}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn an_unknown_script_is_sent_by_its_text() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    server.query::<()>(&["SCRIPT", "FLUSH"]).await.expect("a reply");
    let before = server.calls().await;
    assert!(acquire_all(&redis, &names(9), STEP_OPTIONS).await.iter().all(granted));
    let spent = server.calls().await.since(&before);
    assert_eq!((spent.of("evalsha"), spent.of("eval"), spent.of("hset")), (3, 3, 9));
}

#[tokio::test]
async fn a_lost_reply_leaves_all_steps_of_a_batch_in_doubt() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let redis = connected_as(proxy.port(), Access::for_tests()).await;
    let names = names(8);
    proxy.swallow_replies_to(names[5].key().as_bytes());
    let outcomes = acquire_all(&redis, &names, STEP_OPTIONS).await;
    proxy.fired().await;
    let mut connections = Vec::new();
    for outcome in &outcomes[UNBATCHED..] {
        let failure = outcome.as_ref().expect_err("there was no reply");
        connections.push(failure.in_doubt.expect("it was sent").connection);
    }
    assert_eq!(connections, [connections[0]; 6]);
    // The steps were done nevertheless, and a release undoes them.
    let released = release_all(&redis, &names).await;
    for outcome in released {
        let outcome = outcome.expect("a new connection");
        assert_eq!(outcome.value, Released::Freed);
        assert_ne!(outcome.sent.connection, connections[0]);
    }
}

#[tokio::test]
async fn each_step_waits_at_most_for_its_own_limit() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    server.pause();
    let short = StepOptions { limit: Duration::from_millis(100), ..STEP_OPTIONS };
    let names = names(6);
    let patient = acquire_all(&redis, &names[..4], STEP_OPTIONS);
    let impatient = acquire_all(&redis, &names[4..], short);
    let both = async {
        let mut patient = std::pin::pin!(patient);
        let impatient = tokio::select! {
            biased;
            _ = &mut patient => panic!("the server is paused"),
            outcomes = impatient => outcomes,
        };
        server.resume();
        (patient.await, impatient)
    };
    let (patient, impatient) = within(LIMIT, "all outcomes", both).await;
    for outcome in impatient {
        assert!(outcome.expect_err("too late").in_doubt.is_some(), "it was sent, so it is in doubt");
    }
    // A time-out ends the use of the connection, but the steps that were sent on it still get their replies.
    assert!(patient.iter().all(granted), "{patient:?}");
}

#[tokio::test]
async fn what_the_socket_does_not_take_at_once_is_sent_later() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let connection = connection(&redis);
    let live = connection.live().await.expect("a connection");
    server.pause();
    // More than the kernel buffers.
    let text = "x".repeat(1_000_000);
    let pings = (0..20).map(|number| redis::cmd("PING").arg(format!("{number}{text}")).take());
    let replies: Vec<_> =
        pings.map(|ping| connection.send(&live, Commands::one(&ping), Duration::from_secs(60))).collect();
    server.resume();
    let replies = within(Duration::from_secs(60), "all replies", join_all(replies)).await;
    for (number, reply) in replies.into_iter().enumerate() {
        let Ok(Value::BulkString(echo)) = reply_of(reply) else { panic!("a text") };
        assert!(echo == format!("{number}{text}").as_bytes(), "reply {number}");
    }
}

#[tokio::test]
async fn a_step_whose_caller_gave_up_is_not_sent_again() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    // The server refuses all calls by hash, after the third step has timed out.
    server.query::<()>(&["SCRIPT", "FLUSH"]).await.expect("a reply");
    server.pause();
    let names = names(UNBATCHED + 2);
    let acquire = |number: usize, limit| {
        let claim = Claim::new(&names[number], &owner(number), 1);
        redis.acquire(claim, options(), StepOptions { limit, ..STEP_OPTIONS })
    };
    let patient = join_all([acquire(0, LIMIT), acquire(1, LIMIT), acquire(3, LIMIT)]);
    let impatient = acquire(2, Duration::from_millis(100));
    let (patient, ()) = tokio::join!(patient, async {
        assert!(impatient.await.expect_err("too late").in_doubt.is_some());
        server.resume();
    });
    assert!(patient.iter().all(granted), "{patient:?}");
    let mut keys: Vec<String> = server.client().await.keys("*").await.expect("a reply");
    keys.sort();
    assert_eq!(keys, [0, 1, 3].map(|number| names[number].key()));
}

fn script_call(step: Step) -> Arc<ScriptCall> {
    Arc::new(steps::script_call(&[step]).expect("a call"))
}

/// Polls steps once. The first two are sent, and the others queued, until the test waits.
async fn poll_once<F: Future<Output: std::fmt::Debug> + Unpin>(steps: impl IntoIterator<Item = F>) -> Vec<F> {
    let mut steps: Vec<_> = steps.into_iter().collect();
    for step in &mut steps {
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut *step).poll(context))).await;
        assert!(polled.is_pending(), "{polled:?}");
    }
    steps
}

#[tokio::test]
async fn a_queued_step_is_sent_on_the_next_connection() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let names = names(UNBATCHED + 2);
    let acquire = |(number, name)| {
        Box::pin(redis.acquire(Claim::new(name, &owner(number), 1), options(), STEP_OPTIONS))
    };
    let before = server.calls().await;
    let steps = poll_once(names.iter().enumerate().map(acquire)).await;
    let live = connection(&redis).live().await.expect("a connection");
    let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset).into();
    connection(&redis).classify(&live, broken, Sent::never());
    let replies = join_all(steps).await;
    assert!(replies.iter().all(granted), "{replies:?}");
    let numbers: Vec<_> = replies.into_iter().map(|reply| reply.expect("a grant").sent.connection).collect();
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(numbers[2], numbers[3]);
    assert_ne!(numbers[1], numbers[2]);
    assert_eq!(server.calls().await.since(&before).of("hset"), 4, "each step was done once");
}

#[tokio::test]
async fn a_step_past_its_deadline_or_without_caller_is_never_sent() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let (names, presence) = (names(UNBATCHED + 5), Arc::new(AtomicBool::new(false)));
    let acquire = |number: usize, limit, caller| {
        let claim = Claim::new(&names[number], &owner(number), 1);
        redis.acquire(claim, options(), StepOptions { limit, replicas: 0, caller })
    };
    let limits = [LIMIT, LIMIT, LIMIT, Duration::ZERO, LIMIT, LIMIT, LIMIT];
    let caller = |number| if number == 6 { Caller::with(presence.clone()) } else { Caller::ENGINE };
    let steps = limits.iter().enumerate().map(|(number, limit)| acquire(number, *limit, caller(number)));
    let mut steps = poll_once(steps.map(Box::pin)).await;
    presence.store(true, Ordering::Release);
    drop(steps.remove(4));
    let cancelled = steps.pop().expect("a step").await.expect_err("its caller is gone");
    assert!(cancelled.in_doubt.is_none() && cancelled.to_string().contains("its caller was dropped"));
    let late = steps.remove(3).await.expect_err("too late");
    assert!(late.in_doubt.is_none() && late.to_string().contains("not sent within 0ns"), "{late}");
    assert!(join_all(steps).await.iter().all(granted));
    let mut keys: Vec<String> = server.client().await.keys("*").await.expect("a reply");
    keys.sort();
    assert_eq!(keys, [0, 1, 2, 5].map(|number| names[number].key()));
}

/// One step of a history, of one of three owners on one of the names.
#[derive(Clone, Debug)]
enum Op {
    Acquire { name: usize, owner: usize, target: u32, millis: u64 },
    Release { name: usize, owner: usize, target: u32 },
}

fn op() -> impl Strategy<Value = Op> {
    let claim = (0..NAMES, 0..3_usize);
    prop_oneof![
        3 => (claim.clone(), 1..4_u32, 2..6_u64).prop_map(|((name, owner), target, tens)| {
            Op::Acquire { name, owner, target, millis: tens * 10_000 }
        }),
        2 => (claim, 0..3_u32).prop_map(|((name, owner), target)| Op::Release { name, owner, target }),
    ]
}

/// Two locks, two plain locks, and three names with a foreign value at their key.
const NAMES: usize = 7;

fn call(prefix: &str, op: &Op) -> Arc<ScriptCall> {
    let of = |name: usize| {
        let kind = if name < 4 { Kind::Lock } else { Kind::Plain };
        LockName::of(kind, "", &format!("{prefix}:{name}")).expect("a good name")
    };
    match *op {
        Op::Acquire { name, owner: number, target, millis } => {
            let options = AcquireOptions { lease: lease(millis), ..options() };
            let (name, owner) = (of(name), owner(number));
            let is_plain = name.kind() == Kind::Plain;
            let claim = Claim::new(&name, &owner, if is_plain { 1 } else { target });
            script_call(Step::Acquire(claim, options))
        }
        Op::Release { name, owner: number, target } => {
            let (name, owner) = (of(name), owner(number));
            let is_plain = name.kind() == Kind::Plain;
            script_call(Step::Release(Claim::new(&name, &owner, if is_plain { 0 } else { target })))
        }
    }
}

/// Writes foreign values to the keys that are no locks.
async fn prepare(plain: &mut MultiplexedConnection, prefix: &str) {
    let _: i64 = plain.rpush(format!("{prefix}:2"), "not a lock").await.expect("a reply");
    let _: i64 = plain.hset(format!("{prefix}:3"), owner(1).as_str(), "many").await.expect("a reply");
    let _: i64 = plain.sadd(format!("{prefix}:6"), "not a lock").await.expect("a reply");
}

/// Reduces a reply to what two runs have in common: a rest of a lease to tens of seconds, an error to its code.
fn outline(outcome: Result<Value, RedisError>) -> String {
    match outcome {
        Ok(Value::Int(rest)) if rest > 1_000 => format!("about {} s", (rest + 5_000) / 10_000 * 10),
        Ok(Value::ServerError(error)) => error.code().to_owned(),
        Ok(value) => format!("{value:?}"),
        Err(error) => error.code().unwrap_or_default().to_owned(),
    }
}

/// Reads all keys, with leases in tens of seconds.
async fn contents(plain: &mut MultiplexedConnection, prefix: &str) -> Vec<String> {
    let mut contents = Vec::new();
    for name in 0..NAMES {
        let key = format!("{prefix}:{name}");
        let ttl: i64 = plain.pttl(&key).await.expect("a reply");
        let kind: String = plain.key_type::<_, redis::ValueType>(&key).await.expect("a reply").into();
        let mut fields: Vec<(String, String)> = Vec::new();
        let mut text: Option<String> = None;
        match kind.as_str() {
            "hash" => fields = plain.hgetall(&key).await.expect("a reply"),
            "string" => text = plain.get(&key).await.expect("a reply"),
            _ => {}
        }
        fields.sort();
        contents.push(format!("{kind} {fields:?} {text:?} {}", outline(Ok(Value::Int(ttl)))));
    }
    contents
}

#[test]
fn a_batch_does_what_its_steps_do_alone() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(RedisServer::start());
    let (redis, plain) = runtime.block_on(async { (connected(&server).await, server.client().await) });
    let histories = AtomicU64::new(0);
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&proptest::collection::vec(op(), 2..40), |ops| {
        let number = histories.fetch_add(1, Ordering::Relaxed);
        let (alone, together) = (format!("alone:{number}"), format!("together:{number}"));
        runtime.block_on(async {
            let mut plain = plain.clone();
            prepare(&mut plain, &alone).await;
            prepare(&mut plain, &together).await;
            let mut alone_replies = Vec::new();
            for op in &ops {
                let outcome = connection(&redis).call(&call(&alone, op), false, LIMIT).await;
                alone_replies.push(outline(reply_of(outcome)));
            }
            let calls: Vec<_> = ops.iter().map(|op| call(&together, op)).collect();
            let mut packed = Vec::new();
            let all = calls.iter().map(|call| &**call);
            ScriptCall::encode_batch(all, By::Hash, ServerMode::Standalone, &mut packed);
            let live = connection(&redis).live().await.expect("a connection");
            let outcome = connection(&redis).send(&live, Commands::packed(packed, 1), LIMIT).await;
            let Ok(Value::Array(mut replies)) = reply_of(outcome) else { panic!("a list of one reply") };
            let Some(Value::Array(values)) = replies.pop() else { panic!("a list") };
            let values: Vec<_> = values.into_iter().map(|value| outline(Ok(value))).collect();
            prop_assert_eq!(values, alone_replies, "{:?}", ops);
            prop_assert_eq!(contents(&mut plain, &together).await, contents(&mut plain, &alone).await);
            Ok(())
        })
    });
    outcome.expect("the same");
}

fn reply_of(outcome: Result<Reply, Failure>) -> Result<Value, RedisError> {
    match outcome {
        Ok(reply) => Ok(reply.value),
        Err(failure) => Err(failure::error_reply(&failure).unwrap_or_else(|| panic!("{failure}")).clone()),
    }
}
