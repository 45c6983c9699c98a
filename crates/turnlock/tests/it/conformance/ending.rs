//! The ways in which a hold ends.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use turnlock::{Client, Error, LostReason, MultiLock};
use turnlock_testkit::{eventually, in_time, within};

use crate::rig::{NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    unlock_tells_never_held_from_lost,
    force_unlock_frees_and_wakes_and_tells_the_holder,
    force_unlock_leaves_one_holder_in_one_client,
    a_late_release_harms_nobody,
    a_panic_while_holding_gives_the_lock_back,
    a_guard_may_be_dropped_without_a_runtime,
    a_guard_may_outlive_the_runtime,
    the_end_is_told_without_the_runtime_of_the_client,
    shutdown_drains_and_refuses,
    shutdown_takes_no_lock_away,
    the_last_handle_may_go_before_the_release_is_done,
];

async fn unlock_tells_never_held_from_lost(rig: Rig) {
    let client = rig.client().await;
    let (me, you) = (client.owner(), client.owner());
    let lock = client.lock(&rig.name());
    me.keep(lock.owned_by(&me).lock().await.expect("free"));
    let error = you.unlock(&lock).await.expect_err("it never held");
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    assert!(lock.is_held_by(&me).await.expect("an answer"), "the attempt did no harm");
    me.unlock(&lock).await.expect("held");
    assert!(!lock.is_locked().await.expect("an answer"));
    assert!(matches!(me.unlock(&lock).await, Err(Error::NotHeld { .. })), "given back already");

    me.keep(lock.owned_by(&me).lease(ms(60)).lock().await.expect("free"));
    eventually("it expires", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
    let error = me.unlock(&lock).await.expect_err("expired");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

async fn force_unlock_frees_and_wakes_and_tells_the_holder(rig: Rig) {
    let name = rig.name();
    let one = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let two = rig.client().await;
    assert!(!two.lock(&name).force_unlock().await.expect("an answer"), "nobody held it");
    for forcer in [&two, &one] {
        let guard = one.lock(&name).lock().await.expect("free");
        let waiting = two.lock(&name);
        let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(&two.lock(&name), 1).await;
        assert!(forcer.lock(&name).force_unlock().await.expect("an answer"));
        let next = within(PROMPT, "the waiter is woken", task).await.expect("no panic");
        // At the next renewal at the latest.
        assert_eq!(within(ms(3_000), "the holder hears of it", guard.lost()).await, LostReason::Taken);
        assert!(matches!(guard.unlock().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
        assert!(next.is_valid(), "the old holder's end did not touch the new one");
        next.unlock().await.expect("held");
    }
}

async fn force_unlock_leaves_one_holder_in_one_client(rig: Rig) {
    let client = rig.client().await;
    for round in 0..12 {
        let lock = client.lock(&rig.name());
        let lock = if round % 2 == 0 { lock } else { lock.lease(ms(20_000)) };
        let guard = lock.lock().await.expect("free");
        let waiting = lock.clone();
        let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(&lock, 1).await;
        assert!(lock.force_unlock().await.expect("an answer"));
        let next = within(PROMPT, "the waiter gets it", task).await.expect("no panic");
        within(PROMPT, "the old holder is told", guard.lost()).await;
        assert!(!guard.is_valid() && next.is_valid());
        next.unlock().await.expect("held");
    }
}

async fn a_late_release_harms_nobody(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await, rig.client().await);
    let old = one.lock(&name).lease(ms(60)).lock().await.expect("free");
    let new = within(PROMPT, "the lease ends", two.lock(&name).lock()).await.expect("a turn");
    drop(old);
    assert!(matches!(one.lock(&name).try_lock().await, Ok(None)));
    // The drop's release is done when a later one of the same client is, by the same connection.
    let neighbour = rig.named(&format!("in-the-same-slot{{{name}}}"));
    one.lock(&neighbour).lock().await.expect("free").unlock().await.expect("held");
    assert_eq!(two.lock(&name).inspect().await.expect("an answer").holders[0].owner, *new.owner_id());
    new.unlock().await.expect("still held");
}

async fn a_panic_while_holding_gives_the_lock_back(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    let task = tokio::spawn(async move {
        let _guard = one.lock().await.expect("free");
        // Not `panic!`, which would print a backtrace as if something had gone wrong.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(task.await.expect_err("it panicked").is_panic());
    let guard = within(PROMPT, "the lock is free", two.lock()).await.expect("a turn");
    guard.unlock().await.expect("held");
}

async fn a_guard_may_be_dropped_without_a_runtime(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    let guard = one.lock().await.expect("free");
    let dropped = std::thread::spawn(move || drop(guard));
    let next = within(PROMPT, "the lock is free", two.lock()).await.expect("a turn");
    dropped.join().expect("no panic");
    next.unlock().await.expect("held");
}

async fn a_guard_may_outlive_the_runtime(rig: Rig) {
    let name = rig.name();
    let (started, rig) = tokio::task::spawn_blocking({
        let name = name.clone();
        move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
            let (client, guard) = runtime.block_on(async {
                let client = rig.client_with(Client::builder().watchdog(ms(400))).await;
                let guard = client.lock(&name).lock().await.expect("free");
                (client, guard)
            });
            let unlocked = runtime.block_on(client.lock(&rig.name()).lock()).expect("free");
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
            (started, rig)
        }
    })
    .await
    .expect("a drop that does not panic");
    in_time("nothing blocks", started, PROMPT);
    // Nobody was there to release it, so the lease does.
    let other = rig.client().await;
    let next = within(PROMPT, "the lease ends", other.lock(&name).lock()).await.expect("a turn");
    next.unlock().await.expect("held");
}

/// Once the runtime of a client is gone, or is not driven any more, nothing is renewed. Those who wait on another runtime for the
/// end of a hold hear of it, also on one without timers.
async fn the_end_is_told_without_the_runtime_of_the_client(rig: Rig) {
    const LEASE: Duration = ms(1_000);
    let watch = move || {
        for is_gone in [true, false] {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let (guard, fixed, multi) = runtime.block_on(async {
                let client = rig.client_with(Client::builder().watchdog(LEASE)).await;
                let lock = || client.lock(&rig.name());
                let guard = lock().lock().await.expect("free");
                let fixed = lock().lease(LEASE).lock().await.expect("free");
                let multi = MultiLock::new([lock(), lock()]).expect("a good set");
                (guard, fixed, multi.lock().await.expect("free"))
            });
            let idle = (!is_gone).then_some(runtime);
            let (tell, told) = mpsc::channel();
            thread::spawn(move || {
                let bare = Builder::new_current_thread().build().expect("a runtime");
                let reasons = bare
                    .block_on(async { [guard.lost().await, fixed.lost().await, multi.lost().await.reason] });
                let are_valid = [guard.is_valid(), fixed.is_valid(), multi.is_valid()];
                let _ = tell.send((reasons, are_valid));
            });
            let (reasons, are_valid) = told.recv_timeout(10 * LEASE).expect("the end is told");
            let is_told = matches!(
                reasons,
                [LostReason::NotRenewed { .. }, LostReason::Expired, LostReason::NotRenewed { .. }]
            );
            assert!(is_told && are_valid == [false; 3], "gone: {is_gone}, {reasons:?}, {are_valid:?}");
            drop(idle);
        }
    };
    tokio::task::spawn_blocking(watch).await.expect("no panic");
}

async fn shutdown_drains_and_refuses(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await, rig.client().await);
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
    let refused = within(PROMPT, "the waiter is told", waiter).await.expect("no panic");
    assert!(matches!(refused, Err(Error::ShuttingDown)));
    assert!(matches!(one.lock("new").lock().await, Err(Error::ShuttingDown)));
    assert!(!closing.is_finished(), "it waits for the guard");
    drop(guard);
    let left = within(PROMPT, "it is drained", closing).await.expect("no panic");
    assert!(left.is_clean(), "{left:?}");
    for number in 0..20 {
        let lock = two.lock(&format!("{name}:{number}"));
        assert!(
            lock.try_lock().await.expect("an answer").is_some(),
            "{number} was released before shutdown ended"
        );
    }
}

async fn shutdown_takes_no_lock_away(rig: Rig) {
    let client = rig.client_with(Client::builder().watchdog(ms(3_000))).await;
    let guard = client.lock(&rig.name()).lock().await.expect("free");
    let left = client.shutdown(ms(100)).await;
    assert_eq!((left.held, left.is_clean()), (1, false));
    assert!(guard.is_valid(), "still the holder's");
    within(ms(3_000) + PROMPT, "not renewed any more, it ends with its lease", guard.lost()).await;
}

async fn the_last_handle_may_go_before_the_release_is_done(rig: Rig) {
    let name = rig.name();
    let other = rig.client().await;
    for _ in 0..20 {
        let client = rig.client().await;
        let guard = client.lock(&name).lock().await.expect("free");
        drop(client);
        drop(guard);
        let next = within(PROMPT, "the release is done all the same", other.lock(&name).lock()).await;
        next.expect("a turn").unlock().await.expect("held");
    }
}
