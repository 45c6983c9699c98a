//! A fair lock on its own server, and what Redisson does to it.

use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, FromRedisValue};
use turnlock_core::model::{AcquireOptions, Acquired, Claim, QueuePosition, Released, Reply, Step};
use turnlock_core::{Kind, Lease, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use crate::Redis;
use crate::steps::{DEADLINES, HEARTBEATS, QUEUE};
use crate::tests::connected;
use crate::tests::histories::STEP_OPTIONS;
use turnlock_store::{Failure, StepReply};

pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// What each waiter adds to the deadlines behind it.
pub(super) const WAIT: i64 = 300_000;

/// The lease of every hold here.
pub(super) const LEASE: i64 = 30_000;

/// How long the steps of one test may take in total.
const TOLERANCE: i64 = 3_000;

/// A fair lock on its own server, with commands that imitate Redisson.
pub(super) struct Fixture {
    pub(super) server: RedisServer,
    pub(super) redis: Redis,
    raw: MultiplexedConnection,
    pub(super) name: LockName,
}

/// The suffix of owners on the server, which the tests leave out.
const NUMBER: &str = ":1";

pub(super) fn owner(text: &str) -> OwnerId {
    OwnerId::from_wire(&field(text))
}

/// Returns an owner as it is stored on the server.
pub(super) fn field(waiter: &str) -> String {
    format!("{waiter}{NUMBER}")
}

fn without_number(field: &str) -> String {
    field.strip_suffix(NUMBER).unwrap_or(field).to_owned()
}

pub(super) fn value<T>(reply: Result<StepReply<T>, Failure>) -> T {
    reply.expect("a reply").value
}

impl Fixture {
    pub(super) async fn free() -> Self {
        let server = RedisServer::start().await;
        let redis = connected(&server).await;
        let raw = server.client().await;
        let name = LockName::of(Kind::Fair, "", "n").expect("a good name");
        Self { server, redis, raw, name }
    }

    /// The lock is held by `a`, and `waiters` are in its queue. Those named `j…` are Redisson's, with the
    /// deadlines that Redisson gives them.
    pub(super) async fn held_by_a(waiters: &[&str]) -> Self {
        let mut fixture = Self::free().await;
        assert_eq!(fixture.acquire_waiting("a").await, Acquired::Granted);
        for waiter in waiters {
            if waiter.starts_with('j') {
                let tail =
                    fixture.deadlines().await.last().map_or(fixture.time().await, |(_, deadline)| *deadline);
                fixture.add_redisson_waiter(waiter, Some(tail + WAIT)).await;
            } else {
                assert!(is_refused(fixture.acquire_waiting(waiter).await));
            }
        }
        fixture
    }

    pub(super) async fn acquire(&self, waiter: &str, waits: bool) -> Result<Acquired, Failure> {
        let lease = Lease::new(Duration::from_millis(LEASE.unsigned_abs())).expect("in bounds");
        let options = AcquireOptions { lease, waits, highest_token: 0 };
        let waiter = owner(waiter);
        let claim = Claim::new(&self.name, &waiter, 1);
        self.redis.acquire(claim, options, STEP_OPTIONS).await.map(|reply| reply.value)
    }

    pub(super) async fn acquire_waiting(&self, waiter: &str) -> Acquired {
        self.acquire(waiter, true).await.expect("a reply")
    }

    pub(super) async fn release(&self, waiter: &str) -> Released {
        value(self.redis.release(Claim::new(&self.name, &owner(waiter), 0), LIMIT).await)
    }

    pub(super) async fn heartbeat(&self, waiter: &str) -> QueuePosition {
        let step = Step::Heartbeat(self.name.clone(), owner(waiter));
        match value(self.redis.call_batch(vec![step], STEP_OPTIONS).await)[..] {
            [Some(Reply::Position(position))] => position,
            ref other => panic!("a position, and not {other:?}"),
        }
    }

    pub(super) fn key(&self, prefix: &str) -> String {
        self.name.beside(prefix)
    }

    /// Runs a command as another client.
    pub(super) async fn run<T: FromRedisValue>(&mut self, command: &str, args: &[&str]) -> T {
        redis::cmd(command).arg(args).query_async(&mut self.raw).await.expect("a reply")
    }

    /// Adds a waiter as Redisson does: to the queue and, usually, with a deadline.
    pub(super) async fn add_redisson_waiter(&mut self, waiter: &str, deadline: Option<i64>) {
        let _: i64 = self.raw.rpush(self.key(QUEUE), field(waiter)).await.expect("a list");
        if let Some(deadline) = deadline {
            let _: i64 =
                self.raw.zadd(self.key(DEADLINES), field(waiter), deadline).await.expect("a sorted set");
        }
    }

    /// Adds to all deadlines.
    pub(super) async fn shift_deadlines(&mut self, by: i64) {
        for (waiter, _) in self.deadlines().await {
            let _: f64 = self.raw.zincr(self.key(DEADLINES), field(&waiter), by).await.expect("a sorted set");
        }
    }

    pub(super) async fn set_heartbeat(&mut self, waiter: &str, age: i64) {
        let at = self.time().await - age;
        let _: i64 = self.raw.hset(self.key(HEARTBEATS), field(waiter), at).await.expect("a hash");
    }

    pub(super) async fn heartbeat_time(&mut self, waiter: &str) -> Option<i64> {
        self.raw.hget(self.key(HEARTBEATS), field(waiter)).await.expect("a hash")
    }

    /// The server's time in milliseconds.
    pub(super) async fn time(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = self.run("TIME", &[]).await;
        seconds * 1000 + micros / 1000
    }

    pub(super) async fn queue(&mut self) -> Vec<String> {
        let queue: Vec<String> = self.raw.lrange(self.key(QUEUE), 0, -1).await.expect("a list");
        queue.iter().map(|field| without_number(field)).collect()
    }

    pub(super) async fn deadlines(&mut self) -> Vec<(String, i64)> {
        let deadlines: Vec<(String, i64)> =
            self.raw.zrange_withscores(self.key(DEADLINES), 0, -1).await.expect("a sorted set");
        deadlines.into_iter().map(|(field, deadline)| (without_number(&field), deadline)).collect()
    }

    pub(super) async fn deadline(&mut self, waiter: &str) -> i64 {
        self.raw.zscore(self.key(DEADLINES), field(waiter)).await.expect("a deadline")
    }

    pub(super) async fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.run("KEYS", &["*"]).await;
        keys.sort();
        keys
    }

    /// Runs a step, and expects that it notifies this waiter.
    pub(super) async fn expect_notified<T>(&self, waiter: &str, step: impl Future<Output = T>) -> T {
        let client = redis::Client::open(self.server.url()).expect("a good URL");
        let mut pubsub = client.get_async_pubsub().await.expect("a connection");
        let is_javas = waiter.starts_with('j');
        let channel =
            |name: fn(&LockName, &OwnerId) -> LockName| name(&self.name, &owner(waiter)).channel().to_owned();
        let channel = channel(if is_javas { LockName::for_waiter } else { LockName::for_client_of });
        pubsub.subscribe(channel).await.expect("subscribed");
        let outcome = step.await;
        let message = tokio::time::timeout(LIMIT, pubsub.on_message().next()).await;
        let message = message.expect("a message in time").expect("a message");
        let expected = if is_javas { "0".to_owned() } else { field(waiter) };
        assert_eq!(message.get_payload::<String>().expect("a text"), expected);
        outcome
    }

    /// Dumps every key.
    pub(super) async fn dump_all(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for key in self.keys().await {
            let dump = self.run("DUMP", &[&key]).await;
            all.push((key, dump));
        }
        all
    }
}

pub(super) fn is_refused(reply: Acquired) -> bool {
    matches!(reply, Acquired::Busy { .. } | Acquired::Queued)
}

pub(super) fn is_near(one: i64, other: i64) -> bool {
    one.abs_diff(other) <= TOLERANCE.unsigned_abs()
}
