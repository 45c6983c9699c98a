//! Calls that replicas must acknowledge: deadlines of calls that wait to be sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::AsyncCommands;
use turnlock_core::model::{AcquireOptions, Claim};
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use super::connected;
use super::histories::lease;
use turnlock_store::{Caller, FailureKind, StepOptions};

/// Without replicas, each `WAIT` lasts three quarters of the limit.
const LONG: Duration = Duration::from_secs(2);
const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_call_past_its_deadline_is_never_sent() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let owner = OwnerId::from_wire("client:1");
    let options = AcquireOptions { lease: lease(30_000), waits: false, highest_token: 0 };
    let names =
        ["first", "late", "gone", "next"].map(|name| LockName::of(Kind::Lock, "", name).expect("good"));
    let [first, late, gone, next] = &names;
    let is_gone = Arc::new(AtomicBool::new(false));
    let acquire = |name, limit, caller| {
        redis.acquire(Claim::new(name, &owner, 1), options, StepOptions { limit, replicas: 1, caller })
    };
    // All are queued before the reply to the first. Calls with another limit form another group.
    let (first, late, gone, next, ()) = tokio::join!(
        biased;
        acquire(first, LONG, Caller::ENGINE),
        acquire(late, SHORT, Caller::ENGINE),
        acquire(gone, LONG * 2, Caller::with(Arc::clone(&is_gone) as _)),
        acquire(next, LONG * 2, Caller::ENGINE),
        async { is_gone.store(true, Ordering::Release) },
    );
    for sent in [first, next] {
        let failure = sent.expect_err("there are no replicas");
        assert!(
            failure.took_effect && matches!(failure.kind, FailureKind::NotEnoughReplicas { .. }),
            "{failure}"
        );
    }
    for (unsent, why) in [(late, "not sent within 100ms"), (gone, "its caller was dropped")] {
        let failure = unsent.expect_err("it was not sent");
        assert!(failure.in_doubt.is_none() && failure.to_string().contains(why), "{failure}");
    }
    let mut keys: Vec<String> = server.client().await.keys("*").await.expect("a reply");
    keys.sort();
    assert_eq!(keys, ["first", "next"]);
}
