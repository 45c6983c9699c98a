use proptest::prelude::*;
use redis::AsyncCommands;
use turnlock_core::Kind;
use turnlock_core::model::{Deed, Item};

use super::histories::{OWNERS, Op, REQUESTS, agree};
use crate::backend::redis::requests;

fn op() -> impl Strategy<Value = Op> {
    let permits = 1..4_u32;
    let deed = prop_oneof![
        4 => (0..6_u64).prop_map(Deed::SetOnce),
        3 => (-3..5_i64).prop_map(Deed::Add),
        2 => permits.clone().prop_map(Deed::Release),
        1 => Just(Deed::Drain),
        3 => Just(Deed::Delete),
    ];
    prop_oneof![
        9 => (0..OWNERS, permits.clone()).prop_map(|(owner, permits)| Op::Acquire {
            kind: Kind::Semaphore, owner, target: 1, lease: 10_000, permits, under: None, waits: true
        }),
        6 => (0..OWNERS, permits, any::<bool>()).prop_map(|(owner, permits, unsure)| {
            Op::Release { kind: Kind::Semaphore, owner, target: 0, permits, unsure }
        }),
        6 => (deed, 0..REQUESTS).prop_map(|(deed, request)| Op::Perform { deed, request }),
        2 => (0..OWNERS + REQUESTS).prop_map(|which| Op::Forget { which }),
        // The memory of a hold, of a request, or the number itself.
        5 => (0..=OWNERS + REQUESTS).prop_map(|what| Op::Expire { what }),
    ]
}

#[test]
fn semaphores_are_the_model() {
    agree(Kind::Semaphore, 250, op(), |model, what, scene| {
        Box::pin(async move {
            let Item::Semaphore(state) = model else { return };
            let key = if let Some(id) = scene.owners.iter().chain(&scene.requests).nth(what) {
                state.forget(id);
                requests::memory(&scene.name, id)
            } else {
                state.expire();
                scene.name.key().to_owned()
            };
            let _: bool = scene.plain.clone().pexpire_at(key, 1).await.expect("an answer");
        })
    });
}
