//! Calls that must be acknowledged: what becomes of those that wait for their turn.

use std::sync::Arc;
use std::time::Duration;

use redis::AsyncCommands;
use turnlock_core::model::{Claim, Wish};
use turnlock_core::{Kind, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use super::connected;
use super::histories::lease;
use crate::backend::{Backend, Caller, Care, FailureKind};

/// Without replicas each `WAIT` lasts for three quarters of the limit.
const LONG: Duration = Duration::from_secs(2);
const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn what_has_no_turn_in_time_is_never_sent() {
    let server = RedisServer::start().await;
    let redis = connected(&server).await;
    let owner = OwnerId::from_wire("client:1");
    let wish = Wish { lease: lease(30_000), waits: false, highest_token: 0 };
    let names =
        ["first", "late", "gone", "next"].map(|name| LockName::of(Kind::Lock, "", name).expect("good"));
    let [first, late, gone, next] = &names;
    let presence = Arc::new(());
    let acquire = |name, limit, caller| {
        redis.acquire(Claim::new(name, &owner, 1), wish, Care { limit, replicas: 1, caller })
    };
    // All of them come before the first is answered; the one of the last limit goes by itself as well.
    let (first, late, gone, next, ()) = tokio::join!(
        biased;
        acquire(first, LONG, Caller::ENGINE),
        acquire(late, SHORT, Caller::ENGINE),
        acquire(gone, LONG * 2, Caller::with(&presence)),
        acquire(next, LONG * 2, Caller::ENGINE),
        async { drop(presence) },
    );
    for sent in [first, next] {
        let failure = sent.expect_err("there are no replicas");
        assert!(failure.stands && matches!(failure.kind, FailureKind::NotEnoughReplicas { .. }), "{failure}");
    }
    for (unsent, why) in [(late, "no turn to be sent within 100ms"), (gone, "the caller is gone")] {
        let failure = unsent.expect_err("it was not sent");
        assert!(failure.in_doubt.is_none() && failure.to_string().contains(why), "{failure}");
    }
    let mut keys: Vec<String> = server.client().await.keys("*").await.expect("an answer");
    keys.sort();
    assert_eq!(keys, ["first", "next"]);
}
