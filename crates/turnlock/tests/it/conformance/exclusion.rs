//! One holder at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use turnlock::Client;

use crate::rig::{NO_POLL, Rig, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    no_increment_is_lost_under_load,
    tasks_that_share_a_lock_exclude_each_other,
    another_client_is_refused_until_the_release,
    holders_that_die_and_holders_that_live_never_overlap,
    names_and_prefixes_are_locks_of_their_own,
];

/// A counter that loses increments when two add at once, and knows how many are inside.
#[derive(Default)]
pub(crate) struct Unprotected {
    pub(crate) value: AtomicU64,
    inside: AtomicU64,
}

impl Unprotected {
    pub(crate) async fn add_one(&self) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "somebody else is inside");
        let value = self.value.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.value.store(value + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn no_increment_is_lost_under_load(rig: Rig) {
    const TURNS: u64 = 40;
    let counter = Arc::new(Unprotected::default());
    let name = rig.name();
    let mut tasks = Vec::new();
    for client in 0..3 {
        let client = Arc::new((rig.client().await, client));
        for task in 0..6 {
            let (client, counter, name) = (Arc::clone(&client), Arc::clone(&counter), name.clone());
            tasks.push(tokio::spawn(async move {
                for turn in 0..TURNS {
                    let guard = client.0.lock(&name).lock().await.expect("a turn");
                    counter.add_one().await;
                    // By turns the certain and the convenient way.
                    if (turn + task) % 2 == 0 { guard.unlock().await.expect("held") } else { drop(guard) }
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("a task that saw nobody else inside");
    }
    assert_eq!(counter.value.load(Ordering::SeqCst), 3 * 6 * TURNS);
}

async fn tasks_that_share_a_lock_exclude_each_other(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    let guard = lock.lock().await.expect("free");
    assert!(lock.try_lock().await.expect("an answer").is_none());
    assert!(lock.clone().try_lock_for(ms(20)).await.expect("an answer").is_none());
    guard.unlock().await.expect("held");
    assert!(lock.try_lock().await.expect("an answer").is_some());
}

async fn another_client_is_refused_until_the_release(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await, rig.client().await);
    let guard = one.lock(&name).lock().await.expect("free");
    assert!(two.lock(&name).try_lock().await.expect("an answer").is_none());
    guard.unlock().await.expect("held");
    let guard = two.lock(&name).try_lock().await.expect("an answer").expect("free now");
    assert!(one.lock(&name).try_lock().await.expect("an answer").is_none());
    assert_ne!(one.id(), two.id());
    assert!(guard.owner_id().is_of(two.id()));
}

/// Holders that never give back (as if they had died) and others that do: a hold is over, at the latest when the next one
/// begins, by its own word.
async fn holders_that_die_and_holders_that_live_never_overlap(rig: Rig) {
    let client = rig.client_with(Client::builder().poll(NO_POLL).watchdog(ms(3_000))).await;
    let lock = client.lock(&rig.name());
    for turn in 0..4 {
        let dies = turn % 2 == 0;
        let guard = lock.lease(ms(if dies { 3_000 } else { 20_000 })).lock().await.expect("a turn");
        assert!(guard.is_valid(), "turn {turn} began with a hold that was over");
        if dies {
            let next = lock.clone();
            let waiter = tokio::spawn(async move { next.lock().await.expect("a turn") });
            let next = waiter.await.expect("no panic");
            assert!(!guard.is_valid(), "turn {turn} had two holders");
            next.unlock().await.expect("held");
        } else {
            guard.unlock().await.expect("held");
        }
    }
}

async fn names_and_prefixes_are_locks_of_their_own(rig: Rig) {
    let (a, b, prefix) = (rig.named("a"), rig.named("b"), rig.named("app:"));
    let plain = rig.client().await;
    let prefixed = rig.client_with(Client::builder().key_prefix(prefix.as_str())).await;
    let _a = plain.lock(&a).lock().await.expect("free");
    let _b = plain.lock(&b).try_lock().await.expect("an answer").expect("another lock");
    let guard = prefixed.lock(&a).try_lock().await.expect("an answer").expect("another lock");
    assert_eq!(guard.name(), a);
    assert!(
        plain.lock(&format!("{prefix}{a}")).try_lock().await.expect("an answer").is_none(),
        "the same key by another way"
    );
}
