//! Foreign keys, no memory, missing rights, a clock that jumps; and what the scripts leave behind.

use std::time::Duration;

use turnlock_core::model::{Acquired, Claim, Place, Released};
use turnlock_core::{Kind, LockName};

use super::stage::{LIMIT, Stage, is_near, owner, value};
use crate::backend::redis::fair::{DEADLINES, QUEUE, SIGNS};
use crate::backend::{Backend, Failure, FailureKind, Waiter};

#[tokio::test]
async fn a_clock_that_was_set_back_keeps_no_dead_waiter() {
    let mut stage = Stage::held_by_a(&["b"]).await;
    stage.give_sign("b", -3_600_000).await;
    stage.acquire("c", false).await.expect("an answer");
    let (sign, now) = (stage.sign("b").await.expect("still there"), stage.time().await);
    assert!(is_near(sign, now), "{sign}, and it is {now}");
}

#[tokio::test]
async fn a_lock_without_a_queue_costs_few_commands() {
    let mut stage = Stage::free().await;
    let _: () = stage.run("CONFIG", &["RESETSTAT"]).await;
    assert_eq!(stage.ask("a").await, Acquired::Granted);
    assert_eq!(stage.release("a").await, Released::Freed);
    let calls = stage.server.calls().await;
    let counts = ["lindex", "pttl", "hset", "pexpire", "hdel"].map(|command| calls.of(command));
    assert_eq!(counts, [2, 1, 1, 1, 1]);
    assert_eq!(["time", "zscore", "hget", "hlen", "publish"].map(|command| calls.of(command)), [0; 5]);
}

#[tokio::test]
async fn signs_of_life_do_not_stay_for_good() {
    let mut stage = Stage::held_by_a(&["b"]).await;
    let signs = stage.key(SIGNS);
    for _ in 0..2 {
        let ttl: i64 = stage.run("PTTL", &[&signs]).await;
        assert!(is_near(ttl, 600_000), "{ttl}");
        let _: i64 = stage.run("DEL", &[&signs]).await;
        assert_eq!(stage.attend("b").await, Place::InQueue);
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_left_alone() {
    for prefix in ["", QUEUE, DEADLINES, SIGNS] {
        let mut stage = Stage::held_by_a(&["b", "c"]).await;
        let key = if prefix.is_empty() { "n".to_owned() } else { stage.key(prefix) };
        let _: () = stage.run("SET", &[&key, "foreign"]).await;
        if prefix != SIGNS {
            // With a dead head, every step has something to tidy up.
            stage.give_sign("b", 60_000).await;
        }
        let before = stage.everything().await;
        let corrupt =
            |failure: Failure| assert!(matches!(failure.kind, FailureKind::Corrupt { .. }), "{key}");
        corrupt(stage.acquire("b", true).await.unwrap_err());
        corrupt(stage.acquire("d", true).await.unwrap_err());
        let b = owner("b");
        corrupt(stage.redis.release(Claim::new(&stage.name, &b, 0), LIMIT).await.unwrap_err());
        corrupt(stage.redis.force_unlock(&stage.name, LIMIT).await.unwrap_err());
        // One bad line does not spoil the rest of a batch.
        let other = LockName::of(Kind::Fair, "", "other").expect("a good name");
        let lines = [&stage.name, &other].map(|name| Waiter { name: name.clone(), owner: b.clone() });
        assert_eq!(value(stage.redis.attend(&lines, LIMIT).await), [None, Some(Place::Nowhere)], "{key}");
        assert_eq!(stage.everything().await, before, "{key}");
    }
}

#[tokio::test]
async fn at_maxmemory_waiters_keep_their_places_and_releases_work() {
    let mut stage = Stage::held_by_a(&["b", "c", "d"]).await;
    let before = stage.sign("c").await;
    let _: () = stage.run("CONFIG", &["SET", "maxmemory", "1"]).await;
    assert!(stage.acquire("e", true).await.is_err(), "no room for one more");
    assert_eq!(stage.queue().await, ["b", "c", "d"]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(stage.attend("c").await, Place::InQueue);
    assert!(matches!(stage.ask("b").await, Acquired::Busy { ttl: Some(_) }));
    assert!(stage.sign("c").await > before);
    assert_eq!(stage.release("b").await, Released::NotHeld);
    assert_eq!(stage.telling("c", stage.release("a")).await, Released::Freed);
    assert!(stage.acquire("c", true).await.is_err(), "a hold needs room");
    assert_eq!(
        (stage.queue().await.as_slice(), stage.scores().await.len()),
        (&["c".into(), "d".into()][..], 2)
    );
    let _: () = stage.run("CONFIG", &["SET", "maxmemory", "0"]).await;
    assert_eq!(stage.ask("c").await, Acquired::Granted);
}

#[tokio::test]
async fn who_may_not_publish_still_releases() {
    let mut stage = Stage::held_by_a(&["b"]).await;
    let _: () = stage.run("ACL", &["SETUSER", "default", "resetchannels"]).await;
    assert_eq!(stage.release("a").await, Released::Freed);
    assert_eq!(stage.ask("b").await, Acquired::Granted);
    let _: () = stage.run("ACL", &["SETUSER", "default", "-pexpire"]).await;
    assert_eq!(stage.release("b").await, Released::Freed);
    assert!(stage.acquire("c", true).await.is_err());
    assert_eq!(stage.keys().await, [""; 0], "no lock without end is left behind");
}
