//! The model and the scripts are the same machine: random histories on both, every answer and every state compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::AsyncCommands;
use turnlock_core::model::{LockState, Renewed};
use turnlock_core::{Lease, LockName, OwnerId};
use turnlock_testkit::RedisServer;

use super::Redis;
use crate::backend::{Backend, Claim, Renewal};
use crate::clock;

const LIMIT: Duration = Duration::from_secs(10);

/// How far the clocks of two processes may be apart in what they call a millisecond.
const TOLERANCE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
enum Op {
    Acquire { owner: usize, target: u32, lease: u64 },
    Release { owner: usize, target: u32 },
    Renew { owner: usize, lease: Option<u64> },
    ForceUnlock,
    Expire,
}

fn op() -> impl Strategy<Value = Op> {
    let owner = 0..3_usize;
    let lease = 5_000..60_000_u64;
    prop_oneof![
        8 => (owner.clone(), 1..4_u32, lease.clone())
            .prop_map(|(owner, target, lease)| Op::Acquire { owner, target, lease }),
        5 => (owner.clone(), 0..3_u32).prop_map(|(owner, target)| Op::Release { owner, target }),
        3 => (owner, proptest::option::of(lease)).prop_map(|(owner, lease)| Op::Renew { owner, lease }),
        1 => Just(Op::ForceUnlock),
        // A fifth of all steps: expiry is where locks go wrong.
        4 => Just(Op::Expire),
    ]
}

fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis)).expect("in bounds")
}

#[test]
fn every_history_gives_the_same_answers_and_states_as_the_model() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(RedisServer::start());
    let client = redis::Client::open(server.url()).expect("a good URL");
    let redis = Arc::new(runtime.block_on(Redis::connect(client, LIMIT)).expect("a connection"));
    let plain = runtime.block_on(server.client());
    let numbers = AtomicU64::new(0);
    let mut runner = TestRunner::new(Config { cases: 250, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&proptest::collection::vec(op(), 1..40), |history| {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let name = LockName::parse(&format!("history:{number}")).expect("a good name");
        runtime.block_on(compare(&redis, plain.clone(), &name, &history))
    });
    outcome.expect("model and scripts agree");
    // The last client ends its connections on the runtime.
    drop(redis);
}

async fn compare(
    redis: &Redis,
    mut plain: redis::aio::MultiplexedConnection,
    name: &LockName,
    history: &[Op],
) -> Result<(), TestCaseError> {
    let owners = [1, 2, 3].map(|number| OwnerId::from_wire(&format!("client:{number}")));
    let mut model = LockState::default();
    // What real time passed between the two looking at their clocks, in the worst case so far.
    let mut drift = Duration::ZERO;
    for op in history {
        let before = clock::now();
        match op {
            Op::Acquire { owner, target, lease: millis } => {
                let (owner, lease) = (&owners[*owner], lease(*millis));
                let ours = redis
                    .acquire(Claim { name, owner, target: *target }, lease, LIMIT)
                    .await
                    .expect("an answer")
                    .value;
                let expected = model.acquire(before, owner, *target, lease);
                drift = drift.max(clock::now().since(before));
                prop_assert!(same_answer(ours, expected, drift), "{op:?}: {ours:?}, the model {expected:?}");
            }
            Op::Release { owner, target } => {
                let ours = redis
                    .release(Claim { name, owner: &owners[*owner], target: *target }, LIMIT)
                    .await
                    .expect("an answer")
                    .value;
                prop_assert_eq!(ours, model.release(before, &owners[*owner], *target), "{:?}", op);
            }
            Op::Renew { owner, lease: millis } => {
                let line =
                    Renewal { name: name.clone(), owner: owners[*owner].clone(), lease: millis.map(lease) };
                let ours = redis.renew(std::slice::from_ref(&line), LIMIT).await.expect("an answer").value;
                let expected: Renewed = model.renew(before, &line.owner, line.lease);
                drift = drift.max(clock::now().since(before));
                prop_assert_eq!(ours, vec![Some(expected)], "{:?}", op);
            }
            Op::ForceUnlock => {
                let ours = redis.force_unlock(name, LIMIT).await.expect("an answer").value;
                prop_assert_eq!(ours, model.force_unlock(before), "{:?}", op);
            }
            Op::Expire => {
                let _: bool = plain.pexpire_at(name.key(), 1).await.expect("an answer");
                model.expire();
            }
        }
        let before = clock::now();
        let ours = redis.inspect(name, LIMIT).await.expect("an answer").value;
        let expected = model.snapshot(before);
        drift = drift.max(clock::now().since(before));
        prop_assert_eq!(&ours.holders, &expected.holders, "after {:?}", op);
        prop_assert!(
            near(ours.ttl, expected.ttl, drift),
            "after {op:?}: ttl {:?}, the model {:?}",
            ours.ttl,
            expected.ttl
        );
    }
    Ok(())
}

fn same_answer(
    ours: turnlock_core::model::Acquired,
    expected: turnlock_core::model::Acquired,
    drift: Duration,
) -> bool {
    use turnlock_core::model::Acquired::Busy;
    match (ours, expected) {
        (Busy { ttl: ours }, Busy { ttl: expected }) => near(ours, expected, drift),
        (ours, expected) => ours == expected,
    }
}

fn near(ours: Option<Duration>, expected: Option<Duration>, drift: Duration) -> bool {
    match (ours, expected) {
        (Some(ours), Some(expected)) => ours.abs_diff(expected) <= drift * 2 + TOLERANCE,
        (ours, expected) => ours == expected,
    }
}
