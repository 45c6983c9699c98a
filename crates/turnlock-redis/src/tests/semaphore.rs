use proptest::prelude::*;
use redis::AsyncCommands;
use turnlock_core::Kind;
use turnlock_core::model::{CounterOp, Item};

use super::histories::{OWNERS, Op, REQUESTS, assert_scripts_match_model};
use crate::steps;

fn op() -> impl Strategy<Value = Op> {
    let permits = 1..4_u32;
    let op = prop_oneof![
        4 => (0..6_u64).prop_map(CounterOp::SetOnce),
        3 => (-3..5_i64).prop_map(CounterOp::Add),
        2 => permits.clone().prop_map(CounterOp::Release),
        1 => Just(CounterOp::Drain),
        3 => Just(CounterOp::Delete),
    ];
    prop_oneof![
        9 => (0..OWNERS, permits.clone()).prop_map(|(owner, permits)| Op::Acquire {
            kind: Kind::Semaphore, owner, target: 1, lease: 10_000, permits, under: None, waits: true
        }),
        6 => (0..OWNERS, permits, any::<bool>()).prop_map(|(owner, permits, unsure)| {
            Op::Release { kind: Kind::Semaphore, owner, target: 0, permits, unsure }
        }),
        6 => (op, 0..REQUESTS).prop_map(|(op, request)| Op::Perform { op, request }),
        2 => (0..OWNERS + REQUESTS).prop_map(|which| Op::Forget { which }),
        // The record of a hold, of a request, or the number itself.
        5 => (0..=OWNERS + REQUESTS).prop_map(|what| Op::Expire { what }),
    ]
}

#[test]
fn semaphores_match_the_model() {
    assert_scripts_match_model(Kind::Semaphore, 250, op(), |model, what, case| {
        Box::pin(async move {
            let Item::Semaphore(state) = model else { return };
            let key = if let Some(id) = case.owners.iter().chain(&case.requests).nth(what) {
                state.forget(id);
                steps::record_key(&case.name, id)
            } else {
                state.expire();
                case.name.key().to_owned()
            };
            let _: bool = case.raw.clone().pexpire_at(key, 1).await.expect("a reply");
        })
    });
}
