//! A fair lock on a server of its own, where a test can do what Java does.

use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, FromRedisValue};
use turnlock_core::model::{Acquired, Claim, Place, Released, Wish};
use turnlock_core::{Kind, Lease, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use crate::backend::redis::Redis;
use crate::backend::redis::fair::{DEADLINES, QUEUE, SIGNS};
use crate::backend::redis::tests::connected;
use crate::backend::redis::tests::histories::CARE;
use crate::backend::{Answer, Backend, Failure, Waiter};

pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// What each waiter adds to the deadlines behind it.
pub(super) const WAIT: i64 = 300_000;

/// The lease of every hold here.
pub(super) const LEASE: i64 = 30_000;

/// How long the steps of one scenario may take together.
const TOLERANCE: i64 = 3_000;

/// A fair lock on a server of its own, and a way to do there what Java does.
pub(super) struct Stage {
    pub(super) server: RedisServer,
    pub(super) redis: Redis,
    plain: MultiplexedConnection,
    pub(super) name: LockName,
}

/// What an owner ends in on the server, and not in these tests.
const NUMBER: &str = ":1";

pub(super) fn owner(text: &str) -> OwnerId {
    OwnerId::from_wire(&field(text))
}

/// An owner as it stands on the server.
pub(super) fn field(who: &str) -> String {
    format!("{who}{NUMBER}")
}

fn without_number(field: &str) -> String {
    field.strip_suffix(NUMBER).unwrap_or(field).to_owned()
}

pub(super) fn value<T>(answer: Result<Answer<T>, Failure>) -> T {
    answer.expect("an answer").value
}

impl Stage {
    pub(super) async fn free() -> Self {
        let server = RedisServer::start().await;
        let redis = connected(&server).await;
        let plain = server.client().await;
        let name = LockName::of(Kind::Fair, "", "n").expect("a good name");
        Self { server, redis, plain, name }
    }

    /// The lock is held by `a`, and the others wait for it: `j…` are Java's, whose deadlines are as Java makes them.
    pub(super) async fn held_by_a(waiters: &[&str]) -> Self {
        let mut stage = Self::free().await;
        assert_eq!(stage.ask("a").await, Acquired::Granted);
        for waiter in waiters {
            if waiter.starts_with('j') {
                let tail = stage.scores().await.last().map_or(stage.time().await, |(_, score)| *score);
                stage.plant(waiter, Some(tail + WAIT)).await;
            } else {
                assert!(matches!(stage.ask(waiter).await, Acquired::Busy { .. }));
            }
        }
        stage
    }

    pub(super) async fn acquire(&self, who: &str, waits: bool) -> Result<Acquired, Failure> {
        let lease = Lease::new(Duration::from_millis(LEASE.unsigned_abs())).expect("in bounds");
        let wish = Wish { lease, waits, highest_token: 0 };
        let who = owner(who);
        let claim = Claim::new(&self.name, &who, 1);
        self.redis.acquire(claim, wish, CARE).await.map(|answer| answer.value)
    }

    pub(super) async fn ask(&self, who: &str) -> Acquired {
        self.acquire(who, true).await.expect("an answer")
    }

    pub(super) async fn release(&self, who: &str) -> Released {
        value(self.redis.release(Claim::new(&self.name, &owner(who), 0), LIMIT).await)
    }

    pub(super) async fn attend(&self, who: &str) -> Place {
        let waiter = Waiter { name: self.name.clone(), owner: owner(who) };
        value(self.redis.attend(&[waiter], LIMIT).await)[0].expect("an outcome")
    }

    pub(super) fn key(&self, prefix: &str) -> String {
        self.name.beside(prefix)
    }

    /// A command of somebody else.
    pub(super) async fn run<T: FromRedisValue>(&mut self, command: &str, args: &[&str]) -> T {
        redis::cmd(command).arg(args).query_async(&mut self.plain).await.expect("an answer")
    }

    /// Places a waiter as Java does: in the queue and, mostly, with a deadline.
    pub(super) async fn plant(&mut self, who: &str, deadline: Option<i64>) {
        let _: i64 = self.plain.rpush(self.key(QUEUE), field(who)).await.expect("a list");
        if let Some(deadline) = deadline {
            let _: i64 =
                self.plain.zadd(self.key(DEADLINES), field(who), deadline).await.expect("a sorted set");
        }
    }

    /// Adds to the deadline of everybody.
    pub(super) async fn shift_all(&mut self, by: i64) {
        for (who, _) in self.scores().await {
            let _: f64 = self.plain.zincr(self.key(DEADLINES), field(&who), by).await.expect("a sorted set");
        }
    }

    pub(super) async fn give_sign(&mut self, who: &str, age: i64) {
        let at = self.time().await - age;
        let _: i64 = self.plain.hset(self.key(SIGNS), field(who), at).await.expect("a hash");
    }

    pub(super) async fn sign(&mut self, who: &str) -> Option<i64> {
        self.plain.hget(self.key(SIGNS), field(who)).await.expect("a hash")
    }

    /// The server's time in milliseconds.
    pub(super) async fn time(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = self.run("TIME", &[]).await;
        seconds * 1000 + micros / 1000
    }

    pub(super) async fn queue(&mut self) -> Vec<String> {
        let queue: Vec<String> = self.plain.lrange(self.key(QUEUE), 0, -1).await.expect("a list");
        queue.iter().map(|field| without_number(field)).collect()
    }

    pub(super) async fn scores(&mut self) -> Vec<(String, i64)> {
        let scores: Vec<(String, i64)> =
            self.plain.zrange_withscores(self.key(DEADLINES), 0, -1).await.expect("a sorted set");
        scores.into_iter().map(|(field, score)| (without_number(&field), score)).collect()
    }

    pub(super) async fn score(&mut self, who: &str) -> i64 {
        self.plain.zscore(self.key(DEADLINES), field(who)).await.expect("a deadline")
    }

    pub(super) async fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.run("KEYS", &["*"]).await;
        keys.sort();
        keys
    }

    /// Does a step of which this waiter must be told.
    pub(super) async fn telling<T>(&self, who: &str, step: impl Future<Output = T>) -> T {
        let client = redis::Client::open(self.server.url()).expect("a good URL");
        let mut pubsub = client.get_async_pubsub().await.expect("a connection");
        pubsub.subscribe(self.name.for_waiter(&owner(who)).channel()).await.expect("subscribed");
        let outcome = step.await;
        let message = tokio::time::timeout(LIMIT, pubsub.on_message().next()).await;
        let message = message.expect("told in time").expect("a message");
        assert_eq!(message.get_payload::<String>().expect("a text"), "0");
        outcome
    }

    /// Every key with its contents.
    pub(super) async fn everything(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for key in self.keys().await {
            let dump = self.run("DUMP", &[&key]).await;
            all.push((key, dump));
        }
        all
    }
}

pub(super) fn is_near(one: i64, other: i64) -> bool {
    one.abs_diff(other) <= TOLERANCE.unsigned_abs()
}
