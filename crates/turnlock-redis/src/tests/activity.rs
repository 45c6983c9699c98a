//! The hash of activity records: how long it lasts, and what others may have written there.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use turnlock_core::ClientId;
use turnlock_store::{
    Activity, ActivityRecord, ActivityScope, Failure, FailureKind, MAX_ACTIVITY_LEN, MAX_ACTIVITY_RECORDS,
    MAX_ACTIVITY_REPLY_LEN,
};
use turnlock_testkit::RedisServer;

use super::connected;
use crate::Redis;

const LIMIT: Duration = Duration::from_secs(10);
const KEY: &str = "turnlock_waits";

struct Fixture {
    redis: Redis,
    raw: MultiplexedConnection,
    _server: RedisServer,
}

impl Fixture {
    async fn new() -> Self {
        let server = RedisServer::start().await;
        Self { redis: connected(&server).await, raw: server.client().await, _server: server }
    }

    async fn write(&self, client: ClientId, record: Option<ActivityRecord>) -> Result<u64, Failure> {
        let reply = self.redis.directory().write_activity(client, record, LIMIT).await?;
        Ok(reply.value.expect("it keeps records").as_micros())
    }

    async fn read(&self, scope: ActivityScope) -> Activity {
        self.redis.directory().activity(scope, LIMIT).await.expect("a reply").value
    }

    async fn plant(&mut self, field: impl redis::ToSingleRedisArg + Send + Sync, value: &[u8]) {
        let _: () = self.raw.hset(KEY, field, value).await.expect("a reply");
    }

    async fn fields(&mut self) -> BTreeSet<String> {
        self.raw.hkeys(KEY).await.expect("a reply")
    }
}

fn client(number: u16) -> ClientId {
    let [high, low] = number.to_be_bytes();
    ClientId::from_random([high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

fn record() -> ActivityRecord {
    ActivityRecord { text: "{}".to_owned(), is_linked: true, lasts: Duration::from_secs(10) }
}

#[tokio::test]
async fn the_hash_expires_and_loses_expired_records() {
    let mut fixture = Fixture::new().await;
    // One has expired. The other is no record, and is left alone.
    fixture.plant(client(1).to_string(), b"1 2 1 {}").await;
    fixture.plant("x", b"x").await;
    assert_eq!(fixture.read(ActivityScope::All).await.records, []);
    let stamp = fixture.write(client(2), Some(record())).await.expect("written");
    assert_eq!(fixture.fields().await, ["x".to_owned(), client(2).to_string()].into());
    let ttl: i64 = fixture.raw.pttl(KEY).await.expect("a reply");
    assert!((50_000..=60_000).contains(&ttl), "{ttl}");
    let read = fixture.read(ActivityScope::Linked).await;
    assert_eq!(
        (read.records.len(), read.records[0].client, read.records[0].written.as_micros()),
        (1, client(2), stamp)
    );
    fixture.write(client(2), None).await.expect("removed");
    assert_eq!(fixture.fields().await, ["x".to_owned()].into());
}

#[tokio::test]
async fn hostile_records_are_left_out() {
    let mut fixture = Fixture::new().await;
    let now = fixture.write(client(1), Some(record())).await.expect("written");
    let (later, end) = (now + 3_600_000_000, now + 7_200_000_000);
    let long = format!("{now} {end} 1 {}", "x".repeat(MAX_ACTIVITY_LEN + 1));
    let digits = "9".repeat(400);
    let values: [Vec<u8>; 9] = [
        Vec::new(),
        b"\xff\xfe".to_vec(),
        b"1 2".to_vec(),
        b"-1 99999999999999999999 1 {}".to_vec(),
        format!("{now} {end} 2 {{}}").into(),
        format!("{digits} {digits} 1 {{}}").into(),
        format!("{later} {end} 1 {{}}").into(),
        [format!("{now} {end} 1 ").as_bytes(), b"\xff"].concat(),
        long.into(),
    ];
    for (number, value) in (2..).zip(values) {
        fixture.plant(client(number).to_string(), &value).await;
    }
    for field in ["", "x", "\u{1b}[31m"] {
        fixture.plant(field, format!("{now} {end} 1 {{}}").as_bytes()).await;
    }
    fixture.plant(b"\xff".as_slice(), format!("{now} {end} 1 {{}}").as_bytes()).await;
    for scope in [ActivityScope::All, ActivityScope::Linked] {
        let read = fixture.read(scope).await;
        let clients: Vec<_> = read.records.iter().map(|record| record.client).collect();
        assert_eq!((clients, read.is_complete), (vec![client(1)], true), "{scope:?}");
    }
    // None of it prevents a write.
    fixture.write(client(1), Some(record())).await.expect("written");
}

#[tokio::test]
async fn no_more_records_are_read_than_one_request_may_have() {
    let mut fixture = Fixture::new().await;
    let now = fixture.write(client(0), Some(record())).await.expect("written");
    let number = u16::try_from(MAX_ACTIVITY_RECORDS).expect("a small number");
    for number in 1..number {
        fixture.plant(client(number).to_string(), format!("{now} {} 1 {{}}", now * 2).as_bytes()).await;
    }
    let read = fixture.read(ActivityScope::All).await;
    assert_eq!((read.records.len(), read.is_complete), (MAX_ACTIVITY_RECORDS, true));
    fixture.plant(client(number).to_string(), format!("{now} {} 1 {{}}", now * 2).as_bytes()).await;
    let read = fixture.read(ActivityScope::All).await;
    assert_eq!((read.records.len(), read.is_complete), (MAX_ACTIVITY_RECORDS, false));
    assert_eq!(read.scanned, MAX_ACTIVITY_RECORDS + 1);
}

#[tokio::test]
async fn a_reply_does_not_grow_with_long_records() {
    let mut fixture = Fixture::new().await;
    let now = fixture.write(client(0), Some(record())).await.expect("written");
    let long = format!("{now} {} 1 {}", now * 2, "x".repeat(8_000));
    for number in 1..=300 {
        fixture.plant(client(number).to_string(), long.as_bytes()).await;
    }
    for scope in [ActivityScope::All, ActivityScope::Linked] {
        let read = fixture.read(scope).await;
        let len: usize = read.records.iter().map(|record| record.text.len()).sum();
        assert!(
            len > MAX_ACTIVITY_REPLY_LEN * 9 / 10 && len < MAX_ACTIVITY_REPLY_LEN + MAX_ACTIVITY_LEN,
            "{len}"
        );
        assert_eq!((read.scanned, read.is_complete), (301, false));
    }
}

#[tokio::test]
async fn a_record_is_not_left_without_an_end() {
    for denied in ["-pexpire", "-hrandfield"] {
        let mut fixture = Fixture::new().await;
        let acl = |command: &'static str| {
            let mut cmd = redis::cmd("ACL");
            cmd.arg(&["SETUSER", "default", command]);
            cmd
        };
        let _: () = acl(denied).query_async(&mut fixture.raw).await.expect("set");
        let outcome = fixture.write(client(1), Some(record())).await;
        let is_denied = matches!(&outcome, Err(Failure { kind: FailureKind::Denied(_), .. }));
        assert!(is_denied, "{denied}: {outcome:?}");
        assert!(fixture.fields().await.is_empty(), "{denied}");
    }
}
