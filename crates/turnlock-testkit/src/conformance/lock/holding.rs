//! Holds: reentry, owners, leases and the loss of a hold.

use std::time::Instant;

use crate::conformance::{Case, Fixture, NO_POLL, PROMPT, cases, ms, until_waiting};
use crate::{eventually, within};
use turnlock::{Client, Error, LostReason};

pub(super) const CASES: &[Case] = cases![
    reentries_are_counted_in_the_store_and_released_in_any_order,
    a_reentry_never_creates_a_hold needs DataLoss,
    an_owner_can_lock_again_what_it_holds,
    concurrent_tasks_of_one_owner_never_fail,
    tasks_of_one_owner_do_not_wait_for_each_other,
    a_fixed_lease_expires_and_its_holder_is_notified_first,
    a_renewed_lock_outlives_its_lease,
    a_renewed_reentry_extends_a_fixed_lease,
    no_reentry_or_renewal_shortens_a_lease,
    a_lease_is_no_longer_than_the_remaining_guards_need,
    a_waiter_learns_of_a_shortened_lease,
    lost_data_is_reported needs DataLoss,
    lost_data_is_reported_to_a_fixed_lease needs DataLoss Kind(Read) Kind(Write),
    inspect_shows_the_holder,
];

async fn reentries_are_counted_in_the_store_and_released_in_any_order(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let outer = lock.lock().await.expect("free");
    let inner = outer.reenter().await.expect("held");
    let innermost = inner.reenter().await.expect("held");
    assert_eq!(lock.inspect().await.expect("a reply").holders[0].count, 3);
    outer.unlock().await.expect("held");
    assert_eq!(lock.inspect().await.expect("a reply").holders[0].count, 2);
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    drop(innermost);
    eventually("the dropped guard is released", PROMPT, async || {
        lock.inspect().await.is_ok_and(|seen| seen.holders[0].count == 1)
    })
    .await;
    assert!(inner.is_valid());
    inner.unlock().await.expect("held");
    assert!(!lock.is_locked().await.expect("a reply"));
}

async fn a_reentry_never_creates_a_hold(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    fixture.lose_data().await;
    // Long before a renewal could detect the loss.
    let error = guard.reenter().await.expect_err("the hold is gone");
    assert!(matches!(error, Error::Lost { reason: LostReason::Taken, .. }), "{error}");
    assert!(!lock.is_locked().await.expect("a reply"));
    assert!(!guard.is_valid());
}

async fn concurrent_tasks_of_one_owner_never_fail(fixture: Fixture) {
    let client = fixture.client().await;
    let lock = client.lock(&fixture.name()).with_owner(&client.owner());
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for turn in 0..50 {
                    let guard = lock.lock().await.expect("granted or reentered");
                    if turn % 2 == 0 { drop(guard) } else { guard.unlock().await.expect("held") }
                }
            })
        })
        .collect();
    for task in tasks {
        within(ms(60_000), "every task finishes", task).await.expect("no panic");
    }
    eventually("nothing is left", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
}

async fn an_owner_can_lock_again_what_it_holds(fixture: Fixture) {
    let client = fixture.client().await;
    let (owner, other) = (client.owner(), client.owner());
    let lock = client.lock(&fixture.name());
    let outer = lock.with_owner(&owner).lock().await.expect("free");
    let inner =
        lock.with_owner(&owner).try_lock().await.expect("a reply").acquired().expect("the same owner");
    assert_eq!((lock.hold_count(&owner).await.unwrap(), lock.hold_count(&other).await.unwrap()), (2, 0));
    assert!(lock.is_held_by(&owner).await.unwrap() && !lock.is_held_by(&other).await.unwrap());
    assert!(lock.with_owner(&other).try_lock().await.expect("a reply").is_busy());
    assert_eq!(outer.owner_id(), inner.owner_id());
    let first_id = outer.owner_id().clone();
    outer.unlock().await.expect("held");
    inner.unlock().await.expect("held");
    // A new outermost hold has a new id in the store, although the owner is the same.
    let again = lock.with_owner(&owner).lock().await.expect("free");
    assert_ne!(*again.owner_id(), first_id);
}

async fn tasks_of_one_owner_do_not_wait_for_each_other(fixture: Fixture) {
    let client = fixture.client().await;
    let owner = client.owner();
    let lock = client.lock(&fixture.name());
    let other = lock.lock().await.expect("free");
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let lock = lock.with_owner(&owner);
            tokio::spawn(async move { lock.lock().await.expect("acquired") })
        })
        .collect();
    eventually("one task waits for all of them", PROMPT, async || {
        lock.inspect().await.is_ok_and(|seen| seen.waiting_here == 1)
    })
    .await;
    other.unlock().await.expect("held");
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(within(PROMPT, "all tasks of the owner acquire it", task).await.expect("no panic"));
    }
    assert_eq!(lock.hold_count(&owner).await.expect("a reply"), 5);
    drop(guards);
    eventually("all are released", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
}

async fn a_fixed_lease_expires_and_its_holder_is_notified_first(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let name = fixture.name();
    let guard = one.lock(&name).with_lease(ms(1_500)).lock().await.expect("free");
    assert!(guard.is_valid());
    assert!(guard.valid_until() <= std::time::Instant::now() + ms(1_500));
    let waiter = tokio::spawn(async move { two.lock(&name).lock().await.expect("acquired at last") });
    let reason = within(ms(1_500) + PROMPT, "the holder is notified of the end", guard.lost()).await;
    assert_eq!(reason, LostReason::Expired);
    assert!(!guard.is_valid());
    let _next = within(ms(1_500) + PROMPT, "the waiter acquires when the lease ends", waiter)
        .await
        .expect("no panic");
    assert!(matches!(guard.unlock().await, Err(Error::Lost { reason: LostReason::Expired, .. })));
}

async fn a_renewed_lock_outlives_its_lease(fixture: Fixture) {
    // Long enough for a machine that stalls for a moment.
    let one = fixture.client_with(Client::builder().watchdog_timeout(ms(3_000))).await;
    let two = fixture.client().await;
    let name = fixture.name();
    let guard = one.lock(&name).lock().await.expect("free");
    let first_end = guard.valid_until();
    eventually("it was renewed for another lease", ms(15_000), async || {
        assert!(guard.is_valid(), "lost in spite of renewal");
        assert!(two.lock(&name).try_lock().await.expect("a reply").is_busy(), "granted to another owner");
        guard.valid_until() > first_end + ms(3_000)
    })
    .await;
    guard.unlock().await.expect("held");
    assert!(two.lock(&name).try_lock().await.expect("a reply").acquired().is_some());
}

async fn a_renewed_reentry_extends_a_fixed_lease(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().watchdog_timeout(ms(3_000))).await;
    let owner = client.owner();
    let lock = client.lock(&fixture.name()).with_owner(&owner);
    let outer = lock.with_lease(ms(3_000)).lock().await.expect("free");
    let end = outer.valid_until();
    let inner = lock.lock().await.expect("the same owner");
    eventually("it outlives the fixed lease", ms(10_000), async || outer.valid_until() > end + ms(1_000))
        .await;
    assert!(outer.is_valid() && lock.is_held_by(&owner).await.expect("a reply"));
    inner.unlock().await.expect("held");
    within(ms(9_000), "without the inner guard, the lease ends", outer.lost()).await;
}

async fn no_reentry_or_renewal_shortens_a_lease(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().watchdog_timeout(ms(2_000))).await;
    let lock = client.lock(&fixture.name()).with_owner(&client.owner());
    let outer = lock.with_lease(ms(20_000)).lock().await.expect("free");
    let end = outer.valid_until();
    let inner = lock.with_lease(ms(300)).lock().await.expect("the same owner");
    let renewed = lock.lock().await.expect("the same owner");
    inner.unlock().await.expect("held");
    assert!(lock.remaining().await.expect("a reply").expect("a lease") > ms(12_000));
    // Two periods of the watchdog, observed on a lock that only the watchdog renews.
    let other = client.lock(&fixture.name()).lock().await.expect("free");
    let other_end = other.valid_until();
    eventually("the watchdog has run", PROMPT, async || other.valid_until() > other_end + ms(100)).await;
    assert!(lock.remaining().await.expect("a reply").expect("a lease") > ms(10_000));
    assert!(outer.valid_until() + ms(1) >= end);
    renewed.unlock().await.expect("held");
    assert!(lock.remaining().await.expect("a reply").expect("a lease") > ms(10_000));
}

async fn a_lease_is_no_longer_than_the_remaining_guards_need(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().watchdog_timeout(ms(3_000))).await;
    let lock = client.lock(&fixture.name()).with_owner(&client.owner());
    let remaining = async || lock.remaining().await.expect("a reply").expect("a lease");
    let outer = lock.lock().await.expect("free");
    let fixed = lock.with_lease(ms(60_000)).lock().await.expect("the same owner");
    let inner = lock.with_lease(ms(3_600_000)).lock().await.expect("the same owner");
    assert!(remaining().await > ms(3_590_000));
    inner.unlock().await.expect("held");
    eventually("the hour is dropped", ms(5_000), async || remaining().await <= ms(60_000)).await;
    let end = outer.valid_until();
    eventually("it is renewed", ms(9_000), async || {
        assert!(remaining().await > ms(30_000), "the fixed lease of a live guard is unchanged");
        outer.valid_until() + ms(1) >= end && remaining().await <= ms(57_000)
    })
    .await;
    fixed.unlock().await.expect("held");
    eventually("the minute is dropped", ms(5_000), async || remaining().await <= ms(3_000)).await;
    let end = outer.valid_until();
    eventually("it is renewed", ms(9_000), async || outer.valid_until() > end + ms(1_000)).await;
    assert!(remaining().await <= ms(3_000));
    outer.unlock().await.expect("held");

    let outer = lock.with_lease(ms(60_000)).lock().await.expect("free");
    let inner = lock.with_lease(ms(3_600_000)).lock().await.expect("the same owner");
    inner.unlock().await.expect("held");
    eventually("the hour is dropped", ms(5_000), async || remaining().await <= ms(60_000)).await;
    assert!(outer.is_valid() && outer.valid_until() < Instant::now() + ms(60_000));
    outer.unlock().await.expect("held");
}

async fn a_waiter_learns_of_a_shortened_lease(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let name = fixture.name();
    let lock = one.lock(&name).with_owner(&one.owner());
    let outer = lock.with_lease(ms(4_000)).lock().await.expect("free");
    let inner = lock.with_lease(ms(3_600_000)).lock().await.expect("the same owner");
    let waits = two.lock(&name);
    let waiter = tokio::spawn(async move { waits.lock().await.expect("acquired at last") });
    until_waiting(&two.lock(&name), 1).await;
    inner.unlock().await.expect("held");
    // The lease of the outer guard expires, which sends no message.
    let next =
        within(ms(9_000), "the waiter acquires when the shorter lease ends", waiter).await.expect("no panic");
    assert!(outer.lost().await == LostReason::Expired && next.is_valid());
}

async fn lost_data_is_reported(fixture: Fixture) {
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let lock = client.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    fixture.lose_data().await;
    let reason = within(ms(3_000), "the next renewal detects the loss", guard.lost()).await;
    assert_eq!(reason, LostReason::Taken);
    assert!(matches!(guard.reenter().await, Err(Error::Lost { .. })), "a reentry must not create a hold");
    assert!(!lock.is_locked().await.expect("a reply"));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
}

/// A fixed lease is checked as often as a renewed one: every third of it, or of the watchdog time-out.
async fn lost_data_is_reported_to_a_fixed_lease(fixture: Fixture) {
    for (watchdog, lease) in [(ms(30_000), ms(6_000)), (ms(6_000), ms(60_000))] {
        let client =
            fixture.client_with(Client::builder().watchdog_timeout(watchdog).poll_interval(NO_POLL)).await;
        let name = fixture.name();
        let guard = client.lock(&name).with_lease(lease).lock().await.expect("free");
        let reader =
            client.read_write_lock(&fixture.name()).reader().with_lease(lease).lock().await.expect("free");
        fixture.lose_data().await;
        let other = fixture.client().await.lock(&name);
        let theirs =
            other.try_lock().await.expect("a reply").acquired().expect("the store has lost the hold");
        for guard in [&guard, &reader] {
            let reason = within(ms(4_000), "the next check detects the loss", guard.lost()).await;
            assert_eq!(reason, LostReason::Taken);
            assert!(!guard.is_valid());
        }
        assert!(matches!(guard.unlock().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
        theirs.unlock().await.expect("the old holder's release did not affect the new hold");
    }
}

async fn inspect_shows_the_holder(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let name = fixture.name();
    let free = two.lock(&name).inspect().await.expect("a reply");
    assert!(!free.is_locked() && free.ttl.is_none());
    assert_eq!(two.lock(&name).remaining().await.expect("a reply"), None);
    let guard = one.lock(&name).with_lease(ms(9_000)).lock().await.expect("free");
    let seen = two.lock(&name).inspect().await.expect("a reply");
    assert_eq!((seen.name.as_str(), seen.holders.len()), (name.as_str(), 1));
    assert_eq!((&seen.holders[0].owner, seen.holders[0].count), (guard.owner_id(), 1));
    assert!(!seen.holders[0].is_mine);
    assert!(one.lock(&name).inspect().await.expect("a reply").holders[0].is_mine);
    assert!(seen.ttl.expect("a lease") > ms(8_000) && seen.ttl.expect("a lease") <= ms(9_000));
}
