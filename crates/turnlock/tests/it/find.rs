//! `find` and `inspect` on a server with keys that are not locks.

use std::collections::BTreeSet;

use redis::AsyncCommands;
use turnlock::{Client, Error, Kind, NameError};

use turnlock_testkit::conformance::find::{HeldLocks, names};

use crate::fixture::{Fixture, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    foreign_keys_are_not_shown_and_not_read_in_full,
    many_pages_of_keys_are_scanned,
    auxiliary_keys_are_not_shown_as_locks,
    inspect_shows_a_lock_of_another_library,
    denied_keys_are_left_out,
    an_inspection_during_a_stall_keeps_the_connection,
];

const OWNER: &str = "07070707-0707-4707-8707-070707070707:12";

async fn foreign_keys_are_not_shown_and_not_read_in_full(fixture: Fixture) {
    let (client, mut connection) = (fixture.client().await, fixture.raw_connection().await);
    let mut keys = redis::pipe();
    keys.hset("profile", "name", "x").hset("lamp", "mode", "read").hset("two", OWNER, 1).hset("two", "b", 1);
    keys.hset("wide", OWNER, "x".repeat(100_000)).hset("dark", "mode", "dark").hset("dark", OWNER, 1);
    keys.set("session", "abcdef").set("endless", OWNER).set("counter", 7).pset_ex(
        "page",
        "<html> </html>",
        60_000,
    );
    keys.rpush("list", OWNER).sadd("set", OWNER).zadd("sorted", OWNER, 1).zadd("{counted}:timeout", "x", 1);
    keys.hset(b"\xff\xfe", OWNER, 1).hset("a".repeat(5_000), OWNER, 1).set("empty", "");
    keys.cmd("XADD").arg("stream").arg("*").arg(OWNER).arg(1);
    let _: () = keys.query_async(&mut connection).await.expect("set");
    for part in 0..20 {
        let mut fields = redis::pipe();
        (0..5_000).for_each(|number| {
            fields.hset("large", format!("field:{part}:{number}"), 1).ignore();
            fields.hset("owners", format!("07070707-0707-4707-8707-070707070707:{part}{number}"), 1).ignore();
        });
        let _: () = fields.query_async(&mut connection).await.expect("set");
    }
    let held = HeldLocks::new(&fixture, &client).await;
    let before = fixture.server().calls().await;
    let found = client.find("*", 1_000).await.expect("a reply");
    let spent = fixture.server().calls().await.since(&before);
    let mut expected: Vec<_> = held.locks.keys().cloned().chain([fixture.named("permits")]).collect();
    expected.sort();
    assert_eq!((names(&found), found.is_complete), (expected.iter().map(String::as_str).collect(), true));
    assert_eq!((spent.of("keys"), spent.of("hscan"), spent.of("hkeys")), (0, 0, 0), "{spent:?}");
    assert_eq!(spent.of("hgetall"), 4, "only of locks");
    for foreign in [
        "profile", "lamp", "two", "wide", "large", "owners", "session", "list", "set", "sorted", "stream",
        "page",
    ] {
        assert_eq!(client.inspect(foreign).await.expect("a reply"), None, "{foreign}");
    }
}

async fn many_pages_of_keys_are_scanned(fixture: Fixture) {
    // An announcement of the holds would count as a call.
    let client = fixture.client_with(Client::builder().announce_waits(false)).await;
    let mut connection = fixture.raw_connection().await;
    let mut keys = redis::pipe();
    for number in 0..5_000 {
        keys.set(format!("app:{number}"), "x").hset(format!("other:{number}"), "field", 1);
    }
    let _: () = keys.query_async(&mut connection).await.expect("set");
    let mut guards = Vec::new();
    for number in 0..200 {
        guards.push(client.lock(&format!("app:{number}:lock")).lock().await.expect("free"));
    }
    let before = fixture.server().calls().await;
    let found = client.find("app:*:lock", 1_000).await.expect("a reply");
    let spent = fixture.server().calls().await.since(&before);
    assert_eq!((found.items.len(), found.is_complete), (200, true));
    assert!((20..100).contains(&spent.of("scan")), "{spent:?}");
    // One call to detect the kind, and one to read the holder; and one to read what is announced.
    assert_eq!(spent.of("evalsha"), 401, "keys that do not match are not read: {spent:?}");
    let found = client.find("*", 1_000).await.expect("a reply");
    assert_eq!((found.items.len(), found.is_complete), (200, true));
    drop(guards);
}

async fn auxiliary_keys_are_not_shown_as_locks(fixture: Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let guard = client.fair_lock("fair").lock().await.expect("free");
    let reader = client.read_write_lock("shared").reader().lock().await.expect("free");
    let fenced = client.fenced_lock("fenced").lock().await.expect("free");
    let (fair, write) = (other.fair_lock("fair"), other.read_write_lock("shared").writer());
    let tasks = [fair, write].map(|lock| {
        let task = tokio::spawn({
            let lock = lock.clone();
            async move { drop(lock.lock().await) }
        });
        (lock, task)
    });
    let mut connection = fixture.raw_connection().await;
    for key in ["redisson_lock_queue:{fair}", "turnlock_waiters:{fair}", "turnlock_writer_waits:{shared}"] {
        turnlock_testkit::eventually("the waiter's key exists", crate::fixture::PROMPT, async || {
            fixture.raw_connection().await.exists::<_, bool>(key).await.expect("a reply")
        })
        .await;
    }
    let found = client.find("*", 100).await.expect("a reply");
    assert_eq!(names(&found), ["fair", "fenced", "shared"]);
    let keys: Vec<String> = connection.keys("*").await.expect("keys");
    assert!(keys.len() > 6, "there are auxiliary keys: {keys:?}");
    for key in keys.iter().filter(|key| !["fair", "fenced", "shared"].contains(&key.as_str())) {
        match client.inspect(key).await {
            // The keys of records cannot be the names of locks.
            Err(Error::BadName(NameError::Reserved(_))) => assert!(key.starts_with("turnlock_"), "{key}"),
            found => assert_eq!(found.expect("a reply"), None, "{key}"),
        }
    }
    for (_, task) in tasks {
        task.abort();
    }
    drop((guard, reader, fenced));
}

async fn inspect_shows_a_lock_of_another_library(fixture: Fixture) {
    let (client, mut connection) = (fixture.client().await, fixture.raw_connection().await);
    let value = "c5f0a1b2d3e44f5f8a9b0c1d2e3f4a5b";
    let _: () = connection.pset_ex("theirs", value, 60_000).await.expect("set");
    assert!(client.find("*", 10).await.expect("a reply").items.is_empty(), "it may be any value");
    let seen = client.inspect("theirs").await.expect("a reply").expect("it may be a lock");
    assert_eq!((seen.kind, seen.holders[0].owner.as_str()), (Kind::Plain, value));
}

async fn denied_keys_are_left_out(fixture: Fixture) {
    let admin = fixture.client().await;
    let _allowed = admin.lock("app:allowed").lock().await.expect("free");
    let _denied = admin.lock("other:denied").lock().await.expect("free");
    let connect = async |user: &str, rights: &[&str]| {
        let rule = ["ACL", "SETUSER", user, "reset", "on", ">pass", "&*"];
        fixture.server().query::<()>(&[&rule[..], rights].concat()).await.expect("a user");
        Client::builder()
            .user(user)
            .password("pass")
            .connect(&fixture.server().url())
            .await
            .expect("connected")
    };
    let some = connect("some", &["~app:*", "+@all"]).await;
    let found = some.find("*", 10).await.expect("a reply");
    assert_eq!((names(&found), found.is_complete), (vec!["app:allowed"], true));
    assert!(matches!(some.inspect("other:denied").await, Err(Error::Denied { .. })));
    let no_scan = connect("no_scan", &["~*", "+@all", "-scan"]).await;
    assert!(matches!(no_scan.find("*", 10).await, Err(Error::Denied { .. })));
    assert!(no_scan.inspect("app:allowed").await.expect("a reply").is_some(), "inspect needs no SCAN");
}

async fn an_inspection_during_a_stall_keeps_the_connection(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().response_timeout(ms(8_000))).await;
    let lock = client.lock("orders");
    let guard = lock.lock().await.expect("free");
    let mut connection = fixture.raw_connection().await;
    let mut list = redis::cmd("CLIENT");
    list.arg("LIST");
    let ids = |list: &str| -> BTreeSet<String> {
        list.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    let before = ids(&list.query_async::<String>(&mut connection).await.expect("a reply"));
    fixture.server().pause();
    let stall = async {
        // Longer than an inspection waits for what is announced, and shorter than the response time-out.
        tokio::time::sleep(ms(5_000)).await;
        fixture.server().resume();
    };
    let (inspected, ()) = tokio::join!(lock.inspect(), stall);
    assert_eq!(inspected.expect("a reply").holders.len(), 1);
    // On a new connection, if this one was given up.
    guard.unlock().await.expect("held");
    let after = ids(&list.query_async::<String>(&mut connection).await.expect("a reply"));
    assert!(before.is_subset(&after), "{before:?} {after:?}");
}
