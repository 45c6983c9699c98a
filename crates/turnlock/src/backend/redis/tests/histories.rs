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
use turnlock_core::model::{Acquired, Claim, Deed, Item, Now, Renewed, Snapshot, Wake, Wish};
use turnlock_core::{Kind, Lease, LockName, OwnerId};
use turnlock_testkit::{RedisServer, ServerProgram};

use crate::backend::redis::Redis;
use crate::backend::redis::tests::connected;
use crate::backend::{Backend, Caller, Care, Renewal, Waiter};
use crate::clock;

const LIMIT: Duration = Duration::from_secs(10);

/// Without replicas.
pub(super) const CARE: Care = Care { limit: LIMIT, replicas: 0, caller: Caller::ENGINE };

/// How far the clocks of two processes may be apart in what they call a millisecond.
const TOLERANCE: Duration = Duration::from_millis(5);

/// The same where a bound lies between two answers.
const CLOSE: Duration = Duration::from_millis(100);

/// How many owners take part.
pub(super) const OWNERS: usize = 4;

/// How many requests of [`Op::Perform`] there are.
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
    Keep {
        kind: Kind,
        owner: usize,
        permits: u32,
        lease: u64,
    },
    ForceUnlock {
        kind: Kind,
    },
    Perform {
        deed: Deed,
        request: usize,
    },
    /// The memory of a hold, or of a request, is removed: owners first, then requests.
    Forget {
        which: usize,
    },
    Attend {
        owner: usize,
    },
    /// Something runs out, without anybody being told; what that is, the primitive says.
    Expire {
        what: usize,
    },
}

/// Makes something run out on both sides, as time would.
pub(super) type Expire =
    for<'a> fn(&'a mut Item, usize, &'a Scene) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One history's own name, its owners and requests, and a way to its keys.
pub(super) struct Scene {
    pub(super) name: LockName,
    pub(super) owners: [OwnerId; OWNERS],
    pub(super) requests: [OwnerId; REQUESTS],
    pub(super) plain: MultiplexedConnection,
}

pub(super) fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis)).expect("in bounds")
}

/// Leases in milliseconds, between so many seconds: full seconds.
pub(super) fn leases(seconds: Range<u64>) -> impl Strategy<Value = u64> + Clone {
    seconds.prop_map(|seconds| seconds * 1_000)
}

/// What [`Op::Keep`] sets leases to: half a second apart from all others. Whether one is shortened thereby, of which others
/// are told, must not hang on the time between two steps.
pub(super) fn kept_leases(seconds: Range<u64>) -> impl Strategy<Value = u64> {
    seconds.prop_map(|seconds| seconds * 1_000 + 500)
}

/// What a history needs on the server's side.
struct Stage {
    redis: Redis,
    plain: MultiplexedConnection,
    /// Every message that is published.
    heard: tokio::sync::Mutex<PubSubStream>,
}

/// Runs `cases` random histories of `op` on the scripts and on the model of `kind`, and panics where they differ. The scripts run
/// on every server program; on those that are not the installed one, a fifth of the histories.
pub(super) fn agree(kind: Kind, cases: u32, op: impl Strategy<Value = Op>, expire: Expire) {
    let histories = proptest::collection::vec(op, 1..40);
    for program in ServerProgram::available() {
        let cases = if program == ServerProgram::Installed { cases } else { cases / 5 };
        agree_on(program, kind, cases, &histories, expire);
    }
}

fn agree_on(
    program: ServerProgram,
    kind: Kind,
    cases: u32,
    histories: &impl Strategy<Value = Vec<Op>>,
    expire: Expire,
) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = runtime.block_on(RedisServer::start_of(program));
    let stage = runtime.block_on(async {
        let client = redis::Client::open(server.url()).expect("a good URL");
        let mut pubsub = client.get_async_pubsub().await.expect("a connection");
        pubsub.psubscribe("*").await.expect("subscribed");
        let redis = connected(&server).await;
        Arc::new(Stage { redis, plain: server.client().await, heard: pubsub.into_on_message().into() })
    });
    let numbers = AtomicU64::new(0);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(histories, |history| {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let name = LockName::of(kind, "", &format!("history:{number}")).expect("a good name");
        // In the format of every kind: an owner of ours, and 32 hexadecimal digits for a permit.
        let owners = std::array::from_fn(|owner| match kind {
            Kind::Permits => OwnerId::from_wire(&format!("{number:028x}{owner:02x}00")),
            _ => OwnerId::from_wire(&format!("client-{number}:{owner}")),
        });
        let requests =
            std::array::from_fn(|request| OwnerId::from_wire(&format!("request:{number}-{request}")));
        let scene = Scene { name, owners, requests, plain: stage.plain.clone() };
        runtime.block_on(compare(&stage, &scene, &history, expire))
    });
    outcome.unwrap_or_else(|error| panic!("model and scripts differ on {}: {error}", program.name()));
}

async fn compare(stage: &Stage, scene: &Scene, history: &[Op], expire: Expire) -> TestCaseResult {
    let mut model = Item::new(scene.name.kind());
    // What a history that failed left unheard must not count against this one.
    heard(stage, scene).await;
    // How far the two clocks may differ: the longest that any step took, since a lease counts from within it.
    let mut drift = Duration::ZERO;
    for op in history {
        let before = now();
        let wake = step(stage, scene, &mut model, op, before, expire, &mut drift).await?;
        drift = drift.max(clock::now().since(before.moment));
        let expected = match wake {
            Wake::Nobody => None,
            Wake::Listeners => Some(scene.name.channel().to_owned()),
            Wake::Waiter(waiter) => Some(scene.name.for_waiter(&waiter).channel().to_owned()),
        };
        prop_assert_eq!(heard(stage, scene).await, Vec::from_iter(expected), "messages of {:?}", op);
        let before = now();
        let ours = stage.redis.inspect(&scene.name, LIMIT).await.expect("an answer").value;
        let expected = model.snapshot(before, scene.name.kind()).expect("of this kind");
        drift = drift.max(clock::now().since(before.moment));
        prop_assert!(
            same_picture(&ours, &expected, drift),
            "after {op:?}: {ours:#?}, the model {expected:#?}"
        );
    }
    Ok(())
}

/// Does one step on both sides and compares the answers. Whom it woke, by the model's word.
async fn step(
    stage: &Stage,
    scene: &Scene,
    model: &mut Item,
    op: &Op,
    now: Now,
    expire: Expire,
    drift: &mut Duration,
) -> Result<Wake, TestCaseError> {
    let redis = &stage.redis;
    let name = |kind: Kind| LockName::of(kind, "", scene.name.as_str()).expect("a good name");
    let owner = |owner: usize| &scene.owners[owner];
    match *op {
        Op::Acquire { kind, owner: who, target, lease: millis, permits, under, waits } => {
            let name = name(kind);
            let claim = Claim { permits, under: under.map(owner), ..Claim::new(&name, owner(who), target) };
            let wish = Wish { lease: lease(millis), waits, highest_token: 0 };
            let ours = redis.acquire(claim, wish, CARE).await.expect("an answer").value;
            let (expected, wake) = model.acquire(now, &claim, &wish).expect("of this kind");
            *drift = (*drift).max(clock::now().since(now.moment));
            prop_assert!(same_answer(ours, expected, *drift), "{op:?}: {ours:?}, the model {expected:?}");
            Ok(wake)
        }
        Op::Release { kind, owner: who, target, permits, unsure } => {
            let name = name(kind);
            let claim = Claim { permits, unsure, ..Claim::new(&name, owner(who), target) };
            let ours = redis.release(claim, LIMIT).await.expect("an answer").value;
            let (expected, wake) = model.release(now, &claim).expect("of this kind");
            prop_assert_eq!(ours, expected, "{:?}", op);
            Ok(wake)
        }
        Op::Renew { kind, owner: who, permits, lease: millis } => {
            let line =
                Renewal { name: name(kind), owner: owner(who).clone(), permits, lease: millis.map(lease) };
            let ours = redis.renew(std::slice::from_ref(&line), CARE).await.expect("an answer").value;
            let before = model.snapshot(now, kind).expect("of this kind");
            let expected = model.renew(now, &line.claim(), line.lease).expect("of this kind");
            // Whether a lease is longer than that may hang on the time between two steps.
            let is_close = |rest: Duration| {
                let bound = line.lease.map(|lease| lease.as_duration() + lease.margin());
                bound.is_some_and(|bound| rest.abs_diff(bound) < CLOSE)
            };
            let rests = before.holders.iter().filter_map(|holder| holder.ttl).chain(before.ttl);
            let is_either = rests.into_iter().any(is_close) && expected != Renewed::NotHeld;
            let is_same = ours == [Some(expected)] || is_either && ours != [Some(Renewed::NotHeld)];
            prop_assert!(is_same, "{op:?}: {ours:?}, the model {expected:?}");
            Ok(Wake::Nobody)
        }
        Op::Keep { kind, owner: who, permits, lease: millis } => {
            let name = name(kind);
            let claim = Claim { permits, ..Claim::new(&name, owner(who), 1) };
            let ours = redis.keep(claim, lease(millis), CARE).await.expect("an answer").value;
            let (expected, wake) = model.keep(now, &claim, lease(millis)).expect("of this kind");
            prop_assert_eq!(ours, expected, "{:?}", op);
            Ok(wake)
        }
        Op::ForceUnlock { kind } => {
            let ours = redis.force_unlock(&name(kind), LIMIT).await.expect("an answer").value;
            let (expected, wake) = model.force_unlock(now, kind).expect("of this kind");
            prop_assert_eq!(ours, expected, "{:?}", op);
            Ok(wake)
        }
        Op::Perform { deed, request } => {
            let request = &scene.requests[request];
            let ours = redis.perform(&scene.name, deed, request, LIMIT).await.expect("an answer").value;
            let (expected, wake) =
                model.perform(now, scene.name.kind(), deed, request).expect("of this kind");
            prop_assert_eq!(ours, expected, "{:?}", op);
            Ok(wake)
        }
        Op::Forget { which } => {
            let request = scene.owners.iter().chain(&scene.requests).nth(which).expect("one of them");
            redis.forget(&scene.name, request, LIMIT).await.expect("an answer");
            model.forget(scene.name.kind(), request).expect("of this kind");
            Ok(Wake::Nobody)
        }
        Op::Attend { owner: who } => {
            let waiter = Waiter { name: scene.name.clone(), owner: owner(who).clone() };
            let ours = redis.attend(std::slice::from_ref(&waiter), LIMIT).await.expect("an answer").value;
            let (expected, wake) = model.attend(now, &waiter.owner).expect("of this kind");
            prop_assert_eq!(ours, vec![Some(expected)], "{:?}", op);
            Ok(wake)
        }
        Op::Expire { what } => {
            expire(model, what, scene).await;
            Ok(Wake::Nobody)
        }
    }
}

/// The channels on which something was published since the last time: all before a message of our own.
async fn heard(stage: &Stage, scene: &Scene) -> Vec<String> {
    let mut plain = stage.plain.clone();
    let marker = format!("marker:{}", scene.name);
    let _: i64 = plain.publish(&marker, "").await.expect("published");
    let mut heard = stage.heard.lock().await;
    let mut channels = Vec::new();
    loop {
        let message = tokio::time::timeout(LIMIT, heard.next()).await.expect("in time").expect("a message");
        let channel = message.get_channel_name().to_owned();
        if channel == marker {
            return channels;
        }
        channels.push(channel);
    }
}

fn now() -> Now {
    Now { moment: clock::now(), wall: clock::wall_micros() }
}

fn same_answer(ours: Acquired, expected: Acquired, drift: Duration) -> bool {
    match (ours, expected) {
        (Acquired::Busy { ttl: ours }, Acquired::Busy { ttl: expected }) => near(ours, expected, drift),
        // The two clocks are not the same; that the token rises is tested where it is one clock.
        (Acquired::GrantedWith { .. }, Acquired::GrantedWith { .. }) => true,
        (ours, expected) => ours == expected,
    }
}

/// The order of holders, which a hash does not keep, is not compared.
fn same_picture(ours: &Snapshot, expected: &Snapshot, drift: Duration) -> bool {
    let sorted = |snapshot: &Snapshot| {
        let mut holders = snapshot.holders.clone();
        holders.sort_by(|a, b| (a.owner.as_str(), a.role as u8).cmp(&(b.owner.as_str(), b.role as u8)));
        holders
    };
    let (our_holders, expected_holders) = (sorted(ours), sorted(expected));
    our_holders.len() == expected_holders.len()
        && our_holders.iter().zip(&expected_holders).all(|(ours, expected)| {
            (&ours.owner, ours.count, ours.role) == (&expected.owner, expected.count, expected.role)
                && near(ours.ttl, expected.ttl, drift)
        })
        && near(ours.ttl, expected.ttl, drift)
        && ours.queue == expected.queue
        && ours.token.is_some() == expected.token.is_some()
        && ours.number == expected.number
}

fn near(ours: Option<Duration>, expected: Option<Duration>, drift: Duration) -> bool {
    match (ours, expected) {
        (Some(ours), Some(expected)) => ours.abs_diff(expected) <= drift * 2 + TOLERANCE,
        (ours, expected) => ours == expected,
    }
}
