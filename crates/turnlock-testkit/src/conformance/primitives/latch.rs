//! Count-down latches.

use std::task::Poll;
use std::time::Instant;

use crate::conformance::{Case, Fixture, ONE_POLL, PROMPT, cases, ms};
use crate::{eventually, in_time, within};
use tokio::task::JoinHandle;
use turnlock::{Client, Error, Latch};

pub(super) const CASES: &[Case] = cases![
    a_latch_counts_down_and_wakes_all,
    an_unset_latch_is_open,
    the_count_is_set_once,
    a_wait_for_a_latch_times_out,
    a_deleted_latch_is_open,
    a_lost_message_of_a_latch_costs_a_second needs DataLoss LostMessages,
    waits_for_a_latch_may_be_dropped_after_any_poll,
    a_cancelled_count_down_is_completed,
    bad_counts_are_refused,
];

async fn two(fixture: &Fixture) -> (Latch, Latch) {
    let name = fixture.name();
    (fixture.client().await.latch(&name), fixture.client().await.latch(&name))
}

async fn waiting_here(latch: &Latch) -> usize {
    latch.inspect().await.expect("a reply").waiting_here
}

/// Spawns a task that waits, and returns once it waits.
async fn waiter(latch: &Latch, before: usize) -> JoinHandle<()> {
    let waits = latch.clone();
    let task = tokio::spawn(async move { waits.wait().await.expect("the latch opens") });
    eventually("the waiter waits", ms(20_000), async || {
        latch.inspect().await.is_ok_and(|seen| seen.waiting_here == before + 1)
    })
    .await;
    task
}

async fn a_latch_counts_down_and_wakes_all(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    assert!(one.try_set_count(3).await.expect("a reply"));
    let mut tasks = Vec::new();
    for before in 0..5 {
        tasks.push(waiter(&one, before).await);
        tasks.push(waiter(&two, before).await);
    }
    for left in [2, 1] {
        assert_eq!(two.count_down().await.expect("a reply"), left);
        assert_eq!((one.count().await.unwrap(), two.count().await.unwrap()), (left, left));
        assert!(tasks.iter().all(|task| !task.is_finished()), "the latch is closed");
    }
    assert_eq!(one.count_down().await.expect("a reply"), 0);
    for task in tasks {
        within(PROMPT, "the message wakes each waiter", task).await.expect("no panic");
    }
    assert_eq!((waiting_here(&one).await, waiting_here(&two).await), (0, 0));
    assert_eq!(one.count_down().await.expect("a reply"), 0, "the count stays at zero");
    assert!(one.try_set_count(1).await.expect("a reply"), "it may be set again");
    assert!(!two.wait_for(ms(20)).await.expect("a reply"));
}

async fn an_unset_latch_is_open(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    within(PROMPT, "it is open", one.wait()).await.expect("a reply");
    assert!(two.wait_for(ms(0)).await.expect("a reply"));
    assert_eq!((one.count().await.unwrap(), one.inspect().await.unwrap().available), (0, None));
    assert_eq!(two.count_down().await.expect("a reply"), 0);
    assert!(!one.delete().await.expect("a reply"), "there is nothing to delete");
}

async fn the_count_is_set_once(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    assert!(one.try_set_count(2).await.expect("a reply"));
    assert!(!two.try_set_count(7).await.expect("a reply"));
    let seen = two.inspect().await.expect("a reply");
    assert_eq!((seen.available, seen.waiting_here, seen.is_locked()), (Some(2), 0, false));
    assert_eq!(seen.name, one.name());
}

async fn a_wait_for_a_latch_times_out(fixture: Fixture) {
    let (one, _) = two(&fixture).await;
    assert!(one.try_set_count(1).await.expect("a reply"));
    let start = Instant::now();
    assert!(!one.wait_for(ms(120)).await.expect("a reply"));
    assert!(start.elapsed() >= ms(120), "{:?}", start.elapsed());
    in_time("the wait times out", start, ms(120) + PROMPT);
    assert!(!one.wait_for(ms(0)).await.expect("a reply"));
    assert_eq!((waiting_here(&one).await, one.count().await.unwrap()), (0, 1));
}

async fn a_deleted_latch_is_open(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    assert!(one.try_set_count(1_000).await.expect("a reply"));
    let tasks = [waiter(&one, 0).await, waiter(&two, 0).await];
    assert!(two.delete().await.expect("a reply"));
    for task in tasks {
        within(PROMPT, "the message wakes each waiter", task).await.expect("no panic");
    }
}

async fn a_lost_message_of_a_latch_costs_a_second(fixture: Fixture) {
    let name = fixture.name();
    // With the default poll interval.
    let latch = fixture.client_with(Client::builder()).await.latch(&name);
    assert!(latch.try_set_count(1).await.expect("a reply"));
    let task = waiter(&latch, 0).await;
    assert_eq!(fixture.mute_client().await.latch(&name).count_down().await.expect("a reply"), 0);
    within(ONE_POLL, "the waiter polls", task).await.expect("no panic");
    // Lost data has the same effect.
    assert!(latch.try_set_count(1).await.expect("a reply"));
    let task = waiter(&latch, 0).await;
    fixture.lose_data().await;
    within(ONE_POLL, "the waiter polls", task).await.expect("no panic");
}

async fn waits_for_a_latch_may_be_dropped_after_any_poll(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    assert!(one.try_set_count(1).await.expect("a reply"));
    let task = waiter(&one, 0).await;
    for drops in 0..200 {
        let mut future = Box::pin(one.wait());
        let mut polls = drops % 6;
        let polled = std::future::poll_fn(|context| match future.as_mut().poll(context) {
            // The future sleeps and is not woken, so the task wakes itself.
            Poll::Pending if polls > 0 => {
                polls -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            outcome => Poll::Ready(outcome.is_pending()),
        });
        assert!(within(ms(20_000), "it is polled", polled).await, "it is not open");
    }
    assert_eq!((waiting_here(&one).await, two.count().await.unwrap()), (1, 1));
    assert_eq!(two.count_down().await.expect("a reply"), 0);
    within(PROMPT, "the remaining waiter is woken", task).await.expect("no panic");
}

async fn a_cancelled_count_down_is_completed(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    assert!(one.try_set_count(200).await.expect("a reply"));
    for _ in 0..100 {
        let mut count_down = Box::pin(one.count_down());
        let _ =
            std::future::poll_fn(|context| Poll::Ready(count_down.as_mut().poll(context).is_ready())).await;
    }
    eventually("each counted once", PROMPT, async || matches!(two.count().await, Ok(100))).await;
    // A future that was never polled has no effect.
    drop(one.count_down());
    assert_eq!(two.count_down().await.expect("a reply"), 99);
}

async fn bad_counts_are_refused(fixture: Fixture) {
    let (one, _) = two(&fixture).await;
    for count in [0, u32::MAX, u32::try_from(i32::MAX).expect("positive") + 1] {
        let error = one.try_set_count(count).await.expect_err("a bad count");
        assert!(matches!(&error, Error::BadArgument { .. }), "{error}");
    }
    assert_eq!(one.inspect().await.unwrap().available, None);
    let empty = fixture.client().await.latch("");
    assert!(matches!(empty.wait().await, Err(Error::BadName(_))));
    assert!(matches!(empty.count_down().await, Err(Error::BadName(_))));
}
