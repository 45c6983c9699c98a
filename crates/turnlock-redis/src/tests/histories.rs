use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use redis::AsyncCommands;
use redis::aio::{MultiplexedConnection, PubSubStream};
use turnlock_core::model::{
    AcquireOptions, Acquired, Claim, CounterOp, Item, Notification, Now, Renewed, Reply, Snapshot, Step,
};
use turnlock_core::{Kind, Lease, LockName, OwnerId};
use turnlock_testkit::{RedisServer, ServerProgram};

use crate::Redis;
use crate::tests::connected;
use turnlock_store::clock;
use turnlock_store::{Caller, StepOptions};

const LIMIT: Duration = Duration::from_secs(10);

/// No replica must acknowledge.
pub(super) const STEP_OPTIONS: StepOptions =
    StepOptions { limit: LIMIT, replicas: 0, caller: Caller::ENGINE };

/// How far the clocks of two processes may differ in whole milliseconds.
const TOLERANCE: Duration = Duration::from_millis(5);

/// As [`TOLERANCE`], for a limit between two possible replies.
const CLOSE: Duration = Duration::from_millis(100);

/// The number of owners in a history.
pub(super) const OWNERS: usize = 4;

/// The number of requests of [`Op::Perform`].
pub(super) const REQUESTS: usize = 4;

/// One step of a history. Owners are numbers below [`OWNERS`], requests below [`REQUESTS`].
#[derive(Clone, Debug)]
pub(super) enum Op {
    Acquire {
        kind: Kind,
        owner: usize,
        target: u32,
        lease: u64,
        permits: u32,
        under: Option<usize>,
        waits: bool,
    },
    Release {
        kind: Kind,
        owner: usize,
        target: u32,
        permits: u32,
        unsure: bool,
    },
    Renew {
        kind: Kind,
        owner: usize,
        permits: u32,
        lease: Option<u64>,
    },
    UnlockAfter {
        kind: Kind,
        owner: usize,
        permits: u32,
        lease: u64,
    },
    ForceUnlock {
        kind: Kind,
    },
    Perform {
        op: CounterOp,
        request: usize,
    },
    /// Deletes the record of a hold or of a request: owners first, then requests.
    Forget {
        which: usize,
    },
    /// The release of a fair lock that names the next waiter.
    PassOn {
        owner: usize,
        next: usize,
        lease: u64,
    },
    Heartbeat {
        owner: usize,
    },
    /// Something expires, without a message. The primitive decides what `what` means.
    Expire {
        what: usize,
    },
}

/// Makes something expire on both sides, as time does.
pub(super) type Expire =
    for<'a> fn(&'a mut Item, usize, &'a Case) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The name, owners and requests of one history, and a connection to its keys.
pub(super) struct Case {
    pub(super) name: LockName,
    pub(super) owners: [OwnerId; OWNERS],
    pub(super) requests: [OwnerId; REQUESTS],
    pub(super) raw: MultiplexedConnection,
}

pub(super) fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis)).expect("in bounds")
}

/// Leases in milliseconds: whole seconds.
pub(super) fn leases(seconds: Range<u64>) -> impl Strategy<Value = u64> + Clone {
    seconds.prop_map(|seconds| seconds * 1_000)
}

/// The leases of [`Op::UnlockAfter`]: half a second apart from all others. Whether such a lease is shorter
/// than the remaining one, which decides about a message, must not depend on the time between two steps.
pub(super) fn unlock_after_leases(seconds: Range<u64>) -> impl Strategy<Value = u64> {
    seconds.prop_map(|seconds| seconds * 1_000 + 500)
}

/// The server side of a history.
struct Fixture {
    redis: Redis,
    raw: MultiplexedConnection,
    /// All messages that are published.
    messages: tokio::sync::Mutex<PubSubStream>,
}

/// Runs `cases` random histories of `op` on the scripts and on the model of `kind`, and panics if they
/// differ. Runs on every server program; a fifth of the histories on those that are not the installed one.
pub(super) fn assert_scripts_match_model(
    kind: Kind,
    cases: u32,
    op: impl Strategy<Value = Op>,
    expire: Expire,
) {
    let histories = proptest::collection::vec(op, 1..40);
    for program in ServerProgram::available() {
        let cases = if program == ServerProgram::Installed { cases } else { cases / 5 };
        check_on(program, kind, cases, &histories, expire);
    }
}

fn check_on(
    program: ServerProgram,
    kind: Kind,
    cases: u32,
    histories: &impl Strategy<Value = Vec<Op>>,
    expire: Expire,
) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(RedisServer::start_of(program));
    let fixture = runtime.block_on(async {
        let client = redis::Client::open(server.url()).expect("a good URL");
        let mut pubsub = client.get_async_pubsub().await.expect("a connection");
        pubsub.psubscribe("*").await.expect("subscribed");
        let redis = connected(&server).await;
        Arc::new(Fixture { redis, raw: server.client().await, messages: pubsub.into_on_message().into() })
    });
    let numbers = AtomicU64::new(0);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(histories, |history| {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let name = LockName::of(kind, "", &format!("history:{number}")).expect("a good name");
        // In the format of each kind: an owner of turnlock, or 32 hexadecimal digits for a permit.
        let owners = std::array::from_fn(|owner| match kind {
            Kind::Permits => OwnerId::from_wire(&format!("{number:028x}{owner:02x}00")),
            _ => OwnerId::from_wire(&format!("client-{number}:{owner}")),
        });
        let requests =
            std::array::from_fn(|request| OwnerId::from_wire(&format!("request:{number}-{request}")));
        let case = Case { name, owners, requests, raw: fixture.raw.clone() };
        runtime.block_on(compare(&fixture, &case, &history, expire))
    });
    outcome.unwrap_or_else(|error| panic!("model and scripts differ on {}: {error}", program.name()));
}

async fn compare(fixture: &Fixture, case: &Case, history: &[Op], expire: Expire) -> TestCaseResult {
    let mut model = Item::new(case.name.kind());
    // Discards the messages of a history that failed.
    published_channels(fixture, case).await;
    // How far the two clocks may differ: the longest duration of a step, because a lease starts within it.
    let mut drift = Duration::ZERO;
    for op in history {
        let before = now();
        let wake = step(fixture, case, &mut model, op, before, expire, &mut drift).await?;
        drift = drift.max(clock::now().since(before.moment));
        let expected = match wake {
            Notification::None => None,
            Notification::Subscribers => Some(case.name.channel().to_owned()),
            Notification::Waiter(waiter) => {
                Some(format!("{} for {waiter}", case.name.for_client_of(&waiter).channel()))
            }
        };
        prop_assert_eq!(
            published_channels(fixture, case).await,
            Vec::from_iter(expected),
            "messages of {:?}",
            op
        );
        let before = now();
        let actual = fixture.redis.inspect(&case.name, LIMIT).await.expect("a reply").value;
        let inspect = Step::Inspect(case.name.clone());
        let (expected, _) = model.apply(before, &inspect).expect("of this kind");
        let Reply::Snapshot(expected) = expected else { panic!("{expected:?}") };
        drift = drift.max(clock::now().since(before.moment));
        prop_assert!(
            same_snapshot(&actual, &expected, drift),
            "after {op:?}: {actual:#?}, the model {expected:#?}"
        );
    }
    Ok(())
}

/// Runs one step on both sides and compares the replies. Returns whom the model notifies.
async fn step(
    fixture: &Fixture,
    case: &Case,
    model: &mut Item,
    op: &Op,
    now: Now,
    expire: Expire,
    drift: &mut Duration,
) -> Result<Notification, TestCaseError> {
    let redis = &fixture.redis;
    let name = |kind: Kind| LockName::of(kind, "", case.name.as_str()).expect("a good name");
    let owner = |owner: usize| &case.owners[owner];
    match *op {
        Op::Acquire { kind, owner: index, target, lease: millis, permits, under, waits } => {
            let name = name(kind);
            let claim = Claim {
                permits,
                under: under.map(owner).cloned().map(Box::new),
                ..Claim::new(&name, owner(index), target)
            };
            let options = AcquireOptions { lease: lease(millis), waits, highest_token: 0 };
            let actual = redis.acquire(claim.clone(), options, STEP_OPTIONS).await.expect("a reply").value;
            let (expected, wake) = model.apply(now, &Step::Acquire(claim, options)).expect("of this kind");
            *drift = (*drift).max(clock::now().since(now.moment));
            let Reply::Acquired(expected) = expected else { panic!("{op:?}: {expected:?}") };
            prop_assert!(same_reply(actual, expected, *drift), "{op:?}: {actual:?}, the model {expected:?}");
            Ok(wake)
        }
        Op::Release { kind, owner: index, target, permits, unsure } => {
            let name = name(kind);
            let claim = Claim { permits, unsure, ..Claim::new(&name, owner(index), target) };
            let actual = redis.release(claim.clone(), LIMIT).await.expect("a reply").value;
            let (expected, wake) = model.apply(now, &Step::Release(claim)).expect("of this kind");
            prop_assert_eq!(Reply::Released(actual), expected, "{:?}", op);
            Ok(wake)
        }
        Op::PassOn { owner: index, next, lease: millis } => {
            let next = Some((owner(next).clone(), lease(millis)));
            let claim = Claim { next, ..Claim::new(&case.name, owner(index), 0) };
            let actual = redis.release(claim.clone(), LIMIT).await.expect("a reply").value;
            let (expected, wake) = model.apply(now, &Step::Release(claim)).expect("of this kind");
            prop_assert_eq!(Reply::Released(actual), expected, "{:?}", op);
            Ok(wake)
        }
        Op::Renew { kind, owner: index, permits, lease: millis } => {
            let lease = millis.map(lease);
            let step = Step::Renew(Claim { permits, ..Claim::new(&name(kind), owner(index), 1) }, lease);
            let actual = redis.call_batch(vec![step.clone()], STEP_OPTIONS).await.expect("a reply").value;
            let before = model.snapshot(now);
            let (expected, wake) = model.apply(now, &step).expect("of this kind");
            // Whether the remaining lease counts as longer may depend on the time between two steps.
            let is_close = |rest: Duration| {
                let bound = lease.map(|lease| lease.as_duration() + lease.margin());
                bound.is_some_and(|bound| rest.abs_diff(bound) < CLOSE)
            };
            let rests = before.holders.iter().filter_map(|holder| holder.ttl).chain(before.ttl);
            let not_held = Reply::Renewed(Renewed::NotHeld);
            let is_either = rests.into_iter().any(is_close) && expected != not_held;
            let is_same = actual == [Some(expected.clone())] || is_either && actual != [Some(not_held)];
            prop_assert!(is_same, "{op:?}: {actual:?}, the model {expected:?}");
            Ok(wake)
        }
        Op::UnlockAfter { kind, owner: index, permits, lease: millis } => {
            let name = name(kind);
            let (claim, lease) = (Claim { permits, ..Claim::new(&name, owner(index), 1) }, lease(millis));
            let actual = redis.unlock_after(claim.clone(), lease, STEP_OPTIONS).await.expect("a reply").value;
            let step = Step::SetLease { claim, lease, outlasts_client: true };
            let (expected, wake) = model.apply(now, &step).expect("of this kind");
            prop_assert_eq!(Reply::Renewed(actual), expected, "{:?}", op);
            Ok(wake)
        }
        Op::ForceUnlock { kind } => {
            let actual = redis.force_unlock(&name(kind), LIMIT).await.expect("a reply").value;
            let (expected, wake) = model.apply(now, &Step::ForceUnlock(name(kind))).expect("of this kind");
            prop_assert_eq!(Reply::ForceUnlocked(actual), expected, "{:?}", op);
            Ok(wake)
        }
        Op::Perform { op, request } => {
            let request = &case.requests[request];
            let actual = redis.perform(&case.name, op, request, LIMIT).await.expect("a reply").value;
            let step = Step::Perform(case.name.clone(), op, request.clone());
            let (expected, wake) = model.apply(now, &step).expect("of this kind");
            prop_assert_eq!(Reply::Number(actual), expected, "{:?}", op);
            Ok(wake)
        }
        Op::Forget { which } => {
            let request = case.owners.iter().chain(&case.requests).nth(which).expect("one of them");
            redis.forget(&case.name, request, LIMIT).await.expect("a reply");
            let step = Step::Forget(case.name.clone(), request.clone());
            let (_, wake) = model.apply(now, &step).expect("of this kind");
            Ok(wake)
        }
        Op::Heartbeat { owner: index } => {
            let step = Step::Heartbeat(case.name.clone(), owner(index).clone());
            let actual = redis.call_batch(vec![step.clone()], STEP_OPTIONS).await.expect("a reply").value;
            let (expected, wake) = model.apply(now, &step).expect("of this kind");
            prop_assert_eq!(actual, vec![Some(expected)], "{:?}", op);
            Ok(wake)
        }
        Op::Expire { what } => {
            expire(model, what, case).await;
            Ok(Notification::None)
        }
    }
}

/// Returns the channels of all messages since the last call, up to a marker message of its own.
async fn published_channels(fixture: &Fixture, case: &Case) -> Vec<String> {
    let mut raw = fixture.raw.clone();
    let marker = format!("marker:{}", case.name);
    let _: i64 = raw.publish(&marker, "").await.expect("published");
    let mut messages = fixture.messages.lock().await;
    let mut channels = Vec::new();
    loop {
        let message =
            tokio::time::timeout(LIMIT, messages.next()).await.expect("in time").expect("a message");
        let channel = message.get_channel_name().to_owned();
        if channel == marker {
            return channels;
        }
        let text: String = message.get_payload().expect("a text");
        // A message to one waiter names it.
        channels.push(if text.contains(':') { format!("{channel} for {text}") } else { channel });
    }
}

fn now() -> Now {
    Now { moment: clock::now(), wall: clock::wall_micros() }
}

fn same_reply(actual: Acquired, expected: Acquired, drift: Duration) -> bool {
    match (actual, expected) {
        (Acquired::Busy { ttl: actual }, Acquired::Busy { ttl: expected }) => near(actual, expected, drift),
        // The two clocks differ. That tokens increase is tested where there is one clock.
        (Acquired::GrantedWith { .. }, Acquired::GrantedWith { .. }) => true,
        (actual, expected) => actual == expected,
    }
}

/// Compares snapshots, but not the order of holders: a hash has none.
fn same_snapshot(actual: &Snapshot, expected: &Snapshot, drift: Duration) -> bool {
    let sorted = |snapshot: &Snapshot| {
        let mut holders = snapshot.holders.clone();
        holders.sort_by(|a, b| (a.owner.as_str(), a.role as u8).cmp(&(b.owner.as_str(), b.role as u8)));
        holders
    };
    let (actual_holders, expected_holders) = (sorted(actual), sorted(expected));
    actual_holders.len() == expected_holders.len()
        && actual_holders.iter().zip(&expected_holders).all(|(actual, expected)| {
            (&actual.owner, actual.count, actual.role) == (&expected.owner, expected.count, expected.role)
                && near(actual.ttl, expected.ttl, drift)
        })
        && near(actual.ttl, expected.ttl, drift)
        && actual.queue == expected.queue
        && actual.token.is_some() == expected.token.is_some()
        && actual.number == expected.number
}

fn near(actual: Option<Duration>, expected: Option<Duration>, drift: Duration) -> bool {
    match (actual, expected) {
        (Some(actual), Some(expected)) => actual.abs_diff(expected) <= drift * 2 + TOLERANCE,
        (actual, expected) => actual == expected,
    }
}
