//! A store that hangs: callers get an error in time, and it is never mistaken for a held lock.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use turnlock::{Builder, Client, Error, MultiLock, RedLock, TryAcquire};
use turnlock_testkit::{ClusterSet, FaultProxy, RedisServer, SentinelSet, eventually, trial, within};

use crate::fixture::{Fixture, NO_POLL, ms, until_waiting};
use crate::{Case, LIMIT, cases};

/// For a store that can be frozen: a server, or a file.
pub(crate) const CASES: &[Case] =
    cases![a_hung_store_is_never_a_held_permit_or_group, a_hung_store_is_reported_in_time];

/// For all kinds of locks.
pub(crate) const KIND_CASES: &[Case] = cases![
    a_hung_store_is_never_a_held_lock,
    a_hung_store_is_never_a_held_lock_after_a_drop,
    a_hung_store_is_never_a_held_lock_to_an_owner,
    a_store_that_hangs_during_a_wait_is_never_a_held_lock,
];

/// The same for a store that does not reply to reads either.
pub(crate) const SERVER_KIND_CASES: &[Case] = cases![a_hung_store_is_not_hidden_by_a_waiter_ahead];

/// For a store behind a network.
pub(crate) const NETWORK_CASES: &[Case] = cases![
    a_connection_that_hangs_is_reported_in_time,
    a_slow_connect_completes_between_requests,
    a_broken_connection_is_no_outage_for_waiters_behind,
    a_refusal_before_an_outage_does_not_count_after_it,
];

/// The response time-out of these cases.
const TIMEOUT: Duration = Duration::from_millis(400);

/// How long `lock` retries.
const RETRY_FOR: Duration = Duration::from_millis(1_200);

/// The limit for a call that waits for one reply, on a busy machine. Far below the connect time-out.
const IN_TIME: Duration = Duration::from_secs(3);

fn builder() -> Builder {
    Client::builder()
        .response_timeout(TIMEOUT)
        .retry_for(RETRY_FOR)
        .connect_timeout(ms(20_000))
        .poll_interval(NO_POLL)
}

/// A store that does not reply until this is dropped.
enum Frozen<'a> {
    Server(&'a RedisServer),
    /// A connection with an open write transaction.
    File(rusqlite::Connection),
}

impl<'a> Frozen<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        if fixture.is_file() {
            let busy = fixture.file().raw_connection();
            busy.execute_batch("BEGIN IMMEDIATE").expect("a write transaction");
            return Self::File(busy);
        }
        fixture.server().pause();
        Self::Server(fixture.server())
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        match self {
            Self::Server(server) => server.resume(),
            Self::File(busy) => busy.execute_batch("ROLLBACK").expect("rolled back"),
        }
    }
}

#[track_caller]
fn assert_unavailable<T: Debug>(outcome: &Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
}

/// The output, and how long it took.
async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let start = Instant::now();
    (future.await, start.elapsed())
}

async fn a_hung_store_is_never_a_held_lock(fixture: Fixture) {
    let lock = fixture.client_with(builder()).await.lock("x");
    lock.lock().await.expect("free").unlock().await.expect("held");
    let frozen = Frozen::new(&fixture);
    assert_unavailable(&lock.try_lock_for(ms(600)).await);
    for _ in 0..3 {
        assert_unavailable(&lock.try_lock().await);
    }
    // The caller is gone; its request is in flight.
    assert!(tokio::time::timeout(ms(100), lock.lock()).await.is_err());
    for _ in 0..3 {
        assert_unavailable(&lock.try_lock().await);
    }
    // Behind a waiter whose request is in flight, or has failed.
    let later = async {
        tokio::time::sleep(TIMEOUT + ms(200)).await;
        (lock.try_lock().await, lock.try_lock_for(ms(50)).await)
    };
    let (first, second, third, (fourth, fifth)) =
        tokio::join!(lock.lock(), lock.try_lock(), lock.try_lock_for(ms(100)), later);
    assert_unavailable(&first);
    for outcome in [second, third, fourth, fifth] {
        assert_unavailable(&outcome);
    }
    drop(frozen);
    eventually("it is granted again", ms(10_000), async || {
        matches!(lock.try_lock().await, Ok(TryAcquire::Acquired(_)))
    })
    .await;
}

/// The release of a dropped guard gets no reply. Only the store knows whether the lock is still held.
async fn a_hung_store_is_never_a_held_lock_after_a_drop(fixture: Fixture) {
    let lock = fixture.client_with(builder()).await.lock("x");
    let guard = lock.lock().await.expect("free");
    let frozen = Frozen::new(&fixture);
    drop(guard);
    let (first, second, third) = tokio::join!(lock.try_lock(), lock.try_lock(), lock.try_lock_for(ms(50)));
    for outcome in [first, second, third] {
        assert_unavailable(&outcome);
    }
    drop(frozen);
    // The same behind a waiter that waits for that release, and has sent no request yet.
    let guard = within(ms(20_000), "it is free", lock.lock()).await.expect("a turn");
    let frozen = Frozen::new(&fixture);
    drop(guard);
    let (ahead, first, second) = tokio::join!(lock.lock(), lock.try_lock(), lock.try_lock_for(ms(50)));
    assert_unavailable(&ahead);
    // A busy file can still be read, and there the lock is held.
    if !fixture.is_file() {
        assert_unavailable(&first);
        assert_unavailable(&second);
    }
    drop(frozen);
}

/// The store has refused the waiter, and has not replied since.
async fn a_store_that_hangs_during_a_wait_is_never_a_held_lock(fixture: Fixture) {
    let _guard = fixture.client().await.rival().lock("x").lock().await.expect("free");
    let lock = fixture.client_with(builder()).await.lock("x");
    let waits = lock.clone();
    let waiting = tokio::spawn(async move { waits.try_lock_for(ms(4_000)).await });
    until_waiting(&lock, 1).await;
    let frozen = Frozen::new(&fixture);
    assert_unavailable(&waiting.await.expect("no panic"));
    drop(frozen);
}

/// The waiter ahead was refused, and sends no request for long. Its refusal is older than the outage.
async fn a_hung_store_is_not_hidden_by_a_waiter_ahead(fixture: Fixture) {
    let _guard = fixture.client().await.rival().lock("x").lock().await.expect("free");
    let client = fixture.client_with(builder().retry_for(ms(60_000))).await;
    let me = client.owner();
    let (mine, other) = (client.lock("x").with_owner(&me), client.lock("x"));
    let waits = mine.clone();
    let ahead = tokio::spawn(async move { waits.lock().await });
    until_waiting(&mine, 1).await;
    let frozen = Frozen::new(&fixture);
    for (caller, lock) in [("another task of the same owner", mine), ("another owner", other)] {
        let is_reported = async || matches!(lock.try_lock().await, Err(Error::Unavailable { .. }));
        eventually(caller, ms(10_000), is_reported).await;
        assert_unavailable(&lock.try_lock_for(ms(50)).await);
    }
    ahead.abort();
    drop(frozen);
}

async fn a_hung_store_is_never_a_held_permit_or_group(fixture: Fixture) {
    let client = fixture.client_with(builder()).await;
    let (semaphore, permits) = (client.semaphore("s"), client.permit_semaphore("p"));
    let latch = client.latch("l");
    semaphore.try_set_permits(1).await.expect("set");
    permits.try_set_permits(1).await.expect("set");
    latch.try_set_count(1).await.expect("set");
    let multi = MultiLock::new([client.reentrant("a"), client.reentrant("b")]).expect("members");
    let red = RedLock::new([client.reentrant("c")]).expect("a member");
    let frozen = Frozen::new(&fixture);
    for _ in 0..2 {
        assert_unavailable(&semaphore.try_acquire(1).await);
        assert_unavailable(&permits.try_acquire(1).await);
        assert_unavailable(&multi.try_lock().await);
        assert_unavailable(&red.try_lock().await);
        // A busy file can still be read.
        if !fixture.is_file() {
            assert_unavailable(&latch.wait_for(ms(10)).await);
        }
        assert_unavailable(&semaphore.try_acquire_for(1, ms(10)).await);
        assert_unavailable(&permits.try_acquire_for(1, ms(10)).await);
        assert_unavailable(&multi.try_lock_for(ms(10)).await);
        assert_unavailable(&red.try_lock_for(ms(10)).await);
    }
    assert!(tokio::time::timeout(ms(100), semaphore.acquire(1)).await.is_err());
    assert!(tokio::time::timeout(ms(100), permits.acquire(1)).await.is_err());
    assert!(tokio::time::timeout(ms(100), multi.lock()).await.is_err());
    assert_unavailable(&semaphore.try_acquire(1).await);
    assert_unavailable(&permits.try_acquire(1).await);
    assert_unavailable(&multi.try_lock().await);
    drop(frozen);
}

async fn a_hung_store_is_never_a_held_lock_to_an_owner(fixture: Fixture) {
    let client = fixture.client_with(builder()).await;
    let lock = client.lock("x").with_owner(&client.owner());
    lock.lock().await.expect("free").unlock().await.expect("held");
    let frozen = Frozen::new(&fixture);
    let (first, second, third) = tokio::join!(lock.lock(), lock.try_lock(), lock.try_lock_for(ms(100)));
    assert_unavailable(&first);
    assert_unavailable(&second);
    assert_unavailable(&third);
    drop(frozen);
}

async fn a_hung_store_is_reported_in_time(fixture: Fixture) {
    let client = fixture.client_with(builder()).await;
    let lock = client.lock("x");
    lock.lock().await.expect("free").unlock().await.expect("held");
    let frozen = Frozen::new(&fixture);
    assert_all_in_time(&lock, !fixture.is_file()).await;
    drop(frozen);
}

async fn a_connection_that_hangs_is_reported_in_time(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let client = fixture.client_at(builder(), &proxy.url()).await;
    proxy.black_hole();
    proxy.reset_all();
    assert_all_in_time(&client.lock("x"), true).await;
}

/// The request of the waiter ahead fails, and is sent again on a new connection. Waiters behind it get no error: the store is up.
async fn a_broken_connection_is_no_outage_for_waiters_behind(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let client = fixture.client_at(builder().response_timeout(ms(5_000)), &proxy.url()).await;
    for round in 0..5 {
        let lock = client.lock(&format!("x{round}"));
        proxy.delay(ms(1_000));
        let breaks = async {
            // Meanwhile the first request is in flight. If it is not, the round shows nothing.
            tokio::time::sleep(ms(200)).await;
            proxy.delay(Duration::ZERO);
            proxy.reset_all();
        };
        let (ahead, behind) =
            (async { lock.lock().await.map(drop) }, async { lock.try_lock().await.map(drop) });
        let (ahead, behind, ()) = tokio::join!(ahead, behind, breaks);
        ahead.expect("a turn");
        behind.expect("granted or not, but no outage");
    }
}

/// The waiter ahead is refused after the one behind it came; then the store stops to reply.
async fn a_refusal_before_an_outage_does_not_count_after_it(fixture: Fixture) {
    let _guard = fixture.client().await.lock("x").lock().await.expect("free");
    let lock = fixture.client_with(builder().poll_interval(ms(100)).retry_for(ms(60_000))).await.lock("x");
    let (first, second) = (lock.clone(), lock.clone());
    let ahead = tokio::spawn(async move { first.lock().await });
    until_waiting(&lock, 1).await;
    let behind = tokio::spawn(async move { second.try_lock_for(ms(5_000)).await });
    until_waiting(&lock, 2).await;
    let before = fixture.server().calls().await;
    let is_refused = async || fixture.server().calls().await.since(&before).of("evalsha") >= 3;
    eventually("the waiter ahead is refused again", ms(4_000), is_refused).await;
    let frozen = Frozen::new(&fixture);
    assert_unavailable(&behind.await.expect("no panic"));
    ahead.abort();
    drop(frozen);
}

/// Asserts that each call ends within its limit, whether its request gets no reply or no connection can be made. A busy file can
/// still be read.
async fn assert_all_in_time(lock: &turnlock::Lock, reads_hang: bool) {
    for _ in 0..3 {
        let (outcome, took) = timed(lock.try_lock()).await;
        assert_unavailable(&outcome);
        assert!(took < IN_TIME, "try_lock took {took:?}");
    }
    let (outcome, took) = timed(lock.is_locked()).await;
    assert!(!reads_hang || outcome.is_err(), "{outcome:?}");
    assert!(took < IN_TIME, "is_locked took {took:?}");
    let (outcome, took) = timed(lock.try_lock_for(ms(600))).await;
    assert_unavailable(&outcome);
    assert!(took < ms(600) + IN_TIME, "try_lock_for took {took:?}");
    // Waiters in one queue do not fail one after the other.
    let waiting = (0..5).map(|_| timed(lock.lock()));
    for (outcome, took) in futures_util::future::join_all(waiting).await {
        assert_unavailable(&outcome);
        assert!(took + TIMEOUT >= RETRY_FOR && took < RETRY_FOR + IN_TIME, "lock took {took:?}");
    }
}

/// A connect that takes longer than a response time-out still completes.
async fn a_slow_connect_completes_between_requests(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let client = fixture.client_at(builder(), &proxy.url()).await;
    // Connecting takes several round trips, a reply one.
    proxy.delay(ms(100));
    proxy.reset_all();
    let lock = client.lock("x");
    eventually("it is granted", ms(15_000), async || {
        matches!(lock.try_lock().await, Ok(TryAcquire::Acquired(_)))
    })
    .await;
    proxy.reset_all();
    lock.lock().await.expect("the connection is made between two attempts").unlock().await.expect("held");
}

/// The same behind sentinels, and in a cluster.
pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
    vec![
        trial(
            "outage::sentinel::a_frozen_master_is_reported_in_time",
            SentinelSet::missing(),
            LIMIT,
            || async {
                let set = SentinelSet::start().await;
                let client = builder().connect(&set.url()).await.expect("a master");
                client.lock("x").lock().await.expect("free").unlock().await.expect("held");
                let old = set.pause_master().await;
                assert_frozen_master_reported(&client).await;
                set.servers()[old].resume();
            },
        ),
        trial(
            "outage::cluster::a_frozen_master_is_reported_in_time",
            ClusterSet::missing(),
            LIMIT,
            || async {
                let set = ClusterSet::start().await;
                let client = builder().connect(&set.url()).await.expect("a cluster");
                client.lock("x").lock().await.expect("free").unlock().await.expect("held");
                let old = set.owner_of(set.slot_of("x").await).await;
                set.nodes()[old].pause();
                assert_frozen_master_reported(&client).await;
                set.nodes()[old].resume();
            },
        ),
    ]
}

/// Asserts that while a replica is promoted, a `try_lock` fails in time with `Unavailable`, or is granted.
async fn assert_frozen_master_reported(client: &Client) {
    for number in 0..3 {
        let (outcome, took) = timed(client.lock("x").try_lock()).await;
        assert!(
            matches!(outcome, Err(Error::Unavailable { .. }) | Ok(TryAcquire::Acquired(_))),
            "{number}: {outcome:?}"
        );
        assert!(number > 0 || outcome.is_err(), "the server did not freeze");
        assert!(took < IN_TIME, "{number}: try_lock took {took:?}");
    }
}
