use proptest::prelude::*;
use redis::AsyncCommands;
use turnlock_core::Kind;
use turnlock_core::model::{Deed, Item};

use super::histories::{OWNERS, Op, REQUESTS, agree};
use crate::backend::redis::requests;

fn op() -> impl Strategy<Value = Op> {
    let deed = prop_oneof![
        4 => (0..4_u64).prop_map(Deed::SetOnce),
        8 => Just(Deed::CountDown),
        3 => Just(Deed::Delete),
    ];
    prop_oneof![
        4 => (deed, 0..REQUESTS).prop_map(|(deed, request)| Op::Perform { deed, request }),
        1 => (0..REQUESTS).prop_map(|request| Op::Forget { which: OWNERS + request }),
        // The memory of a request, or the count itself.
        1 => (0..=REQUESTS).prop_map(|what| Op::Expire { what }),
    ]
}

#[test]
fn latches_are_the_model() {
    agree(Kind::Latch, 250, op(), |model, what, scene| {
        Box::pin(async move {
            let Item::Latch(state) = model else { return };
            let key = if let Some(request) = scene.requests.get(what) {
                state.forget(request);
                requests::memory(&scene.name, request)
            } else {
                state.expire();
                scene.name.key().to_owned()
            };
            let _: bool = scene.plain.clone().pexpire_at(key, 1).await.expect("an answer");
        })
    });
}
