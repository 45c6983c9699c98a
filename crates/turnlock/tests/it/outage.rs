//! A store that hangs: callers are told in time, and it is never taken for a lock that is held.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use turnlock::{Builder, Client, Error, MultiLock, RedLock};
use turnlock_testkit::{ClusterSet, FaultProxy, SentinelSet, eventually, trial};

use crate::rig::{NO_POLL, Rig, ms};
use crate::{Case, LIMIT, cases};

pub(crate) const CASES: &[Case] = cases![
    a_hung_store_is_never_a_held_lock,
    a_hung_store_is_never_a_held_lock_after_a_drop,
    a_hung_store_is_never_a_held_lock_to_an_owner,
    a_hung_store_is_never_a_held_permit_or_group,
    a_hung_store_is_reported_in_time,
    a_connection_that_hangs_is_reported_in_time,
    a_slow_connection_is_made_while_nobody_waits_for_it,
];

/// The cases that other kinds of locks have to go through as well.
pub(crate) const KIND_CASES: &[Case] = cases![
    a_hung_store_is_never_a_held_lock,
    a_hung_store_is_never_a_held_lock_after_a_drop,
    a_hung_store_is_never_a_held_lock_to_an_owner,
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
    rig.server().pause();
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
    rig.server().resume();
    eventually("it is granted again", ms(10_000), async || matches!(lock.try_lock().await, Ok(Some(_))))
        .await;
}

/// The release of a dropped guard gets no answer. Only the store knows whether the lock is still held.
async fn a_hung_store_is_never_a_held_lock_after_a_drop(rig: Rig) {
    let lock = rig.client_with(builder()).await.lock("x");
    let guard = lock.lock().await.expect("free");
    rig.server().pause();
    drop(guard);
    let (first, second, third) = tokio::join!(lock.try_lock(), lock.try_lock(), lock.try_lock_for(ms(50)));
    for outcome in [first, second, third] {
        is_unavailable(&outcome);
    }
    rig.server().resume();
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
    rig.server().pause();
    for _ in 0..2 {
        is_unavailable(&semaphore.try_acquire(1).await);
        is_unavailable(&permits.try_acquire(1).await);
        is_unavailable(&multi.try_lock().await);
        is_unavailable(&red.try_lock().await);
        is_unavailable(&latch.wait_for(ms(10)).await);
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
    rig.server().resume();
}

async fn a_hung_store_is_never_a_held_lock_to_an_owner(rig: Rig) {
    let client = rig.client_with(builder()).await;
    let lock = client.lock("x").owned_by(&client.owner());
    lock.lock().await.expect("free").unlock().await.expect("held");
    rig.server().pause();
    let (first, second, third) = tokio::join!(lock.lock(), lock.try_lock(), lock.try_lock_for(ms(100)));
    is_unavailable(&first);
    is_unavailable(&second);
    is_unavailable(&third);
    rig.server().resume();
}

async fn a_hung_store_is_reported_in_time(rig: Rig) {
    let client = rig.client_with(builder()).await;
    let lock = client.lock("x");
    lock.lock().await.expect("free").unlock().await.expect("held");
    rig.server().pause();
    all_in_time(&lock).await;
    rig.server().resume();
}

async fn a_connection_that_hangs_is_reported_in_time(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let client = rig.client_at(builder(), &proxy.url()).await;
    proxy.black_hole();
    proxy.reset_all();
    all_in_time(&client.lock("x")).await;
}

/// Each call ends by what it says, whether its request is not answered or no connection can be made.
async fn all_in_time(lock: &turnlock::Lock) {
    for _ in 0..3 {
        let (outcome, took) = timed(lock.try_lock()).await;
        is_unavailable(&outcome);
        assert!(took < IN_TIME, "try_lock took {took:?}");
    }
    let (outcome, took) = timed(lock.is_locked()).await;
    is_unavailable(&outcome);
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
