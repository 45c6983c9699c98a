use std::time::Duration;

use futures_util::StreamExt;
use proptest::prelude::*;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Cmd, FromRedisValue};
use turnlock_core::model::{
    AcquireOptions, Acquired, Claim, Item, Released, Renewed, Reply, Role, Snapshot, Step,
};
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use super::histories::{
    OWNERS, Op, STEP_OPTIONS, assert_scripts_match_model, lease, leases, unlock_after_leases,
};
use crate::Redis;
use crate::tests::connected;
use turnlock_store::FailureKind;

const LIMIT: Duration = Duration::from_secs(10);

/// More holds than any reader has in a history.
const MAX_HOLDS: usize = 5;

fn op() -> impl Strategy<Value = Op> {
    // Mostly the same owner writes, so that it is granted the write hold, and others read under it.
    let writer = prop_oneof![3 => Just(0), 1 => 0..OWNERS];
    let side = prop_oneof![
        2 => (Just(Kind::Read), (0..OWNERS).boxed()),
        1 => (Just(Kind::Write), writer.clone().boxed()),
    ];
    let kind = proptest::sample::select(&[Kind::Read, Kind::Write][..]);
    let lease = leases(5..60);
    let under = proptest::option::of(writer);
    let target = prop_oneof![3 => Just(1), 2 => 1..4_u32];
    prop_oneof![
        10 => (side.clone(), target, lease.clone(), under, any::<bool>()).prop_map(
            |((kind, owner), target, lease, under, waits)| {
                Op::Acquire { kind, owner, target, lease, permits: 1, under, waits }
            }
        ),
        6 => (side.clone(), 0..3_u32, any::<bool>()).prop_map(|((kind, owner), target, unsure)| {
            Op::Release { kind, owner, target, permits: 1, unsure }
        }),
        3 => (side.clone(), proptest::option::of(lease))
            .prop_map(|((kind, owner), lease)| Op::Renew { kind, owner, permits: 1, lease }),
        3 => (side, unlock_after_leases(5..60))
            .prop_map(|((kind, owner), lease)| Op::UnlockAfter { kind, owner, permits: 1, lease }),
        1 => kind.prop_map(|kind| Op::ForceUnlock { kind }),
        // A fifth of all steps: expiry is where locks go wrong.
        5 => (0..OWNERS + 2).prop_map(|what| Op::Expire { what }),
    ]
}

#[test]
fn the_two_sides_of_a_read_write_lock_match_the_model() {
    assert_scripts_match_model(Kind::Read, 250, op(), |model, what, case| {
        Box::pin(async move {
            let Item::ReadWrite(state) = model else { return };
            let holds = |owner: &OwnerId| {
                let owner = owner.clone();
                (1..=MAX_HOLDS).map(move |number| hold_key(&case.name, &owner, number))
            };
            let keys: Vec<String> = match what {
                0 => {
                    state.expire();
                    let holds = case.owners.iter().flat_map(holds);
                    std::iter::once(case.name.key().to_owned()).chain(holds).collect()
                }
                1..=OWNERS => {
                    state.expire_reader(&case.owners[what - 1]);
                    holds(&case.owners[what - 1]).collect()
                }
                _ => {
                    state.expire_writer_intent();
                    vec![intent_key(&case.name)]
                }
            };
            for key in keys {
                let _: bool = case.raw.clone().pexpire_at(key, 1).await.expect("a reply");
            }
        })
    });
}

fn hold_key(name: &LockName, owner: &OwnerId, number: usize) -> String {
    name.below(&format!("{owner}:rwlock_timeout:{number}"))
}

fn intent_key(name: &LockName) -> String {
    name.beside("turnlock_writer_waits")
}

/// A read-write lock on its own server.
struct Fixture {
    redis: Redis,
    raw: MultiplexedConnection,
    server: RedisServer,
}

impl Fixture {
    async fn start() -> Self {
        let server = RedisServer::start().await;
        let redis = connected(&server).await;
        Self { redis, raw: server.client().await, server }
    }

    async fn acquire(
        &self,
        side: Kind,
        owner: &str,
        under: Option<&str>,
        target: u32,
        millis: u64,
    ) -> Acquired {
        let (name, owner, under) = (name(side), OwnerId::from_wire(owner), under.map(OwnerId::from_wire));
        let claim = Claim { under: under.map(Box::new), ..Claim::new(&name, &owner, target) };
        let options = AcquireOptions { lease: lease(millis), waits: true, highest_token: 0 };
        self.redis.acquire(claim, options, STEP_OPTIONS).await.expect("a reply").value
    }

    async fn release(&self, side: Kind, owner: &str, target: u32) -> Released {
        let (name, owner) = (name(side), OwnerId::from_wire(owner));
        self.redis.release(Claim::new(&name, &owner, target), LIMIT).await.expect("a reply").value
    }

    async fn renew(&self, lines: &[(Kind, &str, &str)], millis: u64) -> Vec<Option<Renewed>> {
        let step = |&(side, key, owner): &(Kind, &str, &str)| {
            let name = LockName::of(side, "", key).expect("a good name");
            Step::Renew(Claim::new(&name, &OwnerId::from_wire(owner), 1), Some(lease(millis)))
        };
        let steps = lines.iter().map(step).collect();
        let replies = self.redis.call_batch(steps, STEP_OPTIONS).await.expect("a reply").value;
        let renewed = |reply| match reply {
            Reply::Renewed(renewed) => renewed,
            other => panic!("the reply to a renewal, and not {other:?}"),
        };
        replies.into_iter().map(|reply| reply.map(renewed)).collect()
    }

    async fn snapshot(&self) -> Snapshot {
        self.redis.inspect(&name(Kind::Read), LIMIT).await.expect("a reply").value
    }

    /// Returns `true` if the whole lock lasts about that long.
    async fn lasts(&self, millis: u64) -> bool {
        let ttl = self.snapshot().await.ttl.expect("an end");
        ttl <= Duration::from_millis(millis) && ttl > Duration::from_millis(millis - 3_000)
    }

    /// Runs a command as another client.
    async fn run<T: FromRedisValue>(&self, command: &str) -> T {
        let mut cmd = Cmd::new();
        for arg in command.split(' ') {
            cmd.arg(arg);
        }
        cmd.query_async(&mut self.raw.clone()).await.expect(command)
    }

    /// Returns all keys of the server, sorted.
    async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run("KEYS *").await;
        keys.sort();
        keys
    }
}

fn name(side: Kind) -> LockName {
    LockName::of(side, "", "n").expect("a good name")
}

#[tokio::test]
async fn an_expired_redisson_reader_does_not_block_a_writer() {
    let fixture = Fixture::start().await;
    let _: i64 = fixture.run("HSET n mode read java:7 2").await;
    let _: i64 = fixture.run("PEXPIRE n 60000").await;
    let _: String = fixture.run("SET {n}:java:7:rwlock_timeout:2 1 PX 60000").await;
    assert!(matches!(fixture.acquire(Kind::Write, "w", None, 1, 9_000).await, Acquired::Busy { .. }));
    assert_eq!(fixture.snapshot().await.holders[0].count, 2);
    let _: i64 = fixture.run("DEL {n}:java:7:rwlock_timeout:2").await;
    assert_eq!(fixture.acquire(Kind::Write, "w", None, 1, 9_000).await, Acquired::Granted);
    // It has written its intent, and deleted it.
    assert_eq!(fixture.keys().await, ["n"]);
    assert!(fixture.lasts(9_000).await);
    let fields: Vec<(String, String)> = fixture.run("HGETALL n").await;
    assert_eq!(fields.len(), 2);
}

#[tokio::test]
async fn a_release_removes_expired_readers() {
    let fixture = Fixture::start().await;
    fixture.acquire(Kind::Read, "r", None, 1, 60_000).await;
    fixture.acquire(Kind::Read, "s", None, 1, 9_000).await;
    let _: i64 = fixture.run("HSET n java:7 1").await;
    assert_eq!(fixture.release(Kind::Read, "r", 0).await, Released::Freed);
    let mut fields: Vec<String> = fixture.run("HKEYS n").await;
    fields.sort();
    assert_eq!(fields, ["mode", "s"]);
    assert_eq!(fixture.keys().await, ["n", "{n}:s:rwlock_timeout:1"]);
    assert!(fixture.lasts(9_000).await);
}

#[tokio::test]
async fn a_renewal_restores_an_expiry_that_redisson_shortened() {
    let fixture = Fixture::start().await;
    assert_eq!(fixture.acquire(Kind::Read, "r", None, 1, 60_000).await, Acquired::Granted);
    // Redisson renews its own reader, and sets the expiry of the whole lock to its watchdog's time-out.
    let _: i64 = fixture.run("PEXPIRE n 5000").await;
    assert_eq!(fixture.renew(&[(Kind::Read, "n", "r")], 60_000).await, [Some(Renewed::Renewed)]);
    assert!(fixture.lasts(60_000).await);
    // Also by a renewal with a lease that is shorter than the remaining one.
    let _: i64 = fixture.run("PEXPIRE n 5000").await;
    assert_eq!(fixture.renew(&[(Kind::Read, "n", "r")], 1_000).await, [Some(Renewed::Longer)]);
    assert!(fixture.lasts(60_000).await);
}

#[tokio::test]
async fn a_read_hold_under_a_write_lock_does_not_shorten_it() {
    let fixture = Fixture::start().await;
    fixture.acquire(Kind::Write, "w", None, 1, 60_000).await;
    fixture.acquire(Kind::Read, "r", Some("w"), 1, 5_000).await;
    fixture.acquire(Kind::Read, "r", Some("w"), 2, 5_000).await;
    fixture.acquire(Kind::Read, "s", Some("w"), 1, 5_000).await;
    assert_eq!(fixture.release(Kind::Read, "r", 1).await, Released::StillHeld);
    assert_eq!(fixture.release(Kind::Read, "s", 0).await, Released::Freed);
    assert!(fixture.lasts(60_000).await);
    // The writer releases, and the reader continues alone.
    assert_eq!(fixture.release(Kind::Write, "w", 0).await, Released::Freed);
    assert!(fixture.lasts(5_000).await);
    assert_eq!(fixture.release(Kind::Read, "r", 0).await, Released::Freed);
    assert!(fixture.keys().await.is_empty());
}

#[tokio::test]
async fn the_longest_lease_of_a_reader_outlives_its_inner_holds() {
    let fixture = Fixture::start().await;
    fixture.acquire(Kind::Read, "r", None, 1, 5_000).await;
    for target in [2, 3] {
        fixture.acquire(Kind::Read, "r", None, target, 5_000).await;
    }
    let _: i64 = fixture.run("PEXPIRE {n}:r:rwlock_timeout:3 60000").await;
    let _: i64 = fixture.run("PEXPIRE n 60000").await;
    assert_eq!(fixture.release(Kind::Read, "r", 1).await, Released::StillHeld);
    assert_eq!(fixture.keys().await, ["n", "{n}:r:rwlock_timeout:1"]);
    let ttl = fixture.snapshot().await.holders[0].ttl.expect("a lease");
    assert!(ttl > Duration::from_secs(50), "{ttl:?}");
}

#[tokio::test]
async fn out_of_memory_every_hold_can_be_released() {
    let fixture = Fixture::start().await;
    fixture.acquire(Kind::Write, "w", None, 1, 60_000).await;
    fixture.acquire(Kind::Write, "w", None, 2, 60_000).await;
    fixture.acquire(Kind::Read, "r", Some("w"), 1, 60_000).await;
    fixture.acquire(Kind::Read, "r", Some("w"), 2, 60_000).await;
    let _: i64 = fixture.run("DEL {n}:r:rwlock_timeout:1").await;
    let _: String = fixture.run("CONFIG SET maxmemory 1").await;
    assert_eq!(fixture.release(Kind::Read, "r", 1).await, Released::StillHeld);
    assert_eq!(fixture.keys().await, ["n", "{n}:r:rwlock_timeout:1"]);
    assert_eq!(fixture.release(Kind::Write, "w", 1).await, Released::StillHeld);
    assert_eq!(
        fixture.renew(&[(Kind::Read, "n", "r"), (Kind::Write, "n", "w")], 70_000).await,
        [Some(Renewed::Renewed); 2]
    );
    assert_eq!(fixture.release(Kind::Write, "w", 0).await, Released::Freed);
    // The reader is protected, and the mode is read.
    assert!(fixture.lasts(70_000).await);
    let mode: String = fixture.run("HGET n mode").await;
    assert_eq!(mode, "read");
    assert!(matches!(fixture.acquire(Kind::Write, "v", None, 1, 60_000).await, Acquired::Busy { .. }));
    assert_eq!(fixture.release(Kind::Read, "r", 0).await, Released::Freed);
    assert!(fixture.keys().await.is_empty());
}

#[tokio::test]
async fn a_key_that_is_not_a_read_write_lock_is_not_changed() {
    let fixture = Fixture::start().await;
    let plant =
        ["SET n text", "HSET n owner 1", "HSET n mode read owner many", "HSET n mode read owner 99999999"];
    for command in plant {
        let _: redis::Value = fixture.run(command).await;
        let before: Vec<u8> = fixture.run("DUMP n").await;
        for side in [Kind::Read, Kind::Write] {
            let (name, owner) = (name(side), OwnerId::from_wire("owner"));
            let claim = Claim::new(&name, &owner, 1);
            let options = AcquireOptions { lease: lease(9_000), waits: true, highest_token: 0 };
            let corrupt = |what: &str, kind: FailureKind| {
                assert!(matches!(kind, FailureKind::NotALock { .. }), "{command}: {what}: {kind:?}");
            };
            corrupt(
                "acquire",
                fixture.redis.acquire(claim.clone(), options, STEP_OPTIONS).await.expect_err("no lock").kind,
            );
            corrupt("release", fixture.redis.release(claim, LIMIT).await.expect_err("no lock").kind);
            corrupt("inspect", fixture.redis.inspect(&name, LIMIT).await.expect_err("no lock").kind);
        }
        let after: Vec<u8> = fixture.run("DUMP n").await;
        assert_eq!(before, after, "{command}");
        let forced = fixture.redis.force_unlock(&name(Kind::Read), LIMIT).await;
        // A hash with a mode can be unlocked by force whatever its counts are; nothing else can.
        assert_eq!(forced.is_ok_and(|reply| reply.value), command.contains("mode"), "{command}");
        let _: i64 = fixture.run("DEL n").await;
    }
    assert!(fixture.keys().await.is_empty());
}

#[tokio::test]
async fn the_payload_of_a_message_is_the_released_side() {
    let fixture = Fixture::start().await;
    let client = redis::Client::open(fixture.server.url()).expect("a good URL");
    let mut pubsub = client.get_async_pubsub().await.expect("a connection");
    pubsub.subscribe(&["redisson_rwlock:{n}", "done"]).await.expect("subscribed");
    fixture.acquire(Kind::Read, "r", None, 1, 9_000).await;
    fixture.acquire(Kind::Read, "s", None, 1, 9_000).await;
    // One of two readers releases, a writer gives up, the other reader releases, a writer releases with a
    // reader under it, and that reader is unlocked by force.
    fixture.release(Kind::Read, "s", 0).await;
    fixture.acquire(Kind::Write, "w", None, 1, 9_000).await;
    fixture.release(Kind::Write, "w", 0).await;
    fixture.release(Kind::Read, "r", 0).await;
    fixture.acquire(Kind::Write, "w", None, 1, 9_000).await;
    fixture.acquire(Kind::Read, "r", Some("w"), 1, 9_000).await;
    fixture.release(Kind::Write, "w", 0).await;
    fixture.redis.force_unlock(&name(Kind::Read), LIMIT).await.expect("a reply");
    let _: i64 = fixture.run("PUBLISH done .").await;
    let payloads = pubsub.on_message().map(|message| message.get_payload::<String>().expect("a text"));
    let payloads: Vec<_> = payloads.take_while(|payload| std::future::ready(payload != ".")).collect().await;
    assert_eq!(payloads, ["1", "0", "1", "0"]);
}

#[tokio::test]
async fn in_a_batch_each_hold_has_its_own_outcome() {
    let fixture = Fixture::start().await;
    let _: String = fixture.run("SET text text").await;
    let _: i64 = fixture.run("HSET bad mode read r many").await;
    fixture.acquire(Kind::Write, "w", None, 1, 9_000).await;
    fixture.acquire(Kind::Read, "r", Some("w"), 1, 9_000).await;
    let lines = [
        (Kind::Read, "text", "r"),
        (Kind::Write, "n", "w"),
        (Kind::Read, "bad", "r"),
        (Kind::Read, "n", "r"),
        (Kind::Read, "n", "w"),
        (Kind::Write, "absent", "w"),
    ];
    let (held, not) = (Some(Renewed::Renewed), Some(Renewed::NotHeld));
    assert_eq!(fixture.renew(&lines, 60_000).await, [None, held, None, held, not, not]);
    assert!(fixture.lasts(60_000).await);
}

#[tokio::test]
async fn a_user_without_permissions_leaves_no_lock_behind_and_can_release() {
    let fixture = Fixture::start().await;
    let _: String = fixture.run("ACL SETUSER default -pexpire").await;
    for side in [Kind::Read, Kind::Write] {
        let (name, owner) = (name(side), OwnerId::from_wire("a"));
        let options = AcquireOptions { lease: lease(9_000), waits: true, highest_token: 0 };
        let refused = fixture.redis.acquire(Claim::new(&name, &owner, 1), options, STEP_OPTIONS).await;
        assert!(matches!(refused.expect_err("refused").kind, FailureKind::Denied(_)));
        assert!(fixture.keys().await.is_empty());
    }
    let _: String = fixture.run("ACL SETUSER default +pexpire -publish").await;
    for side in [Kind::Read, Kind::Write] {
        assert_eq!(fixture.acquire(side, "a", None, 1, 9_000).await, Acquired::Granted);
        assert_eq!(fixture.snapshot().await.holders[0].role == Role::Writer, side == Kind::Write);
        assert_eq!(fixture.release(side, "a", 0).await, Released::Freed);
        assert!(fixture.keys().await.is_empty());
    }
}

#[tokio::test]
async fn the_release_of_one_of_many_readers_finds_the_end_of_the_others() {
    let fixture = Fixture::start().await;
    let readers: Vec<_> = (0..20).map(|number| format!("r:{number}")).collect();
    for reader in &readers {
        fixture.acquire(Kind::Read, reader, None, 1, 9_000).await;
    }
    // The longest hold ends: the lock lasts as long as the others.
    fixture.acquire(Kind::Read, "long:1", None, 1, 60_000).await;
    assert!(fixture.lasts(60_000).await);
    assert_eq!(fixture.release(Kind::Read, &readers[0], 0).await, Released::Freed);
    assert!(fixture.lasts(60_000).await);
    assert_eq!(fixture.release(Kind::Read, "long:1", 0).await, Released::Freed);
    assert!(fixture.lasts(9_000).await);
    // One of them has expired.
    let hold = |reader: &String| hold_key(&name(Kind::Read), &OwnerId::from_wire(reader), 1);
    let _: i64 = fixture.run(&format!("DEL {}", hold(&readers[1]))).await;
    assert_eq!(fixture.release(Kind::Read, &readers[1], 0).await, Released::NotHeld);
    assert_eq!(fixture.snapshot().await.holders.len(), 18);
    // All but one have expired: nothing is left when that one releases.
    for reader in &readers[3..] {
        let _: i64 = fixture.run(&format!("DEL {}", hold(reader))).await;
    }
    assert_eq!(fixture.release(Kind::Read, &readers[2], 0).await, Released::Freed);
    assert!(fixture.keys().await.is_empty());
}
