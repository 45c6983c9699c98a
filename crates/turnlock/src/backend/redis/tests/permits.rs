use proptest::prelude::*;
use redis::AsyncCommands;
use turnlock_core::Kind;
use turnlock_core::model::{Deed, Item, PermitId};

use super::histories::{OWNERS, Op, REQUESTS, Scene, agree, kept_leases, leases};
use crate::backend::redis::requests;

/// The most permits that one hold asks for.
const MOST: u32 = 3;

fn op() -> impl Strategy<Value = Op> {
    let kind = Kind::Permits;
    let lease = leases(5..60);
    // Each owner asks for different numbers: of a hold, only a part may be there.
    let hold = (0..OWNERS, 1..=MOST);
    let deed = prop_oneof![
        4 => (0..6_u64).prop_map(Deed::SetOnce),
        3 => (-3..5_i64).prop_map(Deed::Add),
        3 => (0..8_u64).prop_map(Deed::SetTotal),
        3 => Just(Deed::Delete),
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
        3 => (hold, kept_leases(5..60))
            .prop_map(move |((owner, permits), lease)| Op::Keep { kind, owner, permits, lease }),
        6 => (deed, 0..REQUESTS).prop_map(|(deed, request)| Op::Perform { deed, request }),
        2 => (0..REQUESTS).prop_map(|request| Op::Forget { which: OWNERS + request }),
        6 => (0..RUN_OUT).prop_map(|what| Op::Expire { what }),
    ]
}

/// How many things can run out: the lease of a hold, of its first permit, the memory of a request, the number, all of it.
const RUN_OUT: usize = 2 * OWNERS + REQUESTS + 2;

async fn run_out(model: &mut Item, what: usize, scene: &Scene) {
    let Item::Permits(state) = model else { return };
    let mut plain = scene.plain.clone();
    let taken = scene.name.below("timeout");
    let mut keys = Vec::new();
    if what < 2 * OWNERS {
        let permits = if what < OWNERS { MOST } else { 1 };
        let owner = &scene.owners[what % OWNERS];
        state.expire_permits(owner, permits);
        for id in PermitId::of_hold(owner, permits) {
            let mut end = redis::cmd("ZADD");
            end.arg(&taken).arg("XX").arg(1).arg(id.as_bytes());
            end.exec_async(&mut plain).await.expect("an answer");
        }
    } else if let Some(request) = scene.requests.get(what - 2 * OWNERS) {
        state.forget(request);
        keys.push(requests::memory(&scene.name, request));
    } else if what + 1 == RUN_OUT {
        state.expire();
        keys.extend([scene.name.key().to_owned(), taken]);
    } else {
        state.lose_number();
        keys.push(scene.name.key().to_owned());
    }
    for key in keys {
        let _: bool = plain.pexpire_at(key, 1).await.expect("an answer");
    }
}

#[test]
fn permit_semaphores_are_the_model() {
    agree(Kind::Permits, 250, op(), |model, what, scene| Box::pin(run_out(model, what, scene)));
}
