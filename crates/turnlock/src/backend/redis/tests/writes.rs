//! What is granted, renewed or kept is a write, also where nothing changes: replicas acknowledge writes, and newer servers do not
//! let `WAIT` speak of anything else. A copy of a request on a new connection would else count as acknowledged by all.

use redis::aio::MultiplexedConnection;
use turnlock_core::model::{Acquired, Claim, Deed, Renewed, Wish};
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use super::histories::{CARE, lease};
use crate::backend::redis::tests::connected;
use crate::backend::{Backend, Renewal};

const OWNER: &str = "000102030405060708090a0b0c0d0eff";

/// How many changes the server has counted.
async fn changes(plain: &mut MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO").arg("persistence").query_async(plain).await.expect("an answer");
    let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    line.and_then(|number| number.parse().ok()).expect("a number")
}

#[tokio::test]
async fn every_grant_renewal_and_keeping_is_a_write() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let mut plain = server.client().await;
    let owner = OwnerId::from_wire(OWNER);
    // A latch is granted to nobody.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Latch) {
        let name = LockName::of(kind, "", &format!("{kind:?}")).expect("a good name");
        let permits = if kind == Kind::Permits { 3 } else { 1 };
        if matches!(kind, Kind::Semaphore | Kind::Permits) {
            redis
                .perform(&name, Deed::SetOnce(9), &OwnerId::from_wire("set"), CARE.limit)
                .await
                .expect("set");
        }
        // The copies ask for less than is there, so that they have nothing to change.
        for millis in [60_000, 50_000, 40_000] {
            let before = changes(&mut plain).await;
            let claim = Claim { permits, ..Claim::new(&name, &owner, 1) };
            let wish = Wish { lease: lease(millis), waits: false, highest_token: 0 };
            let granted = redis.acquire(claim, wish, CARE).await.expect("an answer").value;
            assert!(matches!(granted, Acquired::Granted | Acquired::GrantedWith { .. }), "{kind:?}");
            assert!(changes(&mut plain).await > before, "{kind:?} for {millis} ms");
        }
        if kind == Kind::Semaphore {
            continue;
        }
        let before = changes(&mut plain).await;
        let line = Renewal { name: name.clone(), owner: owner.clone(), permits, lease: Some(lease(30_000)) };
        let renewed = redis.renew(&[line], CARE).await.expect("an answer").value;
        assert_eq!(renewed, [Some(Renewed::Longer)], "{kind:?}");
        assert!(changes(&mut plain).await > before, "a renewal of {kind:?}");
        let picture = redis.inspect(&name, CARE.limit).await.expect("an answer").value;
        let ttl = picture.holders[0].ttl.or(picture.ttl);
        assert!(ttl > Some(lease(55_000).as_duration()), "{kind:?} was shortened to {ttl:?}");
        // The same again has nothing to change, where both come within a millisecond.
        for _ in 0..20 {
            let before = changes(&mut plain).await;
            let claim = Claim { permits, ..Claim::new(&name, &owner, 1) };
            let kept = redis.keep(claim, lease(20_000), CARE).await.expect("an answer").value;
            assert_eq!(kept, Renewed::Renewed, "{kind:?}");
            assert!(changes(&mut plain).await > before, "{kind:?} was kept");
        }
    }
}
