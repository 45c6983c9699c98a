//! What the model does not have: Redisson's waiters in the same queue, and the deadlines that Redisson uses.

use turnlock_core::model::{Acquired, FairLockState, QueuePosition, Released};

use super::fixture::{Fixture, LEASE, WAIT, field, is_near, is_refused};
use crate::steps::{DEADLINES, QUEUE};

#[tokio::test]
async fn a_live_redisson_waiter_is_not_overtaken() {
    let mut fixture = Fixture::free().await;
    let deadline = fixture.time().await + 60_000;
    fixture.add_redisson_waiter("j", Some(deadline)).await;
    assert_eq!(fixture.acquire("b", false).await.expect("a reply"), Acquired::Busy { ttl: None });
    assert_eq!(fixture.acquire_waiting("b").await, Acquired::Busy { ttl: None });
    assert_eq!(fixture.deadlines().await, [("j".to_owned(), deadline), ("b".to_owned(), deadline + WAIT)]);
    // The head may have missed its message.
    assert_eq!(fixture.expect_notified("j", fixture.heartbeat("b")).await, QueuePosition::InQueue);
    assert_eq!(fixture.release("b").await, Released::NotHeld);
    assert_eq!(fixture.queue().await, ["j"]);
}

#[tokio::test]
async fn a_redisson_waiter_is_removed_after_its_deadline_or_without_one() {
    for deadline in [Some(-1), None] {
        let mut fixture = Fixture::free().await;
        let now = fixture.time().await;
        fixture.add_redisson_waiter("j", deadline.map(|past| now + past)).await;
        fixture.add_redisson_waiter("j2", Some(now + 2 * WAIT)).await;
        assert_eq!(fixture.acquire_waiting("b").await, Acquired::Busy { ttl: None });
        let expected = [("j2".to_owned(), now + 2 * WAIT), ("b".to_owned(), now + 3 * WAIT)];
        assert_eq!(
            fixture.deadlines().await,
            expected,
            "a removal by Redisson's rule does not change the other deadlines"
        );
        assert_eq!(fixture.queue().await, ["j2", "b"]);
    }
}

#[tokio::test]
async fn deadlines_match_redisson_after_enqueue_grant_and_leave() {
    let mut fixture = Fixture::held_by_a(&["b", "c", "j", "d"]).await;
    let first = fixture.deadline("b").await;
    assert!(is_near(first, fixture.time().await + LEASE + WAIT), "{first}");
    for (position, waiter) in (0..).zip(["b", "c", "j", "d"]) {
        assert!(is_near(fixture.deadline(waiter).await, first + position * WAIT), "{waiter}");
    }
    let before = fixture.deadlines().await;
    // A waiter that leaves subtracts what it added from the deadlines behind it.
    assert_eq!(fixture.release("c").await, Released::NotHeld);
    let expected = [(0, 0), (2, WAIT), (3, WAIT)].map(|(index, less): (usize, i64)| {
        let (waiter, deadline) = &before[index];
        (waiter.clone(), deadline - less)
    });
    assert_eq!(fixture.deadlines().await, expected);
    // So does a waiter that is granted.
    assert_eq!(fixture.expect_notified("b", fixture.release("a")).await, Released::Freed);
    assert_eq!(fixture.acquire_waiting("b").await, Acquired::Granted);
    let expected = [2, 3].map(|index: usize| (before[index].0.clone(), before[index].1 - 2 * WAIT));
    assert_eq!(fixture.deadlines().await, expected);
    assert_eq!(fixture.heartbeat_time("b").await, None);
    // Redisson's waiter is notified in its turn.
    assert_eq!(fixture.expect_notified("j", fixture.release("b")).await, Released::Freed);
}

#[tokio::test]
async fn a_turnlock_waiter_expires_by_heartbeat_and_not_by_deadline() {
    let mut fixture = Fixture::held_by_a(&["b", "d", "j", "c"]).await;
    let before = fixture.deadlines().await;
    let dead_after = i64::try_from(FairLockState::DEAD_AFTER.as_millis()).expect("small");
    fixture.set_heartbeat("b", dead_after - 1_000).await;
    assert!(is_refused(fixture.acquire_waiting("c").await));
    assert_eq!(fixture.deadlines().await, before, "its heartbeat is still recent enough");
    // Redisson's clock, and its changes to the deadlines, do not matter.
    fixture.set_heartbeat("b", 0).await;
    fixture.shift_deadlines(-10 * WAIT).await;
    assert!(is_refused(fixture.acquire_waiting("c").await));
    assert_eq!(fixture.queue().await, ["b", "d", "j", "c"]);
    fixture.shift_deadlines(10 * WAIT).await;
    for dead in ["b", "d"] {
        fixture.set_heartbeat(dead, dead_after + 1_000).await;
    }
    // The waiter behind the dead ones is notified, and what they added is subtracted.
    assert_eq!(fixture.expect_notified("j", fixture.release("a")).await, Released::Freed);
    let after = before[2..].iter().map(|(waiter, deadline)| (waiter.clone(), deadline - 2 * WAIT));
    assert_eq!(fixture.deadlines().await, after.collect::<Vec<_>>());
    assert_eq!(fixture.heartbeat_time("b").await, None);
}

#[tokio::test]
async fn deadlines_that_redisson_lowered_are_corrected() {
    let mut fixture = Fixture::held_by_a(&["b", "j", "c"]).await;
    let before = fixture.deadlines().await;
    fixture.shift_deadlines(-50_000).await;
    assert_eq!(fixture.heartbeat("b").await, QueuePosition::InQueue);
    assert_eq!(fixture.heartbeat("c").await, QueuePosition::InQueue);
    fixture.shift_deadlines(50_000).await;
    assert_eq!(fixture.deadlines().await, before, "a small difference is not corrected");
    fixture.shift_deadlines(-2 * WAIT).await;
    assert_eq!(fixture.heartbeat("b").await, QueuePosition::InQueue);
    let mended = fixture.deadline("b").await;
    assert!(is_near(mended, fixture.time().await + LEASE + WAIT), "{mended}");
    let java = fixture.deadline("j").await;
    assert_eq!(java, before[1].1 - 2 * WAIT, "turnlock does not correct Redisson's deadlines");
    fixture.heartbeat("c").await;
    assert_eq!(fixture.deadline("c").await, java + WAIT);
}

#[tokio::test]
async fn a_waiter_that_redisson_removed_queues_at_the_end() {
    let mut fixture = Fixture::held_by_a(&["b", "c"]).await;
    let _: String = fixture.run("LPOP", &[&fixture.key(QUEUE)]).await;
    let _: i64 = fixture.run("ZREM", &[&fixture.key(DEADLINES), &field("b")]).await;
    assert_eq!(fixture.heartbeat("b").await, QueuePosition::NotInQueue);
    assert_eq!(fixture.heartbeat_time("b").await, None);
    assert_eq!(fixture.acquire_waiting("b").await, Acquired::Queued);
    assert_eq!(fixture.queue().await, ["c", "b"]);
    // An entry in the list or in the set alone is no position either.
    let _: i64 = fixture.run("ZREM", &[&fixture.key(DEADLINES), &field("b")]).await;
    assert_eq!(fixture.heartbeat("b").await, QueuePosition::NotInQueue);
    let _: i64 = fixture.run("LREM", &[&fixture.key(QUEUE), "0", &field("c")]).await;
    assert_eq!(fixture.heartbeat("c").await, QueuePosition::NotInQueue);
    assert_eq!(fixture.keys().await, ["n"], "nothing is left");
}

#[tokio::test]
async fn nothing_is_left_of_a_dead_waiter_that_redisson_removed() {
    let mut fixture = Fixture::held_by_a(&["b", "c", "d"]).await;
    let _: String = fixture.run("LPOP", &[&fixture.key(QUEUE)]).await;
    let _: i64 = fixture.run("ZREM", &[&fixture.key(DEADLINES), &field("b")]).await;
    // The client of the dead waiter sends nothing. Any other heartbeat removes the rest.
    assert_eq!(fixture.heartbeat("d").await, QueuePosition::InQueue);
    assert_eq!(fixture.heartbeat_time("b").await, None);
    assert!(fixture.heartbeat_time("c").await.is_some() && fixture.heartbeat_time("d").await.is_some());
    assert_eq!(fixture.queue().await, ["c", "d"]);
}

#[tokio::test]
async fn a_caller_that_does_not_wait_is_not_queued_and_no_deadline_is_created() {
    let mut fixture = Fixture::held_by_a(&[]).await;
    let Acquired::Busy { ttl: Some(_) } = fixture.acquire("b", false).await.expect("a reply") else {
        panic!("with an empty queue, the reply is the remaining lease")
    };
    assert_eq!(fixture.keys().await, ["n"]);
    fixture.acquire_waiting("b").await;
    fixture.add_redisson_waiter("j", None).await;
    assert_eq!(fixture.release("b").await, Released::NotHeld);
    assert_eq!(fixture.deadlines().await, []);
    let ttl: i64 = fixture.run("PTTL", &[fixture.name.clone().key()]).await;
    assert!(is_near(ttl, LEASE));
}

#[tokio::test]
async fn deadlines_are_lowered_once_a_redisson_waiter_has_joined() {
    let mut fixture = Fixture::held_by_a(&["b", "c", "d", "e"]).await;
    for (holder, next) in [("a", "b"), ("b", "c")] {
        assert_eq!(fixture.release(holder).await, Released::Freed);
        assert_eq!(fixture.acquire_waiting(next).await, Acquired::Granted);
    }
    let end = fixture.time().await + LEASE;
    assert!(
        is_near(fixture.deadline("d").await, end + 3 * WAIT),
        "not lowered while all waiters are turnlock's"
    );
    // A waiter of Redisson adds to the deadline of the last waiter. The next one has a short wait.
    let tail = fixture.deadline("e").await;
    fixture.add_redisson_waiter("j", Some(tail + WAIT)).await;
    fixture.add_redisson_waiter("j2", Some(tail + WAIT + 5_000)).await;
    // The heartbeat of any waiter corrects all of them.
    assert_eq!(fixture.heartbeat("e").await, QueuePosition::InQueue);
    for (waiter, expected) in [("d", WAIT), ("e", 2 * WAIT), ("j", 3 * WAIT), ("j2", 4 * WAIT)] {
        let left = fixture.deadline(waiter).await - end;
        assert!(is_near(left, expected), "{waiter}: {left}");
    }
    // From then on, each grant lowers all of them.
    assert_eq!(fixture.release("c").await, Released::Freed);
    assert_eq!(fixture.acquire_waiting("d").await, Acquired::Granted);
    let left = fixture.deadline("j").await - end;
    assert!(is_near(left, 2 * WAIT), "{left}");
}
