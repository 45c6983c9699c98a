mod faults;
mod fixture;
mod with_redisson;

use proptest::prelude::*;
use redis::AsyncCommands;
use turnlock_core::model::Item;
use turnlock_core::{Kind, OwnerId};

use super::histories::{Case, OWNERS, Op, assert_scripts_match_model, leases, unlock_after_leases};
use crate::steps::{DEADLINES, HEARTBEATS, QUEUE};
use fixture::WAIT;

/// What expires: the lease; the heartbeat of one owner; or the lease and the heartbeat of the first waiter,
/// as when a process dies that had both.
const EXPIRE_LEASE: usize = 0;
const EXPIRE_ALL: usize = OWNERS + 1;

fn op() -> impl Strategy<Value = Op> {
    let kind = Kind::Fair;
    let owner = 0..OWNERS;
    // Shorter than the slack of a deadline, so that deadlines are never corrected and can be computed
    // exactly.
    let lease = leases(5..50);
    prop_oneof![
        // Mostly first holds of waiters. Targets are independent of earlier steps, so late and lost copies
        // occur.
        9 => (owner.clone(), 0..5_u32, lease.clone(), 0..4).prop_map(move |(owner, depth, lease, waits)| {
            let (target, waits) = (depth.saturating_sub(2).max(1), waits > 0);
            Op::Acquire { kind, owner, target, lease, permits: 1, under: None, waits }
        }),
        6 => (owner.clone(), 0..4_u32, any::<bool>()).prop_map(move |(owner, target, unsure)| {
            Op::Release { kind, owner, target: target.saturating_sub(1), permits: 1, unsure }
        }),
        4 => (owner.clone(), owner.clone(), lease.clone())
            .prop_map(|(owner, next, lease)| Op::PassOn { owner, next, lease }),
        2 => (owner.clone(), proptest::option::of(lease))
            .prop_map(move |(owner, lease)| Op::Renew { kind, owner, permits: 1, lease }),
        2 => (owner.clone(), unlock_after_leases(5..50))
            .prop_map(move |(owner, lease)| Op::UnlockAfter { kind, owner, permits: 1, lease }),
        4 => owner.prop_map(|owner| Op::Heartbeat { owner }),
        1 => Just(Op::ForceUnlock { kind }),
        // A fifth of all steps.
        6 => (0..=EXPIRE_ALL).prop_map(|what| Op::Expire { what }),
    ]
}

#[test]
fn fair_locks_match_the_model() {
    assert_scripts_match_model(Kind::Fair, 250, op(), |model, what, case| {
        Box::pin(async move {
            check_bookkeeping(case).await;
            let Item::Fair(state) = model else { panic!("a fair lock") };
            let mut raw = case.raw.clone();
            if matches!(what, EXPIRE_LEASE | EXPIRE_ALL) {
                let _: bool = raw.pexpire_at(case.name.key(), 1).await.expect("a reply");
                state.expire();
            }
            let silent: Option<String> = match what {
                EXPIRE_LEASE => None,
                EXPIRE_ALL => raw.lindex(case.name.beside(QUEUE), 0).await.expect("a list"),
                _ => Some(case.owners[what - 1].to_string()),
            };
            let Some(silent) = silent else { return };
            let heartbeats = case.name.beside(HEARTBEATS);
            if raw.hexists(&heartbeats, &silent).await.expect("a reply") {
                let _: i64 = raw.hset(&heartbeats, &silent, 1).await.expect("a reply");
            }
            state.expire_waiter(&OwnerId::from_wire(&silent));
        })
    });
}

/// Checks that queue, deadlines and heartbeats have the same waiters. No deadline passes soon, and none is later
/// than that of the last waiter of the longest queue.
async fn check_bookkeeping(case: &Case) {
    let mut raw = case.raw.clone();
    let mut queue: Vec<String> = raw.lrange(case.name.beside(QUEUE), 0, -1).await.expect("a list");
    let deadlines: Vec<(String, i64)> =
        raw.zrange_withscores(case.name.beside(DEADLINES), 0, -1).await.expect("a sorted set");
    let mut heartbeats: Vec<String> = raw.hkeys(case.name.beside(HEARTBEATS)).await.expect("a hash");
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(&mut raw).await.expect("a time");
    let longest = i64::try_from(OWNERS).expect("few") * WAIT;
    for (waiter, deadline) in &deadlines {
        let left = deadline - seconds * 1000;
        assert!((WAIT - 60_000..longest + 60_000).contains(&left), "{waiter}: {left}");
    }
    let mut waiters: Vec<_> = deadlines.into_iter().map(|(waiter, _)| waiter).collect();
    waiters.sort();
    queue.sort();
    heartbeats.sort();
    assert_eq!((&waiters, &heartbeats), (&queue, &queue));
}
