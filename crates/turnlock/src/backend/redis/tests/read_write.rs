use std::time::Duration;

use futures_util::StreamExt;
use proptest::prelude::*;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Cmd, FromRedisValue};
use turnlock_core::model::{Acquired, Claim, Item, Released, Renewed, Role, Snapshot, Wish};
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use super::histories::{CARE, OWNERS, Op, agree, kept_leases, lease, leases};
use crate::backend::redis::Redis;
use crate::backend::redis::tests::connected;
use crate::backend::{Backend, FailureKind, Renewal};

const LIMIT: Duration = Duration::from_secs(10);

/// More holds than any history has of one reader.
const MOST_HOLDS: usize = 5;

fn op() -> impl Strategy<Value = Op> {
    // Mostly the same owner writes, so that it gets to write, and others to read under it.
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
        3 => (side, kept_leases(5..60))
            .prop_map(|((kind, owner), lease)| Op::Keep { kind, owner, permits: 1, lease }),
        1 => kind.prop_map(|kind| Op::ForceUnlock { kind }),
        // A fifth of all steps: expiry is where locks go wrong.
        5 => (0..OWNERS + 2).prop_map(|what| Op::Expire { what }),
    ]
}

#[test]
fn the_two_sides_of_a_read_write_lock_are_the_model() {
    agree(Kind::Read, 250, op(), |model, what, scene| {
        Box::pin(async move {
            let Item::ReadWrite(state) = model else { return };
            let holds = |owner: &OwnerId| {
                let owner = owner.clone();
                (1..=MOST_HOLDS).map(move |number| hold_key(&scene.name, &owner, number))
            };
            let keys: Vec<String> = match what {
                0 => {
                    state.expire();
                    let holds = scene.owners.iter().flat_map(holds);
                    std::iter::once(scene.name.key().to_owned()).chain(holds).collect()
                }
                1..=OWNERS => {
                    state.expire_reader(&scene.owners[what - 1]);
                    holds(&scene.owners[what - 1]).collect()
                }
                _ => {
                    state.expire_word();
                    vec![waiting_key(&scene.name)]
                }
            };
            for key in keys {
                let _: bool = scene.plain.clone().pexpire_at(key, 1).await.expect("an answer");
            }
        })
    });
}

fn hold_key(name: &LockName, owner: &OwnerId, number: usize) -> String {
    name.below(&format!("{owner}:rwlock_timeout:{number}"))
}

fn waiting_key(name: &LockName) -> String {
    name.beside("turnlock_writer_waits")
}

/// A server, and one read-write lock on it.
struct Scene {
    redis: Redis,
    plain: MultiplexedConnection,
    server: RedisServer,
}

impl Scene {
    async fn start() -> Self {
        let server = RedisServer::start().await;
        let redis = connected(&server).await;
        Self { redis, plain: server.client().await, server }
    }

    async fn take(&self, side: Kind, owner: &str, under: Option<&str>, target: u32, millis: u64) -> Acquired {
        let (name, owner, under) = (name(side), OwnerId::from_wire(owner), under.map(OwnerId::from_wire));
        let claim = Claim { under: under.as_ref(), ..Claim::new(&name, &owner, target) };
        let wish = Wish { lease: lease(millis), waits: true, highest_token: 0 };
        self.redis.acquire(claim, wish, CARE).await.expect("an answer").value
    }

    async fn leave(&self, side: Kind, owner: &str, target: u32) -> Released {
        let (name, owner) = (name(side), OwnerId::from_wire(owner));
        self.redis.release(Claim::new(&name, &owner, target), LIMIT).await.expect("an answer").value
    }

    async fn renew(&self, lines: &[(Kind, &str, &str)], millis: u64) -> Vec<Option<Renewed>> {
        let line = |&(side, key, owner): &(Kind, &str, &str)| Renewal {
            name: LockName::of(side, "", key).expect("a good name"),
            owner: OwnerId::from_wire(owner),
            permits: 1,
            lease: Some(lease(millis)),
        };
        let lines: Vec<_> = lines.iter().map(line).collect();
        self.redis.renew(&lines, CARE).await.expect("an answer").value
    }

    async fn picture(&self) -> Snapshot {
        self.redis.inspect(&name(Kind::Read), LIMIT).await.expect("an answer").value
    }

    /// Whether the whole lock lasts about that long.
    async fn lasts(&self, millis: u64) -> bool {
        let ttl = self.picture().await.ttl.expect("an end");
        ttl <= Duration::from_millis(millis) && ttl > Duration::from_millis(millis - 3_000)
    }

    /// Runs a command as another client would.
    async fn run<T: FromRedisValue>(&self, words: &str) -> T {
        let mut cmd = Cmd::new();
        for word in words.split(' ') {
            cmd.arg(word);
        }
        cmd.query_async(&mut self.plain.clone()).await.expect(words)
    }

    /// All keys of the server, in order.
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
async fn a_reader_of_java_that_died_does_not_block_a_writer() {
    let scene = Scene::start().await;
    let _: i64 = scene.run("HSET n mode read java:7 2").await;
    let _: i64 = scene.run("PEXPIRE n 60000").await;
    let _: String = scene.run("SET {n}:java:7:rwlock_timeout:2 1 PX 60000").await;
    assert!(matches!(scene.take(Kind::Write, "w", None, 1, 9_000).await, Acquired::Busy { .. }));
    assert_eq!(scene.picture().await.holders[0].count, 2);
    let _: i64 = scene.run("DEL {n}:java:7:rwlock_timeout:2").await;
    assert_eq!(scene.take(Kind::Write, "w", None, 1, 9_000).await, Acquired::Granted);
    // It had left word that it waits, and took it back.
    assert_eq!(scene.keys().await, ["n"]);
    assert!(scene.lasts(9_000).await);
    let fields: Vec<(String, String)> = scene.run("HGETALL n").await;
    assert_eq!(fields.len(), 2);
}

#[tokio::test]
async fn who_leaves_clears_away_the_dead() {
    let scene = Scene::start().await;
    scene.take(Kind::Read, "r", None, 1, 60_000).await;
    scene.take(Kind::Read, "s", None, 1, 9_000).await;
    let _: i64 = scene.run("HSET n java:7 1").await;
    assert_eq!(scene.leave(Kind::Read, "r", 0).await, Released::Freed);
    let mut fields: Vec<String> = scene.run("HKEYS n").await;
    fields.sort();
    assert_eq!(fields, ["mode", "s"]);
    assert_eq!(scene.keys().await, ["n", "{n}:s:rwlock_timeout:1"]);
    assert!(scene.lasts(9_000).await);
}

#[tokio::test]
async fn what_javas_renewal_has_shortened_is_made_good() {
    let scene = Scene::start().await;
    assert_eq!(scene.take(Kind::Read, "r", None, 1, 60_000).await, Acquired::Granted);
    // Java renews its own reader, and sets the whole lock to its watchdog's time.
    let _: i64 = scene.run("PEXPIRE n 5000").await;
    assert_eq!(scene.renew(&[(Kind::Read, "n", "r")], 60_000).await, [Some(Renewed::Renewed)]);
    assert!(scene.lasts(60_000).await);
    // Also by a renewal that says less than what the hold has.
    let _: i64 = scene.run("PEXPIRE n 5000").await;
    assert_eq!(scene.renew(&[(Kind::Read, "n", "r")], 1_000).await, [Some(Renewed::Longer)]);
    assert!(scene.lasts(60_000).await);
}

#[tokio::test]
async fn a_read_hold_under_a_write_lock_does_not_shorten_it() {
    let scene = Scene::start().await;
    scene.take(Kind::Write, "w", None, 1, 60_000).await;
    scene.take(Kind::Read, "r", Some("w"), 1, 5_000).await;
    scene.take(Kind::Read, "r", Some("w"), 2, 5_000).await;
    scene.take(Kind::Read, "s", Some("w"), 1, 5_000).await;
    assert_eq!(scene.leave(Kind::Read, "r", 1).await, Released::Lowered);
    assert_eq!(scene.leave(Kind::Read, "s", 0).await, Released::Freed);
    assert!(scene.lasts(60_000).await);
    // The writer leaves, and the reader goes on alone.
    assert_eq!(scene.leave(Kind::Write, "w", 0).await, Released::Freed);
    assert!(scene.lasts(5_000).await);
    assert_eq!(scene.leave(Kind::Read, "r", 0).await, Released::Freed);
    assert!(scene.keys().await.is_empty());
}

#[tokio::test]
async fn the_longest_lease_of_a_reader_outlives_its_inner_holds() {
    let scene = Scene::start().await;
    scene.take(Kind::Read, "r", None, 1, 5_000).await;
    for target in [2, 3] {
        scene.take(Kind::Read, "r", None, target, 5_000).await;
    }
    let _: i64 = scene.run("PEXPIRE {n}:r:rwlock_timeout:3 60000").await;
    let _: i64 = scene.run("PEXPIRE n 60000").await;
    assert_eq!(scene.leave(Kind::Read, "r", 1).await, Released::Lowered);
    assert_eq!(scene.keys().await, ["n", "{n}:r:rwlock_timeout:1"]);
    let ttl = scene.picture().await.holders[0].ttl.expect("a lease");
    assert!(ttl > Duration::from_secs(50), "{ttl:?}");
}

#[tokio::test]
async fn without_memory_every_hold_can_be_given_back() {
    let scene = Scene::start().await;
    scene.take(Kind::Write, "w", None, 1, 60_000).await;
    scene.take(Kind::Write, "w", None, 2, 60_000).await;
    scene.take(Kind::Read, "r", Some("w"), 1, 60_000).await;
    scene.take(Kind::Read, "r", Some("w"), 2, 60_000).await;
    let _: i64 = scene.run("DEL {n}:r:rwlock_timeout:1").await;
    let _: String = scene.run("CONFIG SET maxmemory 1").await;
    assert_eq!(scene.leave(Kind::Read, "r", 1).await, Released::Lowered);
    assert_eq!(scene.keys().await, ["n", "{n}:r:rwlock_timeout:1"]);
    assert_eq!(scene.leave(Kind::Write, "w", 1).await, Released::Lowered);
    assert_eq!(
        scene.renew(&[(Kind::Read, "n", "r"), (Kind::Write, "n", "w")], 70_000).await,
        [Some(Renewed::Renewed); 2]
    );
    assert_eq!(scene.leave(Kind::Write, "w", 0).await, Released::Freed);
    // The reader is protected, and the mode is that of a reader.
    assert!(scene.lasts(70_000).await);
    let mode: String = scene.run("HGET n mode").await;
    assert_eq!(mode, "read");
    assert!(matches!(scene.take(Kind::Write, "v", None, 1, 60_000).await, Acquired::Busy { .. }));
    assert_eq!(scene.leave(Kind::Read, "r", 0).await, Released::Freed);
    assert!(scene.keys().await.is_empty());
}

#[tokio::test]
async fn what_is_no_read_write_lock_is_neither_used_nor_removed() {
    let scene = Scene::start().await;
    let plant =
        ["SET n text", "HSET n owner 1", "HSET n mode read owner many", "HSET n mode read owner 99999999"];
    for words in plant {
        let _: redis::Value = scene.run(words).await;
        let before: Vec<u8> = scene.run("DUMP n").await;
        for side in [Kind::Read, Kind::Write] {
            let (name, owner) = (name(side), OwnerId::from_wire("owner"));
            let claim = Claim::new(&name, &owner, 1);
            let wish = Wish { lease: lease(9_000), waits: true, highest_token: 0 };
            let corrupt = |what: &str, kind: FailureKind| {
                assert!(matches!(kind, FailureKind::Corrupt { .. }), "{words}: {what}: {kind:?}");
            };
            corrupt("take", scene.redis.acquire(claim, wish, CARE).await.expect_err("no lock").kind);
            corrupt("leave", scene.redis.release(claim, LIMIT).await.expect_err("no lock").kind);
            corrupt("inspect", scene.redis.inspect(&name, LIMIT).await.expect_err("no lock").kind);
        }
        let after: Vec<u8> = scene.run("DUMP n").await;
        assert_eq!(before, after, "{words}");
        let forced = scene.redis.force_unlock(&name(Kind::Read), LIMIT).await;
        // What has a mode can be freed by force whatever its counts are; nothing else can.
        assert_eq!(forced.is_ok_and(|answer| answer.value), words.contains("mode"), "{words}");
        let _: i64 = scene.run("DEL n").await;
    }
    assert!(scene.keys().await.is_empty());
}

#[tokio::test]
async fn java_hears_from_which_side_an_end_comes() {
    let scene = Scene::start().await;
    let client = redis::Client::open(scene.server.url()).expect("a good URL");
    let mut heard = client.get_async_pubsub().await.expect("a connection");
    heard.subscribe(&["redisson_rwlock:{n}", "done"]).await.expect("subscribed");
    scene.take(Kind::Read, "r", None, 1, 9_000).await;
    scene.take(Kind::Read, "s", None, 1, 9_000).await;
    // One of two leaves, a writer gives up, the other leaves, a writer leaves to a reader, and that is forced out.
    scene.leave(Kind::Read, "s", 0).await;
    scene.take(Kind::Write, "w", None, 1, 9_000).await;
    scene.leave(Kind::Write, "w", 0).await;
    scene.leave(Kind::Read, "r", 0).await;
    scene.take(Kind::Write, "w", None, 1, 9_000).await;
    scene.take(Kind::Read, "r", Some("w"), 1, 9_000).await;
    scene.leave(Kind::Write, "w", 0).await;
    scene.redis.force_unlock(&name(Kind::Read), LIMIT).await.expect("an answer");
    let _: i64 = scene.run("PUBLISH done .").await;
    let payloads = heard.on_message().map(|message| message.get_payload::<String>().expect("a text"));
    let payloads: Vec<_> = payloads.take_while(|payload| std::future::ready(payload != ".")).collect().await;
    assert_eq!(payloads, ["1", "0", "1", "0"]);
}

#[tokio::test]
async fn in_a_batch_each_hold_has_its_own_outcome() {
    let scene = Scene::start().await;
    let _: String = scene.run("SET text text").await;
    let _: i64 = scene.run("HSET bad mode read r many").await;
    scene.take(Kind::Write, "w", None, 1, 9_000).await;
    scene.take(Kind::Read, "r", Some("w"), 1, 9_000).await;
    let lines = [
        (Kind::Read, "text", "r"),
        (Kind::Write, "n", "w"),
        (Kind::Read, "bad", "r"),
        (Kind::Read, "n", "r"),
        (Kind::Read, "n", "w"),
        (Kind::Write, "absent", "w"),
    ];
    let (held, not) = (Some(Renewed::Renewed), Some(Renewed::NotHeld));
    assert_eq!(scene.renew(&lines, 60_000).await, [None, held, None, held, not, not]);
    assert!(scene.lasts(60_000).await);
}

#[tokio::test]
async fn a_user_without_rights_leaves_no_lock_behind_and_can_still_release() {
    let scene = Scene::start().await;
    let _: String = scene.run("ACL SETUSER default -pexpire").await;
    for side in [Kind::Read, Kind::Write] {
        let (name, owner) = (name(side), OwnerId::from_wire("a"));
        let wish = Wish { lease: lease(9_000), waits: true, highest_token: 0 };
        let refused = scene.redis.acquire(Claim::new(&name, &owner, 1), wish, CARE).await;
        assert!(matches!(refused.expect_err("refused").kind, FailureKind::Denied(_)));
        assert!(scene.keys().await.is_empty());
    }
    let _: String = scene.run("ACL SETUSER default +pexpire -publish").await;
    for side in [Kind::Read, Kind::Write] {
        assert_eq!(scene.take(side, "a", None, 1, 9_000).await, Acquired::Granted);
        assert_eq!(scene.picture().await.holders[0].role == Role::Writer, side == Kind::Write);
        assert_eq!(scene.leave(side, "a", 0).await, Released::Freed);
        assert!(scene.keys().await.is_empty());
    }
}
