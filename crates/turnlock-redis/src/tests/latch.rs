use proptest::prelude::*;
use redis::AsyncCommands;
use turnlock_core::Kind;
use turnlock_core::model::{CounterOp, Item};

use super::histories::{OWNERS, Op, REQUESTS, assert_scripts_match_model};
use crate::steps;

fn op() -> impl Strategy<Value = Op> {
    let op = prop_oneof![
        4 => (0..4_u64).prop_map(CounterOp::SetOnce),
        8 => Just(CounterOp::CountDown),
        3 => Just(CounterOp::Delete),
    ];
    prop_oneof![
        4 => (op, 0..REQUESTS).prop_map(|(op, request)| Op::Perform { op, request }),
        1 => (0..REQUESTS).prop_map(|request| Op::Forget { which: OWNERS + request }),
        // The record of a request, or the count itself.
        1 => (0..=REQUESTS).prop_map(|what| Op::Expire { what }),
    ]
}

#[test]
fn latches_match_the_model() {
    assert_scripts_match_model(Kind::Latch, 250, op(), |model, what, case| {
        Box::pin(async move {
            let Item::Latch(state) = model else { return };
            let key = if let Some(request) = case.requests.get(what) {
                state.forget(request);
                steps::record_key(&case.name, request)
            } else {
                state.expire();
                case.name.key().to_owned()
            };
            let _: bool = case.raw.clone().pexpire_at(key, 1).await.expect("a reply");
        })
    });
}
