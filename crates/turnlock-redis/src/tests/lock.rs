use proptest::prelude::*;
use redis::AsyncCommands;
use turnlock_core::Kind;
use turnlock_core::model::Item;

use super::histories::{OWNERS, Op, assert_scripts_match_model, leases, unlock_after_leases};

fn op(kinds: &'static [Kind]) -> impl Strategy<Value = Op> {
    let kind = proptest::sample::select(kinds);
    let owner = 0..OWNERS;
    let lease = leases(5..60);
    prop_oneof![
        8 => (kind.clone(), owner.clone(), 1..4_u32, lease.clone()).prop_map(|(kind, owner, target, lease)| {
            Op::Acquire { kind, owner, target, lease, permits: 1, under: None, waits: true }
        }),
        5 => (kind.clone(), owner.clone(), 0..3_u32, any::<bool>()).prop_map(|(kind, owner, target, unsure)| {
            Op::Release { kind, owner, target, permits: 1, unsure }
        }),
        3 => (kind.clone(), owner.clone(), proptest::option::of(lease))
            .prop_map(|(kind, owner, lease)| Op::Renew { kind, owner, permits: 1, lease }),
        3 => (kind.clone(), owner, unlock_after_leases(5..60))
            .prop_map(|(kind, owner, lease)| Op::UnlockAfter { kind, owner, permits: 1, lease }),
        1 => kind.prop_map(|kind| Op::ForceUnlock { kind }),
        // A fifth of all steps: expiry is where locks go wrong.
        4 => Just(Op::Expire { what: 0 }),
    ]
}

#[test]
fn locks_spin_locks_and_fenced_locks_of_one_name_match_the_model() {
    assert_scripts_match_model(
        Kind::Lock,
        250,
        op(&[Kind::Lock, Kind::Spin, Kind::Fenced]),
        |model, _, case| {
            Box::pin(async move {
                let _: bool = case.raw.clone().pexpire_at(case.name.key(), 1).await.expect("a reply");
                if let Item::Lock(state) = model {
                    state.lock.expire();
                }
            })
        },
    );
}

#[test]
fn plain_locks_match_the_model() {
    assert_scripts_match_model(
        Kind::Plain,
        250,
        op(&[Kind::Plain]).prop_map(without_counts),
        |model, _, case| {
            Box::pin(async move {
                let _: bool = case.raw.clone().pexpire_at(case.name.key(), 1).await.expect("a reply");
                if let Item::Plain(state) = model {
                    state.expire();
                }
            })
        },
    );
}

/// Sets the targets of a plain lock, which has no count: 1 for an acquire, 0 for a release.
fn without_counts(op: Op) -> Op {
    match op {
        Op::Acquire { kind, owner, lease, permits, under, waits, .. } => {
            Op::Acquire { kind, owner, target: 1, lease, permits, under, waits }
        }
        Op::Release { kind, owner, permits, unsure, .. } => {
            Op::Release { kind, owner, target: 0, permits, unsure }
        }
        op => op,
    }
}
