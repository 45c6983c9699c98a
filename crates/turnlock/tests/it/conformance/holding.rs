//! What a guard is worth while it is held.

use std::time::Instant;

use turnlock::{Client, Error, LostReason};
use turnlock_testkit::{eventually, within};

use crate::rig::{NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_reentry_counts_on_the_store_and_ends_in_any_order,
    a_reentry_begins_nothing,
    an_owner_gets_again_what_it_holds,
    an_owner_whose_tasks_come_and_go_never_fails,
    tasks_of_one_owner_do_not_wait_for_each_other,
    a_fixed_lease_ends_by_itself_and_says_so_first,
    a_renewed_lock_outlives_its_lease,
    an_inner_renewal_keeps_a_fixed_lease_alive,
    no_reentry_or_renewal_shortens_a_lease,
    a_lease_is_no_longer_than_the_guards_that_remain_need,
    a_waiter_hears_of_a_lease_that_is_shortened,
    lost_data_is_told,
    lost_data_is_told_to_a_fixed_lease,
    a_look_tells_who_holds,
];

async fn a_reentry_counts_on_the_store_and_ends_in_any_order(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    let outer = lock.lock().await.expect("free");
    let inner = outer.reenter().await.expect("held");
    let innermost = inner.reenter().await.expect("held");
    assert_eq!(lock.inspect().await.expect("an answer").holders[0].count, 3);
    outer.unlock().await.expect("held");
    assert_eq!(lock.inspect().await.expect("an answer").holders[0].count, 2);
    assert!(lock.try_lock().await.expect("an answer").is_none());
    drop(innermost);
    eventually("the dropped guard is counted off", PROMPT, async || {
        lock.inspect().await.is_ok_and(|seen| seen.holders[0].count == 1)
    })
    .await;
    assert!(inner.is_valid());
    inner.unlock().await.expect("held");
    assert!(!lock.is_locked().await.expect("an answer"));
}

async fn a_reentry_begins_nothing(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    rig.lose_data().await;
    // Long before a renewal could find out.
    let error = guard.reenter().await.expect_err("nothing to deepen");
    assert!(matches!(error, Error::Lost { reason: LostReason::Taken, .. }), "{error}");
    assert!(!lock.is_locked().await.expect("an answer"));
    assert!(!guard.is_valid());
}

async fn an_owner_whose_tasks_come_and_go_never_fails(rig: Rig) {
    let client = rig.client().await;
    let lock = client.lock(&rig.name()).owned_by(&client.owner());
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for turn in 0..50 {
                    let guard = lock.lock().await.expect("a turn, or one more of the same");
                    if turn % 2 == 0 { drop(guard) } else { guard.unlock().await.expect("held") }
                }
            })
        })
        .collect();
    for task in tasks {
        within(ms(60_000), "all come through", task).await.expect("no panic");
    }
    eventually("nothing is left", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
}

async fn an_owner_gets_again_what_it_holds(rig: Rig) {
    let client = rig.client().await;
    let (me, you) = (client.owner(), client.owner());
    let lock = client.lock(&rig.name());
    let outer = lock.owned_by(&me).lock().await.expect("free");
    let inner = lock.owned_by(&me).try_lock().await.expect("an answer").expect("mine already");
    assert_eq!((lock.hold_count(&me).await.unwrap(), lock.hold_count(&you).await.unwrap()), (2, 0));
    assert!(lock.is_held_by(&me).await.unwrap() && !lock.is_held_by(&you).await.unwrap());
    assert!(lock.owned_by(&you).try_lock().await.expect("an answer").is_none());
    assert_eq!(outer.owner_id(), inner.owner_id());
    let number = outer.owner_id().clone();
    outer.unlock().await.expect("held");
    inner.unlock().await.expect("held");
    // A new outermost hold has a new number on the wire, although the owner is the same.
    let again = lock.owned_by(&me).lock().await.expect("free");
    assert_ne!(*again.owner_id(), number);
}

async fn tasks_of_one_owner_do_not_wait_for_each_other(rig: Rig) {
    let client = rig.client().await;
    let me = client.owner();
    let lock = client.lock(&rig.name());
    let other = lock.lock().await.expect("free");
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            let mine = lock.owned_by(&me);
            tokio::spawn(async move { mine.lock().await.expect("a turn") })
        })
        .collect();
    eventually("one of them waits for all", PROMPT, async || {
        lock.inspect().await.is_ok_and(|seen| seen.waiting_here == 1)
    })
    .await;
    other.unlock().await.expect("held");
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(within(PROMPT, "all of one owner get it", task).await.expect("no panic"));
    }
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 5);
    drop(guards);
    eventually("all are given back", PROMPT, async || matches!(lock.is_locked().await, Ok(false))).await;
}

async fn a_fixed_lease_ends_by_itself_and_says_so_first(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let name = rig.name();
    let guard = one.lock(&name).lease(ms(1_500)).lock().await.expect("free");
    assert!(guard.is_valid());
    assert!(guard.valid_until() <= std::time::Instant::now() + ms(1_500));
    let waiter = tokio::spawn(async move { two.lock(&name).lock().await.expect("free in the end") });
    let reason = within(ms(1_500) + PROMPT, "the holder hears of the end", guard.lost()).await;
    assert_eq!(reason, LostReason::Expired);
    assert!(!guard.is_valid());
    let _next = within(ms(1_500) + PROMPT, "the waiter comes by the lease", waiter).await.expect("no panic");
    assert!(matches!(guard.unlock().await, Err(Error::Lost { reason: LostReason::Expired, .. })));
}

async fn a_renewed_lock_outlives_its_lease(rig: Rig) {
    // Long enough for a machine that stands still for a moment.
    let one = rig.client_with(Client::builder().watchdog(ms(3_000))).await;
    let two = rig.client().await;
    let name = rig.name();
    let guard = one.lock(&name).lock().await.expect("free");
    let first_end = guard.valid_until();
    eventually("it was renewed for another lease", ms(15_000), async || {
        assert!(guard.is_valid(), "lost in spite of renewal");
        assert!(two.lock(&name).try_lock().await.expect("an answer").is_none(), "given to another");
        guard.valid_until() > first_end + ms(3_000)
    })
    .await;
    guard.unlock().await.expect("held");
    assert!(two.lock(&name).try_lock().await.expect("an answer").is_some());
}

async fn an_inner_renewal_keeps_a_fixed_lease_alive(rig: Rig) {
    let client = rig.client_with(Client::builder().watchdog(ms(3_000))).await;
    let me = client.owner();
    let lock = client.lock(&rig.name()).owned_by(&me);
    let outer = lock.lease(ms(3_000)).lock().await.expect("free");
    let end = outer.valid_until();
    let inner = lock.lock().await.expect("mine already");
    eventually("it lives beyond the fixed lease", ms(10_000), async || outer.valid_until() > end + ms(1_000))
        .await;
    assert!(outer.is_valid() && lock.is_held_by(&me).await.expect("an answer"));
    inner.unlock().await.expect("held");
    within(ms(9_000), "without the inner one, the lease ends", outer.lost()).await;
}

async fn no_reentry_or_renewal_shortens_a_lease(rig: Rig) {
    let client = rig.client_with(Client::builder().watchdog(ms(2_000))).await;
    let lock = client.lock(&rig.name()).owned_by(&client.owner());
    let outer = lock.lease(ms(20_000)).lock().await.expect("free");
    let end = outer.valid_until();
    let inner = lock.lease(ms(300)).lock().await.expect("mine already");
    let renewed = lock.lock().await.expect("mine already");
    inner.unlock().await.expect("held");
    assert!(lock.remaining().await.expect("an answer").expect("a lease") > ms(12_000));
    // Two periods of the watchdog, seen by a lock that is renewed by nothing else.
    let other = client.lock(&rig.name()).lock().await.expect("free");
    let other_end = other.valid_until();
    eventually("the watchdog has been here", PROMPT, async || other.valid_until() > other_end + ms(100))
        .await;
    assert!(lock.remaining().await.expect("an answer").expect("a lease") > ms(10_000));
    assert!(outer.valid_until() + ms(1) >= end);
    renewed.unlock().await.expect("held");
    assert!(lock.remaining().await.expect("an answer").expect("a lease") > ms(10_000));
}

async fn a_lease_is_no_longer_than_the_guards_that_remain_need(rig: Rig) {
    let client = rig.client_with(Client::builder().watchdog(ms(3_000))).await;
    let lock = client.lock(&rig.name()).owned_by(&client.owner());
    let remaining = async || lock.remaining().await.expect("an answer").expect("a lease");
    let outer = lock.lock().await.expect("free");
    let fixed = lock.lease(ms(60_000)).lock().await.expect("mine already");
    let inner = lock.lease(ms(3_600_000)).lock().await.expect("mine already");
    assert!(remaining().await > ms(3_590_000));
    inner.unlock().await.expect("held");
    eventually("the hour is given up", ms(5_000), async || remaining().await <= ms(60_000)).await;
    let end = outer.valid_until();
    eventually("it is renewed", ms(9_000), async || {
        assert!(remaining().await > ms(30_000), "the fixed lease of a guard that lives is left alone");
        outer.valid_until() + ms(1) >= end && remaining().await <= ms(57_000)
    })
    .await;
    fixed.unlock().await.expect("held");
    eventually("the minute is given up", ms(5_000), async || remaining().await <= ms(3_000)).await;
    let end = outer.valid_until();
    eventually("it is renewed", ms(9_000), async || outer.valid_until() > end + ms(1_000)).await;
    assert!(remaining().await <= ms(3_000));
    outer.unlock().await.expect("held");

    let outer = lock.lease(ms(60_000)).lock().await.expect("free");
    let inner = lock.lease(ms(3_600_000)).lock().await.expect("mine already");
    inner.unlock().await.expect("held");
    eventually("the hour is given up", ms(5_000), async || remaining().await <= ms(60_000)).await;
    assert!(outer.is_valid() && outer.valid_until() < Instant::now() + ms(60_000));
    outer.unlock().await.expect("held");
}

async fn a_waiter_hears_of_a_lease_that_is_shortened(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let name = rig.name();
    let lock = one.lock(&name).owned_by(&one.owner());
    let outer = lock.lease(ms(4_000)).lock().await.expect("free");
    let inner = lock.lease(ms(3_600_000)).lock().await.expect("mine already");
    let waits = two.lock(&name);
    let waiter = tokio::spawn(async move { waits.lock().await.expect("free in the end") });
    until_waiting(&two.lock(&name), 1).await;
    inner.unlock().await.expect("held");
    // The lease of the outer one is left to end by itself, of which nobody tells.
    let next = within(ms(9_000), "the waiter comes by the shorter lease", waiter).await.expect("no panic");
    assert!(outer.lost().await == LostReason::Expired && next.is_valid());
}

async fn lost_data_is_told(rig: Rig) {
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let lock = client.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    rig.lose_data().await;
    let reason = within(ms(3_000), "the next renewal finds out", guard.lost()).await;
    assert_eq!(reason, LostReason::Taken);
    assert!(matches!(guard.reenter().await, Err(Error::Lost { .. })), "a reentry must not begin a hold");
    assert!(!lock.is_locked().await.expect("an answer"));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
}

/// It needs no renewal, and is looked at as often as if it did: once in a third of it, or of the watchdog's lease.
async fn lost_data_is_told_to_a_fixed_lease(rig: Rig) {
    for (watchdog, lease) in [(ms(30_000), ms(6_000)), (ms(6_000), ms(60_000))] {
        let client = rig.client_with(Client::builder().watchdog(watchdog).poll(NO_POLL)).await;
        let name = rig.name();
        let guard = client.lock(&name).lease(lease).lock().await.expect("free");
        let reader = client.read_write_lock(&rig.name()).read().lease(lease).lock().await.expect("free");
        rig.lose_data().await;
        let other = rig.client().await.lock(&name);
        let theirs = other.try_lock().await.expect("an answer").expect("the store has forgotten the holder");
        for guard in [&guard, &reader] {
            let reason = within(ms(4_000), "the next look finds out", guard.lost()).await;
            assert_eq!(reason, LostReason::Taken);
            assert!(!guard.is_valid());
        }
        assert!(matches!(guard.unlock().await, Err(Error::Lost { reason: LostReason::Taken, .. })));
        theirs.unlock().await.expect("the old holder's end did not touch the new one");
    }
}

async fn a_look_tells_who_holds(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let name = rig.name();
    let free = two.lock(&name).inspect().await.expect("an answer");
    assert!(!free.is_locked() && free.ttl.is_none());
    assert_eq!(two.lock(&name).remaining().await.expect("an answer"), None);
    let guard = one.lock(&name).lease(ms(9_000)).lock().await.expect("free");
    let seen = two.lock(&name).inspect().await.expect("an answer");
    assert_eq!((seen.name.as_str(), seen.holders.len()), (name.as_str(), 1));
    assert_eq!((&seen.holders[0].owner, seen.holders[0].count), (guard.owner_id(), 1));
    assert!(!seen.holders[0].is_mine);
    assert!(one.lock(&name).inspect().await.expect("an answer").holders[0].is_mine);
    assert!(seen.ttl.expect("a lease") > ms(8_000) && seen.ttl.expect("a lease") <= ms(9_000));
}
