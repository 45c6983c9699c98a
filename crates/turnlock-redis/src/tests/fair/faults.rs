//! Foreign keys, no memory, missing permissions, a clock that jumps, and the keys that remain.

use std::time::Duration;

use turnlock_core::model::{Acquired, Claim, QueuePosition, Released, Reply, Step};
use turnlock_core::{Kind, LockName};

use super::fixture::{Fixture, LIMIT, is_near, owner, value};
use crate::steps::{DEADLINES, HEARTBEATS, QUEUE};
use crate::tests::histories::STEP_OPTIONS;
use turnlock_store::{Failure, FailureKind};

#[tokio::test]
async fn a_clock_set_back_does_not_keep_a_dead_waiter() {
    let mut fixture = Fixture::held_by_a(&["b"]).await;
    fixture.set_heartbeat("b", -3_600_000).await;
    assert_eq!(fixture.release("c").await, Released::NotHeld);
    let (heartbeat, now) = (fixture.heartbeat_time("b").await.expect("still there"), fixture.time().await);
    assert!(is_near(heartbeat, now), "{heartbeat}, and it is {now}");
}

#[tokio::test]
async fn a_lock_without_a_queue_costs_few_commands() {
    let mut fixture = Fixture::free().await;
    let _: () = fixture.run("CONFIG", &["RESETSTAT"]).await;
    assert_eq!(fixture.acquire_waiting("a").await, Acquired::Granted);
    assert_eq!(fixture.release("a").await, Released::Freed);
    let calls = fixture.server.calls().await;
    let counts = ["lindex", "pttl", "hset", "pexpire", "hdel"].map(|command| calls.of(command));
    assert_eq!(counts, [2, 1, 1, 1, 1]);
    assert_eq!(["time", "zscore", "hget", "hlen", "publish"].map(|command| calls.of(command)), [0; 5]);
}

#[tokio::test]
async fn heartbeats_expire() {
    let mut fixture = Fixture::held_by_a(&["b"]).await;
    let heartbeats = fixture.key(HEARTBEATS);
    for _ in 0..2 {
        let ttl: i64 = fixture.run("PTTL", &[&heartbeats]).await;
        assert!(is_near(ttl, 600_000), "{ttl}");
        let _: i64 = fixture.run("DEL", &[&heartbeats]).await;
        assert_eq!(fixture.heartbeat("b").await, QueuePosition::InQueue);
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_not_changed() {
    for prefix in ["", QUEUE, DEADLINES, HEARTBEATS] {
        let mut fixture = Fixture::held_by_a(&["b", "c"]).await;
        let key = if prefix.is_empty() { "n".to_owned() } else { fixture.key(prefix) };
        let _: () = fixture.run("SET", &[&key, "foreign"]).await;
        if prefix != HEARTBEATS {
            // With a dead head, every step has something to remove.
            fixture.set_heartbeat("b", 60_000).await;
        }
        let before = fixture.dump_all().await;
        let corrupt =
            |failure: Failure| assert!(matches!(failure.kind, FailureKind::NotALock { .. }), "{key}");
        corrupt(fixture.acquire("b", true).await.unwrap_err());
        corrupt(fixture.acquire("d", true).await.unwrap_err());
        let b = owner("b");
        corrupt(fixture.redis.release(Claim::new(&fixture.name, &b, 0), LIMIT).await.unwrap_err());
        corrupt(fixture.redis.force_unlock(&fixture.name, LIMIT).await.unwrap_err());
        // One bad line fails alone.
        let other = LockName::of(Kind::Fair, "", "other").expect("a good name");
        let steps = [&fixture.name, &other].map(|name| Step::Heartbeat(name.clone(), b.clone()));
        assert_eq!(
            value(fixture.redis.call_batch(steps.into(), STEP_OPTIONS).await),
            [None, Some(Reply::Position(QueuePosition::NotInQueue))],
            "{key}"
        );
        assert_eq!(fixture.dump_all().await, before, "{key}");
    }
}

#[tokio::test]
async fn at_maxmemory_waiters_keep_their_positions_and_releases_succeed() {
    let mut fixture = Fixture::held_by_a(&["b", "c", "d"]).await;
    let before = fixture.heartbeat_time("c").await;
    let _: () = fixture.run("CONFIG", &["SET", "maxmemory", "1"]).await;
    assert!(fixture.acquire("e", true).await.is_err(), "no memory for one more waiter");
    assert_eq!(fixture.queue().await, ["b", "c", "d"]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(fixture.heartbeat("c").await, QueuePosition::InQueue);
    assert!(matches!(fixture.acquire_waiting("b").await, Acquired::Busy { ttl: Some(_) }));
    assert!(fixture.heartbeat_time("c").await > before);
    assert_eq!(fixture.release("b").await, Released::NotHeld);
    assert_eq!(fixture.expect_notified("c", fixture.release("a")).await, Released::Freed);
    assert!(fixture.acquire("c", true).await.is_err(), "a hold needs memory");
    assert_eq!(
        (fixture.queue().await.as_slice(), fixture.deadlines().await.len()),
        (&["c".into(), "d".into()][..], 2)
    );
    let _: () = fixture.run("CONFIG", &["SET", "maxmemory", "0"]).await;
    assert_eq!(fixture.acquire_waiting("c").await, Acquired::Granted);
}

#[tokio::test]
async fn a_user_who_may_not_publish_can_release() {
    let mut fixture = Fixture::held_by_a(&["b"]).await;
    let _: () = fixture.run("ACL", &["SETUSER", "default", "resetchannels"]).await;
    assert_eq!(fixture.release("a").await, Released::Freed);
    assert_eq!(fixture.acquire_waiting("b").await, Acquired::Granted);
    let _: () = fixture.run("ACL", &["SETUSER", "default", "-pexpire"]).await;
    assert_eq!(fixture.release("b").await, Released::Freed);
    assert!(fixture.acquire("c", true).await.is_err());
    assert_eq!(fixture.keys().await, [""; 0], "no lock without expiry is left behind");
}
