//! Client records: the identity that a client writes to the store.

use std::time::{Duration, Instant, SystemTime};

use redis::AsyncCommands;
use turnlock::{Client, OwnerId};
use turnlock_testkit::conformance::client_identity::{identity, written_identity};
use turnlock_testkit::{FaultProxy, eventually, within};

use crate::fixture::{Fixture, lock_keys, ms};
use crate::{Case, cases};

/// For a Redis server.
pub(crate) const CASES: &[Case] = cases![
    a_client_record_is_written_once,
    a_client_record_ignores_the_key_prefix_and_expires,
    a_user_who_may_not_write_a_client_record_can_lock,
    permits_cost_no_record_unless_they_are_announced,
    a_record_outlasts_the_lock_that_it_is_about,
    no_request_waits_for_the_client_record,
    a_malformed_client_record_is_ignored,
];

async fn a_client_record_is_written_once(fixture: Fixture) {
    let client = fixture.client().await;
    let before = fixture.server().calls().await;
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let lock = client.lock(&format!("lock:{}", number % 20));
            tokio::spawn(async move { lock.lock().await.expect("a turn").unlock().await.expect("held") })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let guard = client.lock("last").lock().await.expect("free");
    written_identity(&client, guard.owner_id()).await;
    assert_eq!(fixture.server().calls().await.since(&before).of("psetex"), 1);
    guard.announce().await.expect("written");
    assert_eq!(fixture.server().calls().await.since(&before).of("psetex"), 2);
}

async fn a_client_record_ignores_the_key_prefix_and_expires(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().key_prefix("app:")).await;
    let guard = client.lock("orders").lock().await.expect("free");
    let identity = written_identity(&*fixture.client().await, guard.owner_id()).await;
    let mut plain = fixture.raw_connection().await;
    let key = format!("turnlock_client:{}", client.id());
    let ttl: u64 = plain.pttl(&key).await.expect("there");
    assert!((3_590_000..=3_600_000).contains(&ttl), "{ttl}");
    let record: String = plain.get(&key).await.expect("there");
    let expected = format!(
        r#"{{"host":"{}","pid":{},"label":"{}","started_ms":"#,
        identity.host, identity.pid, identity.label
    );
    assert!(record.starts_with(&expected), "{record}");
    assert_eq!(lock_keys(&mut plain).await, ["app:orders"], "the record is the only other key");
}

async fn a_user_who_may_not_write_a_client_record_can_lock(fixture: Fixture) {
    let refused = async || {
        let log: Vec<Vec<redis::Value>> = fixture.server().query(&["ACL", "LOG"]).await.expect("a reply");
        log.into_iter()
            .map(|entry| redis::from_redis_value::<u64>(entry[1].clone()).expect("a count"))
            .sum::<u64>()
    };
    let rule = ["ACL", "SETUSER", "some", "reset", "on", ">pass", "&*", "~app:*", "+@all"];
    fixture.server().query::<()>(&rule).await.expect("a user");
    let builder = || Client::builder().user("some").password("pass");
    let client = builder().connect(&fixture.server().url()).await.expect("connected");
    for number in 0..20 {
        let guard = client.lock(&format!("app:{number}")).lock().await.expect("free");
        if number == 0 {
            eventually("it was refused", ms(5_000), async || refused().await == 1).await;
            assert_eq!(identity(&client, guard.owner_id()).await, None, "it may not read records either");
        }
        guard.unlock().await.expect("held");
    }
    // Once to write it, and once to read.
    assert_eq!(refused().await, 2, "the write is not retried");
    let guard = client.lock("app:kept").lock().await.expect("free");
    guard.unlock_after(ms(60_000)).await.expect("held, whatever becomes of the record");
    assert_eq!(refused().await, 2, "a delayed unlock does not retry it either");
    let guard = client.lock("app:last").lock().await.expect("free");
    let denied = guard.announce().await;
    assert!(matches!(denied, Err(turnlock::Error::Denied { .. })), "{denied:?}");
    guard.unlock().await.expect("held");
}

async fn permits_cost_no_record_unless_they_are_announced(fixture: Fixture) {
    let builder = || Client::builder().watchdog_timeout(ms(300));
    let client = fixture.client_with(builder()).await;
    let semaphore = client.permit_semaphore("slots");
    semaphore.set_permits(3).await.expect("set");
    let before = fixture.server().calls().await;
    let written = async || fixture.server().calls().await.since(&before).of("psetex");
    let (first, second) =
        (semaphore.acquire(2).await.expect("free"), semaphore.acquire(1).await.expect("free"));
    until_renewed(|| first.valid_until()).await;
    assert_eq!(written().await, 0);
    first.announce().await.expect("written");
    assert_eq!(written().await, 1, "one for the two permits");
    until_renewed(|| first.valid_until()).await;
    assert_eq!(written().await, 1, "a renewal does not write it, for twenty minutes");
    second.release_after(ms(60_000)).await.expect("held");
    assert_eq!(written().await, 2);
}

/// Waits for a renewal.
async fn until_renewed(valid_until: impl Fn() -> Instant) {
    let before = valid_until();
    eventually("it is renewed", ms(10_000), async || valid_until() > before).await;
}

async fn a_record_outlasts_the_lock_that_it_is_about(fixture: Fixture) {
    let client = fixture.client().await;
    let guard = client.lock("report").lock().await.expect("free");
    guard.unlock_after(ms(7_200_000)).await.expect("held");
    let mut plain = fixture.raw_connection().await;
    let key = format!("turnlock_client:{}", client.id());
    let ttl: u64 = plain.pttl(&key).await.expect("there");
    assert!((10_700_000..=10_800_000).contains(&ttl), "an hour longer: {ttl}");
    // The record of a client in use is written again, and keeps what it says of this lock.
    let other = client.lock("other").lock().await.expect("free");
    other.announce().await.expect("written");
    let ttl: u64 = plain.pttl(&key).await.expect("there");
    assert!((10_700_000..=10_800_000).contains(&ttl), "an hour longer: {ttl}");
}

async fn no_request_waits_for_the_client_record(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    proxy.swallow_replies_to(b"turnlock_client");
    let builder = Client::builder().response_timeout(Duration::from_secs(8));
    let client = fixture.client_at(builder, &format!("redis://127.0.0.1:{}", proxy.port())).await;
    let guard = client.lock("orders").lock().await.expect("free");
    within(ms(5_000), "it is released", guard.unlock()).await.expect("held, whatever became of the record");
    let left = within(ms(5_000), "it ends", client.shutdown(ms(4_000))).await;
    assert!(left.is_clean(), "{left:?}");
}

async fn a_malformed_client_record_is_ignored(fixture: Fixture) {
    let (client, mut plain) = (fixture.client().await, fixture.raw_connection().await);
    let guard = client.lock("orders").lock().await.expect("free");
    written_identity(&client, guard.owner_id()).await;
    let key = |number: u32| format!("turnlock_client:07070707-0707-4707-8707-{number:012}");
    let mut keys = redis::pipe();
    keys.set(key(0), "no JSON")
        .set(key(1), "x".repeat(1_000_000))
        .rpush(key(2), "x")
        .set(key(3), b"\xff\xfe");
    keys.hset(key(4), "host", "x").set(key(5), "").set(key(6), r#"{"host":1}"#);
    keys.set(key(7), r#"{"host":"a\u001b[2Jb","pid":1,"label":"x\ny","started_ms":1,"since":{"9":5}}"#);
    let _: () = keys.query_async(&mut plain).await.expect("set");
    let owner = |number: u32| OwnerId::from_wire(&format!("07070707-0707-4707-8707-{number:012}:9"));
    let owners: Vec<_> = (0..8).map(owner).chain([guard.owner_id().clone()]).collect();
    let all = client.identities(&owners).await.expect("a reply");
    assert_eq!(all[..7], [const { None }; 7]);
    let sanitized = all[7].as_ref().expect("a valid record");
    assert_eq!((sanitized.host.as_str(), sanitized.label.as_str()), ("a\u{fffd}[2Jb", "x\u{fffd}y"));
    assert_eq!(sanitized.since_of(&owner(7)), Some(SystemTime::UNIX_EPOCH + ms(5)));
    assert!(all[8].is_some(), "valid records are still read");
}
