//! What the model does not know: Java's waiters in the same queue, and the deadlines by which Java goes.

use turnlock_core::model::{Acquired, FairLockState, Place, Released};

use super::stage::{LEASE, Stage, WAIT, field, is_near};
use crate::backend::redis::fair::{DEADLINES, QUEUE};

#[tokio::test]
async fn a_living_java_waiter_is_not_overtaken() {
    let mut stage = Stage::free().await;
    let deadline = stage.time().await + 60_000;
    stage.plant("j", Some(deadline)).await;
    assert_eq!(stage.acquire("b", false).await.expect("an answer"), Acquired::Busy { ttl: None });
    assert_eq!(stage.ask("b").await, Acquired::Busy { ttl: None });
    assert_eq!(stage.scores().await, [("j".to_owned(), deadline), ("b".to_owned(), deadline + WAIT)]);
    // The head may have missed its message.
    assert_eq!(stage.telling("j", stage.attend("b")).await, Place::InQueue);
    assert_eq!(stage.release("b").await, Released::NotHeld);
    assert_eq!(stage.queue().await, ["j"]);
}

#[tokio::test]
async fn a_java_waiter_is_dropped_by_its_deadline_and_one_without_at_once() {
    for deadline in [Some(-1), None] {
        let mut stage = Stage::free().await;
        let now = stage.time().await;
        stage.plant("j", deadline.map(|past| now + past)).await;
        stage.plant("j2", Some(now + 2 * WAIT)).await;
        assert_eq!(stage.ask("b").await, Acquired::Busy { ttl: None });
        let expected = [("j2".to_owned(), now + 2 * WAIT), ("b".to_owned(), now + 3 * WAIT)];
        assert_eq!(stage.scores().await, expected, "what Java drops leaves the others' deadlines");
        assert_eq!(stage.queue().await, ["j2", "b"]);
    }
}

#[tokio::test]
async fn deadlines_are_redissons_after_entry_grant_and_give_up() {
    let mut stage = Stage::held_by_a(&["b", "c", "j", "d"]).await;
    let first = stage.score("b").await;
    assert!(is_near(first, stage.time().await + LEASE + WAIT), "{first}");
    for (place, who) in (0..).zip(["b", "c", "j", "d"]) {
        assert_eq!(stage.score(who).await, first + place * WAIT, "{who}");
    }
    // One who gives up takes back what it added, for those behind it.
    assert_eq!(stage.release("c").await, Released::NotHeld);
    let expected = [("b", 0), ("j", 1), ("d", 2)].map(|(who, place)| (who.to_owned(), first + place * WAIT));
    assert_eq!(stage.scores().await, expected);
    // So does one who is granted.
    assert_eq!(stage.telling("b", stage.release("a")).await, Released::Freed);
    assert_eq!(stage.ask("b").await, Acquired::Granted);
    assert_eq!(stage.scores().await, [("j".to_owned(), first), ("d".to_owned(), first + WAIT)]);
    assert_eq!(stage.sign("b").await, None);
    // Java's waiter is told in its turn.
    assert_eq!(stage.telling("j", stage.release("b")).await, Released::Freed);
}

#[tokio::test]
async fn a_waiter_of_ours_lives_by_its_signs_and_not_by_its_deadline() {
    let mut stage = Stage::held_by_a(&["b", "d", "j", "c"]).await;
    let before = stage.scores().await;
    let dead_after = i64::try_from(FairLockState::DEAD_AFTER.as_millis()).expect("small");
    stage.give_sign("b", dead_after - 1_000).await;
    assert!(matches!(stage.ask("c").await, Acquired::Busy { .. }));
    assert_eq!(stage.scores().await, before, "it may still come");
    // Java's clock, and what it did to the deadlines, does not matter.
    stage.give_sign("b", 0).await;
    stage.shift_all(-10 * WAIT).await;
    assert!(matches!(stage.ask("c").await, Acquired::Busy { .. }));
    assert_eq!(stage.queue().await, ["b", "d", "j", "c"]);
    stage.shift_all(10 * WAIT).await;
    for dead in ["b", "d"] {
        stage.give_sign(dead, dead_after + 1_000).await;
    }
    // The one behind the dead is told, and what they had added is taken back.
    assert_eq!(stage.telling("j", stage.release("a")).await, Released::Freed);
    let after = before[2..].iter().map(|(who, score)| (who.clone(), score - 2 * WAIT));
    assert_eq!(stage.scores().await, after.collect::<Vec<_>>());
    assert_eq!(stage.sign("b").await, None);
}

#[tokio::test]
async fn deadlines_that_java_lowered_are_mended() {
    let mut stage = Stage::held_by_a(&["b", "j", "c"]).await;
    let before = stage.scores().await;
    stage.shift_all(-50_000).await;
    assert_eq!(stage.attend("b").await, Place::InQueue);
    assert_eq!(stage.attend("c").await, Place::InQueue);
    stage.shift_all(50_000).await;
    assert_eq!(stage.scores().await, before, "a little is left alone");
    stage.shift_all(-2 * WAIT).await;
    assert_eq!(stage.attend("b").await, Place::InQueue);
    let mended = stage.score("b").await;
    assert!(is_near(mended, stage.time().await + LEASE + WAIT), "{mended}");
    let java = stage.score("j").await;
    assert_eq!(java, before[1].1 - 2 * WAIT, "Java's own is Java's business");
    stage.attend("c").await;
    assert_eq!(stage.score("c").await, java + WAIT);
}

#[tokio::test]
async fn who_was_dropped_by_java_comes_again_at_the_end() {
    let mut stage = Stage::held_by_a(&["b", "c"]).await;
    let _: String = stage.run("LPOP", &[&stage.key(QUEUE)]).await;
    let _: i64 = stage.run("ZREM", &[&stage.key(DEADLINES), &field("b")]).await;
    assert_eq!(stage.attend("b").await, Place::Nowhere);
    assert_eq!(stage.sign("b").await, None);
    assert_eq!(stage.ask("b").await, Acquired::Busy { ttl: None });
    assert_eq!(stage.queue().await, ["c", "b"]);
    // Half of it, in the list or in the set, is no place either.
    let _: i64 = stage.run("ZREM", &[&stage.key(DEADLINES), &field("b")]).await;
    assert_eq!(stage.attend("b").await, Place::Nowhere);
    let _: i64 = stage.run("LREM", &[&stage.key(QUEUE), "0", &field("c")]).await;
    assert_eq!(stage.attend("c").await, Place::Nowhere);
    assert_eq!(stage.keys().await, ["n"], "nothing is left");
}

#[tokio::test]
async fn who_does_not_wait_leaves_no_trace_and_a_deadline_is_given_to_nobody() {
    let mut stage = Stage::held_by_a(&[]).await;
    let Acquired::Busy { ttl: Some(_) } = stage.acquire("b", false).await.expect("an answer") else {
        panic!("with nobody in the queue, the lease is what counts")
    };
    assert_eq!(stage.keys().await, ["n"]);
    stage.ask("b").await;
    stage.plant("j", None).await;
    assert_eq!(stage.release("b").await, Released::NotHeld);
    assert_eq!(stage.scores().await, []);
    let ttl: i64 = stage.run("PTTL", &[stage.name.clone().key()]).await;
    assert!(is_near(ttl, LEASE));
}
