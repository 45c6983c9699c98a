//! What the histories do not cover: a server that is out of memory, foreign keys, missing permissions.

use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use turnlock_core::model::{
    AcquireOptions, Acquired, Claim, CounterOp, Released, Renewed, Reply, Role, Step,
};
use turnlock_core::request::REMEMBERED_FOR;
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use super::histories::{STEP_OPTIONS, lease};
use crate::tests::connected;
use crate::{Redis, steps};
use turnlock_store::{Failure, FailureKind};

const LIMIT: Duration = Duration::from_secs(10);
const ID: &str = "000102030405060708090a0b0c0d0eff";

struct Fixture {
    redis: Redis,
    raw: MultiplexedConnection,
    _server: RedisServer,
}

impl Fixture {
    async fn new() -> Self {
        let server = RedisServer::start().await;
        let redis = connected(&server).await;
        Self { redis, raw: server.client().await, _server: server }
    }

    async fn run(&mut self, args: &[&str]) {
        redis::cmd(args[0]).arg(&args[1..]).exec_async(&mut self.raw).await.expect("a reply");
    }

    async fn acquire(&self, name: &LockName, owner: &str, permits: u32) -> Result<Acquired, Failure> {
        let owner = OwnerId::from_wire(owner);
        let claim = Claim { permits, ..Claim::new(name, &owner, 1) };
        let options = AcquireOptions { lease: lease(30_000), waits: true, highest_token: 0 };
        self.redis.acquire(claim, options, STEP_OPTIONS).await.map(|reply| reply.value)
    }

    async fn release(&self, name: &LockName, owner: &str, permits: u32) -> Result<Released, Failure> {
        let owner = OwnerId::from_wire(owner);
        let claim = Claim { permits, ..Claim::new(name, &owner, 0) };
        self.redis.release(claim, LIMIT).await.map(|reply| reply.value)
    }

    async fn perform(&self, name: &LockName, op: CounterOp, request: &str) -> Result<i64, Failure> {
        let request = OwnerId::from_wire(request);
        self.redis.perform(name, op, &request, LIMIT).await.map(|reply| reply.value)
    }

    async fn number(&self, name: &LockName) -> Option<i64> {
        self.redis.inspect(name, LIMIT).await.expect("a reply").value.number
    }
}

fn name(kind: Kind) -> LockName {
    LockName::of(kind, "", kind.label()).expect("a good name")
}

fn renewal(name: &LockName, permits: u32) -> Step {
    let owner = OwnerId::from_wire(ID);
    Step::Renew(Claim { permits, ..Claim::new(name, &owner, 1) }, Some(lease(90_000)))
}

fn is_corrupt<T>(outcome: &Result<T, Failure>) -> bool {
    matches!(outcome, Err(Failure { kind: FailureKind::NotALock { .. }, .. }))
}

#[tokio::test]
async fn out_of_memory_releases_succeed_and_acquires_fail() {
    let mut fixture = Fixture::new().await;
    let [semaphore, permits, latch] = [Kind::Semaphore, Kind::Permits, Kind::Latch].map(name);
    for name in [&semaphore, &permits, &latch] {
        fixture.perform(name, CounterOp::SetOnce(3), "set").await.expect("set");
    }
    for name in [&semaphore, &permits] {
        assert_eq!(fixture.acquire(name, ID, 2).await.expect("a reply"), Acquired::Granted);
    }
    fixture.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for name in [&semaphore, &permits] {
        let another = "ffffffffffffffffffffffffffffffff";
        assert!(fixture.acquire(name, another, 1).await.is_err_and(|failure| failure.in_doubt.is_none()));
        assert_eq!(fixture.number(name).await, Some(1));
        // A copy of the first request is granted all the same.
        assert_eq!(fixture.acquire(name, ID, 2).await.expect("a reply"), Acquired::Granted);
        if name.kind() == Kind::Permits {
            let renewal = fixture.redis.call_batch(vec![renewal(name, 2)], STEP_OPTIONS).await;
            assert_eq!(renewal.expect("a reply").value, [Some(Reply::Renewed(Renewed::Renewed))]);
        }
        assert_eq!(fixture.release(name, ID, 2).await.expect("a reply"), Released::Freed);
        assert_eq!(fixture.number(name).await, Some(3));
    }
    assert_eq!(fixture.release(&semaphore, ID, 2).await.expect("a reply"), Released::Freed);
    assert_eq!(fixture.perform(&semaphore, CounterOp::Release(1), "1").await.expect("a reply"), 4);
    assert!(fixture.perform(&semaphore, CounterOp::Add(1), "2").await.is_err());
    for _ in 0..2 {
        assert_eq!(fixture.perform(&latch, CounterOp::CountDown, "1").await.expect("a reply"), 2);
    }
    assert_eq!(fixture.number(&latch).await, Some(2));
    fixture.run(&["CONFIG", "SET", "maxmemory", "0"]).await;
    // The refused request was not recorded.
    assert_eq!(fixture.perform(&semaphore, CounterOp::Add(1), "2").await.expect("a reply"), 5);
    assert_eq!(fixture.number(&semaphore).await, Some(5));
}

#[tokio::test]
async fn a_request_record_expires_after_an_hour_unless_deleted() {
    let mut fixture = Fixture::new().await;
    let semaphore = name(Kind::Semaphore);
    fixture.perform(&semaphore, CounterOp::SetOnce(1), "set").await.expect("set");
    fixture.acquire(&semaphore, ID, 1).await.expect("a reply");
    for (request, outcome) in [("set", "1"), (ID, "taken 1")] {
        let record_key = steps::record_key(&semaphore, &OwnerId::from_wire(request));
        assert_eq!(record_key, format!("turnlock_request:{{semaphore}}:{request}"));
        let text: String = fixture.raw.get(&record_key).await.expect("a reply");
        let ttl: i64 = fixture.raw.pttl(&record_key).await.expect("a reply");
        let hour = i64::try_from(REMEMBERED_FOR.as_millis()).expect("a number");
        assert!(text == outcome && (hour - 10_000..=hour).contains(&ttl), "{text} for {ttl} ms");
        for _ in 0..2 {
            fixture.redis.forget(&semaphore, &OwnerId::from_wire(request), LIMIT).await.expect("a reply");
            assert!(!fixture.raw.exists::<_, bool>(&record_key).await.expect("a reply"));
        }
    }
}

#[tokio::test]
async fn foreign_keys_are_refused_and_not_changed() {
    let mut fixture = Fixture::new().await;
    for (write, kind) in [
        (["HSET", "KEY", "field", "7"].as_slice(), "a hash"),
        (&["SET", "KEY", "text"], "a text"),
        (&["SET", "KEY", "99999999999999999999"], "a number that is too large"),
    ] {
        for name in [Kind::Semaphore, Kind::Permits, Kind::Latch].map(name) {
            let args: Vec<_> = write.iter().map(|arg| if *arg == "KEY" { name.key() } else { arg }).collect();
            fixture.run(&["FLUSHALL"]).await;
            fixture.run(&args).await;
            let before: Vec<u8> =
                redis::cmd("DUMP").arg(name.key()).query_async(&mut fixture.raw).await.expect("there");
            for op in [CounterOp::SetOnce(1), CounterOp::Add(1), CounterOp::CountDown] {
                assert!(fixture.perform(&name, op, "1").await.is_err(), "{op:?} on {kind}");
            }
            if name.kind() != Kind::Latch {
                assert!(is_corrupt(&fixture.acquire(&name, ID, 1).await), "{kind}");
                if name.kind() == Kind::Semaphore {
                    assert!(is_corrupt(&fixture.release(&name, ID, 1).await), "{kind}");
                }
            }
            let after: Vec<u8> =
                redis::cmd("DUMP").arg(name.key()).query_async(&mut fixture.raw).await.expect("there");
            assert_eq!(before, after);
            let keys: Vec<String> = fixture.raw.keys("*").await.expect("a reply");
            assert_eq!(keys, [name.key()], "nothing is left behind");
        }
    }
}

#[tokio::test]
async fn a_user_who_may_not_publish_can_release_permits() {
    let mut fixture = Fixture::new().await;
    fixture.run(&["ACL", "SETUSER", "default", "resetchannels"]).await;
    for name in [Kind::Semaphore, Kind::Permits].map(name) {
        assert_eq!(fixture.perform(&name, CounterOp::SetOnce(1), "set").await.expect("set"), 1);
        assert_eq!(fixture.acquire(&name, ID, 1).await.expect("a reply"), Acquired::Granted);
        assert_eq!(fixture.release(&name, ID, 1).await.expect("a reply"), Released::Freed);
        assert_eq!(fixture.number(&name).await, Some(1));
    }
    let latch = name(Kind::Latch);
    fixture.perform(&latch, CounterOp::SetOnce(1), "set").await.expect("set");
    assert_eq!(fixture.perform(&latch, CounterOp::CountDown, "1").await.expect("a reply"), 0);
}

#[tokio::test]
async fn a_user_without_incrby_loses_no_expired_permits() {
    let mut fixture = Fixture::new().await;
    let name = name(Kind::Permits);
    let taken = name.below("timeout");
    fixture.run(&["SET", name.key(), "1"]).await;
    fixture.run(&["ZADD", &taken, "1", "sixteen bytes id", "2.5", "another 16 bytes"]).await;
    fixture.run(&["ACL", "SETUSER", "default", "-incrby"]).await;
    assert!(fixture.acquire(&name, ID, 1).await.is_err_and(|failure| failure.in_doubt.is_none()));
    let ids: Vec<(String, f64)> = fixture.raw.zrange_withscores(&taken, 0, -1).await.expect("a reply");
    assert_eq!(ids, [("sixteen bytes id".to_owned(), 1.0), ("another 16 bytes".to_owned(), 2.5)]);
    assert_eq!(fixture.number(&name).await, Some(3));
    fixture.run(&["ACL", "SETUSER", "default", "+incrby"]).await;
    assert_eq!(fixture.acquire(&name, ID, 3).await.expect("a reply"), Acquired::Granted);
    assert_eq!(fixture.number(&name).await, Some(0));
}

#[tokio::test]
async fn a_delete_is_recorded_and_succeeds_out_of_memory() {
    let mut fixture = Fixture::new().await;
    for name in [Kind::Semaphore, Kind::Permits, Kind::Latch].map(name) {
        fixture.perform(&name, CounterOp::SetOnce(1), "set").await.expect("set");
        fixture.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
        assert_eq!(fixture.perform(&name, CounterOp::Delete, "gone").await.expect("a reply"), 1);
        fixture.run(&["CONFIG", "SET", "maxmemory", "0"]).await;
        fixture.perform(&name, CounterOp::SetOnce(2), "again").await.expect("set");
        assert_eq!(fixture.perform(&name, CounterOp::Delete, "gone").await.expect("a reply"), 1);
        assert_eq!(fixture.number(&name).await, Some(2));
        // A value that is not a number can be deleted, too.
        fixture.run(&["SET", name.key(), "text"]).await;
        assert_eq!(fixture.perform(&name, CounterOp::Delete, "text").await.expect("a reply"), 1);
        assert!(!fixture.raw.exists::<_, bool>(name.key()).await.expect("a reply"));
        assert_eq!(fixture.perform(&name, CounterOp::Delete, "none").await.expect("a reply"), 0);
    }
}

#[tokio::test]
async fn permits_without_expiry_and_an_expiring_number_match_redisson() {
    let mut fixture = Fixture::new().await;
    let name = name(Kind::Permits);
    let taken = name.below("timeout");
    fixture.run(&["SET", name.key(), "1", "PX", "50000"]).await;
    fixture.run(&["ZADD", &taken, "922337203685477", "sixteen bytes id"]).await;
    assert_eq!(fixture.acquire(&name, ID, 2).await.expect("a reply"), Acquired::Busy { ttl: None });
    assert_eq!(fixture.acquire(&name, ID, 1).await.expect("a reply"), Acquired::Granted);
    let ttl: i64 = fixture.raw.pttl(&taken).await.expect("a reply");
    assert!((40_000..=50_000).contains(&ttl), "{ttl}");
    let snapshot = fixture.redis.inspect(&name, LIMIT).await.expect("a reply").value;
    assert!(snapshot.ttl.is_some_and(|ttl| ttl > Duration::from_secs(40)));
    let [mine, endless] = &snapshot.holders[..] else { panic!("two holders, and not {snapshot:?}") };
    assert_eq!((mine.owner.as_str(), mine.role), (ID, Role::Permit));
    assert!(mine.ttl.is_some_and(|ttl| ttl > Duration::from_secs(20)));
    assert_eq!((endless.owner.as_str(), endless.ttl), ("7369787465656e206279746573206964", None));
    assert_eq!(fixture.perform(&name, CounterOp::Add(2), "1").await.expect("a reply"), 2);
    let ttl: i64 = fixture.raw.pttl(name.key()).await.expect("a reply");
    assert!(ttl > 40_000, "the number still expires: {ttl}");
    let raw: Vec<Vec<u8>> = fixture.raw.zrange(&taken, 0, 0).await.expect("a reply");
    assert_eq!(raw, [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]]);
}

#[tokio::test]
async fn renewal_lines_are_independent_and_a_hold_may_be_large() {
    let mut fixture = Fixture::new().await;
    let [one, two, three] =
        ["one", "two", "three"].map(|text| LockName::of(Kind::Permits, "", text).expect("a good name"));
    fixture.perform(&one, CounterOp::SetOnce(9_999), "set").await.expect("set");
    fixture.perform(&three, CounterOp::SetOnce(1), "set").await.expect("set");
    assert_eq!(fixture.acquire(&one, ID, 9_000).await.expect("a reply"), Acquired::Granted);
    assert_eq!(fixture.number(&one).await, Some(999));
    assert_eq!(fixture.acquire(&three, ID, 1).await.expect("a reply"), Acquired::Granted);
    fixture.run(&["SET", &two.below("timeout"), "a foreign key"]).await;
    let steps = vec![renewal(&one, 9_000), renewal(&two, 1), renewal(&three, 2), renewal(&three, 1)];
    let outcomes = fixture.redis.call_batch(steps, STEP_OPTIONS).await.expect("a reply").value;
    let expected = [Some(Renewed::Renewed), None, Some(Renewed::NotHeld), Some(Renewed::Renewed)];
    assert_eq!(outcomes, expected.map(|renewed| renewed.map(Reply::Renewed)));
    let snapshot = fixture.redis.inspect(&one, LIMIT).await.expect("a reply").value;
    assert!(snapshot.holders.iter().all(|holder| holder.ttl > Some(Duration::from_secs(80))));
    assert_eq!(fixture.release(&one, ID, 9_000).await.expect("a reply"), Released::Freed);
    assert_eq!(fixture.number(&one).await, Some(9_999));
}
