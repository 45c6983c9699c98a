//! What the commands that look show of Java, and take from it.

use serde_json::{Value, json};

use super::JavaCase;
use super::scene::Scene;
use crate::cases;
use crate::program::Program;

/// For every kind of lock.
pub(super) const CASES: &[JavaCase] =
    cases![an_owner_in_java_is_an_id_alone, only_the_named_owner_loses_its_lock];

pub(super) const FAIR_CASES: &[JavaCase] = cases![a_waiter_in_java_is_an_id_alone];

pub(super) const PERMIT_CASES: &[JavaCase] = cases![only_the_named_permit_is_taken_away];

/// The only object that a command prints.
async fn picture(scene: &Scene, words: &[&str]) -> Value {
    let output = Program::start(scene.rig.turnlock(words)).output().await;
    assert_eq!(output.status.code(), Some(0), "{words:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no object: {output:?}"))
}

/// What is known of one who has not said who it is.
fn stranger(of: &Value) -> Value {
    json!({ "owner": of["owner"], "host": of["host"], "pid": of["pid"], "label": of["label"] })
}

fn id_alone(owner: &str) -> Value {
    json!({ "owner": owner, "host": null, "pid": null, "label": null })
}

async fn an_owner_in_java_is_an_id_alone(scene: Scene) {
    let (java, name) = (scene.java("one"), scene.rig.name.as_str());
    java.does("lock").await;
    java.does("lock").await;
    let owner = scene.owner("one").await;
    for words in [["ls", "--json", name], ["show", "--json", name]] {
        let seen = picture(&scene, &words).await;
        assert_eq!((&seen["name"], &seen["locked"]), (&json!(name), &json!(true)), "{seen}");
        let [holder] = seen["holders"].as_array().expect("holders").as_slice() else { panic!("{seen}") };
        assert_eq!(stranger(holder), id_alone(&owner), "{seen}");
        assert_eq!(holder["count"], 2, "{seen}");
        // A writer's second hold adds its lease to the first one's.
        assert!(seen["ttl_ms"].as_u64().is_some_and(|ttl| (1..=60_000).contains(&ttl)), "{seen}");
    }
    // And in the table for people.
    let table = Program::start(scene.rig.turnlock(&["ls", name])).output().await.stdout;
    let table = String::from_utf8(table).expect("text");
    assert!(table.contains(&owner), "{table}");
    java.does("unlock").await;
    java.does("unlock").await;
    assert_eq!(picture(&scene, &["show", "--json", name]).await["locked"], false);
}

async fn a_waiter_in_java_is_an_id_alone(scene: Scene) {
    let java = scene.java_at("fair", "one");
    let holder = scene.rig.hold(&["--fair", "--label", "ours"]).await;
    let turn = java.begins("lock");
    scene.until_listening().await;
    let seen = picture(&scene, &["show", "--json", &scene.rig.name]).await;
    // One of ours beside it has said who it is.
    assert_eq!(seen["holders"][0]["label"], "ours", "{seen}");
    assert_eq!(seen["queue"], json!([id_alone(&scene.owner("one").await)]), "{seen}");
    assert_eq!(holder.code().await, 0);
    turn.await.expect("a turn");
    java.does("unlock").await;
}

/// `turnlock unlock --force --if-owner OWNER --yes` at the name of the case.
async fn unlock(scene: &Scene, owner: &str) -> (i32, String) {
    let words = ["unlock", "--force", "--if-owner", owner, "--yes", &scene.rig.name];
    Program::start(scene.rig.turnlock(&words)).finish().await
}

async fn only_the_named_owner_loses_its_lock(scene: Scene) {
    let (java, flags) = (scene.java("one"), scene.rivals.flags);
    java.does("lock").await;
    // Of the same process, and still somebody else.
    let (code, words) = unlock(&scene, &scene.owner("two").await).await;
    assert_eq!(code, 1, "{words}");
    java.says("isHeldByMe", "true").await;
    assert_eq!(scene.code_of(flags).await, 1);
    let (code, words) = unlock(&scene, &scene.owner("one").await).await;
    assert_eq!(code, 0, "{words}");
    assert_eq!(scene.code_of(flags).await, 0);
    // Its unlock would not always tell: that of a fair lock which nobody holds succeeds.
    java.says("isHeldByMe", "false").await;
}

async fn only_the_named_permit_is_taken_away(scene: Scene) {
    let java = scene.java_at("permits", "one");
    java.says("trySetPermits 2", "true").await;
    let (one, two) = (java.ask("acquire").await, java.ask("acquire").await);
    let (code, words) = unlock(&scene, &scene.owner("one").await).await;
    assert_eq!(code, 1, "{words}");
    java.says("available", "0").await;
    let (code, words) = unlock(&scene, &one).await;
    assert_eq!(code, 0, "{words}");
    java.says("available", "1").await;
    java.says(&format!("tryRelease {one}"), "false").await;
    let seen = picture(&scene, &["show", "--json", &scene.rig.name]).await;
    let [left] = seen["holders"].as_array().expect("holders").as_slice() else { panic!("{seen}") };
    assert_eq!(stranger(left), id_alone(&two), "{seen}");
    java.does(&format!("release {two}")).await;
}
