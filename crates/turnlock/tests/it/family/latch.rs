//! The count-down latch: it opens once, and all pass.

use std::task::Poll;
use std::time::Instant;

use tokio::task::JoinHandle;
use turnlock::{Client, Error, Latch};
use turnlock_testkit::{eventually, in_time, within};

use crate::rig::{A_SECOND, PROMPT, Rig, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_latch_counts_down_and_wakes_all,
    a_latch_that_is_not_set_is_open,
    a_count_is_set_once,
    a_wait_for_a_latch_ends_in_time,
    a_deleted_latch_is_open,
    a_lost_message_of_a_latch_costs_a_second,
    waits_for_a_latch_may_be_dropped_after_any_poll,
    a_cancelled_count_down_is_finished,
    bad_counts_are_refused,
];

async fn two(rig: &Rig) -> (Latch, Latch) {
    let name = rig.name();
    (rig.client().await.latch(&name), rig.client().await.latch(&name))
}

async fn waiting(latch: &Latch) -> usize {
    latch.inspect().await.expect("an answer").waiting_here
}

/// A task that waits, once it is known to wait.
async fn waiter(latch: &Latch, before: usize) -> JoinHandle<()> {
    let waits = latch.clone();
    let task = tokio::spawn(async move { waits.wait().await.expect("it opens") });
    eventually("it waits", ms(20_000), async || {
        latch.inspect().await.is_ok_and(|seen| seen.waiting_here == before + 1)
    })
    .await;
    task
}

async fn a_latch_counts_down_and_wakes_all(rig: Rig) {
    let (one, two) = two(&rig).await;
    assert!(one.try_set_count(3).await.expect("an answer"));
    let mut tasks = Vec::new();
    for before in 0..5 {
        tasks.push(waiter(&one, before).await);
        tasks.push(waiter(&two, before).await);
    }
    for left in [2, 1] {
        assert_eq!(two.count_down().await.expect("an answer"), left);
        assert_eq!((one.count().await.unwrap(), two.count().await.unwrap()), (left, left));
        assert!(tasks.iter().all(|task| !task.is_finished()), "not yet");
    }
    assert_eq!(one.count_down().await.expect("an answer"), 0);
    for task in tasks {
        within(PROMPT, "the message lets each pass", task).await.expect("no panic");
    }
    assert_eq!((waiting(&one).await, waiting(&two).await), (0, 0));
    assert_eq!(one.count_down().await.expect("an answer"), 0, "there is nothing left to count");
    assert!(one.try_set_count(1).await.expect("an answer"), "it may be set again");
    assert!(!two.wait_for(ms(20)).await.expect("an answer"));
}

async fn a_latch_that_is_not_set_is_open(rig: Rig) {
    let (one, two) = two(&rig).await;
    within(PROMPT, "it is open", one.wait()).await.expect("an answer");
    assert!(two.wait_for(ms(0)).await.expect("an answer"));
    assert_eq!((one.count().await.unwrap(), one.inspect().await.unwrap().available), (0, None));
    assert_eq!(two.count_down().await.expect("an answer"), 0);
    assert!(!one.delete().await.expect("an answer"), "nor was there anything to remove");
}

async fn a_count_is_set_once(rig: Rig) {
    let (one, two) = two(&rig).await;
    assert!(one.try_set_count(2).await.expect("an answer"));
    assert!(!two.try_set_count(7).await.expect("an answer"));
    let seen = two.inspect().await.expect("an answer");
    assert_eq!((seen.available, seen.waiting_here, seen.is_locked()), (Some(2), 0, false));
    assert_eq!(seen.name, one.name());
}

async fn a_wait_for_a_latch_ends_in_time(rig: Rig) {
    let (one, _) = two(&rig).await;
    assert!(one.try_set_count(1).await.expect("an answer"));
    let start = Instant::now();
    assert!(!one.wait_for(ms(120)).await.expect("an answer"));
    assert!(start.elapsed() >= ms(120), "{:?}", start.elapsed());
    in_time("it gives up", start, ms(120) + PROMPT);
    assert!(!one.wait_for(ms(0)).await.expect("an answer"));
    assert_eq!((waiting(&one).await, one.count().await.unwrap()), (0, 1));
}

async fn a_deleted_latch_is_open(rig: Rig) {
    let (one, two) = two(&rig).await;
    assert!(one.try_set_count(1_000).await.expect("an answer"));
    let tasks = [waiter(&one, 0).await, waiter(&two, 0).await];
    assert!(two.delete().await.expect("an answer"));
    for task in tasks {
        within(PROMPT, "the message lets each pass", task).await.expect("no panic");
    }
}

async fn a_lost_message_of_a_latch_costs_a_second(rig: Rig) {
    let name = rig.name();
    // With the usual poll.
    let latch = rig.client_with(Client::builder()).await.latch(&name);
    assert!(latch.try_set_count(1).await.expect("an answer"));
    let task = waiter(&latch, 0).await;
    assert_eq!(rig.mute_client().await.latch(&name).count_down().await.expect("an answer"), 0);
    within(A_SECOND, "it looks by itself", task).await.expect("no panic");
    // Data that was lost is no different.
    assert!(latch.try_set_count(1).await.expect("an answer"));
    let task = waiter(&latch, 0).await;
    rig.lose_data().await;
    within(A_SECOND, "it looks by itself", task).await.expect("no panic");
}

async fn waits_for_a_latch_may_be_dropped_after_any_poll(rig: Rig) {
    let (one, two) = two(&rig).await;
    assert!(one.try_set_count(1).await.expect("an answer"));
    let task = waiter(&one, 0).await;
    for drops in 0..200 {
        let mut future = Box::pin(one.wait());
        let mut polls = drops % 6;
        let polled = std::future::poll_fn(|context| match future.as_mut().poll(context) {
            // At last it sleeps, and nobody asks for another poll: so the task itself does.
            Poll::Pending if polls > 0 => {
                polls -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            outcome => Poll::Ready(outcome.is_pending()),
        });
        assert!(within(ms(20_000), "it is polled", polled).await, "it is not open");
    }
    assert_eq!((waiting(&one).await, two.count().await.unwrap()), (1, 1));
    assert_eq!(two.count_down().await.expect("an answer"), 0);
    within(PROMPT, "the one that stayed is told", task).await.expect("no panic");
}

async fn a_cancelled_count_down_is_finished(rig: Rig) {
    let (one, two) = two(&rig).await;
    assert!(one.try_set_count(200).await.expect("an answer"));
    for _ in 0..100 {
        let mut count_down = Box::pin(one.count_down());
        let _ =
            std::future::poll_fn(|context| Poll::Ready(count_down.as_mut().poll(context).is_ready())).await;
    }
    eventually("each counted once", PROMPT, async || matches!(two.count().await, Ok(100))).await;
    // One that was never polled has not begun.
    drop(one.count_down());
    assert_eq!(two.count_down().await.expect("an answer"), 99);
}

async fn bad_counts_are_refused(rig: Rig) {
    let (one, _) = two(&rig).await;
    for count in [0, u32::MAX, u32::try_from(i32::MAX).expect("positive") + 1] {
        let error = one.try_set_count(count).await.expect_err("no count");
        assert!(matches!(&error, Error::BadConfiguration { .. }), "{error}");
    }
    assert_eq!(one.inspect().await.unwrap().available, None);
    let empty = rig.client().await.latch("");
    assert!(matches!(empty.wait().await, Err(Error::BadName(_))));
    assert!(matches!(empty.count_down().await, Err(Error::BadName(_))));
}
