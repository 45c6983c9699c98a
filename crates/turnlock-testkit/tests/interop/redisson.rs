//! Cases for Redisson.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;
use tokio::time::timeout;
use turnlock_testkit::{PeerError, PeerThread, RedisServer, Redisson, eventually, within};

use crate::CaseFuture;

const LIMIT: Duration = Duration::from_secs(10);
/// Many times longer than a round trip, to show that there is none.
const QUIET: Duration = Duration::from_millis(150);

type Case = (&'static str, fn(&'static str) -> CaseFuture);

pub(crate) const CASES: &[Case] = &[
    ("threads_own_locks", |version| Box::pin(threads_own_locks(version))),
    ("a_blocked_waiter_acquires_after_the_release", |version| {
        Box::pin(a_blocked_waiter_acquires_after_the_release(version))
    }),
    ("a_killed_process_leaves_its_lock", |version| Box::pin(a_killed_process_leaves_its_lock(version))),
    ("every_object_replies", |version| Box::pin(every_object_replies(version))),
    ("no_acquire_of_concurrent_threads_is_lost", |version| {
        Box::pin(no_acquire_of_concurrent_threads_is_lost(version))
    }),
];
pub(crate) const CLOCK_CASE: Case =
    ("the_clock_can_be_shifted", |version| Box::pin(the_clock_can_be_shifted(version)));

/// Sends a request and asserts its reply.
async fn expect(thread: &PeerThread, request: &str, reply: &str) {
    let actual = thread.call(request).await.unwrap_or_else(|error| panic!("{request}: {error}"));
    assert_eq!(actual, reply, "{request}");
}

async fn threads_own_locks(version: &str) {
    let server = RedisServer::start().await;
    let redisson = Redisson::start(version, &server.url()).await;
    let (one, two) = (redisson.thread("one"), redisson.thread("two"));
    expect(&one, "lock orders lock", "-").await;
    expect(&one, "lock orders tryLock", "true").await;
    expect(&two, "lock orders tryLock 50 -1", "false").await;
    let fields: Vec<(String, u32)> = server.client().await.hgetall("orders").await.expect("a hash");
    assert_eq!(fields, [(redisson.owner("one").await, 2)]);
    let error = two.call("lock orders unlock").await.expect_err("not held");
    assert_eq!(error.name, "IllegalMonitorStateException");
    let error = two.call("lock orders fly").await.expect_err("no such method");
    assert_eq!(error.name, "UnsupportedOperationException");
    expect(&one, "lock orders unlock", "-").await;
    expect(&one, "lock orders unlock", "-").await;
    expect(&one, "lock orders isLocked", "false").await;
}

async fn a_blocked_waiter_acquires_after_the_release(version: &str) {
    let server = RedisServer::start().await;
    let redisson = Redisson::start(version, &server.url()).await;
    let (one, two) = (redisson.thread("one"), redisson.thread("two"));
    expect(&one, "fair q lock", "-").await;
    let mut acquire = two.begin("fair q lock 60000");
    let owner = redisson.owner("two").await;
    let mut connection = server.client().await;
    eventually("the thread is queued", LIMIT, async || {
        let queue: Vec<String> =
            connection.clone().lrange("redisson_lock_queue:{q}", 0, -1).await.expect("a queue");
        queue == [owner.clone()]
    })
    .await;
    assert!(timeout(QUIET, &mut acquire).await.is_err(), "the thread still waits");
    expect(&one, "fair q unlock", "-").await;
    within(LIMIT, "the lock is acquired", acquire).await.expect("acquired");
    assert!(connection.hexists::<_, _, bool>("q", &owner).await.expect("a reply"));

    let acquire = one.begin("fair q tryLock 60000 -1");
    eventually("the thread is queued", LIMIT, async || {
        connection.clone().llen::<_, u32>("redisson_lock_queue:{q}").await.expect("a queue") == 1
    })
    .await;
    redisson.interrupt("one").await;
    let error = within(LIMIT, "the wait is interrupted", acquire).await.expect_err("interrupted");
    // Redisson wraps the exception if the interrupt comes during a request and not during a wait.
    assert!(error.to_string().contains("InterruptedException"), "{error}");
}

async fn a_killed_process_leaves_its_lock(version: &str) {
    let server = RedisServer::start().await;
    let mut redisson = Redisson::start_with(version, &server.url(), Duration::from_millis(900), 0).await;
    let pid = redisson.pid();
    expect(&redisson.thread("one"), "lock orders lock", "-").await;
    // Longer than the time-out: the watchdog has renewed the lock.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mut connection = server.client().await;
    assert!((1..=900).contains(&connection.pttl::<_, i64>("orders").await.expect("a reply")));
    let waiting = redisson.thread("two").begin("lock orders lock");
    redisson.kill().await;
    assert!(!std::fs::exists(format!("/proc/{pid}")).expect("readable"), "the process has exited");
    assert_eq!(within(LIMIT, "the call fails", waiting).await.expect_err("ended").name, PeerError::ENDED);
    let late = redisson.thread("one").call("lock orders unlock").await;
    assert_eq!(late.expect_err("ended").name, PeerError::ENDED);
    assert!(connection.exists::<_, bool>("orders").await.expect("a reply"), "it is not released");
    let is_expired = async || connection.clone().exists("orders").await.is_ok_and(|exists: bool| !exists);
    eventually("its lease ends", LIMIT, is_expired).await;
}

async fn every_object_replies(version: &str) {
    let server = RedisServer::start().await;
    let redisson = Redisson::start(version, &server.url()).await;
    let one = redisson.thread("one");
    for (request, reply) in [
        ("fenced f lockAndGetToken", "1"),
        ("fenced f tryLock", "true"),
        ("fenced f getToken", "2"),
        ("fenced f holdCount", "2"),
        ("spin s lock 60000", "-"),
        ("spin s isHeldByMe", "true"),
        ("write rw lock 60000", "-"),
        ("read rw lock", "-"),
        ("write rw unlock", "-"),
        ("read rw isLocked", "true"),
        ("read rw forceUnlock", "true"),
        ("fair q tryLockAsync 1000 60000", "true"),
        ("fair q unlock", "-"),
        ("multi a,b,c lock 60000", "-"),
        ("multi a,b,c unlock", "-"),
        ("multi a,b,c tryLock 100 60000", "true"),
        ("semaphore sem trySetPermits 3", "true"),
        ("semaphore sem acquire 2", "-"),
        ("semaphore sem tryAcquire 2 20", "false"),
        ("semaphore sem release 1", "-"),
        ("semaphore sem addPermits 5", "-"),
        ("semaphore sem availablePermits", "7"),
        ("semaphore sem drainPermits", "7"),
        ("permits p trySetPermits 2", "true"),
        ("permits p tryRelease 00112233445566778899aabbccddeeff", "false"),
        ("permits p available", "2"),
        ("latch l trySetCount 1", "true"),
        ("latch l await 20", "false"),
        ("latch l countDown", "-"),
        ("latch l await", "-"),
        ("latch l getCount", "0"),
    ] {
        expect(&one, request, reply).await;
    }
    let left: u32 = one.call("lock b remainTime").await.expect("a reply").parse().expect("a number");
    assert!((1..=60_000).contains(&left), "{left}");
    let permit = one.call("permits p acquire 60000").await.expect("a permit");
    assert_eq!(permit.len(), 32);
    expect(&one, &format!("permits p updateLease {permit} 50000"), "true").await;
    expect(&one, &format!("permits p release {permit}"), "-").await;
    let error = one.call(&format!("permits p release {permit}")).await.expect_err("released before");
    assert!(error.message.contains("IllegalArgumentException"), "{error}");
    let two = one.call("permits p acquireSome 2 60000").await.expect("two permits");
    expect(&one, "permits p tryAcquire 20 60000", "null").await;
    expect(&one, &format!("permits p releaseSome {two}"), "-").await;
}

async fn no_acquire_of_concurrent_threads_is_lost(version: &str) {
    let server = RedisServer::start().await;
    let redisson = Redisson::start(version, &server.url()).await;
    let one = redisson.thread("one");
    for kind in ["semaphore", "permits"] {
        expect(&one, &format!("{kind} {kind} trySetPermits 1"), "true").await;
    }
    for kind in ["lock", "fair", "write", "fenced", "spin", "semaphore", "permits"] {
        expect(&one, &format!("herd {kind} {kind} count:{kind} 4 10"), "40").await;
        let count: u32 = server.client().await.get(format!("count:{kind}")).await.expect("a counter");
        assert_eq!(count, 40, "{kind}");
    }
}

async fn the_clock_can_be_shifted(version: &str) {
    let server = RedisServer::start().await;
    for ahead in [3_600, -3_600] {
        let redisson = Redisson::start_with(version, &server.url(), LIMIT, ahead).await;
        let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        let offset = redisson.now().await - i64::try_from(here).expect("in range");
        assert!((offset - ahead * 1_000).abs() < 5_000, "the clock is {offset} ms ahead");
    }
}
