//! What a second look at the family found, and is kept found.

use std::time::{Duration, Instant};

use turnlock::{Client, Error, MultiLock};
use turnlock_testkit::{RedisServer, eventually, within};

use crate::rig::{NO_POLL, PROMPT, Rig, ms};
use crate::{Case, cases};

/// On every store.
pub(super) const CASES: &[Case] = cases![
    names_that_share_a_channel_are_two_locks,
    one_who_reads_after_a_downgrade_is_known,
    a_fair_waiter_that_nobody_polls_is_passed,
    too_many_permits_at_once_are_refused,
];

/// On Redis.
pub(super) const REDIS_CASES: &[Case] = cases![
    a_downgrade_ends_when_the_write_lock_is_lost,
    a_silent_store_does_not_keep_the_other_locks_held,
    callers_share_a_connection_that_cannot_be_made,
];

/// By Redisson's brace rule `n` and `{n}` have one channel and two keys.
async fn names_that_share_a_channel_are_two_locks(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let me = one.owner();
    let name = rig.name();
    let names = [name.clone(), format!("{{{name}}}")];
    let [plain, braced] = names.each_ref().map(|name| one.reentrant(name).owned_by(&me));
    let first = plain.lock().await.expect("free");
    let second = braced.lock().await.expect("another lock");
    assert_eq!((first.hold_count(), second.hold_count(), second.name()), (1, 1, names[1].as_str()));
    assert!(first.is_valid() && second.is_valid());
    assert!(two.reentrant(&names[1]).try_lock().await.expect("an answer").is_none());
    // Each release wakes the waiter of its own lock, though both hear it.
    let waiters = names.each_ref().map(|name| {
        let lock = two.reentrant(name);
        tokio::spawn(async move { lock.lock().await.expect("a turn") })
    });
    for name in &names {
        eventually("it waits", ms(20_000), async || {
            two.reentrant(name).inspect().await.is_ok_and(|seen| seen.waiting_here == 1)
        })
        .await;
    }
    let [wait_plain, wait_braced] = waiters;
    second.unlock().await.expect("held");
    let braced = within(PROMPT, "the second is woken", wait_braced).await.expect("no panic");
    assert!(first.is_valid() && braced.is_valid());
    first.unlock().await.expect("held");
    drop(within(PROMPT, "the first is woken", wait_plain).await.expect("no panic"));
}

async fn one_who_reads_after_a_downgrade_is_known(rig: Rig) {
    let client = rig.client().await;
    let me = client.owner();
    let lock = client.read_write_lock(&rig.name()).owned_by(&me);
    let reader = lock.write().lock().await.expect("free").downgrade().await.expect("held");
    assert!(lock.read().is_held_by(&me).await.expect("an answer"));
    let again = within(PROMPT, "it reads already", lock.read().lock()).await.expect("the same owner");
    assert_eq!(again.hold_count(), 2);
    let error =
        within(PROMPT, "it is told", lock.write().lock()).await.expect_err("it would wait for itself");
    assert!(matches!(error, Error::WouldDeadlock { .. }), "{error}");
    drop((reader, again));
}

/// A future that is kept and not polled, as in a `select!` loop that does other things, has a place in the queue.
async fn a_fair_waiter_that_nobody_polls_is_passed(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.fair_lock(&name), rig.client().await.fair_lock(&name));
    let held = one.lock().await.expect("free");
    let mut asleep = Box::pin(two.lock());
    let enter = async {
        while two.inspect().await.expect("an answer").queue.is_empty() {
            assert!(tokio::time::timeout(ms(20), &mut asleep).await.is_err(), "it is held");
        }
    };
    within(ms(20_000), "it waits", enter).await;
    held.unlock().await.expect("held");
    let next = within(ms(15_000), "those behind it pass", one.lock()).await.expect("a turn");
    next.unlock().await.expect("held");
    within(ms(15_000), "it queues again", asleep).await.expect("a turn").unlock().await.expect("held");
}

async fn too_many_permits_at_once_are_refused(rig: Rig) {
    let slots = rig.client().await.permit_semaphore(&rig.name());
    for many in [10_001, 2_000_000_000, u32::MAX] {
        let error = slots.try_acquire(many).await.expect_err("too many");
        assert!(matches!(error, Error::BadConfiguration { .. }), "{error}");
    }
}

async fn a_downgrade_ends_when_the_write_lock_is_lost(rig: Rig) {
    let settings = Client::builder().poll(NO_POLL).response_timeout(ms(300)).connect_timeout(ms(300));
    let client = rig.client_with(settings).await;
    let lock = client.read_write_lock(&rig.name()).lease(ms(1_500));
    let writer = lock.write().lock().await.expect("free");
    rig.server().pause();
    let outcome = within(ms(10_000), "it ends with the lease", writer.downgrade()).await;
    rig.server().resume();
    assert!(outcome.is_err());
    let writer = within(ms(20_000), "nothing is left behind", lock.write().lock()).await.expect("free");
    writer.unlock().await.expect("held");
}

async fn a_silent_store_does_not_keep_the_other_locks_held(rig: Rig) {
    let silent = RedisServer::start().await;
    let settings = || Client::builder().poll(NO_POLL).response_timeout(ms(500)).connect_timeout(ms(5_000));
    let here = rig.client_with(settings()).await;
    let there = settings().connect(&silent.url()).await.expect("a server");
    let name = rig.name();
    let both = MultiLock::new([here.reentrant(&name), there.lock("away")]).expect("two locks");
    let other = rig.client().await.reentrant(&name);
    silent.pause();
    let waiting = tokio::spawn(async move { both.lock().await.map(drop) });
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    // However often it takes the one that answers, it gives it back soon.
    while start.elapsed() < ms(4_000) {
        let asked = Instant::now();
        let guard = within(PROMPT, "the lock that answers is given back", other.lock()).await;
        longest = longest.max(asked.elapsed());
        guard.expect("a turn").unlock().await.expect("held");
    }
    println!("kept from others for {longest:?} at the most");
    silent.resume();
    waiting.abort();
}

async fn callers_share_a_connection_that_cannot_be_made(mut rig: Rig) {
    let settings = Client::builder().connect_timeout(ms(500)).retry_for(ms(1)).response_timeout(ms(300));
    let client = rig.client_with(settings).await;
    rig.server().pause();
    let start = Instant::now();
    let tries = (0..20).map(|number| {
        let lock = client.reentrant(&format!("free:{number}"));
        tokio::spawn(async move { lock.try_lock().await.map(drop) })
    });
    for outcome in tries.collect::<Vec<_>>() {
        assert!(outcome.await.expect("no panic").is_err());
    }
    let took = start.elapsed();
    rig.server_mut().resume();
    assert!(took < ms(6_000), "twenty callers, one after the other: {took:?}");
}
