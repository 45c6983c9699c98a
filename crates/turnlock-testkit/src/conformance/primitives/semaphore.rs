//! Both kinds of semaphore: permits are counted, served in order within a client, and never lost.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinHandle;
use turnlock::{Client, Error, Inspection, Permits};

use super::any_semaphore::AnySemaphore;
use crate::conformance::{Case, Fixture, Kind, NO_POLL, ONE_POLL, PROMPT, cases, ms};
use crate::{eventually, within};

pub(super) const CASES: &[Case] = cases![
    permits_are_counted,
    no_more_permits_are_out_than_were_set,
    several_permits_are_acquired_all_or_none,
    waiters_for_few_permits_do_not_overtake_waiters_for_many,
    added_permits_wake_waiters,
    a_lost_message_costs_a_second needs LostMessages,
    detached_permits_stay_out,
    release_after_needs_permits_with_a_lease,
    the_number_of_permits_may_be_changed_and_deleted,
    acquires_dropped_after_any_poll_leave_the_count_unchanged,
    bad_numbers_of_permits_are_refused needs Kind(Permits),
];

async fn two(fixture: &Fixture, permits: u32) -> (AnySemaphore, AnySemaphore) {
    let name = fixture.name();
    let (one, two) = (
        AnySemaphore::new(&fixture.client().await, &name),
        AnySemaphore::new(&fixture.client().await, &name),
    );
    assert!(one.try_set_permits(permits).await.expect("a reply"));
    (one, two)
}

/// Spawns a task that waits for permits, and returns once it waits.
async fn waiter(semaphore: &AnySemaphore, permits: u32, before: usize) -> JoinHandle<Permits> {
    let waiting = semaphore.clone();
    let task = tokio::spawn(async move { waiting.acquire(permits).await.expect("acquired") });
    let waits = async || semaphore.inspect().await.is_ok_and(|seen| seen.waiting_here == before + 1);
    eventually("the waiter waits", ms(20_000), waits).await;
    task
}

async fn inspect(semaphore: &AnySemaphore) -> Inspection {
    semaphore.inspect().await.expect("a reply")
}

async fn permits_are_counted(fixture: Fixture) {
    let (one, two) = two(&fixture, 3).await;
    assert!(!two.try_set_permits(9).await.expect("a reply"), "it was set already");
    let first = two.acquire(2).await.expect("free");
    assert_eq!((first.count(), first.name(), first.is_valid()), (2, one.name(), true));
    assert_eq!((one.available().await.unwrap(), two.available().await.unwrap()), (1, 1));
    let seen = inspect(&one).await;
    assert_eq!((seen.available, seen.waiting_here, seen.name.as_str()), (Some(1), 0, one.name()));
    assert!(one.try_acquire(2).await.expect("a reply").is_busy());
    let second = one.try_acquire(1).await.expect("a reply").acquired().expect("one is left");
    assert!(two.try_acquire_for(1, ms(30)).await.expect("a reply").is_busy());
    first.release().await.expect("held");
    drop(second);
    eventually("all are available", PROMPT, async || matches!(one.available().await, Ok(3))).await;
    let all = two.try_acquire_for(3, ms(100)).await.expect("a reply").acquired().expect("all are free");
    assert_eq!(one.available().await.unwrap(), 0);
    all.release().await.expect("held");
    let unset = AnySemaphore::new(&fixture.client().await, &fixture.name());
    assert_eq!((unset.available().await.unwrap(), inspect(&unset).await.available), (0, None));
    assert!(unset.try_acquire(1).await.expect("a reply").is_busy(), "none were ever set");
}

async fn no_more_permits_are_out_than_were_set(fixture: Fixture) {
    const PERMITS: u32 = 3;
    let (one, two) = two(&fixture, PERMITS).await;
    let out = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = Vec::new();
    for task in 0..10_u32 {
        let (semaphore, out) = (if task % 2 == 0 { one.clone() } else { two.clone() }, Arc::clone(&out));
        tasks.push(tokio::spawn(async move {
            for turn in 0..15 {
                let count = 1 + (task + turn) % PERMITS;
                let permits = semaphore.acquire(count).await.expect("acquired");
                let now = out.fetch_add(count, std::sync::atomic::Ordering::SeqCst) + count;
                assert!(now <= PERMITS, "{now} of {PERMITS} are out");
                tokio::task::yield_now().await;
                out.fetch_sub(count, std::sync::atomic::Ordering::SeqCst);
                if turn % 2 == 0 { permits.release().await.expect("held") } else { drop(permits) }
            }
        }));
    }
    for task in tasks {
        within(ms(60_000), "each task gets its turns", task).await.expect("no panic");
    }
    eventually("all are available", PROMPT, async || {
        one.available().await.is_ok_and(|available| available == i64::from(PERMITS))
    })
    .await;
}

async fn several_permits_are_acquired_all_or_none(fixture: Fixture) {
    let (one, two) = two(&fixture, 3).await;
    let held = one.acquire(2).await.expect("free");
    let task = waiter(&two, 3, 0).await;
    assert_eq!(one.available().await.unwrap(), 1, "a waiter for three has taken none");
    let last = one.acquire(1).await.expect("free");
    held.release().await.expect("held");
    eventually("two are free", PROMPT, async || matches!(one.available().await, Ok(2))).await;
    assert!(!task.is_finished());
    last.release().await.expect("held");
    let all = within(PROMPT, "the message wakes the waiter", task).await.expect("no panic");
    assert_eq!((all.count(), one.available().await.unwrap()), (3, 0));
    drop(all);
}

async fn waiters_for_few_permits_do_not_overtake_waiters_for_many(fixture: Fixture) {
    let (one, _) = two(&fixture, 3).await;
    let held = [one.acquire(2).await.expect("free"), one.acquire(1).await.expect("free")];
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (number, permits) in [3, 1, 2, 1].into_iter().enumerate() {
        let (waiting, served) = (one.clone(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let permits = waiting.acquire(permits).await.expect("acquired");
            served.lock().unwrap().push(number);
            permits.release().await.expect("held");
        }));
        eventually("the waiter waits", ms(20_000), async || {
            one.inspect().await.is_ok_and(|seen| seen.waiting_here == number + 1)
        })
        .await;
    }
    assert!(one.try_acquire(1).await.expect("a reply").is_busy());
    for permits in held {
        assert!(served.lock().unwrap().is_empty(), "a waiter for few overtook the waiter for many");
        permits.release().await.expect("held");
        // A try_acquire does not overtake the waiters either.
        assert!(one.try_acquire(1).await.expect("a reply").is_busy() || !served.lock().unwrap().is_empty());
    }
    for task in tasks {
        within(PROMPT, "each waiter acquires", task).await.expect("no panic");
    }
    assert_eq!(served.lock().unwrap()[0], 0);
    eventually("all are available", PROMPT, async || matches!(one.available().await, Ok(3))).await;
}

async fn added_permits_wake_waiters(fixture: Fixture) {
    let (one, two) = two(&fixture, 1).await;
    let held = one.acquire(1).await.expect("free");
    let tasks = [waiter(&two, 1, 0).await, waiter(&one, 1, 0).await];
    assert_eq!(one.add_permits(2).await.expect("a reply"), 2);
    for task in tasks {
        let permits = within(PROMPT, "the message wakes the waiter", task).await.expect("no panic");
        permits.release().await.expect("held");
    }
    held.release().await.expect("held");
    assert_eq!(two.available().await.unwrap(), 3);
    // Setting the first number wakes waiters, too.
    let name = fixture.name();
    let (unset, other) = (
        AnySemaphore::new(&fixture.client().await, &name),
        AnySemaphore::new(&fixture.client().await, &name),
    );
    let task = waiter(&unset, 1, 0).await;
    assert!(other.try_set_permits(1).await.expect("a reply"));
    within(PROMPT, "the message wakes the waiter", task)
        .await
        .expect("no panic")
        .release()
        .await
        .expect("held");
}

async fn a_lost_message_costs_a_second(fixture: Fixture) {
    let name = fixture.name();
    // With the default poll interval.
    let waiting = AnySemaphore::new(&fixture.client_with(Client::builder()).await, &name);
    let holder = AnySemaphore::new(&fixture.mute_client().await, &name);
    assert!(holder.try_set_permits(1).await.expect("a reply"));
    let held = holder.acquire(1).await.expect("free");
    let task = waiter(&waiting, 1, 0).await;
    held.release().await.expect("held");
    within(ONE_POLL, "the waiter polls", task).await.expect("no panic").release().await.expect("held");
}

async fn detached_permits_stay_out(fixture: Fixture) {
    let name = fixture.name();
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let semaphore = AnySemaphore::new(&client, &name);
    assert!(semaphore.try_set_permits(2).await.expect("a reply"));
    semaphore.acquire(1).await.expect("free").detach();
    assert_eq!(semaphore.available().await.unwrap(), 1);
    match &semaphore {
        // Released without the guard, as in Java.
        AnySemaphore::Plain(semaphore) => assert_eq!(semaphore.release(1).await.expect("a reply"), 2),
        // No longer renewed.
        AnySemaphore::Leased(_) => {
            let are_available = async || matches!(semaphore.available().await, Ok(2));
            eventually("the lease ends", ms(3_000) + PROMPT, are_available).await;
        }
    }
    let all = semaphore.try_acquire(2).await.expect("a reply").acquired().expect("all are available");
    all.release().await.expect("held");
}

async fn release_after_needs_permits_with_a_lease(fixture: Fixture) {
    let (one, _) = two(&fixture, 1).await;
    let outcome = one.acquire(1).await.expect("free").release_after(ms(60_000)).await;
    if fixture.kind == Kind::Permits {
        outcome.expect("held");
        assert_eq!(one.available().await.unwrap(), 0);
        return;
    }
    let refused = outcome.expect_err("no lease");
    assert!(matches!(refused.error(), Error::Unsupported(_)), "{refused}");
    assert_eq!(one.available().await.unwrap(), 0, "a refused call releases nothing");
    refused.into_guard().expect("the permits are returned").release().await.expect("held");
    assert_eq!(one.available().await.unwrap(), 1);
}

async fn the_number_of_permits_may_be_changed_and_deleted(fixture: Fixture) {
    let (one, two) = two(&fixture, 2).await;
    assert_eq!(one.add_permits(3).await.expect("a reply"), 5);
    assert_eq!(two.add_permits(-7).await.expect("a reply"), -2, "it may fall below zero");
    assert!(one.try_acquire(1).await.expect("a reply").is_busy());
    assert_eq!(two.add_permits(4).await.expect("a reply"), 2);
    let held = one.acquire(1).await.expect("free");
    match &two {
        AnySemaphore::Plain(semaphore) => {
            assert_eq!(semaphore.drain().await.expect("a reply"), 1);
            assert_eq!((semaphore.drain().await.unwrap(), semaphore.available().await.unwrap()), (0, 0));
            held.release().await.expect("held");
            assert_eq!(semaphore.release(3).await.expect("a reply"), 4, "more than were ever set");
        }
        AnySemaphore::Leased(semaphore) => {
            assert_eq!(semaphore.set_permits(5).await.expect("a reply"), 4, "five, of which one is out");
            assert_eq!(semaphore.set_permits(1).await.expect("a reply"), 0);
            assert!(held.is_valid(), "permits in use stay valid");
            held.release().await.expect("held");
            assert_eq!(semaphore.set_permits(4).await.expect("a reply"), 4);
        }
    }
    assert_eq!(one.available().await.unwrap(), 4);
    let lost = one.acquire(2).await.expect("free");
    assert!(two.delete().await.expect("a reply") && !two.delete().await.expect("a reply"));
    assert_eq!(inspect(&one).await.available, None);
    let outcome = lost.release().await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "the semaphore was deleted: {outcome:?}");
    assert_eq!(inspect(&one).await.available, None, "a release does not create the semaphore");
    assert!(one.try_set_permits(1).await.expect("a reply"), "set again");
    assert_eq!(two.available().await.unwrap(), 1);
}

async fn acquires_dropped_after_any_poll_leave_the_count_unchanged(fixture: Fixture) {
    let all = fixture.rounds(600).await;
    let (one, two) = two(&fixture, 3).await;
    for drops in 0..all {
        let semaphore = if drops % 3 == 0 { &two } else { &one };
        let mut future = Box::pin(semaphore.acquire(1 + u32::try_from(drops % 3).expect("small")));
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
            drop(tokio::time::timeout(Duration::ZERO, semaphore.add_permits(1)).await);
            assert!(two.add_permits(-1).await.is_ok());
        }
    }
    eventually("the count is unchanged", PROMPT, async || matches!(two.available().await, Ok(3))).await;
    for semaphore in [&one, &two] {
        eventually("no task waits", PROMPT, async || {
            semaphore.inspect().await.is_ok_and(|seen| seen.waiting_here == 0)
        })
        .await;
    }
    one.try_acquire(3)
        .await
        .expect("a reply")
        .acquired()
        .expect("all are free")
        .release()
        .await
        .expect("held");
}

async fn bad_numbers_of_permits_are_refused(fixture: Fixture) {
    let (one, _) = two(&fixture, 2).await;
    let huge = u32::try_from(i32::MAX).expect("positive") + 1;
    for number in [0, huge, u32::MAX] {
        let mut outcomes = vec![
            one.acquire(number).await.map(drop),
            one.try_acquire(number).await.map(drop),
            one.try_acquire_for(number, ms(10)).await.map(drop),
            one.try_set_permits(number).await.map(drop),
        ];
        match &one {
            AnySemaphore::Plain(semaphore) => outcomes.push(semaphore.release(number).await.map(drop)),
            AnySemaphore::Leased(semaphore) => outcomes.push(semaphore.set_permits(number).await.map(drop)),
        }
        for outcome in outcomes {
            let error = outcome.expect_err("a bad number of permits");
            assert!(matches!(&error, Error::BadArgument { .. }), "{error}");
            assert!(error.to_string().contains(&number.to_string()), "{error}");
        }
    }
    assert_eq!(one.available().await.unwrap(), 2);
    let empty = AnySemaphore::new(&fixture.client().await, "");
    assert!(matches!(empty.acquire(1).await, Err(Error::BadName(_))));
    assert!(matches!(empty.available().await, Err(Error::BadName(_))));
    if fixture.kind == Kind::Permits {
        let semaphore = fixture.client().await.permit_semaphore("leases");
        for lease in [Duration::ZERO, Duration::MAX] {
            assert!(matches!(semaphore.with_lease(lease).acquire(1).await, Err(Error::BadLease(_))));
        }
    }
}
