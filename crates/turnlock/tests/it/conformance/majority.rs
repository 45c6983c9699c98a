//! A lock that a majority makes up. Here each member is a lock of its own name; on several servers, see `red_lock.rs`.

use std::time::{Duration, Instant};

use turnlock::{Error, Guard, Lock, RedLock, blocking};
use turnlock_testkit::{eventually, in_time, within};

use crate::rig::{KindClient, PROMPT, Rig, joined, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_majority_decides,
    a_refused_red_lock_holds_nothing_and_is_woken,
    a_held_red_lock_is_not_polled_hard,
    a_red_lock_lives_on_without_a_minority,
    a_red_lock_ends_with_its_last_majority,
    bad_sets_of_servers_are_refused,
    a_thread_gets_its_red_lock_again,
];

/// No server is away here, but the machine may be busy.
const NO_HURRY: Duration = PROMPT;

/// Three locks through three clients.
async fn three(rig: &Rig) -> Vec<Lock> {
    let mut locks = Vec::new();
    for _ in 0..3 {
        locks.push(rig.client().await.lock(&rig.name()));
    }
    locks
}

async fn taken(locks: &[Lock], other: &KindClient, numbers: &[usize]) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in numbers {
        let guard = other.lock(locks[*number].name()).try_lock().await.expect("an answer");
        guards.push(guard.expect("free"));
    }
    guards
}

async fn until_locked(locks: &[Lock], expected: &[bool]) {
    eventually("they are as they should be", PROMPT, async || {
        for (lock, expected) in locks.iter().zip(expected) {
            if !lock.is_locked().await.is_ok_and(|is_locked| is_locked == *expected) {
                return false;
            }
        }
        true
    })
    .await;
}

async fn a_majority_decides(rig: Rig) {
    let (locks, other) = (three(&rig).await, rig.client().await);
    let red = RedLock::new(locks.clone()).expect("a good set").node_timeout(NO_HURRY);
    for missing in 0..3 {
        let single = taken(&locks, &other, &[missing]).await;
        let guard = red.try_lock().await.expect("an answer").expect("two are enough");
        eventually("both are there", PROMPT, async || guard.held() == 2).await;
        assert!(guard.is_valid() && guard.valid_until() > Instant::now() + ms(20_000));
        assert!(red.try_lock().await.expect("an answer").is_none(), "somebody has it");
        drop(single);
        guard.unlock().await.expect("held");
        until_locked(&locks, &[false; 3]).await;
    }
    for free in 0..3 {
        let singles = taken(&locks, &other, &[(free + 1) % 3, (free + 2) % 3]).await;
        assert!(red.try_lock().await.expect("an answer").is_none(), "one is not enough");
        // The two that refused have decided it; the answer of the third is seen to in the background.
        until_locked(&locks[free..=free], &[false]).await;
        for single in singles {
            single.unlock().await.expect("held");
        }
    }
    let seen = red.inspect().await;
    assert_eq!(seen.len(), 3);
    assert!(red.run(|held| async move { held.is_valid() }).await.expect("a turn"));
    until_locked(&locks, &[false; 3]).await;
}

async fn a_refused_red_lock_holds_nothing_and_is_woken(rig: Rig) {
    let (locks, other) = (three(&rig).await, rig.client().await);
    let red = RedLock::new(locks.clone()).expect("a good set").node_timeout(NO_HURRY);
    for _ in 0..5 {
        let mut singles = taken(&locks, &other, &[1, 2]).await;
        let waiting = red.clone();
        let waiter = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(&locks[1], 1).await;
        until_locked(&locks, &[false, true, true]).await;
        singles.remove(0).unlock().await.expect("held");
        let guard = within(PROMPT, "it is woken", waiter).await.expect("no panic");
        guard.unlock().await.expect("held");
        singles.remove(0).unlock().await.expect("held");
        until_locked(&locks, &[false; 3]).await;
    }
    let _singles = taken(&locks, &other, &[0, 2]).await;
    let start = Instant::now();
    assert!(red.try_lock_for(ms(100)).await.expect("an answer").is_none());
    assert!(start.elapsed() >= ms(100));
    in_time("it gives up", start, ms(100) + PROMPT);
    until_locked(&locks, &[true, false, true]).await;
}

async fn a_held_red_lock_is_not_polled_hard(rig: Rig) {
    let other = rig.client().await;
    let another = rig.name();
    let clients = [rig.client().await, rig.client().await, rig.client().await];
    let locks: Vec<_> = clients.iter().map(|client| client.lock(&rig.name())).collect();
    let red = RedLock::new(locks.clone()).expect("a good set").node_timeout(NO_HURRY);
    let _singles = taken(&locks, &other, &[0, 1, 2]).await;
    // Each question of a client is an owner with the next number: so these tell how often somebody asked.
    let next_number = async || {
        let guard = clients[2].lock(&another).try_lock().await.expect("an answer").expect("free");
        let (_, number) = guard.owner_id().as_str().rsplit_once(':').expect("a number");
        let number: u64 = number.parse().expect("a number");
        guard.unlock().await.expect("held");
        number
    };
    let before = next_number().await;
    assert!(red.try_lock_for(ms(1_500)).await.expect("an answer").is_none());
    let asked = next_number().await - before - 1;
    println!("asked {asked} times in 1.5 s");
    // How often it asks at the least is no promise: on a busy machine it comes to that late.
    assert!((1..=25).contains(&asked), "{asked} times");
}

async fn a_red_lock_lives_on_without_a_minority(rig: Rig) {
    let locks = three(&rig).await;
    let red = RedLock::new(locks.clone()).expect("a good set").node_timeout(NO_HURRY);
    let guard = red.lock().await.expect("free");
    until_locked(&locks, &[true; 3]).await;
    eventually("all three are there", PROMPT, async || guard.held() == 3).await;
    locks[0].force_unlock().await.expect("an answer");
    eventually("one is gone", PROMPT, async || guard.held() == 2).await;
    assert!(guard.is_valid(), "two are left");
    assert!(tokio::time::timeout(ms(50), guard.lost()).await.is_err(), "and nothing is told");
    locks[2].force_unlock().await.expect("an answer");
    let lost = within(PROMPT, "now too few are left", guard.lost()).await;
    assert!([0, 2].contains(&lost.member) && lost.name == locks[lost.member].name());
    assert!(!guard.is_valid() && guard.valid_until() <= Instant::now());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    until_locked(&locks, &[false; 3]).await;
    // The loss of a minority does not make an unlock fail.
    let guard = red.lock().await.expect("free");
    eventually("all three are there", PROMPT, async || guard.held() == 3).await;
    locks[1].force_unlock().await.expect("an answer");
    guard.unlock().await.expect("two were held to the end");
}

async fn a_red_lock_ends_with_its_last_majority(rig: Rig) {
    let locks = three(&rig).await;
    let leases = [2_000, 3_000, 60_000];
    let red = RedLock::new(locks.iter().zip(leases).map(|(lock, lease)| lock.lease(ms(lease))));
    let start = Instant::now();
    let guard = red.expect("a good set").node_timeout(ms(600)).lock().await.expect("free");
    eventually("all three are there", ms(1_800), async || guard.held() == 3).await;
    let end = guard.valid_until().duration_since(start);
    assert!(end > ms(2_900) && end < ms(3_000) + PROMPT, "the second latest: {end:?}");
    within(ms(3_000) + PROMPT, "it ends", guard.lost()).await;
    let lasted = start.elapsed();
    assert!(lasted >= end, "{lasted:?}");
    drop(guard);
    until_locked(&locks, &[false; 3]).await;
}

async fn bad_sets_of_servers_are_refused(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let (a, b) = (rig.named("a"), rig.named("b"));
    for (locks, word) in [
        (vec![], "at least one"),
        (vec![one.lock(&a), one.lock(&b)], "same client"),
        (vec![one.lock(&a), two.lock("")], "empty"),
    ] {
        let error = RedLock::new(locks).expect_err("a bad set");
        assert!(error.to_string().contains(word), "{error}");
    }
    let red = RedLock::new([one.lock(&a), two.lock(&b)]).expect("a good set");
    assert_eq!(red.name(), a);
    assert!(matches!(red.lease(ms(0)).try_lock().await, Err(Error::BadLease(_))));
    assert!(matches!(red.node_timeout(ms(0)).try_lock().await, Err(Error::BadConfiguration { .. })));
    let single = RedLock::new([one.lock(&a)]).expect("a majority of one");
    let guard = single.lock().await.expect("free");
    let red = red.node_timeout(NO_HURRY);
    assert!(red.try_lock().await.expect("an answer").is_none(), "a majority of two is two");
    guard.unlock().await.expect("held");
}

async fn a_thread_gets_its_red_lock_again(rig: Rig) {
    let on_a_thread = move || {
        let locks: Vec<_> = (0..3).map(|_| rig.blocking_client().lock(&rig.name())).collect();
        let red = blocking::RedLock::new(locks.clone()).expect("a good set").node_timeout(ms(1_500));
        let outer = red.lock().expect("free");
        let inner = red.try_lock().expect("an answer").expect("mine already");
        assert!(inner.is_valid() && inner.held() >= 2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| red.try_lock_for(ms(20)).map(|guard| guard.is_some()));
            assert!(!other.join().expect("no panic").expect("an answer"));
        });
        inner.unlock().expect("held");
        outer.unlock().expect("held");
        assert!(red.run(blocking::MultiGuard::is_valid).expect("a turn"));
        assert_eq!(red.inspect().expect("an answer").len(), 3);
        assert!(red.lease(ms(5_000)).try_run_for(PROMPT, |_| ()).expect("an answer").is_some());
    };
    joined(tokio::task::spawn_blocking(on_a_thread)).await;
}
