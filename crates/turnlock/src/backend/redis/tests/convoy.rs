//! Steps that go together do what each of them does alone, and hear what each would have heard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisError, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;
use turnlock_core::model::{Acquired, Claim, Released, Wish};
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::{FaultProxy, RedisServer, within};

use super::histories::{CARE, lease};
use crate::backend::redis::link::{Link, Outcome};
use crate::backend::redis::script_call::{By, ScriptCall};
use crate::backend::redis::tests::{connected, connected_as};
use crate::backend::redis::topology::Topology;
use crate::backend::redis::trip::{self, Traveller};
use crate::backend::redis::{Access, Redis, Secret, plain, reentrant};
use crate::backend::{Answer, Backend, Caller, Care, Failure, FailureKind};

const LIMIT: Duration = Duration::from_secs(10);

/// Those that make the convoy form: they are under way, each by itself, when the others come up.
const ALONE: usize = 2;

fn lock_name(name: &str) -> LockName {
    LockName::of(Kind::Lock, "", name).expect("a good name")
}

fn owner(number: usize) -> OwnerId {
    OwnerId::from_wire(&format!("client:{number}"))
}

fn wish() -> Wish {
    Wish { lease: lease(30_000), waits: false, highest_token: 0 }
}

fn link(redis: &Redis) -> &Arc<Link> {
    let Topology::One(node) = &redis.topology else { panic!("one server") };
    &node.link
}

/// Acquires of locks with these names, each for an owner of its own, that come up at the same time.
async fn acquire_all(
    redis: &Redis,
    names: &[LockName],
    care: Care,
) -> Vec<Result<Answer<Acquired>, Failure>> {
    let acquire = |(number, name)| redis.acquire(Claim::new(name, &owner(number), 1), wish(), care.clone());
    join_all(names.iter().enumerate().map(acquire)).await
}

async fn release_all(redis: &Redis, names: &[LockName]) -> Vec<Result<Answer<Released>, Failure>> {
    let release = |(number, name)| redis.release(Claim::new(name, &owner(number), 0), LIMIT);
    join_all(names.iter().enumerate().map(release)).await
}

fn names(count: usize) -> Vec<LockName> {
    (0..count).map(|number| lock_name(&format!("lock:{number}"))).collect()
}

fn granted(answer: &Result<Answer<Acquired>, Failure>) -> bool {
    matches!(answer, Ok(Answer { value: Acquired::Granted, .. }))
}

#[tokio::test]
async fn what_comes_up_meanwhile_goes_together() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let names = names(64);
    let before = server.calls().await;
    assert!(acquire_all(&redis, &names, CARE).await.iter().all(granted));
    let freed = |answer: &Result<Answer<_>, _>| matches!(answer, Ok(Answer { value: Released::Freed, .. }));
    assert!(release_all(&redis, &names).await.iter().all(freed));
    let spent = server.calls().await.since(&before);
    // One for each of the two that came first, and two for all others; and the same again.
    assert_eq!((spent.of("evalsha"), spent.of("hset"), spent.of("hdel")), (8, 64, 64));
    assert_eq!(spent.of("pttl") + spent.of("pexpire") + spent.of("publish"), 3 * 64);
}

#[tokio::test]
async fn who_comes_alone_goes_alone() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let names = names(1);
    let before = server.calls().await;
    for _ in 0..10 {
        assert!(acquire_all(&redis, &names, CARE).await.iter().all(granted));
        assert!(release_all(&redis, &names).await[0].is_ok());
    }
    let spent = server.calls().await.since(&before);
    assert_eq!(spent.of("evalsha") + spent.of("eval"), 20);
    assert_eq!(spent.total(), 20 * 2 + 10 * 3, "five commands a pair inside the scripts: {spent:?}");
}

#[tokio::test]
async fn more_than_a_call_may_take_go_in_several() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let before = server.calls().await;
    assert!(acquire_all(&redis, &names(ALONE + 300), CARE).await.iter().all(granted));
    assert_eq!(server.calls().await.since(&before).of("evalsha"), 2 + 10);
}

#[tokio::test]
async fn a_bad_key_does_not_spoil_the_rest() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let mut plain = server.client().await;
    let names = names(6);
    let _: i64 = plain.rpush(names[2].key(), "not a lock").await.expect("an answer");
    let _: i64 = plain.hset(names[4].key(), owner(4).as_str(), "many").await.expect("an answer");
    let answers = acquire_all(&redis, &names, CARE).await;
    for (number, answer) in answers.iter().enumerate() {
        match answer {
            Err(Failure { kind: FailureKind::Corrupt { key, found }, in_doubt: None, .. }) => {
                assert!(number == 2 && found.contains("list") || number == 4 && found.contains("hold count"));
                assert_eq!(key, names[number].key());
            }
            answer => assert!(granted(answer) && ![2, 4].contains(&number), "{number}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_forbidden_key_does_not_spoil_the_rest() {
    let server = RedisServer::start().await;
    let rules = ["on", "nopass", "~lock:*", "&*", "+@all"];
    server.ask::<()>(&[&["ACL", "SETUSER", "limited"], &rules[..]].concat()).await.expect("a user");
    let access = Access {
        username: Some("limited".into()),
        password: Some(Secret::new("any")),
        ..Access::for_tests()
    };
    let redis = connected_as(server.port(), access).await;
    let mut names = names(5);
    names[3] = lock_name("another's");
    let answers = acquire_all(&redis, &names, CARE).await;
    for (number, answer) in answers.iter().enumerate() {
        match answer {
            Err(Failure { kind: FailureKind::Denied(_), in_doubt: None, .. }) => assert_eq!(number, 3),
            answer => assert!(granted(answer) && number != 3, "{number}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn a_forgotten_script_is_sent_again() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    server.ask::<()>(&["SCRIPT", "FLUSH"]).await.expect("an answer");
    let before = server.calls().await;
    assert!(acquire_all(&redis, &names(9), CARE).await.iter().all(granted));
    let spent = server.calls().await.since(&before);
    assert_eq!((spent.of("evalsha"), spent.of("eval"), spent.of("hset")), (3, 3, 9));
}

#[tokio::test]
async fn a_lost_answer_leaves_all_of_them_in_doubt() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let redis = connected_as(proxy.port(), Access::for_tests()).await;
    let names = names(8);
    proxy.swallow_replies_to(names[5].key().as_bytes());
    let answers = acquire_all(&redis, &names, CARE).await;
    proxy.fired().await;
    let mut connections = Vec::new();
    for answer in &answers[ALONE..] {
        let failure = answer.as_ref().expect_err("nobody was answered");
        connections.push(failure.in_doubt.expect("it was sent").connection);
    }
    assert_eq!(connections, [connections[0]; 6]);
    // They were done all the same, and what was done is found and undone.
    let released = release_all(&redis, &names).await;
    for answer in released {
        let answer = answer.expect("a new connection");
        assert_eq!(answer.value, Released::Freed);
        assert_ne!(answer.sent.connection, connections[0]);
    }
}

#[tokio::test]
async fn each_waits_no_longer_than_it_said() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    server.pause();
    let short = Care { limit: Duration::from_millis(100), ..CARE };
    let names = names(6);
    let patient = acquire_all(&redis, &names[..4], CARE);
    let impatient = acquire_all(&redis, &names[4..], short);
    let both = async {
        let mut patient = std::pin::pin!(patient);
        let impatient = tokio::select! {
            biased;
            _ = &mut patient => panic!("the server is paused"),
            answers = impatient => answers,
        };
        server.resume();
        (patient.await, impatient)
    };
    let (patient, impatient) = within(LIMIT, "all of them know", both).await;
    for answer in impatient {
        assert!(answer.expect_err("too late").in_doubt.is_some(), "it was sent, and may be done");
    }
    // The connection was given up with the first of them, for all.
    for answer in patient {
        assert!(granted(&answer) || answer.expect_err("given up").in_doubt.is_some());
    }
}

/// A step for a trip, and what becomes of it.
fn traveller(name: &LockName, until: Instant) -> (Traveller, oneshot::Receiver<Result<Outcome, Failure>>) {
    let (ticket, landing) = oneshot::channel();
    let call = reentrant::acquire(Claim::new(name, &owner(1), 1), wish());
    (Traveller { call, limit: LIMIT, until, ticket }, landing)
}

#[tokio::test]
async fn what_comes_too_late_is_never_sent() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let mut plain = server.client().await;
    let (now, names) = (Instant::now(), names(5));
    let (in_time, granted) = traveller(&names[0], now + LIMIT);
    let (late, too_late) = traveller(&names[1], now);
    let (gone, nobody) = traveller(&names[2], now + LIMIT);
    let (another, granted_too) = traveller(&names[3], now + LIMIT);
    let (mut given_up, told) = traveller(&names[4], now + LIMIT);
    given_up.call = given_up.call.asked_by(Caller::with(&Arc::new(())));
    drop(nobody);
    trip::go(link(&redis), vec![in_time, late, gone, another, given_up]).await;
    for answered in [granted, granted_too] {
        assert!(matches!(answered.await, Ok(Ok(Outcome::Answered(Value::Nil, _)))));
    }
    let failure = too_late.await.expect("told").err().expect("not sent");
    assert!(failure.in_doubt.is_none() && failure.to_string().contains("10s"), "{failure}");
    let failure = told.await.expect("told").err().expect("not sent");
    assert!(failure.in_doubt.is_none() && failure.to_string().contains("gone"), "{failure}");
    let mut keys: Vec<String> = plain.keys("*").await.expect("an answer");
    keys.sort();
    assert_eq!(keys, [names[0].key(), names[3].key()]);
}

/// One step of a history: of one of three owners, on one of the names.
#[derive(Clone, Debug)]
enum Op {
    Acquire { name: usize, owner: usize, target: u32, millis: u64 },
    Release { name: usize, owner: usize, target: u32 },
}

fn op() -> impl Strategy<Value = Op> {
    let of_one = (0..NAMES, 0..3_usize);
    prop_oneof![
        3 => (of_one.clone(), 1..4_u32, 2..6_u64).prop_map(|((name, owner), target, tens)| {
            Op::Acquire { name, owner, target, millis: tens * 10_000 }
        }),
        2 => (of_one, 0..3_u32).prop_map(|((name, owner), target)| Op::Release { name, owner, target }),
    ]
}

/// Two locks, two plain locks, and of each one at whose key something else stands.
const NAMES: usize = 7;

fn call(prefix: &str, op: &Op) -> ScriptCall {
    let of = |name: usize| {
        let kind = if name < 4 { Kind::Lock } else { Kind::Plain };
        LockName::of(kind, "", &format!("{prefix}:{name}")).expect("a good name")
    };
    match *op {
        Op::Acquire { name, owner: who, target, millis } => {
            let wish = Wish { lease: lease(millis), ..wish() };
            let (name, owner) = (of(name), owner(who));
            let is_plain = name.kind() == Kind::Plain;
            let acquire = if is_plain { plain::acquire } else { reentrant::acquire };
            acquire(Claim::new(&name, &owner, if is_plain { 1 } else { target }), wish)
        }
        Op::Release { name, owner: who, target } => {
            let (name, owner) = (of(name), owner(who));
            let is_plain = name.kind() == Kind::Plain;
            let release = if is_plain { plain::release } else { reentrant::release };
            release(Claim::new(&name, &owner, if is_plain { 0 } else { target }))
        }
    }
}

/// What stands at the keys that are no locks.
async fn prepare(plain: &mut MultiplexedConnection, prefix: &str) {
    let _: i64 = plain.rpush(format!("{prefix}:2"), "not a lock").await.expect("an answer");
    let _: i64 = plain.hset(format!("{prefix}:3"), owner(1).as_str(), "many").await.expect("an answer");
    let _: i64 = plain.sadd(format!("{prefix}:6"), "not a lock").await.expect("an answer");
}

/// An answer as far as two runs agree about it: what is left of a lease in tens of seconds, of an error the first word.
fn outline(outcome: Result<Value, RedisError>) -> String {
    match outcome {
        Ok(Value::Int(rest)) if rest > 1_000 => format!("about {} s", (rest + 5_000) / 10_000 * 10),
        Ok(Value::ServerError(error)) => error.code().to_owned(),
        Ok(value) => format!("{value:?}"),
        Err(error) => error.code().unwrap_or_default().to_owned(),
    }
}

/// All that is at the keys, leases in tens of seconds.
async fn picture(plain: &mut MultiplexedConnection, prefix: &str) -> Vec<String> {
    let mut picture = Vec::new();
    for name in 0..NAMES {
        let key = format!("{prefix}:{name}");
        let ttl: i64 = plain.pttl(&key).await.expect("an answer");
        let kind: String = plain.key_type::<_, redis::ValueType>(&key).await.expect("an answer").into();
        let mut fields: Vec<(String, String)> = Vec::new();
        let mut text: Option<String> = None;
        match kind.as_str() {
            "hash" => fields = plain.hgetall(&key).await.expect("an answer"),
            "string" => text = plain.get(&key).await.expect("an answer"),
            _ => {}
        }
        fields.sort();
        picture.push(format!("{kind} {fields:?} {text:?} {}", outline(Ok(Value::Int(ttl)))));
    }
    picture
}

#[test]
fn a_convoy_does_what_its_steps_do_alone() {
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
            let mut replies = Vec::new();
            for op in &ops {
                let outcome = link(&redis).ask(&call(&alone, op), false, LIMIT).await.expect("a connection");
                replies.push(outline(answered(outcome)));
            }
            let calls: Vec<_> = ops.iter().map(|op| call(&together, op)).collect();
            let cmd = ScriptCall::together(&calls.iter().collect::<Vec<_>>(), By::Hash);
            let outcome = link(&redis).command(&cmd, LIMIT).await.expect("a connection");
            let Ok(Value::Array(values)) = answered(outcome) else { panic!("a list") };
            let values: Vec<_> = values.into_iter().map(|value| outline(Ok(value))).collect();
            prop_assert_eq!(values, replies, "{:?}", ops);
            prop_assert_eq!(picture(&mut plain, &together).await, picture(&mut plain, &alone).await);
            Ok(())
        })
    });
    outcome.expect("the same");
}

fn answered(outcome: Outcome) -> Result<Value, RedisError> {
    match outcome {
        Outcome::Answered(value, _) => Ok(value),
        Outcome::Refused(error) => Err(error),
        Outcome::Unanswered(failure) => panic!("{failure}"),
    }
}
