//! One holder at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::conformance::{Case, Fixture, NO_POLL, cases, ms};
use turnlock::Client;

pub(super) const CASES: &[Case] = cases![
    no_increment_is_lost_under_load,
    tasks_that_share_a_lock_exclude_each_other,
    another_client_is_refused_until_the_release,
    dead_and_live_holders_never_overlap,
    names_and_prefixes_are_separate_locks,
];

/// A counter that loses increments, and panics, when two tasks add concurrently.
#[derive(Debug, Default)]
pub struct UnprotectedCounter {
    pub value: AtomicU64,
    inside: AtomicU64,
}

impl UnprotectedCounter {
    pub async fn add_one(&self) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "another task is inside");
        let value = self.value.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.value.store(value + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn no_increment_is_lost_under_load(fixture: Fixture) {
    const TURNS: u64 = 40;
    let counter = Arc::new(UnprotectedCounter::default());
    let name = fixture.name();
    let mut tasks = Vec::new();
    for client in 0..3 {
        let client = Arc::new((fixture.client().await, client));
        for task in 0..6 {
            let (client, counter, name) = (Arc::clone(&client), Arc::clone(&counter), name.clone());
            tasks.push(tokio::spawn(async move {
                for turn in 0..TURNS {
                    let guard = client.0.lock(&name).lock().await.expect("acquired");
                    counter.add_one().await;
                    // Alternate between unlock and drop.
                    if (turn + task) % 2 == 0 { guard.unlock().await.expect("held") } else { drop(guard) }
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("no other task was inside");
    }
    assert_eq!(counter.value.load(Ordering::SeqCst), 3 * 6 * TURNS);
}

async fn tasks_that_share_a_lock_exclude_each_other(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let guard = lock.lock().await.expect("free");
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    assert!(lock.clone().try_lock_for(ms(20)).await.expect("a reply").is_busy());
    guard.unlock().await.expect("held");
    assert!(lock.try_lock().await.expect("a reply").acquired().is_some());
}

async fn another_client_is_refused_until_the_release(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await, fixture.client().await);
    let guard = one.lock(&name).lock().await.expect("free");
    assert!(two.lock(&name).try_lock().await.expect("a reply").is_busy());
    guard.unlock().await.expect("held");
    let guard = two.lock(&name).try_lock().await.expect("a reply").acquired().expect("free again");
    assert!(one.lock(&name).try_lock().await.expect("a reply").is_busy());
    assert_ne!(one.id(), two.id());
    assert!(guard.owner_id().belongs_to(two.id()));
}

/// Alternates holders that never release, as if they had died, with holders that do. A guard reports the end
/// of its hold before the next hold begins.
async fn dead_and_live_holders_never_overlap(fixture: Fixture) {
    let client =
        fixture.client_with(Client::builder().poll_interval(NO_POLL).watchdog_timeout(ms(3_000))).await;
    let lock = client.lock(&fixture.name());
    for turn in 0..4 {
        let is_dead = turn % 2 == 0;
        let guard = lock.with_lease(ms(if is_dead { 3_000 } else { 20_000 })).lock().await.expect("acquired");
        assert!(guard.is_valid(), "turn {turn} began with a hold that had ended");
        if is_dead {
            let next = lock.clone();
            let waiter = tokio::spawn(async move { next.lock().await.expect("acquired") });
            let next = waiter.await.expect("no panic");
            assert!(!guard.is_valid(), "turn {turn} had two holders");
            next.unlock().await.expect("held");
        } else {
            guard.unlock().await.expect("held");
        }
    }
}

async fn names_and_prefixes_are_separate_locks(fixture: Fixture) {
    let (a, b, prefix) = (fixture.named("a"), fixture.named("b"), fixture.named("app:"));
    let unprefixed = fixture.client().await;
    let prefixed = fixture.client_with(Client::builder().key_prefix(prefix.as_str())).await;
    let _a = unprefixed.lock(&a).lock().await.expect("free");
    let _b = unprefixed.lock(&b).try_lock().await.expect("a reply").acquired().expect("another lock");
    let guard = prefixed.lock(&a).try_lock().await.expect("a reply").acquired().expect("another lock");
    assert_eq!(guard.name(), a);
    assert!(
        unprefixed.lock(&format!("{prefix}{a}")).try_lock().await.expect("a reply").is_busy(),
        "the same key, with and without a prefix"
    );
}
