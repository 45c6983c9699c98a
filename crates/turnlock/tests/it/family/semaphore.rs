//! Permits of both kinds of semaphores: counted, in order within a client, and whole in the end.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinHandle;
use turnlock::{Client, Error, Inspection, Permits};
use turnlock_testkit::{eventually, within};

use super::slots::Slots;
use crate::rig::{A_SECOND, Kind, NO_POLL, PROMPT, Rig, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    permits_are_counted,
    no_more_are_out_than_were_set,
    several_at_once_are_all_or_none,
    waiters_for_many_are_not_passed_by_those_for_few,
    more_permits_wake_waiters,
    a_lost_message_costs_a_second,
    forgotten_permits_stay_out,
    permits_without_a_lease_cannot_be_kept_for_a_time,
    a_number_may_be_changed_and_removed,
    acquires_dropped_after_any_poll_leave_the_number_whole,
    bad_numbers_are_refused,
];

async fn two(rig: &Rig, permits: u32) -> (Slots, Slots) {
    let name = rig.name();
    let (one, two) = (Slots::new(&rig.client().await, &name), Slots::new(&rig.client().await, &name));
    assert!(one.try_set_permits(permits).await.expect("an answer"));
    (one, two)
}

/// A task that waits for permits, once it is known to wait.
async fn waiter(slots: &Slots, permits: u32, before: usize) -> JoinHandle<Permits> {
    let waiting = slots.clone();
    let task = tokio::spawn(async move { waiting.acquire(permits).await.expect("a turn") });
    let waits = async || slots.inspect().await.is_ok_and(|seen| seen.waiting_here == before + 1);
    eventually("it waits", ms(20_000), waits).await;
    task
}

async fn look(slots: &Slots) -> Inspection {
    slots.inspect().await.expect("an answer")
}

async fn permits_are_counted(rig: Rig) {
    let (one, two) = two(&rig, 3).await;
    assert!(!two.try_set_permits(9).await.expect("an answer"), "it was set already");
    let first = two.acquire(2).await.expect("free");
    assert_eq!((first.count(), first.name(), first.is_valid()), (2, one.name(), true));
    assert_eq!((one.available().await.unwrap(), two.available().await.unwrap()), (1, 1));
    let seen = look(&one).await;
    assert_eq!((seen.available, seen.waiting_here, seen.name.as_str()), (Some(1), 0, one.name()));
    assert!(one.try_acquire(2).await.expect("an answer").is_none());
    let second = one.try_acquire(1).await.expect("an answer").expect("one is left");
    assert!(two.try_acquire_for(1, ms(30)).await.expect("an answer").is_none());
    first.release().await.expect("held");
    drop(second);
    eventually("all are back", PROMPT, async || matches!(one.available().await, Ok(3))).await;
    let all = two.try_acquire_for(3, ms(100)).await.expect("an answer").expect("all are free");
    assert_eq!(one.available().await.unwrap(), 0);
    all.release().await.expect("held");
    let unset = Slots::new(&rig.client().await, &rig.name());
    assert_eq!((unset.available().await.unwrap(), look(&unset).await.available), (0, None));
    assert!(unset.try_acquire(1).await.expect("an answer").is_none(), "none were ever set");
}

async fn no_more_are_out_than_were_set(rig: Rig) {
    const PERMITS: u32 = 3;
    let (one, two) = two(&rig, PERMITS).await;
    let out = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = Vec::new();
    for task in 0..10_u32 {
        let (slots, out) = (if task % 2 == 0 { one.clone() } else { two.clone() }, Arc::clone(&out));
        tasks.push(tokio::spawn(async move {
            for turn in 0..15 {
                let count = 1 + (task + turn) % PERMITS;
                let permits = slots.acquire(count).await.expect("a turn");
                let now = out.fetch_add(count, std::sync::atomic::Ordering::SeqCst) + count;
                assert!(now <= PERMITS, "{now} of {PERMITS} are out");
                tokio::task::yield_now().await;
                out.fetch_sub(count, std::sync::atomic::Ordering::SeqCst);
                if turn % 2 == 0 { permits.release().await.expect("held") } else { drop(permits) }
            }
        }));
    }
    for task in tasks {
        within(ms(60_000), "each gets its turns", task).await.expect("no panic");
    }
    eventually("all are back", PROMPT, async || {
        one.available().await.is_ok_and(|available| available == i64::from(PERMITS))
    })
    .await;
}

async fn several_at_once_are_all_or_none(rig: Rig) {
    let (one, two) = two(&rig, 3).await;
    let held = one.acquire(2).await.expect("free");
    let task = waiter(&two, 3, 0).await;
    assert_eq!(one.available().await.unwrap(), 1, "who waits for three has not taken one");
    let last = one.acquire(1).await.expect("free");
    held.release().await.expect("held");
    eventually("two are free", PROMPT, async || matches!(one.available().await, Ok(2))).await;
    assert!(!task.is_finished());
    last.release().await.expect("held");
    let all = within(PROMPT, "the message wakes it", task).await.expect("no panic");
    assert_eq!((all.count(), one.available().await.unwrap()), (3, 0));
    drop(all);
}

async fn waiters_for_many_are_not_passed_by_those_for_few(rig: Rig) {
    let (one, _) = two(&rig, 3).await;
    let held = [one.acquire(2).await.expect("free"), one.acquire(1).await.expect("free")];
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (number, permits) in [3, 1, 2, 1].into_iter().enumerate() {
        let (waiting, served) = (one.clone(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let permits = waiting.acquire(permits).await.expect("a turn");
            served.lock().unwrap().push(number);
            permits.release().await.expect("held");
        }));
        eventually("it waits", ms(20_000), async || {
            one.inspect().await.is_ok_and(|seen| seen.waiting_here == number + 1)
        })
        .await;
    }
    assert!(one.try_acquire(1).await.expect("an answer").is_none());
    for permits in held {
        assert!(served.lock().unwrap().is_empty(), "one for few went before the one for many");
        permits.release().await.expect("held");
        // Nobody pushes in either, while those wait.
        assert!(one.try_acquire(1).await.expect("an answer").is_none() || !served.lock().unwrap().is_empty());
    }
    for task in tasks {
        within(PROMPT, "each gets its turn", task).await.expect("no panic");
    }
    assert_eq!(served.lock().unwrap()[0], 0);
    eventually("all are back", PROMPT, async || matches!(one.available().await, Ok(3))).await;
}

async fn more_permits_wake_waiters(rig: Rig) {
    let (one, two) = two(&rig, 1).await;
    let held = one.acquire(1).await.expect("free");
    let tasks = [waiter(&two, 1, 0).await, waiter(&one, 1, 0).await];
    assert_eq!(one.add_permits(2).await.expect("an answer"), 2);
    for task in tasks {
        let permits = within(PROMPT, "the message wakes it", task).await.expect("no panic");
        permits.release().await.expect("held");
    }
    held.release().await.expect("held");
    assert_eq!(two.available().await.unwrap(), 3);
    // The first number, too.
    let name = rig.name();
    let (unset, other) = (Slots::new(&rig.client().await, &name), Slots::new(&rig.client().await, &name));
    let task = waiter(&unset, 1, 0).await;
    assert!(other.try_set_permits(1).await.expect("an answer"));
    within(PROMPT, "the message wakes it", task).await.expect("no panic").release().await.expect("held");
}

async fn a_lost_message_costs_a_second(rig: Rig) {
    let name = rig.name();
    // With the usual poll.
    let waiting = Slots::new(&rig.client_with(Client::builder()).await, &name);
    let holder = Slots::new(&rig.mute_client().await, &name);
    assert!(holder.try_set_permits(1).await.expect("an answer"));
    let held = holder.acquire(1).await.expect("free");
    let task = waiter(&waiting, 1, 0).await;
    held.release().await.expect("held");
    within(A_SECOND, "it looks by itself", task).await.expect("no panic").release().await.expect("held");
}

async fn forgotten_permits_stay_out(rig: Rig) {
    let name = rig.name();
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let slots = Slots::new(&client, &name);
    assert!(slots.try_set_permits(2).await.expect("an answer"));
    slots.acquire(1).await.expect("free").forget();
    assert_eq!(slots.available().await.unwrap(), 1);
    match &slots {
        // Given back elsewhere, as Java does it.
        Slots::Plain(semaphore) => assert_eq!(semaphore.release(1).await.expect("an answer"), 2),
        // Not renewed any more.
        Slots::Leased(_) => {
            let are_back = async || matches!(slots.available().await, Ok(2));
            eventually("the lease ends", ms(3_000) + PROMPT, are_back).await;
        }
    }
    let all = slots.try_acquire(2).await.expect("an answer").expect("all are back");
    all.release().await.expect("held");
}

async fn permits_without_a_lease_cannot_be_kept_for_a_time(rig: Rig) {
    let (one, _) = two(&rig, 1).await;
    let outcome = one.acquire(1).await.expect("free").keep_for(ms(60_000)).await;
    if rig.kind == Kind::Permits {
        outcome.expect("held");
        assert_eq!(one.available().await.unwrap(), 0);
        return;
    }
    assert!(matches!(outcome, Err(Error::Unsupported(_))), "{outcome:?}");
    eventually("they are given back", PROMPT, async || matches!(one.available().await, Ok(1))).await;
}

async fn a_number_may_be_changed_and_removed(rig: Rig) {
    let (one, two) = two(&rig, 2).await;
    assert_eq!(one.add_permits(3).await.expect("an answer"), 5);
    assert_eq!(two.add_permits(-7).await.expect("an answer"), -2, "it may fall below zero");
    assert!(one.try_acquire(1).await.expect("an answer").is_none());
    assert_eq!(two.add_permits(4).await.expect("an answer"), 2);
    let held = one.acquire(1).await.expect("free");
    match &two {
        Slots::Plain(semaphore) => {
            assert_eq!(semaphore.drain().await.expect("an answer"), 1);
            assert_eq!((semaphore.drain().await.unwrap(), semaphore.available().await.unwrap()), (0, 0));
            held.release().await.expect("held");
            assert_eq!(semaphore.release(3).await.expect("an answer"), 4, "more than were ever set");
        }
        Slots::Leased(semaphore) => {
            assert_eq!(semaphore.set_permits(5).await.expect("an answer"), 4, "five, and one of them is out");
            assert_eq!(semaphore.set_permits(1).await.expect("an answer"), 0);
            assert!(held.is_valid(), "what is out stays out");
            held.release().await.expect("held");
            assert_eq!(semaphore.set_permits(4).await.expect("an answer"), 4);
        }
    }
    assert_eq!(one.available().await.unwrap(), 4);
    let lost = one.acquire(2).await.expect("free");
    assert!(two.delete().await.expect("an answer") && !two.delete().await.expect("an answer"));
    assert_eq!(look(&one).await.available, None);
    let outcome = lost.release().await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "there is nothing to give back to: {outcome:?}");
    assert_eq!(look(&one).await.available, None, "a release makes no number");
    assert!(one.try_set_permits(1).await.expect("an answer"), "set anew");
    assert_eq!(two.available().await.unwrap(), 1);
}

async fn acquires_dropped_after_any_poll_leave_the_number_whole(rig: Rig) {
    let all = rig.times(600).await;
    let (one, two) = two(&rig, 3).await;
    for drops in 0..all {
        let slots = if drops % 3 == 0 { &two } else { &one };
        let mut future = Box::pin(slots.acquire(1 + u32::try_from(drops % 3).expect("small")));
        let mut polls = drops % 9;
        let polled = std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Pending if polls > 0 => {
                polls -= 1;
                Poll::Pending
            }
            outcome => Poll::Ready(outcome.is_ready()),
        });
        let _ = within(ms(20_000), "it is polled", polled).await;
        if drops % 4 == 0 {
            drop(tokio::time::timeout(Duration::ZERO, slots.add_permits(1)).await);
            assert!(two.add_permits(-1).await.is_ok());
        }
    }
    eventually("the number is whole", PROMPT, async || matches!(two.available().await, Ok(3))).await;
    for slots in [&one, &two] {
        eventually("nobody waits", PROMPT, async || {
            slots.inspect().await.is_ok_and(|seen| seen.waiting_here == 0)
        })
        .await;
    }
    one.try_acquire(3).await.expect("an answer").expect("all are free").release().await.expect("held");
}

async fn bad_numbers_are_refused(rig: Rig) {
    let (one, _) = two(&rig, 2).await;
    let huge = u32::try_from(i32::MAX).expect("positive") + 1;
    for number in [0, huge, u32::MAX] {
        let mut outcomes = vec![
            one.acquire(number).await.map(drop),
            one.try_acquire(number).await.map(drop),
            one.try_acquire_for(number, ms(10)).await.map(drop),
            one.try_set_permits(number).await.map(drop),
        ];
        match &one {
            Slots::Plain(semaphore) => outcomes.push(semaphore.release(number).await.map(drop)),
            Slots::Leased(semaphore) => outcomes.push(semaphore.set_permits(number).await.map(drop)),
        }
        for outcome in outcomes {
            let error = outcome.expect_err("no number of permits");
            assert!(matches!(&error, Error::BadConfiguration { .. }), "{error}");
            assert!(error.to_string().contains(&number.to_string()), "{error}");
        }
    }
    assert_eq!(one.available().await.unwrap(), 2);
    let empty = Slots::new(&rig.client().await, "");
    assert!(matches!(empty.acquire(1).await, Err(Error::BadName(_))));
    assert!(matches!(empty.available().await, Err(Error::BadName(_))));
    if rig.kind == Kind::Permits {
        let slots = rig.client().await.permit_semaphore("leases");
        for lease in [Duration::ZERO, Duration::MAX] {
            assert!(matches!(slots.lease(lease).acquire(1).await, Err(Error::BadLease(_))));
        }
    }
}
