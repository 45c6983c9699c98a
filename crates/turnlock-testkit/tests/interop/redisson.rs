//! What a driven Redisson does.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::AsyncCommands;
use tokio::time::timeout;
use turnlock_testkit::{PeerError, PeerThread, RedisServer, Redisson, eventually, within};

use crate::Running;

const LIMIT: Duration = Duration::from_secs(10);
/// Long enough for a round trip many times over, where the absence of one is to be shown.
const QUIET: Duration = Duration::from_millis(150);

type Case = (&'static str, fn(&'static str) -> Running);

pub(crate) const CASES: &[Case] = &[
    ("its_threads_own_locks", |version| Box::pin(its_threads_own_locks(version))),
    ("a_blocked_waiter_gets_its_turn", |version| Box::pin(a_blocked_waiter_gets_its_turn(version))),
    ("a_killed_one_leaves_its_lock", |version| Box::pin(a_killed_one_leaves_its_lock(version))),
    ("every_object_answers", |version| Box::pin(every_object_answers(version))),
    ("a_herd_loses_no_turn", |version| Box::pin(a_herd_loses_no_turn(version))),
];
pub(crate) const CLOCK_CASE: Case =
    ("its_clock_may_be_wrong", |version| Box::pin(its_clock_may_be_wrong(version)));

/// Calls and expects a certain answer.
async fn tell(thread: &PeerThread, request: &str, answer: &str) {
    let told = thread.call(request).await.unwrap_or_else(|error| panic!("{request}: {error}"));
    assert_eq!(told, answer, "{request}");
}

async fn its_threads_own_locks(version: &str) {
    let server = RedisServer::start().await;
    let redisson = Redisson::start(version, &server.url()).await;
    let (one, two) = (redisson.thread("one"), redisson.thread("two"));
    tell(&one, "lock orders lock", "-").await;
    tell(&one, "lock orders tryLock", "true").await;
    tell(&two, "lock orders tryLock 50 -1", "false").await;
    let fields: Vec<(String, u32)> = server.client().await.hgetall("orders").await.expect("a hash");
    assert_eq!(fields, [(redisson.owner("one").await, 2)]);
    let error = two.call("lock orders unlock").await.expect_err("not held");
    assert_eq!(error.name, "IllegalMonitorStateException");
    let error = two.call("lock orders fly").await.expect_err("there is no such thing");
    assert_eq!(error.name, "UnsupportedOperationException");
    tell(&one, "lock orders unlock", "-").await;
    tell(&one, "lock orders unlock", "-").await;
    tell(&one, "lock orders isLocked", "false").await;
}

async fn a_blocked_waiter_gets_its_turn(version: &str) {
    let server = RedisServer::start().await;
    let redisson = Redisson::start(version, &server.url()).await;
    let (one, two) = (redisson.thread("one"), redisson.thread("two"));
    tell(&one, "fair q lock", "-").await;
    let mut turn = two.begin("fair q lock 60000");
    let owner = redisson.owner("two").await;
    let mut plain = server.client().await;
    eventually("it waits", LIMIT, async || {
        let queue: Vec<String> =
            plain.clone().lrange("redisson_lock_queue:{q}", 0, -1).await.expect("a queue");
        queue == [owner.clone()]
    })
    .await;
    assert!(timeout(QUIET, &mut turn).await.is_err(), "it waits on");
    tell(&one, "fair q unlock", "-").await;
    within(LIMIT, "its turn", turn).await.expect("its turn");
    assert!(plain.hexists::<_, _, bool>("q", &owner).await.expect("an answer"));

    let turn = one.begin("fair q tryLock 60000 -1");
    eventually("it waits", LIMIT, async || {
        plain.clone().llen::<_, u32>("redisson_lock_queue:{q}").await.expect("a queue") == 1
    })
    .await;
    redisson.interrupt("one").await;
    let error = within(LIMIT, "it was interrupted", turn).await.expect_err("it was interrupted");
    // Redisson wraps it where it was just talking to the server, and not asleep.
    assert!(error.to_string().contains("InterruptedException"), "{error}");
}

async fn a_killed_one_leaves_its_lock(version: &str) {
    let server = RedisServer::start().await;
    let mut redisson = Redisson::start_with(version, &server.url(), Duration::from_millis(900), 0).await;
    let pid = redisson.pid();
    tell(&redisson.thread("one"), "lock orders lock", "-").await;
    // Longer than the timeout: the watchdog is at work.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mut plain = server.client().await;
    assert!((1..=900).contains(&plain.pttl::<_, i64>("orders").await.expect("an answer")));
    let waiting = redisson.thread("two").begin("lock orders lock");
    redisson.kill().await;
    assert!(!std::fs::exists(format!("/proc/{pid}")).expect("can look"), "the process is gone");
    assert_eq!(within(LIMIT, "the end", waiting).await.expect_err("the end").name, PeerError::ENDED);
    let late = redisson.thread("one").call("lock orders unlock").await;
    assert_eq!(late.expect_err("the end").name, PeerError::ENDED);
    assert!(plain.exists::<_, bool>("orders").await.expect("an answer"), "nobody released it");
    let is_gone = async || plain.clone().exists("orders").await.is_ok_and(|there: bool| !there);
    eventually("its lease ends", LIMIT, is_gone).await;
}

async fn every_object_answers(version: &str) {
    let server = RedisServer::start().await;
    let redisson = Redisson::start(version, &server.url()).await;
    let one = redisson.thread("one");
    for (request, answer) in [
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
        tell(&one, request, answer).await;
    }
    let left: u32 = one.call("lock b remainTime").await.expect("an answer").parse().expect("a number");
    assert!((1..=60_000).contains(&left), "{left}");
    let permit = one.call("permits p acquire 60000").await.expect("a permit");
    assert_eq!(permit.len(), 32);
    tell(&one, &format!("permits p updateLease {permit} 50000"), "true").await;
    tell(&one, &format!("permits p release {permit}"), "-").await;
    let gone = one.call(&format!("permits p release {permit}")).await.expect_err("it is gone");
    assert!(gone.message.contains("IllegalArgumentException"), "{gone}");
    let two = one.call("permits p acquireSome 2 60000").await.expect("two permits");
    tell(&one, "permits p tryAcquire 20 60000", "null").await;
    tell(&one, &format!("permits p releaseSome {two}"), "-").await;
}

async fn a_herd_loses_no_turn(version: &str) {
    let server = RedisServer::start().await;
    let redisson = Redisson::start(version, &server.url()).await;
    let one = redisson.thread("one");
    for kind in ["semaphore", "permits"] {
        tell(&one, &format!("{kind} {kind} trySetPermits 1"), "true").await;
    }
    for kind in ["lock", "fair", "write", "fenced", "spin", "semaphore", "permits"] {
        tell(&one, &format!("herd {kind} {kind} count:{kind} 4 10"), "40").await;
        let count: u32 = server.client().await.get(format!("count:{kind}")).await.expect("a counter");
        assert_eq!(count, 40, "{kind}");
    }
}

async fn its_clock_may_be_wrong(version: &str) {
    let server = RedisServer::start().await;
    for ahead in [3_600, -3_600] {
        let redisson = Redisson::start_with(version, &server.url(), LIMIT, ahead).await;
        let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        let apart = redisson.now().await - i64::try_from(here).expect("not that late");
        assert!((apart - ahead * 1_000).abs() < 5_000, "its clock is {apart} ms ahead");
    }
}
