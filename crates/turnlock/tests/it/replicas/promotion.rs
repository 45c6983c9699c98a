//! The master dies right after a grant that all replicas have acknowledged: whichever is promoted, the lock is held.

use std::time::Instant;

use redis::AsyncCommands;
use turnlock::Client;
use turnlock_testkit::FaultProxy;

use super::{Rig, in_touch, ms, replica_by};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![an_acknowledged_hold_is_on_every_replica];

async fn an_acknowledged_hold_is_on_every_replica(mut rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let replicas = [replica_by(&rig, proxy.port()).await, replica_by(&rig, proxy.port()).await];
    in_touch(&rig, 2).await;
    let client = rig.client_with(Client::builder()).await;
    let mut guards = vec![client.lock("before").acknowledged_by(2).lock().await.expect("free")];
    // The way to the replicas is long, so that what is not waited for does not get there.
    proxy.delay(ms(150));
    let began = Instant::now();
    guards.push(client.lock("a").acknowledged_by(2).lock().await.expect("free"));
    assert!(began.elapsed() >= ms(150), "it was waited for: {:?}", began.elapsed());
    let inner = guards[0].reenter().await.expect("held");
    let hasty = client.lock("hasty").lock().await.expect("free");
    rig.server_mut().stop().await;
    // What was on its way is not delivered any more.
    proxy.black_hole();
    for replica in &replicas {
        let mut plain = replica.client().await;
        let _: () =
            redis::cmd("REPLICAOF").arg(&["NO", "ONE"]).query_async(&mut plain).await.expect("promoted");
        for (guard, expected) in guards.iter().zip([2_u32, 1]) {
            let count: u32 = plain.hget(guard.name(), guard.owner_id().as_str()).await.expect("there");
            assert_eq!(count, expected, "{}", guard.name());
            let ttl: i64 = plain.pttl(guard.name()).await.expect("an answer");
            assert!((25_000..=30_000).contains(&ttl), "{ttl}");
        }
        let there: bool = plain.exists(hasty.name()).await.expect("an answer");
        assert!(!there, "what nobody waited for is lost: else this proves nothing");
    }
    drop((inner, hasty));
}
