//! `RedLock`, with members of different names on one store. See `red_lock.rs` for members on several servers.

use std::time::{Duration, Instant};

use crate::conformance::{Case, Fixture, KindClient, PROMPT, cases, joined, ms, until_waiting};
use crate::{eventually, in_time, within};
use turnlock::{Error, Guard, Lock, RedLock, blocking};

pub(super) const CASES: &[Case] = cases![
    a_majority_of_members_is_needed_and_enough,
    a_refused_red_lock_holds_nothing_and_is_woken,
    waiting_for_a_red_lock_polls_rarely,
    a_red_lock_survives_the_loss_of_a_minority,
    a_red_lock_is_valid_while_a_majority_of_leases_is,
    bad_red_lock_members_are_refused,
    a_thread_can_lock_its_red_lock_again,
];

/// All servers are reachable here, but the machine may be busy.
const NODE_TIMEOUT: Duration = PROMPT;

/// Three locks of three clients.
async fn three(fixture: &Fixture) -> Vec<Lock> {
    let mut locks = Vec::new();
    for _ in 0..3 {
        locks.push(fixture.client().await.lock(&fixture.name()));
    }
    locks
}

async fn lock_members(locks: &[Lock], other: &KindClient, numbers: &[usize]) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in numbers {
        let guard = other.lock(locks[*number].name()).try_lock().await.expect("a reply");
        guards.push(guard.acquired().expect("free"));
    }
    guards
}

/// Waits until the members are locked or free as expected.
async fn until_locked(locks: &[Lock], expected: &[bool]) {
    eventually("the members are locked as expected", PROMPT, async || {
        for (lock, expected) in locks.iter().zip(expected) {
            if !lock.is_locked().await.is_ok_and(|is_locked| is_locked == *expected) {
                return false;
            }
        }
        true
    })
    .await;
}

async fn a_majority_of_members_is_needed_and_enough(fixture: Fixture) {
    let (locks, other) = (three(&fixture).await, fixture.client().await);
    let red = RedLock::new(locks.clone()).expect("valid members").with_node_timeout(NODE_TIMEOUT);
    for missing in 0..3 {
        let single = lock_members(&locks, &other, &[missing]).await;
        let guard = red.try_lock().await.expect("a reply").acquired().expect("two are enough");
        eventually("both are held", PROMPT, async || guard.held() == 2).await;
        assert!(guard.is_valid() && guard.valid_until() > Instant::now() + ms(20_000));
        assert!(red.try_lock().await.expect("a reply").is_busy(), "it is held");
        drop(single);
        guard.unlock().await.expect("held");
        until_locked(&locks, &[false; 3]).await;
    }
    for free in 0..3 {
        let singles = lock_members(&locks, &other, &[(free + 1) % 3, (free + 2) % 3]).await;
        assert!(red.try_lock().await.expect("a reply").is_busy(), "one is not enough");
        // Two refusals decide. The grant of the third is undone in the background.
        until_locked(&locks[free..=free], &[false]).await;
        for single in singles {
            single.unlock().await.expect("held");
        }
    }
    let seen = red.inspect().await;
    assert_eq!(seen.len(), 3);
    assert!(red.run(|held| async move { held.is_valid() }).await.expect("acquired"));
    until_locked(&locks, &[false; 3]).await;
}

async fn a_refused_red_lock_holds_nothing_and_is_woken(fixture: Fixture) {
    let (locks, other) = (three(&fixture).await, fixture.client().await);
    let red = RedLock::new(locks.clone()).expect("valid members").with_node_timeout(NODE_TIMEOUT);
    for _ in 0..5 {
        let mut singles = lock_members(&locks, &other, &[1, 2]).await;
        let waiting = red.clone();
        let waiter = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
        until_waiting(&locks[1], 1).await;
        until_locked(&locks, &[false, true, true]).await;
        singles.remove(0).unlock().await.expect("held");
        let guard = within(PROMPT, "it is woken", waiter).await.expect("no panic");
        guard.unlock().await.expect("held");
        singles.remove(0).unlock().await.expect("held");
        until_locked(&locks, &[false; 3]).await;
    }
    let _singles = lock_members(&locks, &other, &[0, 2]).await;
    let start = Instant::now();
    assert!(red.try_lock_for(ms(100)).await.expect("a reply").is_busy());
    assert!(start.elapsed() >= ms(100));
    in_time("the wait times out", start, ms(100) + PROMPT);
    until_locked(&locks, &[true, false, true]).await;
}

async fn waiting_for_a_red_lock_polls_rarely(fixture: Fixture) {
    let other = fixture.client().await;
    let counter_name = fixture.name();
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let locks: Vec<_> = clients.iter().map(|client| client.lock(&fixture.name())).collect();
    let red = RedLock::new(locks.clone()).expect("valid members").with_node_timeout(NODE_TIMEOUT);
    let _singles = lock_members(&locks, &other, &[0, 1, 2]).await;
    // Each request of a client uses the next owner number, so the difference counts the requests.
    let next_number = async || {
        let guard =
            clients[2].lock(&counter_name).try_lock().await.expect("a reply").acquired().expect("free");
        let (_, number) = guard.owner_id().as_str().rsplit_once(':').expect("a number");
        let number: u64 = number.parse().expect("a number");
        guard.unlock().await.expect("held");
        number
    };
    let before = next_number().await;
    assert!(red.try_lock_for(ms(1_500)).await.expect("a reply").is_busy());
    let requests = next_number().await - before - 1;
    println!("{requests} requests in 1.5 s");
    // The minimum is one, because a busy machine may send requests late.
    assert!((1..=25).contains(&requests), "{requests} requests");
}

async fn a_red_lock_survives_the_loss_of_a_minority(fixture: Fixture) {
    let locks = three(&fixture).await;
    let red = RedLock::new(locks.clone()).expect("valid members").with_node_timeout(NODE_TIMEOUT);
    let guard = red.lock().await.expect("free");
    until_locked(&locks, &[true; 3]).await;
    eventually("all three are held", PROMPT, async || guard.held() == 3).await;
    locks[0].force_unlock().await.expect("a reply");
    eventually("one is lost", PROMPT, async || guard.held() == 2).await;
    assert!(guard.is_valid(), "two are left");
    assert!(tokio::time::timeout(ms(50), guard.lost()).await.is_err(), "and no loss is reported");
    locks[2].force_unlock().await.expect("a reply");
    let lost = within(PROMPT, "too few are left", guard.lost()).await;
    assert!([0, 2].contains(&lost.member) && lost.name == locks[lost.member].name());
    assert!(!guard.is_valid() && guard.valid_until() <= Instant::now());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    until_locked(&locks, &[false; 3]).await;
    // The loss of a minority does not make an unlock fail.
    let guard = red.lock().await.expect("free");
    eventually("all three are held", PROMPT, async || guard.held() == 3).await;
    locks[1].force_unlock().await.expect("a reply");
    guard.unlock().await.expect("two were held to the end");
}

async fn a_red_lock_is_valid_while_a_majority_of_leases_is(fixture: Fixture) {
    let locks = three(&fixture).await;
    let leases = [2_000, 3_000, 60_000];
    let red = RedLock::new(locks.iter().zip(leases).map(|(lock, lease)| lock.with_lease(ms(lease))));
    let start = Instant::now();
    let guard = red.expect("valid members").with_node_timeout(ms(600)).lock().await.expect("free");
    eventually("all three are held", ms(1_800), async || guard.held() == 3).await;
    let end = guard.valid_until().duration_since(start);
    assert!(end > ms(2_900) && end < ms(3_000) + PROMPT, "the second latest end: {end:?}");
    within(ms(3_000) + PROMPT, "it is lost", guard.lost()).await;
    let lasted = start.elapsed();
    assert!(lasted >= end, "{lasted:?}");
    drop(guard);
    until_locked(&locks, &[false; 3]).await;
}

async fn bad_red_lock_members_are_refused(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (a, b) = (fixture.named("a"), fixture.named("b"));
    for (locks, text) in [
        (vec![], "give one lock of each server"),
        (vec![one.lock(&a), one.lock(&b)], "same client"),
        (vec![one.lock(&a), two.lock("")], "empty"),
    ] {
        let error = RedLock::new(locks).expect_err("bad members");
        assert!(error.to_string().contains(text), "{error}");
    }
    let red = RedLock::new([one.lock(&a), two.lock(&b)]).expect("valid members");
    assert_eq!(red.name(), a);
    assert!(matches!(red.with_lease(ms(0)).try_lock().await, Err(Error::BadLease(_))));
    assert!(matches!(red.with_node_timeout(ms(0)).try_lock().await, Err(Error::BadArgument { .. })));
    let single = RedLock::new([one.lock(&a)]).expect("a majority of one");
    let guard = single.lock().await.expect("free");
    let red = red.with_node_timeout(NODE_TIMEOUT);
    assert!(red.try_lock().await.expect("a reply").is_busy(), "a majority of two is two");
    guard.unlock().await.expect("held");
}

async fn a_thread_can_lock_its_red_lock_again(fixture: Fixture) {
    let on_a_thread = move || {
        let locks: Vec<_> = (0..3).map(|_| fixture.blocking_client().lock(&fixture.name())).collect();
        let red = blocking::RedLock::new(locks.clone()).expect("valid members").with_node_timeout(ms(1_500));
        let outer = red.lock().expect("free");
        let inner = red.try_lock().expect("a reply").acquired().expect("the same thread");
        assert!(inner.is_valid() && inner.held() >= 2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| red.try_lock_for(ms(20)).map(|guard| guard.acquired().is_some()));
            assert!(!other.join().expect("no panic").expect("a reply"));
        });
        inner.unlock().expect("held");
        outer.unlock().expect("held");
        assert!(red.run(blocking::MultiGuard::is_valid).expect("acquired"));
        assert_eq!(red.inspect().expect("a reply").len(), 3);
        assert!(red.with_lease(ms(5_000)).try_run_for(PROMPT, |_| ()).expect("a reply").is_some());
    };
    joined(tokio::task::spawn_blocking(on_a_thread)).await;
}
