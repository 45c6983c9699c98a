//! Among keys that are no locks.

use redis::AsyncCommands;
use turnlock::{Client, Error, Kind};

use super::{Held, names};
use crate::rig::Rig;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    other_keys_are_not_shown_and_little_is_read_of_them,
    keys_of_many_pages_are_looked_at,
    keys_beside_a_lock_are_no_locks,
    a_lock_of_another_library_is_looked_up,
    what_may_not_be_looked_at_is_left_out,
];

const OWNER: &str = "07070707-0707-4707-8707-070707070707:12";

async fn other_keys_are_not_shown_and_little_is_read_of_them(rig: Rig) {
    let (client, mut plain) = (rig.client().await, rig.plain().await);
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
    let _: () = keys.query_async(&mut plain).await.expect("set");
    for part in 0..20 {
        let mut fields = redis::pipe();
        (0..5_000).for_each(|number| {
            fields.hset("large", format!("field:{part}:{number}"), 1).ignore();
            fields.hset("owners", format!("07070707-0707-4707-8707-070707070707:{part}{number}"), 1).ignore();
        });
        let _: () = fields.query_async(&mut plain).await.expect("set");
    }
    let held = Held::new(&rig, &client).await;
    let before = rig.server().calls().await;
    let found = client.find("*", 1_000).await.expect("an answer");
    let spent = rig.server().calls().await.since(&before);
    let mut expected: Vec<_> = held.locks.keys().cloned().chain([rig.named("permits")]).collect();
    expected.sort();
    assert_eq!((names(&found), found.is_complete), (expected.iter().map(String::as_str).collect(), true));
    assert_eq!((spent.of("keys"), spent.of("hscan"), spent.of("hkeys")), (0, 0, 0), "{spent:?}");
    assert_eq!(spent.of("hgetall"), 4, "of what is a lock, and of nothing else");
    for foreign in [
        "profile", "lamp", "two", "wide", "large", "owners", "session", "list", "set", "sorted", "stream",
        "page",
    ] {
        assert_eq!(client.look_up(foreign).await.expect("an answer"), None, "{foreign}");
    }
}

async fn keys_of_many_pages_are_looked_at(rig: Rig) {
    let (client, mut plain) = (rig.client().await, rig.plain().await);
    let mut keys = redis::pipe();
    for number in 0..5_000 {
        keys.set(format!("app:{number}"), "x").hset(format!("other:{number}"), "field", 1);
    }
    let _: () = keys.query_async(&mut plain).await.expect("set");
    let mut guards = Vec::new();
    for number in 0..200 {
        guards.push(client.lock(&format!("app:{number}:lock")).lock().await.expect("free"));
    }
    let before = rig.server().calls().await;
    let found = client.find("app:*:lock", 1_000).await.expect("an answer");
    let spent = rig.server().calls().await.since(&before);
    assert_eq!((found.things.len(), found.is_complete), (200, true));
    assert!((20..100).contains(&spent.of("scan")), "{spent:?}");
    // One look to see what it is, and one to see who holds it.
    assert_eq!(spent.of("evalsha"), 400, "keys that do not match are not looked at: {spent:?}");
    let found = client.find("*", 1_000).await.expect("an answer");
    assert_eq!((found.things.len(), found.is_complete), (200, true));
    drop(guards);
}

async fn keys_beside_a_lock_are_no_locks(rig: Rig) {
    let (client, other) = (rig.client().await, rig.client().await);
    let guard = client.fair_lock("fair").lock().await.expect("free");
    let reader = client.read_write_lock("shared").read().lock().await.expect("free");
    let fenced = client.fenced_lock("fenced").lock().await.expect("free");
    let (fair, write) = (other.fair_lock("fair"), other.read_write_lock("shared").write());
    let tasks = [fair, write].map(|lock| {
        let task = tokio::spawn({
            let lock = lock.clone();
            async move { drop(lock.lock().await) }
        });
        (lock, task)
    });
    let mut plain = rig.plain().await;
    for key in ["redisson_lock_queue:{fair}", "turnlock_waiters:{fair}", "turnlock_writer_waits:{shared}"] {
        turnlock_testkit::eventually("it waits", crate::rig::PROMPT, async || {
            rig.plain().await.exists::<_, bool>(key).await.expect("an answer")
        })
        .await;
    }
    let found = client.find("*", 100).await.expect("an answer");
    assert_eq!(names(&found), ["fair", "fenced", "shared"]);
    let keys: Vec<String> = plain.keys("*").await.expect("keys");
    assert!(keys.len() > 6, "there is something that is not shown: {keys:?}");
    for key in keys.iter().filter(|key| !["fair", "fenced", "shared"].contains(&key.as_str())) {
        assert_eq!(client.look_up(key).await.expect("an answer"), None, "{key}");
    }
    for (_, task) in tasks {
        task.abort();
    }
    drop((guard, reader, fenced));
}

async fn a_lock_of_another_library_is_looked_up(rig: Rig) {
    let (client, mut plain) = (rig.client().await, rig.plain().await);
    let value = "c5f0a1b2d3e44f5f8a9b0c1d2e3f4a5b";
    let _: () = plain.pset_ex("theirs", value, 60_000).await.expect("set");
    assert!(client.find("*", 10).await.expect("an answer").things.is_empty(), "it may be anything");
    let seen = client.look_up("theirs").await.expect("an answer").expect("it may be a lock");
    assert_eq!((seen.kind, seen.holders[0].owner.as_str()), (Kind::Plain, value));
}

async fn what_may_not_be_looked_at_is_left_out(rig: Rig) {
    let everyone = rig.client().await;
    let _mine = everyone.lock("app:mine").lock().await.expect("free");
    let _theirs = everyone.lock("other:theirs").lock().await.expect("free");
    let connect = async |user: &str, rights: &[&str]| {
        let rule = ["ACL", "SETUSER", user, "reset", "on", ">pass", "&*"];
        rig.server().ask::<()>(&[&rule[..], rights].concat()).await.expect("a user");
        Client::builder().user(user).password("pass").connect(&rig.server().url()).await.expect("let in")
    };
    let some = connect("some", &["~app:*", "+@all"]).await;
    let found = some.find("*", 10).await.expect("an answer");
    assert_eq!((names(&found), found.is_complete), (vec!["app:mine"], true));
    assert!(matches!(some.look_up("other:theirs").await, Err(Error::Denied { .. })));
    let blind = connect("blind", &["~*", "+@all", "-scan"]).await;
    assert!(matches!(blind.find("*", 10).await, Err(Error::Denied { .. })));
    assert!(blind.look_up("app:mine").await.expect("an answer").is_some(), "which needs no search");
}
