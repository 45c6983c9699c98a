//! `ls`, `show` and `unlock` on locks that Java holds.

use serde_json::{Value, json};

use super::JavaCase;
use super::fixture::RedissonFixture;
use crate::cases;
use crate::program::Program;

/// For every kind of lock.
pub(super) const CASES: &[JavaCase] =
    cases![a_java_holder_is_shown_by_its_id, if_owner_unlocks_only_the_named_java_thread];

pub(super) const FAIR_CASES: &[JavaCase] = cases![a_java_waiter_is_shown_by_its_id];

pub(super) const PERMIT_CASES: &[JavaCase] = cases![if_owner_releases_only_the_named_permit];

/// Runs a command that prints one JSON object.
async fn json_object(fixture: &RedissonFixture, arguments: &[&str]) -> Value {
    let output = Program::start(fixture.base.turnlock(arguments)).output().await;
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("not an object: {output:?}"))
}

/// The owner and identity of a holder.
fn identity_of(holder: &Value) -> Value {
    json!({ "owner": holder["owner"], "host": holder["host"], "pid": holder["pid"], "label": holder["label"] })
}

fn without_identity(owner: &str) -> Value {
    json!({ "owner": owner, "host": null, "pid": null, "label": null })
}

async fn a_java_holder_is_shown_by_its_id(fixture: RedissonFixture) {
    let (java, name) = (fixture.java("one"), fixture.base.name.as_str());
    java.run("lock").await;
    java.run("lock").await;
    let owner = fixture.owner("one").await;
    for arguments in [["ls", "--json", name], ["show", "--json", name]] {
        let seen = json_object(&fixture, &arguments).await;
        assert_eq!((&seen["name"], &seen["locked"]), (&json!(name), &json!(true)), "{seen}");
        let [holder] = seen["holders"].as_array().expect("holders").as_slice() else { panic!("{seen}") };
        assert_eq!(identity_of(holder), without_identity(&owner), "{seen}");
        assert_eq!(holder["count"], 2, "{seen}");
        // The second hold of a writer adds its lease to that of the first one.
        assert!(seen["ttl_ms"].as_u64().is_some_and(|ttl| (1..=60_000).contains(&ttl)), "{seen}");
    }
    // The table has the owner, too.
    let table = Program::start(fixture.base.turnlock(&["ls", name])).output().await.stdout;
    let table = String::from_utf8(table).expect("text");
    assert!(table.contains(&owner), "{table}");
    java.run("unlock").await;
    java.run("unlock").await;
    assert_eq!(json_object(&fixture, &["show", "--json", name]).await["locked"], false);
}

async fn a_java_waiter_is_shown_by_its_id(fixture: RedissonFixture) {
    let java = fixture.java_at("fair", "one");
    let holder = fixture.base.hold(&["--fair", "--label", "ours"]).await;
    let call = java.start("lock");
    fixture.until_subscribed().await;
    let seen = json_object(&fixture, &["show", "--json", &fixture.base.name]).await;
    // The holder is a client of turnlock, which has an identity.
    assert_eq!(seen["holders"][0]["label"], "ours", "{seen}");
    assert_eq!(seen["queue"], json!([without_identity(&fixture.owner("one").await)]), "{seen}");
    assert_eq!(holder.code().await, 0);
    call.await.expect("the lock");
    java.run("unlock").await;
}

/// Runs `turnlock unlock --force --if-owner OWNER --yes` on the name of the case.
async fn unlock(fixture: &RedissonFixture, owner: &str) -> (i32, String) {
    let arguments = ["unlock", "--force", "--if-owner", owner, "--yes", &fixture.base.name];
    Program::start(fixture.base.turnlock(&arguments)).finish().await
}

async fn if_owner_unlocks_only_the_named_java_thread(fixture: RedissonFixture) {
    let (java, flags) = (fixture.java("one"), fixture.pair.flags);
    java.run("lock").await;
    // Another thread of the same process is another owner.
    let (code, stderr) = unlock(&fixture, &fixture.owner("two").await).await;
    assert_eq!(code, 1, "{stderr}");
    java.expect("isHeldByMe", "true").await;
    assert_eq!(fixture.code_of(flags).await, 1);
    let (code, stderr) = unlock(&fixture, &fixture.owner("one").await).await;
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(fixture.code_of(flags).await, 0);
    // Not checked with unlock: the unlock of a fair lock that is not held succeeds.
    java.expect("isHeldByMe", "false").await;
}

async fn if_owner_releases_only_the_named_permit(fixture: RedissonFixture) {
    let java = fixture.java_at("permits", "one");
    java.expect("trySetPermits 2", "true").await;
    let (one, two) = (java.call("acquire").await, java.call("acquire").await);
    let (code, stderr) = unlock(&fixture, &fixture.owner("one").await).await;
    assert_eq!(code, 1, "{stderr}");
    java.expect("available", "0").await;
    let (code, stderr) = unlock(&fixture, &one).await;
    assert_eq!(code, 0, "{stderr}");
    java.expect("available", "1").await;
    java.expect(&format!("tryRelease {one}"), "false").await;
    let seen = json_object(&fixture, &["show", "--json", &fixture.base.name]).await;
    let [left] = seen["holders"].as_array().expect("holders").as_slice() else { panic!("{seen}") };
    assert_eq!(identity_of(left), without_identity(&two), "{seen}");
    java.run(&format!("release {two}")).await;
}
