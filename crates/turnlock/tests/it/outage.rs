//! A store that hangs: callers are told in time, and it is never taken for a lock that is held.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use turnlock::{Builder, Client, Error, MultiLock, RedLock};
use turnlock_testkit::{ClusterSet, FaultProxy, RedisServer, SentinelSet, eventually, trial, within};

use crate::rig::{NO_POLL, Rig, ms, until_waiting};
use crate::{Case, LIMIT, cases};

/// For a store that can be frozen: a server, or a file.
pub(crate) const CASES: &[Case] =
    cases![a_hung_store_is_never_a_held_permit_or_group, a_hung_store_is_reported_in_time];

/// The cases that all kinds of locks have to go through.
pub(crate) const KIND_CASES: &[Case] = cases![
    a_hung_store_is_never_a_held_lock,
    a_hung_store_is_never_a_held_lock_after_a_drop,
    a_hung_store_is_never_a_held_lock_to_an_owner,
    a_store_that_hangs_during_a_wait_is_never_a_held_lock,
];

/// The same for a store that does not even answer what only reads.
pub(crate) const SERVER_KIND_CASES: &[Case] = cases![a_store_that_hangs_is_not_hidden_by_one_that_waits];

/// For a store behind a network.
pub(crate) const NETWORK_CASES: &[Case] = cases![
    a_connection_that_hangs_is_reported_in_time,
    a_slow_connection_is_made_while_nobody_waits_for_it,
    a_connection_that_breaks_is_no_outage_to_those_behind,
    a_refusal_before_an_outage_does_not_count_after_it,
];

/// The response time-out of these cases.
const TIMEOUT: Duration = Duration::from_millis(400);

/// For how long `lock` goes on.
const RETRY_FOR: Duration = Duration::from_millis(1_200);

/// What a call may take that waits for one answer, on a busy machine. Far below the time to connect.
const IN_TIME: Duration = Duration::from_secs(3);

fn builder() -> Builder {
    Client::builder().response_timeout(TIMEOUT).retry_for(RETRY_FOR).connect_timeout(ms(20_000)).poll(NO_POLL)
}

/// A store that answers nothing until this is dropped.
enum Frozen<'a> {
    Server(&'a RedisServer),
    /// A connection that keeps the file for itself.
    File(rusqlite::Connection),
}

impl<'a> Frozen<'a> {
    fn new(rig: &'a Rig) -> Self {
        if rig.is_file() {
            let busy = rig.file().plain();
            busy.execute_batch("BEGIN IMMEDIATE").expect("ours");
            return Self::File(busy);
        }
        rig.server().pause();
        Self::Server(rig.server())
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        match self {
            Self::Server(server) => server.resume(),
            Self::File(busy) => busy.execute_batch("ROLLBACK").expect("theirs again"),
        }
    }
}

#[track_caller]
fn is_unavailable<T: Debug>(outcome: &Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
}

/// The output, and how long it took.
async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let start = Instant::now();
    (future.await, start.elapsed())
}

async fn a_hung_store_is_never_a_held_lock(rig: Rig) {
    let lock = rig.client_with(builder()).await.lock("x");
    lock.lock().await.expect("free").unlock().await.expect("held");
    let frozen = Frozen::new(&rig);
    is_unavailable(&lock.try_lock_for(ms(600)).await);
    for _ in 0..3 {
        is_unavailable(&lock.try_lock().await);
    }
    // The caller is gone; its request is under way.
    assert!(tokio::time::timeout(ms(100), lock.lock()).await.is_err());
    for _ in 0..3 {
        is_unavailable(&lock.try_lock().await);
    }
    // Behind one whose request is under way, and whose requests have failed.
    let later = async {
        tokio::time::sleep(TIMEOUT + ms(200)).await;
        (lock.try_lock().await, lock.try_lock_for(ms(50)).await)
    };
    let (first, second, third, (fourth, fifth)) =
        tokio::join!(lock.lock(), lock.try_lock(), lock.try_lock_for(ms(100)), later);
    is_unavailable(&first);
    for outcome in [second, third, fourth, fifth] {
        is_unavailable(&outcome);
    }
    drop(frozen);
    eventually("it is granted again", ms(10_000), async || matches!(lock.try_lock().await, Ok(Some(_))))
        .await;
}

/// The release of a dropped guard gets no answer. Only the store knows whether the lock is still held.
async fn a_hung_store_is_never_a_held_lock_after_a_drop(rig: Rig) {
    let lock = rig.client_with(builder()).await.lock("x");
    let guard = lock.lock().await.expect("free");
    let frozen = Frozen::new(&rig);
    drop(guard);
    let (first, second, third) = tokio::join!(lock.try_lock(), lock.try_lock(), lock.try_lock_for(ms(50)));
    for outcome in [first, second, third] {
        is_unavailable(&outcome);
    }
    drop(frozen);
    // The same behind one that waits for the end of that release, and has asked for nothing yet.
    let guard = within(ms(20_000), "it is free", lock.lock()).await.expect("a turn");
    let frozen = Frozen::new(&rig);
    drop(guard);
    let (ahead, first, second) = tokio::join!(lock.lock(), lock.try_lock(), lock.try_lock_for(ms(50)));
    is_unavailable(&ahead);
    // A file that is busy can still be read, and says that the lock is held.
    if !rig.is_file() {
        is_unavailable(&first);
        is_unavailable(&second);
    }
    drop(frozen);
}

/// It has refused the lock to the one that waits, and is silent since then.
async fn a_store_that_hangs_during_a_wait_is_never_a_held_lock(rig: Rig) {
    let _guard = rig.client().await.rival().lock("x").lock().await.expect("free");
    let lock = rig.client_with(builder()).await.lock("x");
    let waits = lock.clone();
    let waiting = tokio::spawn(async move { waits.try_lock_for(ms(4_000)).await });
    until_waiting(&lock, 1).await;
    let frozen = Frozen::new(&rig);
    is_unavailable(&waiting.await.expect("no panic"));
    drop(frozen);
}

/// The one ahead was refused, and does not ask again for long. What it heard says nothing of a store that hangs since then.
async fn a_store_that_hangs_is_not_hidden_by_one_that_waits(rig: Rig) {
    let _guard = rig.client().await.rival().lock("x").lock().await.expect("free");
    let client = rig.client_with(builder().retry_for(ms(60_000))).await;
    let me = client.owner();
    let (mine, other) = (client.lock("x").owned_by(&me), client.lock("x"));
    let waits = mine.clone();
    let ahead = tokio::spawn(async move { waits.lock().await });
    until_waiting(&mine, 1).await;
    let frozen = Frozen::new(&rig);
    for (who, lock) in [("another task of the same owner", mine), ("another owner", other)] {
        let hears = async || matches!(lock.try_lock().await, Err(Error::Unavailable { .. }));
        eventually(who, ms(10_000), hears).await;
        is_unavailable(&lock.try_lock_for(ms(50)).await);
    }
    ahead.abort();
    drop(frozen);
}

async fn a_hung_store_is_never_a_held_permit_or_group(rig: Rig) {
    let client = rig.client_with(builder()).await;
    let (semaphore, permits) = (client.semaphore("s"), client.permit_semaphore("p"));
    let latch = client.latch("l");
    semaphore.try_set_permits(1).await.expect("set");
    permits.try_set_permits(1).await.expect("set");
    latch.try_set_count(1).await.expect("set");
    let multi = MultiLock::new([client.reentrant("a"), client.reentrant("b")]).expect("members");
    let red = RedLock::new([client.reentrant("c")]).expect("a member");
    let frozen = Frozen::new(&rig);
    for _ in 0..2 {
        is_unavailable(&semaphore.try_acquire(1).await);
        is_unavailable(&permits.try_acquire(1).await);
        is_unavailable(&multi.try_lock().await);
        is_unavailable(&red.try_lock().await);
        // A file that is busy can still be read.
        if !rig.is_file() {
            is_unavailable(&latch.wait_for(ms(10)).await);
        }
        is_unavailable(&semaphore.try_acquire_for(1, ms(10)).await);
        is_unavailable(&permits.try_acquire_for(1, ms(10)).await);
        is_unavailable(&multi.try_lock_for(ms(10)).await);
        is_unavailable(&red.try_lock_for(ms(10)).await);
    }
    assert!(tokio::time::timeout(ms(100), semaphore.acquire(1)).await.is_err());
    assert!(tokio::time::timeout(ms(100), permits.acquire(1)).await.is_err());
    assert!(tokio::time::timeout(ms(100), multi.lock()).await.is_err());
    is_unavailable(&semaphore.try_acquire(1).await);
    is_unavailable(&permits.try_acquire(1).await);
    is_unavailable(&multi.try_lock().await);
    drop(frozen);
}

async fn a_hung_store_is_never_a_held_lock_to_an_owner(rig: Rig) {
    let client = rig.client_with(builder()).await;
    let lock = client.lock("x").owned_by(&client.owner());
    lock.lock().await.expect("free").unlock().await.expect("held");
    let frozen = Frozen::new(&rig);
    let (first, second, third) = tokio::join!(lock.lock(), lock.try_lock(), lock.try_lock_for(ms(100)));
    is_unavailable(&first);
    is_unavailable(&second);
    is_unavailable(&third);
    drop(frozen);
}

async fn a_hung_store_is_reported_in_time(rig: Rig) {
    let client = rig.client_with(builder()).await;
    let lock = client.lock("x");
    lock.lock().await.expect("free").unlock().await.expect("held");
    let frozen = Frozen::new(&rig);
    all_in_time(&lock, !rig.is_file()).await;
    drop(frozen);
}

async fn a_connection_that_hangs_is_reported_in_time(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let client = rig.client_at(builder(), &proxy.url()).await;
    proxy.black_hole();
    proxy.reset_all();
    all_in_time(&client.lock("x"), true).await;
}

/// The request of the one ahead fails, and it asks again on a new connection. So do those behind it: the store is there.
async fn a_connection_that_breaks_is_no_outage_to_those_behind(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let client = rig.client_at(builder().response_timeout(ms(5_000)), &proxy.url()).await;
    for round in 0..5 {
        let lock = client.lock(&format!("x{round}"));
        proxy.delay(ms(1_000));
        let breaks = async {
            // Meanwhile the first request is under way. If it is not, the round shows nothing.
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

/// The one ahead was refused after the one behind it came; then the store falls silent.
async fn a_refusal_before_an_outage_does_not_count_after_it(rig: Rig) {
    let _guard = rig.client().await.lock("x").lock().await.expect("free");
    let lock = rig.client_with(builder().poll(ms(100)).retry_for(ms(60_000))).await.lock("x");
    let (first, second) = (lock.clone(), lock.clone());
    let ahead = tokio::spawn(async move { first.lock().await });
    until_waiting(&lock, 1).await;
    let behind = tokio::spawn(async move { second.try_lock_for(ms(5_000)).await });
    until_waiting(&lock, 2).await;
    let before = rig.server().calls().await;
    let asked = async || rig.server().calls().await.since(&before).of("evalsha") >= 3;
    eventually("the one ahead is refused again", ms(4_000), asked).await;
    let frozen = Frozen::new(&rig);
    is_unavailable(&behind.await.expect("no panic"));
    ahead.abort();
    drop(frozen);
}

/// Each call ends by what it says, whether its request is not answered or no connection can be made. A file that is busy can still be
/// read.
async fn all_in_time(lock: &turnlock::Lock, hangs_for_readers: bool) {
    for _ in 0..3 {
        let (outcome, took) = timed(lock.try_lock()).await;
        is_unavailable(&outcome);
        assert!(took < IN_TIME, "try_lock took {took:?}");
    }
    let (outcome, took) = timed(lock.is_locked()).await;
    assert!(!hangs_for_readers || outcome.is_err(), "{outcome:?}");
    assert!(took < IN_TIME, "is_locked took {took:?}");
    let (outcome, took) = timed(lock.try_lock_for(ms(600))).await;
    is_unavailable(&outcome);
    assert!(took < ms(600) + IN_TIME, "try_lock_for took {took:?}");
    // Those who wait in one queue do not fail one after the other.
    let waiting = (0..5).map(|_| timed(lock.lock()));
    for (outcome, took) in futures_util::future::join_all(waiting).await {
        is_unavailable(&outcome);
        assert!(took + TIMEOUT >= RETRY_FOR && took < RETRY_FOR + IN_TIME, "lock took {took:?}");
    }
}

/// A connection that takes longer than a response time-out is made all the same.
async fn a_slow_connection_is_made_while_nobody_waits_for_it(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let client = rig.client_at(builder(), &proxy.url()).await;
    // Connecting takes several round trips, an answer one.
    proxy.delay(ms(100));
    proxy.reset_all();
    let lock = client.lock("x");
    eventually("it is granted", ms(15_000), async || matches!(lock.try_lock().await, Ok(Some(_)))).await;
    proxy.reset_all();
    lock.lock().await.expect("the connection is made between two tries").unlock().await.expect("held");
}

/// The same where the server is found by others.
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
                frozen(&client).await;
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
                frozen(&client).await;
                set.nodes()[old].resume();
            },
        ),
    ]
}

/// While another one is promoted, a try is unavailable in time, or granted.
async fn frozen(client: &Client) {
    for number in 0..3 {
        let (outcome, took) = timed(client.lock("x").try_lock()).await;
        assert!(matches!(outcome, Err(Error::Unavailable { .. }) | Ok(Some(_))), "{number}: {outcome:?}");
        assert!(number > 0 || outcome.is_err(), "the server did not freeze");
        assert!(took < IN_TIME, "{number}: try_lock took {took:?}");
    }
}
