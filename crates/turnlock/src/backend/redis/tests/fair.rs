mod beside_java;
mod in_trouble;
mod stage;

use proptest::prelude::*;
use redis::AsyncCommands;
use turnlock_core::model::Item;
use turnlock_core::{Kind, OwnerId};

use super::histories::{OWNERS, Op, Scene, agree, kept_leases, leases};
use crate::backend::redis::fair::{DEADLINES, QUEUE, SIGNS};
use stage::WAIT;

/// What runs out: the lease; the patience with one of the owners; or the lease and the patience with the first in the
/// queue, as when a process dies that had both.
const EXPIRE_LEASE: usize = 0;
const EXPIRE_ALL: usize = OWNERS + 1;

fn op() -> impl Strategy<Value = Op> {
    let kind = Kind::Fair;
    let owner = 0..OWNERS;
    // Shorter than what a deadline may fall behind, so that it never needs repair and stays what arithmetic says.
    let lease = leases(5..50);
    prop_oneof![
        // Mostly first holds of those who wait; the targets are free, so copies that are late or lost come by themselves.
        9 => (owner.clone(), 0..5_u32, lease.clone(), 0..4).prop_map(move |(owner, depth, lease, waits)| {
            let (target, waits) = (depth.saturating_sub(2).max(1), waits > 0);
            Op::Acquire { kind, owner, target, lease, permits: 1, under: None, waits }
        }),
        6 => (owner.clone(), 0..4_u32, any::<bool>()).prop_map(move |(owner, target, unsure)| {
            Op::Release { kind, owner, target: target.saturating_sub(1), permits: 1, unsure }
        }),
        2 => (owner.clone(), proptest::option::of(lease))
            .prop_map(move |(owner, lease)| Op::Renew { kind, owner, permits: 1, lease }),
        2 => (owner.clone(), kept_leases(5..50))
            .prop_map(move |(owner, lease)| Op::Keep { kind, owner, permits: 1, lease }),
        4 => owner.prop_map(|owner| Op::Attend { owner }),
        1 => Just(Op::ForceUnlock { kind }),
        // A fifth of all steps.
        6 => (0..=EXPIRE_ALL).prop_map(|what| Op::Expire { what }),
    ]
}

#[test]
fn fair_locks_are_the_model() {
    agree(Kind::Fair, 250, op(), |model, what, scene| {
        Box::pin(async move {
            check_bookkeeping(scene).await;
            let Item::Fair(state) = model else { panic!("a fair lock") };
            let mut plain = scene.plain.clone();
            if matches!(what, EXPIRE_LEASE | EXPIRE_ALL) {
                let _: bool = plain.pexpire_at(scene.name.key(), 1).await.expect("an answer");
                state.expire();
            }
            let silent: Option<String> = match what {
                EXPIRE_LEASE => None,
                EXPIRE_ALL => plain.lindex(scene.name.beside(QUEUE), 0).await.expect("a list"),
                _ => Some(scene.owners[what - 1].to_string()),
            };
            let Some(silent) = silent else { return };
            let signs = scene.name.beside(SIGNS);
            if plain.hexists(&signs, &silent).await.expect("an answer") {
                let _: i64 = plain.hset(&signs, &silent, 1).await.expect("an answer");
            }
            state.fall_silent(&OwnerId::from_wire(&silent));
        })
    });
}

/// Queue, deadlines and signs of life tell of the same waiters, and each waiter adds the same to the deadline before it,
/// or to the end of the longest lease, whoever came and went.
async fn check_bookkeeping(scene: &Scene) {
    let mut plain = scene.plain.clone();
    let queue: Vec<String> = plain.lrange(scene.name.beside(QUEUE), 0, -1).await.expect("a list");
    let deadlines: Vec<(String, i64)> =
        plain.zrange_withscores(scene.name.beside(DEADLINES), 0, -1).await.expect("a sorted set");
    let mut signs: Vec<String> = plain.hkeys(scene.name.beside(SIGNS)).await.expect("a hash");
    assert!(queue.iter().eq(deadlines.iter().map(|(waiter, _)| waiter)), "{queue:?}, {deadlines:?}");
    assert!(deadlines.windows(2).all(|pair| pair[1].1 - pair[0].1 == WAIT), "{deadlines:?}");
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut plain).await.expect("a time");
    let first = deadlines.first().map_or(WAIT, |(_, first)| first - seconds * 1000);
    assert!((WAIT - 60_000..WAIT + 60_000).contains(&first), "{first}");
    let mut sorted = queue;
    sorted.sort();
    signs.sort();
    assert_eq!(signs, sorted);
}
