//! Client records: the identity that a client writes to the store.

use std::time::{Duration, SystemTime};

use redis::AsyncCommands;
use turnlock::{Client, Identity, OwnerId};
use turnlock_testkit::{FaultProxy, eventually, within};

use crate::fixture::{Fixture, KindClient, lock_keys, ms, until_waiting};
use crate::{Case, cases};

/// For every store.
pub(crate) const CASES: &[Case] = cases![
    holders_and_waiters_are_identified,
    unknown_owners_have_no_identity,
    an_announced_hold_has_a_start_time,
    the_blocking_interface_announces_too,
];

/// For a Redis server.
pub(crate) const REDIS_CASES: &[Case] = cases![
    a_client_record_is_written_once,
    a_client_record_ignores_the_key_prefix_and_expires,
    a_user_who_may_not_write_a_client_record_can_lock,
    no_request_waits_for_the_client_record,
    a_malformed_client_record_is_ignored,
];

/// The identity of the client of one owner.
async fn identity(reader: &Client, owner: &OwnerId) -> Option<Identity> {
    let mut all = reader.identities(std::slice::from_ref(owner)).await.expect("a reply");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The same, once the store has it.
async fn written_identity(reader: &Client, owner: &OwnerId) -> Identity {
    eventually("the record is written", ms(5_000), async || identity(reader, owner).await.is_some()).await;
    identity(reader, owner).await.expect("written")
}

async fn client_with_label(fixture: &Fixture, label: &str) -> KindClient {
    fixture.client_with(Client::builder().poll_interval(crate::fixture::NO_POLL).label(label)).await
}

async fn holders_and_waiters_are_identified(fixture: Fixture) {
    let (before, name) = (SystemTime::now() - ms(1), fixture.name());
    let (one, two) =
        (client_with_label(&fixture, "the first").await, client_with_label(&fixture, "the second").await);
    let guard = one.fair_lock(&name).lock().await.expect("free");
    let lock = two.fair_lock(&name);
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(&lock, 1).await;
    let waiter = lock.inspect().await.expect("a reply").queue.remove(0);
    let reader = fixture.client().await;
    for (owner, label) in [(guard.owner_id(), "the first"), (&waiter, "the second")] {
        let identity = written_identity(&reader, owner).await;
        assert_eq!((identity.label.as_str(), identity.pid), (label, std::process::id()));
        assert!(
            !identity.host.is_empty() && identity.started >= before && identity.started <= SystemTime::now(),
            "{identity:?}"
        );
        assert_eq!(identity.since_of(owner), None, "it was not announced");
    }
    guard.unlock().await.expect("held");
    task.await.expect("no panic").unlock().await.expect("held");
    let unnamed = fixture.client().await;
    let guard = unnamed.lock(&name).lock().await.expect("free");
    let label = written_identity(&reader, guard.owner_id()).await.label;
    assert!(label.starts_with("it-"), "the name of this program, and not {label:?}");
}

async fn unknown_owners_have_no_identity(fixture: Fixture) {
    let (client, reader) = (fixture.client().await, fixture.client().await);
    let guard = client.lock(&fixture.name()).lock().await.expect("free");
    let semaphore = client.permit_semaphore(&fixture.name());
    semaphore.set_permits(1).await.expect("set");
    let permits = semaphore.acquire(1).await.expect("free");
    let identity = written_identity(&reader, guard.owner_id()).await;
    let owner = OwnerId::from_wire;
    let owners = [
        owner("07070707-0707-4707-8707-070707070707:1"),
        guard.owner_id().clone(),
        owner(&permits.ids()[0]),
        owner(""),
        owner("*"),
        owner(&format!("{}:77", client.id())),
        owner(&format!("{}", client.id())),
        owner(&"x".repeat(10_000)),
    ];
    let all = reader.identities(&owners).await.expect("a reply");
    assert_eq!(all, [None, Some(identity.clone()), None, None, None, Some(identity), None, None]);
    assert!(reader.identities(&[]).await.expect("a reply").is_empty());
    let many: Vec<_> =
        (0..1_000).map(|number| owner(&format!("07070707-0707-4707-8707-{number:012}:1"))).collect();
    assert_eq!(reader.identities(&many).await.expect("a reply"), vec![None; 1_000]);
}

async fn an_announced_hold_has_a_start_time(fixture: Fixture) {
    let (client, reader) = (fixture.client().await, fixture.client().await);
    let before = SystemTime::now();
    let one = client.lock(&fixture.name()).lock().await.expect("free");
    let after = SystemTime::now();
    tokio::time::sleep(ms(50)).await;
    one.announce().await.expect("written");
    let since = async |owner: &OwnerId| identity(&reader, owner).await.expect("written").since_of(owner);
    let started = since(one.owner_id()).await.expect("announced");
    // Stored in milliseconds.
    assert!(started + ms(1) >= before && started <= after + ms(1), "{before:?} {started:?} {after:?}");
    let two = client.lock(&fixture.name()).lock().await.expect("free");
    assert_eq!(since(two.owner_id()).await, None);
    two.announce().await.expect("written");
    assert_eq!(since(one.owner_id()).await, Some(started), "the first is still announced");
    assert!(since(two.owner_id()).await.is_some());
    let gone = one.owner_id().clone();
    one.unlock().await.expect("held");
    two.announce().await.expect("written");
    assert_eq!(since(&gone).await, None, "a released hold is not announced");
    for _ in 0..100 {
        let guard = client.lock(&fixture.name()).lock().await.expect("free");
        guard.announce().await.expect("written");
        assert!(since(guard.owner_id()).await.is_some(), "however many there are");
    }
    assert!(since(two.owner_id()).await.is_some());
}

async fn the_blocking_interface_announces_too(fixture: Fixture) {
    let (client, name) = (fixture.blocking_client(), fixture.name());
    let body = move || {
        let guard = client.lock(&name).lock().expect("free");
        guard.announce().expect("written");
        let owner = guard.owner_id().clone();
        let identity =
            client.identities(std::slice::from_ref(&owner)).expect("a reply").remove(0).expect("written");
        assert!(identity.since_of(&owner).is_some() && identity.pid == std::process::id());
    };
    tokio::task::spawn_blocking(body).await.expect("no panic");
}

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
    let guard = client.lock("app:last").lock().await.expect("free");
    let denied = guard.announce().await;
    assert!(matches!(denied, Err(turnlock::Error::Denied { .. })), "{denied:?}");
    guard.unlock().await.expect("held");
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
