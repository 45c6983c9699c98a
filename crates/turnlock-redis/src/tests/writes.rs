//! Every grant, renewal and delayed unlock is a write, even if nothing changes.
//!
//! Replicas acknowledge writes only, and newer servers count nothing else for `WAIT`. Otherwise the copy of a
//! request on a new connection would count as acknowledged by all.

use redis::aio::MultiplexedConnection;
use turnlock_core::model::{AcquireOptions, Acquired, Claim, CounterOp, Renewed, Reply, Step};
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use super::histories::{STEP_OPTIONS, lease};
use crate::tests::connected;

const OWNER: &str = "000102030405060708090a0b0c0d0eff";

/// Returns the number of changes that the server has counted.
async fn changes(raw: &mut MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO").arg("persistence").query_async(raw).await.expect("a reply");
    let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    line.and_then(|number| number.parse().ok()).expect("a number")
}

#[tokio::test]
async fn every_grant_renewal_and_delayed_unlock_is_a_write() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let mut raw = server.client().await;
    let owner = OwnerId::from_wire(OWNER);
    // A latch is never granted.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Latch) {
        let name = LockName::of(kind, "", &format!("{kind:?}")).expect("a good name");
        let permits = if kind == Kind::Permits { 3 } else { 1 };
        if matches!(kind, Kind::Semaphore | Kind::Permits) {
            redis
                .perform(&name, CounterOp::SetOnce(9), &OwnerId::from_wire("set"), STEP_OPTIONS.limit)
                .await
                .expect("set");
        }
        // The copies have a shorter lease than the remaining one, so they have nothing to change.
        for millis in [60_000, 50_000, 40_000] {
            let before = changes(&mut raw).await;
            let claim = Claim { permits, ..Claim::new(&name, &owner, 1) };
            let options = AcquireOptions { lease: lease(millis), waits: false, highest_token: 0 };
            let granted = redis.acquire(claim, options, STEP_OPTIONS).await.expect("a reply").value;
            assert!(matches!(granted, Acquired::Granted | Acquired::GrantedWith { .. }), "{kind:?}");
            assert!(changes(&mut raw).await > before, "{kind:?} for {millis} ms");
        }
        if kind == Kind::Semaphore {
            continue;
        }
        let before = changes(&mut raw).await;
        let claim = Claim { permits, ..Claim::new(&name, &owner, 1) };
        let step = Step::Renew(claim, Some(lease(30_000)));
        let renewed = redis.call_batch(vec![step], STEP_OPTIONS).await.expect("a reply").value;
        assert_eq!(renewed, [Some(Reply::Renewed(Renewed::Longer))], "{kind:?}");
        assert!(changes(&mut raw).await > before, "a renewal of {kind:?}");
        let snapshot = redis.inspect(&name, STEP_OPTIONS.limit).await.expect("a reply").value;
        let ttl = snapshot.holders[0].ttl.or(snapshot.ttl);
        assert!(ttl > Some(lease(55_000).as_duration()), "{kind:?} was shortened to {ttl:?}");
        // A repetition has nothing to change if both run within a millisecond.
        for _ in 0..20 {
            let before = changes(&mut raw).await;
            let claim = Claim { permits, ..Claim::new(&name, &owner, 1) };
            let outcome =
                redis.unlock_after(claim, lease(20_000), STEP_OPTIONS).await.expect("a reply").value;
            assert_eq!(outcome, Renewed::Renewed, "{kind:?}");
            assert!(changes(&mut raw).await > before, "a delayed unlock of {kind:?}");
        }
    }
}
