//! What the histories do not reach: a server that is out of memory, keys of other makes, missing rights.

use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use turnlock_core::model::{Acquired, Claim, Deed, Released, Renewed, Role, Wish};
use turnlock_core::request::REMEMBERED_FOR;
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use super::histories::{CARE, lease};
use crate::backend::redis::tests::connected;
use crate::backend::redis::{Redis, requests};
use crate::backend::{Backend, Failure, FailureKind, Renewal};

const LIMIT: Duration = Duration::from_secs(10);
const ID: &str = "000102030405060708090a0b0c0d0eff";

struct Stage {
    redis: Redis,
    plain: MultiplexedConnection,
    _server: RedisServer,
}

impl Stage {
    async fn new() -> Self {
        let server = RedisServer::start().await;
        let redis = connected(&server).await;
        Self { redis, plain: server.client().await, _server: server }
    }

    async fn say(&mut self, words: &[&str]) {
        redis::cmd(words[0]).arg(&words[1..]).exec_async(&mut self.plain).await.expect("an answer");
    }

    async fn acquire(&self, name: &LockName, owner: &str, permits: u32) -> Result<Acquired, Failure> {
        let owner = OwnerId::from_wire(owner);
        let claim = Claim { permits, ..Claim::new(name, &owner, 1) };
        let wish = Wish { lease: lease(30_000), waits: true, highest_token: 0 };
        self.redis.acquire(claim, wish, CARE).await.map(|answer| answer.value)
    }

    async fn release(&self, name: &LockName, owner: &str, permits: u32) -> Result<Released, Failure> {
        let owner = OwnerId::from_wire(owner);
        let claim = Claim { permits, ..Claim::new(name, &owner, 0) };
        self.redis.release(claim, LIMIT).await.map(|answer| answer.value)
    }

    async fn perform(&self, name: &LockName, deed: Deed, request: &str) -> Result<i64, Failure> {
        let request = OwnerId::from_wire(request);
        self.redis.perform(name, deed, &request, LIMIT).await.map(|answer| answer.value)
    }

    async fn number(&self, name: &LockName) -> Option<i64> {
        self.redis.inspect(name, LIMIT).await.expect("an answer").value.number
    }
}

fn name(kind: Kind) -> LockName {
    LockName::of(kind, "", kind.noun()).expect("a good name")
}

fn renewal(name: &LockName, permits: u32) -> Renewal {
    let owner = OwnerId::from_wire(ID);
    Renewal { name: name.clone(), owner, permits, lease: Some(lease(90_000)) }
}

fn is_corrupt<T>(outcome: &Result<T, Failure>) -> bool {
    matches!(outcome, Err(Failure { kind: FailureKind::Corrupt { .. }, .. }))
}

#[tokio::test]
async fn out_of_memory_what_is_taken_is_given_back_and_nothing_more_is_taken() {
    let mut stage = Stage::new().await;
    let [semaphore, permits, latch] = [Kind::Semaphore, Kind::Permits, Kind::Latch].map(name);
    for name in [&semaphore, &permits, &latch] {
        stage.perform(name, Deed::SetOnce(3), "set").await.expect("set");
    }
    for name in [&semaphore, &permits] {
        assert_eq!(stage.acquire(name, ID, 2).await.expect("an answer"), Acquired::Granted);
    }
    stage.say(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for name in [&semaphore, &permits] {
        let another = "ffffffffffffffffffffffffffffffff";
        assert!(stage.acquire(name, another, 1).await.is_err_and(|failure| failure.in_doubt.is_none()));
        assert_eq!(stage.number(name).await, Some(1));
        // A copy of the first request is known all the same.
        assert_eq!(stage.acquire(name, ID, 2).await.expect("an answer"), Acquired::Granted);
        if name.kind() == Kind::Permits {
            let renewal = stage.redis.renew(&[renewal(name, 2)], CARE).await.expect("an answer");
            assert_eq!(renewal.value, [Some(Renewed::Renewed)]);
        }
        assert_eq!(stage.release(name, ID, 2).await.expect("an answer"), Released::Freed);
        assert_eq!(stage.number(name).await, Some(3));
    }
    assert_eq!(stage.release(&semaphore, ID, 2).await.expect("an answer"), Released::Freed);
    assert_eq!(stage.perform(&semaphore, Deed::Release(1), "1").await.expect("an answer"), 4);
    assert!(stage.perform(&semaphore, Deed::Add(1), "2").await.is_err());
    for _ in 0..2 {
        assert_eq!(stage.perform(&latch, Deed::CountDown, "1").await.expect("an answer"), 2);
    }
    assert_eq!(stage.number(&latch).await, Some(2));
    stage.say(&["CONFIG", "SET", "maxmemory", "0"]).await;
    // What was refused was not remembered as done.
    assert_eq!(stage.perform(&semaphore, Deed::Add(1), "2").await.expect("an answer"), 5);
    assert_eq!(stage.number(&semaphore).await, Some(5));
}

#[tokio::test]
async fn a_request_is_remembered_for_an_hour_unless_it_is_forgotten_before() {
    let mut stage = Stage::new().await;
    let semaphore = name(Kind::Semaphore);
    stage.perform(&semaphore, Deed::SetOnce(1), "set").await.expect("set");
    stage.acquire(&semaphore, ID, 1).await.expect("an answer");
    for (request, outcome) in [("set", "1"), (ID, "taken 1")] {
        let memory = requests::memory(&semaphore, &OwnerId::from_wire(request));
        assert_eq!(memory, format!("turnlock_request:{{semaphore}}:{request}"));
        let text: String = stage.plain.get(&memory).await.expect("an answer");
        let ttl: i64 = stage.plain.pttl(&memory).await.expect("an answer");
        let hour = i64::try_from(REMEMBERED_FOR.as_millis()).expect("a number");
        assert!(text == outcome && (hour - 10_000..=hour).contains(&ttl), "{text} for {ttl} ms");
        for _ in 0..2 {
            stage.redis.forget(&semaphore, &OwnerId::from_wire(request), LIMIT).await.expect("an answer");
            assert!(!stage.plain.exists::<_, bool>(&memory).await.expect("an answer"));
        }
    }
}

#[tokio::test]
async fn keys_of_other_makes_are_refused_and_left_alone() {
    let mut stage = Stage::new().await;
    for (write, kind) in [
        (["HSET", "KEY", "field", "7"].as_slice(), "a hash"),
        (&["SET", "KEY", "text"], "a text"),
        (&["SET", "KEY", "99999999999999999999"], "a number that is too large"),
    ] {
        for name in [Kind::Semaphore, Kind::Permits, Kind::Latch].map(name) {
            let words: Vec<_> =
                write.iter().map(|word| if *word == "KEY" { name.key() } else { word }).collect();
            stage.say(&["FLUSHALL"]).await;
            stage.say(&words).await;
            let before: Vec<u8> =
                redis::cmd("DUMP").arg(name.key()).query_async(&mut stage.plain).await.expect("there");
            for deed in [Deed::SetOnce(1), Deed::Add(1), Deed::CountDown] {
                assert!(stage.perform(&name, deed, "1").await.is_err(), "{deed:?} on {kind}");
            }
            if name.kind() != Kind::Latch {
                assert!(is_corrupt(&stage.acquire(&name, ID, 1).await), "{kind}");
                if name.kind() == Kind::Semaphore {
                    assert!(is_corrupt(&stage.release(&name, ID, 1).await), "{kind}");
                }
            }
            let after: Vec<u8> =
                redis::cmd("DUMP").arg(name.key()).query_async(&mut stage.plain).await.expect("there");
            assert_eq!(before, after);
            let keys: Vec<String> = stage.plain.keys("*").await.expect("an answer");
            assert_eq!(keys, [name.key()], "nothing is left behind");
        }
    }
}

#[tokio::test]
async fn who_may_not_publish_can_give_back() {
    let mut stage = Stage::new().await;
    stage.say(&["ACL", "SETUSER", "default", "resetchannels"]).await;
    for name in [Kind::Semaphore, Kind::Permits].map(name) {
        assert_eq!(stage.perform(&name, Deed::SetOnce(1), "set").await.expect("set"), 1);
        assert_eq!(stage.acquire(&name, ID, 1).await.expect("an answer"), Acquired::Granted);
        assert_eq!(stage.release(&name, ID, 1).await.expect("an answer"), Released::Freed);
        assert_eq!(stage.number(&name).await, Some(1));
    }
    let latch = name(Kind::Latch);
    stage.perform(&latch, Deed::SetOnce(1), "set").await.expect("set");
    assert_eq!(stage.perform(&latch, Deed::CountDown, "1").await.expect("an answer"), 0);
}

#[tokio::test]
async fn who_may_not_count_loses_no_permits_whose_leases_ran_out() {
    let mut stage = Stage::new().await;
    let name = name(Kind::Permits);
    let taken = name.below("timeout");
    stage.say(&["SET", name.key(), "1"]).await;
    stage.say(&["ZADD", &taken, "1", "sixteen bytes id", "2.5", "another 16 bytes"]).await;
    stage.say(&["ACL", "SETUSER", "default", "-incrby"]).await;
    assert!(stage.acquire(&name, ID, 1).await.is_err_and(|failure| failure.in_doubt.is_none()));
    let ids: Vec<(String, f64)> = stage.plain.zrange_withscores(&taken, 0, -1).await.expect("an answer");
    assert_eq!(ids, [("sixteen bytes id".to_owned(), 1.0), ("another 16 bytes".to_owned(), 2.5)]);
    assert_eq!(stage.number(&name).await, Some(3));
    stage.say(&["ACL", "SETUSER", "default", "+incrby"]).await;
    assert_eq!(stage.acquire(&name, ID, 3).await.expect("an answer"), Acquired::Granted);
    assert_eq!(stage.number(&name).await, Some(0));
}

#[tokio::test]
async fn a_removal_is_remembered_and_needs_no_room() {
    let mut stage = Stage::new().await;
    for name in [Kind::Semaphore, Kind::Permits, Kind::Latch].map(name) {
        stage.perform(&name, Deed::SetOnce(1), "set").await.expect("set");
        stage.say(&["CONFIG", "SET", "maxmemory", "1"]).await;
        assert_eq!(stage.perform(&name, Deed::Delete, "gone").await.expect("an answer"), 1);
        stage.say(&["CONFIG", "SET", "maxmemory", "0"]).await;
        stage.perform(&name, Deed::SetOnce(2), "again").await.expect("set");
        assert_eq!(stage.perform(&name, Deed::Delete, "gone").await.expect("an answer"), 1);
        assert_eq!(stage.number(&name).await, Some(2));
        // What is no number can be removed all the same.
        stage.say(&["SET", name.key(), "text"]).await;
        assert_eq!(stage.perform(&name, Deed::Delete, "text").await.expect("an answer"), 1);
        assert!(!stage.plain.exists::<_, bool>(name.key()).await.expect("an answer"));
        assert_eq!(stage.perform(&name, Deed::Delete, "none").await.expect("an answer"), 0);
    }
}

#[tokio::test]
async fn permits_without_end_and_an_expiry_of_the_number_are_as_redisson_has_them() {
    let mut stage = Stage::new().await;
    let name = name(Kind::Permits);
    let taken = name.below("timeout");
    stage.say(&["SET", name.key(), "1", "PX", "50000"]).await;
    stage.say(&["ZADD", &taken, "922337203685477", "sixteen bytes id"]).await;
    assert_eq!(stage.acquire(&name, ID, 2).await.expect("an answer"), Acquired::Busy { ttl: None });
    assert_eq!(stage.acquire(&name, ID, 1).await.expect("an answer"), Acquired::Granted);
    let ttl: i64 = stage.plain.pttl(&taken).await.expect("an answer");
    assert!((40_000..=50_000).contains(&ttl), "{ttl}");
    let picture = stage.redis.inspect(&name, LIMIT).await.expect("an answer").value;
    assert!(picture.ttl.is_some_and(|ttl| ttl > Duration::from_secs(40)));
    let [mine, endless] = &picture.holders[..] else { panic!("two holders, and not {picture:?}") };
    assert_eq!((mine.owner.as_str(), mine.role), (ID, Role::Permit));
    assert!(mine.ttl.is_some_and(|ttl| ttl > Duration::from_secs(20)));
    assert_eq!((endless.owner.as_str(), endless.ttl), ("7369787465656e206279746573206964", None));
    assert_eq!(stage.perform(&name, Deed::Add(2), "1").await.expect("an answer"), 2);
    let ttl: i64 = stage.plain.pttl(name.key()).await.expect("an answer");
    assert!(ttl > 40_000, "the expiry of the number is kept: {ttl}");
    let raw: Vec<Vec<u8>> = stage.plain.zrange(&taken, 0, 0).await.expect("an answer");
    assert_eq!(raw, [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]]);
}

#[tokio::test]
async fn each_line_of_a_renewal_is_on_its_own_and_a_hold_may_be_large() {
    let mut stage = Stage::new().await;
    let [one, two, three] =
        ["one", "two", "three"].map(|text| LockName::of(Kind::Permits, "", text).expect("a good name"));
    stage.perform(&one, Deed::SetOnce(9_999), "set").await.expect("set");
    stage.perform(&three, Deed::SetOnce(1), "set").await.expect("set");
    assert_eq!(stage.acquire(&one, ID, 9_000).await.expect("an answer"), Acquired::Granted);
    assert_eq!(stage.number(&one).await, Some(999));
    assert_eq!(stage.acquire(&three, ID, 1).await.expect("an answer"), Acquired::Granted);
    stage.say(&["SET", &two.below("timeout"), "a foreign key"]).await;
    let lines = [renewal(&one, 9_000), renewal(&two, 1), renewal(&three, 2), renewal(&three, 1)];
    let outcomes = stage.redis.renew(&lines, CARE).await.expect("an answer").value;
    assert_eq!(outcomes, [Some(Renewed::Renewed), None, Some(Renewed::NotHeld), Some(Renewed::Renewed)]);
    let picture = stage.redis.inspect(&one, LIMIT).await.expect("an answer").value;
    assert!(picture.holders.iter().all(|holder| holder.ttl > Some(Duration::from_secs(80))));
    assert_eq!(stage.release(&one, ID, 9_000).await.expect("an answer"), Released::Freed);
    assert_eq!(stage.number(&one).await, Some(9_999));
}
