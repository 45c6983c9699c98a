use proptest::prelude::*;
use redis::AsyncCommands;
use turnlock_core::Kind;
use turnlock_core::model::{CounterOp, Item, PermitId};

use super::histories::{Case, OWNERS, Op, REQUESTS, assert_scripts_match_model, leases, unlock_after_leases};
use crate::steps;

/// The most permits of one hold.
const MAX_PERMITS: u32 = 3;

fn op() -> impl Strategy<Value = Op> {
    let kind = Kind::Permits;
    let lease = leases(5..60);
    // The number of permits of an owner varies, so some permits of a hold may be missing.
    let hold = (0..OWNERS, 1..=MAX_PERMITS);
    let op = prop_oneof![
        4 => (0..6_u64).prop_map(CounterOp::SetOnce),
        3 => (-3..5_i64).prop_map(CounterOp::Add),
        3 => (0..8_u64).prop_map(CounterOp::SetTotal),
        3 => Just(CounterOp::Delete),
    ];
    prop_oneof![
        9 => (hold.clone(), lease.clone()).prop_map(move |((owner, permits), lease)| Op::Acquire {
            kind, owner, target: 1, lease, permits, under: None, waits: true
        }),
        5 => (hold.clone(), any::<bool>()).prop_map(move |((owner, permits), unsure)| {
            Op::Release { kind, owner, target: 0, permits, unsure }
        }),
        4 => (hold.clone(), proptest::option::of(lease))
            .prop_map(move |((owner, permits), lease)| Op::Renew { kind, owner, permits, lease }),
        3 => (hold, unlock_after_leases(5..60))
            .prop_map(move |((owner, permits), lease)| Op::UnlockAfter { kind, owner, permits, lease }),
        6 => (op, 0..REQUESTS).prop_map(|(op, request)| Op::Perform { op, request }),
        2 => (0..REQUESTS).prop_map(|request| Op::Forget { which: OWNERS + request }),
        6 => (0..EXPIRABLE).prop_map(|what| Op::Expire { what }),
    ]
}

/// How many items can expire: the lease of a hold, of its first permit, the record of a request, the number,
/// everything.
const EXPIRABLE: usize = 2 * OWNERS + REQUESTS + 2;

async fn expire(model: &mut Item, what: usize, case: &Case) {
    let Item::Permits(state) = model else { return };
    let mut raw = case.raw.clone();
    let taken = case.name.below("timeout");
    let mut keys = Vec::new();
    if what < 2 * OWNERS {
        let permits = if what < OWNERS { MAX_PERMITS } else { 1 };
        let owner = &case.owners[what % OWNERS];
        state.expire_permits(owner, permits);
        for id in PermitId::of_hold(owner, permits) {
            let mut end = redis::cmd("ZADD");
            end.arg(&taken).arg("XX").arg(1).arg(id.as_bytes());
            end.exec_async(&mut raw).await.expect("a reply");
        }
    } else if let Some(request) = case.requests.get(what - 2 * OWNERS) {
        state.forget(request);
        keys.push(steps::record_key(&case.name, request));
    } else if what + 1 == EXPIRABLE {
        state.expire();
        keys.extend([case.name.key().to_owned(), taken]);
    } else {
        state.delete_count();
        keys.push(case.name.key().to_owned());
    }
    for key in keys {
        let _: bool = raw.pexpire_at(key, 1).await.expect("a reply");
    }
}

#[test]
fn permit_semaphores_match_the_model() {
    assert_scripts_match_model(Kind::Permits, 250, op(), |model, what, case| {
        Box::pin(expire(model, what, case))
    });
}
