//! How a hold ends: unlock, drop, forced unlock and shutdown.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::conformance::{Case, Fixture, NO_POLL, PROMPT, cases, ms, until_waiting};
use crate::{eventually, in_time, within};
use tokio::runtime::Builder;
use turnlock::{Client, Error, LostReason, MultiLock, TryAcquire};

pub(super) const CASES: &[Case] = cases![
    unlock_reports_never_held_and_lost_as_different_errors,
    force_unlock_releases_wakes_a_waiter_and_notifies_the_holder,
    force_unlock_leaves_one_holder_in_one_client,
    a_late_release_does_not_affect_the_next_holder,
    a_panic_while_holding_releases_the_lock,
    a_guard_may_be_dropped_without_a_runtime,
    a_guard_may_outlive_the_runtime,
    loss_is_reported_without_the_runtime_of_the_client,
    shutdown_completes_releases_and_refuses_new_requests,
    shutdown_does_not_release_held_locks,
    the_last_handle_may_be_dropped_before_the_release_is_done,
];

async fn unlock_reports_never_held_and_lost_as_different_errors(fixture: Fixture) {
    let client = fixture.client().await;
    let (owner, other) = (client.owner(), client.owner());
    let lock = client.lock(&fixture.name());
    owner.detach(lock.with_owner(&owner).lock().await.expect("free"));
    let error = other.unlock(&lock).await.expect_err("it never held the lock");
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    assert!(lock.is_held_by(&owner).await.expect("a reply"), "the hold is not affected");
    owner.unlock(&lock).await.expect("held");
    assert!(!lock.is_locked().await.expect("a reply"));
    assert!(matches!(owner.unlock(&lock).await, Err(Error::NotHeld { .. })), "released already");

    owner.detach(lock.with_owner(&owner).with_lease(ms(60)).lock().await.expect("free"));
    eventually("it expires", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
    let error = owner.unlock(&lock).await.expect_err("expired");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

async fn force_unlock_releases_wakes_a_waiter_and_notifies_the_holder(fixture: Fixture) {
    let name = fixture.name();
    let one = fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let two = fixture.client().await;
    assert!(!two.lock(&name).force_unlock().await.expect("a reply"), "it was not held");
    for forcer in [&two, &one] {
        let guard = one.lock(&name).lock().await.expect("free");
        let waiting = two.lock(&name);
        let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
        until_waiting(&two.lock(&name), 1).await;
        assert!(forcer.lock(&name).force_unlock().await.expect("a reply"));
        let next = within(PROMPT, "the waiter is woken", task).await.expect("no panic");
        // At the next renewal at the latest.
        assert_eq!(within(ms(3_000), "the holder is notified", guard.lost()).await, LostReason::Taken);
        assert!(matches!(guard.unlock().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
        assert!(next.is_valid(), "the old holder's release did not affect the new hold");
        next.unlock().await.expect("held");
    }
}

async fn force_unlock_leaves_one_holder_in_one_client(fixture: Fixture) {
    let client = fixture.client().await;
    for round in 0..12 {
        let lock = client.lock(&fixture.name());
        let lock = if round % 2 == 0 { lock } else { lock.with_lease(ms(20_000)) };
        let guard = lock.lock().await.expect("free");
        let waiting = lock.clone();
        let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
        until_waiting(&lock, 1).await;
        assert!(lock.force_unlock().await.expect("a reply"));
        let next = within(PROMPT, "the waiter acquires", task).await.expect("no panic");
        within(PROMPT, "the old holder is notified", guard.lost()).await;
        assert!(!guard.is_valid() && next.is_valid());
        next.unlock().await.expect("held");
    }
}

async fn a_late_release_does_not_affect_the_next_holder(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await, fixture.client().await);
    let old = one.lock(&name).with_lease(ms(60)).lock().await.expect("free");
    let new = within(PROMPT, "the lease ends", two.lock(&name).lock()).await.expect("acquired");
    drop(old);
    assert!(matches!(one.lock(&name).try_lock().await, Ok(TryAcquire::Busy)));
    // The release of the drop is done when a later one on the same connection is.
    let neighbour = fixture.named(&format!("in-the-same-slot{{{name}}}"));
    one.lock(&neighbour).lock().await.expect("free").unlock().await.expect("held");
    assert_eq!(two.lock(&name).inspect().await.expect("a reply").holders[0].owner, *new.owner_id());
    new.unlock().await.expect("still held");
}

async fn a_panic_while_holding_releases_the_lock(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    let task = tokio::spawn(async move {
        let _guard = one.lock().await.expect("free");
        // Not `panic!`, which would print a backtrace.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(task.await.expect_err("it panicked").is_panic());
    let guard = within(PROMPT, "the lock is free", two.lock()).await.expect("acquired");
    guard.unlock().await.expect("held");
}

async fn a_guard_may_be_dropped_without_a_runtime(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    let guard = one.lock().await.expect("free");
    let dropped = std::thread::spawn(move || drop(guard));
    let next = within(PROMPT, "the lock is free", two.lock()).await.expect("acquired");
    dropped.join().expect("no panic");
    next.unlock().await.expect("held");
}

async fn a_guard_may_outlive_the_runtime(fixture: Fixture) {
    let name = fixture.name();
    let (started, fixture) = tokio::task::spawn_blocking({
        let name = name.clone();
        move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
            let (client, guard) = runtime.block_on(async {
                let client = fixture.client_with(Client::builder().watchdog_timeout(ms(400))).await;
                let guard = client.lock(&name).lock().await.expect("free");
                (client, guard)
            });
            let unlocked = runtime.block_on(client.lock(&fixture.name()).lock()).expect("free");
            runtime.shutdown_timeout(ms(500));
            let started = std::time::Instant::now();
            let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let refused = bare.block_on(client.lock("new").lock());
            assert!(matches!(refused, Err(Error::ShuttingDown)), "{refused:?}");
            let outcome = bare.block_on(unlocked.unlock());
            assert!(matches!(outcome, Err(Error::InDoubt { .. })), "{outcome:?}");
            assert_eq!(bare.block_on(client.shutdown(ms(50))).held, 1);
            drop(guard);
            drop(client);
            (started, fixture)
        }
    })
    .await
    .expect("the drop does not panic");
    in_time("nothing blocks", started, PROMPT);
    // No runtime was left to release it, so its lease ends.
    let other = fixture.client().await;
    let next = within(PROMPT, "the lease ends", other.lock(&name).lock()).await.expect("acquired");
    next.unlock().await.expect("held");
}

/// Nothing is renewed once the runtime of a client is shut down or no longer driven. A task that awaits
/// `lost()` on another runtime is still notified, even on a runtime without timers.
async fn loss_is_reported_without_the_runtime_of_the_client(fixture: Fixture) {
    const LEASE: Duration = ms(1_000);
    let watch = move || {
        for is_shut_down in [true, false] {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let (guard, fixed, multi) = runtime.block_on(async {
                let client = fixture.client_with(Client::builder().watchdog_timeout(LEASE)).await;
                let lock = || client.lock(&fixture.name());
                let guard = lock().lock().await.expect("free");
                let fixed = lock().with_lease(LEASE).lock().await.expect("free");
                let multi = MultiLock::new([lock(), lock()]).expect("valid members");
                (guard, fixed, multi.lock().await.expect("free"))
            });
            let idle = (!is_shut_down).then_some(runtime);
            let (sender, receiver) = mpsc::channel();
            thread::spawn(move || {
                let bare = Builder::new_current_thread().build().expect("a runtime");
                let reasons = bare
                    .block_on(async { [guard.lost().await, fixed.lost().await, multi.lost().await.reason] });
                let are_valid = [guard.is_valid(), fixed.is_valid(), multi.is_valid()];
                let _ = sender.send((reasons, are_valid));
            });
            let (reasons, are_valid) = receiver.recv_timeout(10 * LEASE).expect("the loss is reported");
            let as_expected = matches!(
                reasons,
                [LostReason::NotRenewed { .. }, LostReason::Expired, LostReason::NotRenewed { .. }]
            );
            assert!(
                as_expected && are_valid == [false; 3],
                "shut down: {is_shut_down}, {reasons:?}, {are_valid:?}"
            );
            drop(idle);
        }
    };
    tokio::task::spawn_blocking(watch).await.expect("no panic");
}

async fn shutdown_completes_releases_and_refuses_new_requests(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await, fixture.client().await);
    let guard = one.lock(&name).lock().await.expect("free");
    let others: Vec<_> = {
        let mut others = Vec::new();
        for number in 0..20 {
            others.push(one.lock(&format!("{name}:{number}")).lock().await.expect("free"));
        }
        others
    };
    let waiting = one.lock(&name);
    let waiter = tokio::spawn(async move { waiting.lock().await });
    until_waiting(&one.lock(&name), 1).await;
    drop(others);
    let closing = tokio::spawn({
        let one = one.clone();
        async move { one.shutdown(ms(5_000)).await }
    });
    let refused = within(PROMPT, "the waiter is refused", waiter).await.expect("no panic");
    assert!(matches!(refused, Err(Error::ShuttingDown)));
    assert!(matches!(one.lock("new").lock().await, Err(Error::ShuttingDown)));
    assert!(!closing.is_finished(), "it waits for the guard");
    drop(guard);
    let left = within(PROMPT, "all releases are done", closing).await.expect("no panic");
    assert!(left.is_clean(), "{left:?}");
    for number in 0..20 {
        let lock = two.lock(&format!("{name}:{number}"));
        assert!(
            lock.try_lock().await.expect("a reply").acquired().is_some(),
            "{number} was released before shutdown ended"
        );
    }
}

async fn shutdown_does_not_release_held_locks(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().watchdog_timeout(ms(3_000))).await;
    let guard = client.lock(&fixture.name()).lock().await.expect("free");
    let left = client.shutdown(ms(100)).await;
    assert_eq!((left.held, left.is_clean()), (1, false));
    assert!(guard.is_valid(), "still held");
    within(ms(3_000) + PROMPT, "no longer renewed, it ends with its lease", guard.lost()).await;
}

async fn the_last_handle_may_be_dropped_before_the_release_is_done(fixture: Fixture) {
    let name = fixture.name();
    let other = fixture.client().await;
    for _ in 0..20 {
        let client = fixture.client().await;
        let guard = client.lock(&name).lock().await.expect("free");
        drop(client);
        drop(guard);
        let next = within(PROMPT, "the release is done", other.lock(&name).lock()).await;
        next.expect("acquired").unlock().await.expect("held");
    }
}
