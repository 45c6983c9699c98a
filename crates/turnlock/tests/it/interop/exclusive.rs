//! What every lock that excludes alone has in common with Java's of that kind: lock, fair, fenced, spin and write.

use std::time::Duration;

use futures_util::FutureExt;
use turnlock::{Error, LostReason};
use turnlock_testkit::within;

use super::java::soon;
use super::{JavaCase, LONG, SOON, Visit};
use crate::cases;
use crate::rig::{Kind, keys_of_locks, ms, until_waiting};

pub(crate) const CASES: &[JavaCase] = cases![
    javas_hold_keeps_us_out_and_its_end_wakes_us,
    our_hold_keeps_java_out_and_its_end_wakes_it,
    javas_reentries_are_its_own,
    our_reentries_are_our_own,
    the_end_of_a_lease_lets_the_other_in,
    java_takes_our_lock_by_force,
    we_take_javas_lock_by_force,
    each_sees_who_holds,
];

async fn javas_hold_keeps_us_out_and_its_end_wakes_us(visit: Visit) {
    let (java, client) = (visit.java("one"), visit.client().await);
    for name in visit.names() {
        let lock = client.lock(&name);
        java.does(&name, "lock 60000").await;
        assert!(lock.try_lock().await.expect("an answer").is_none(), "{name}");
        assert!(lock.try_lock_for(ms(50)).await.expect("an answer").is_none(), "{name}");
        let waiting = lock.clone();
        let mut turn = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(&lock, 1).await;
        visit.until_waiting(&name).await;
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        java.does(&name, "unlock").await;
        let guard = within(SOON, "Java's unlock wakes it", turn).await.expect("no panic");
        java.says(&name, "tryLock", "false").await;
        guard.unlock().await.expect("held");
    }
}

async fn our_hold_keeps_java_out_and_its_end_wakes_it(visit: Visit) {
    let (java, client) = (visit.java("one"), visit.client().await);
    for name in visit.names() {
        let guard = client.lock(&name).lease(LONG).lock().await.expect("free");
        java.says(&name, "tryLock", "false").await;
        java.says(&name, "tryLock 50 -1", "false").await;
        java.holds_nothing(&name).await;
        let mut turn = java.begins(&name, "lock 60000");
        visit.until_waiting(&name).await;
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        guard.unlock().await.expect("still held, whatever Java tried");
        soon(turn).await;
        assert!(client.lock(&name).try_lock().await.expect("an answer").is_none());
        java.does(&name, "unlock").await;
    }
}

async fn javas_reentries_are_its_own(visit: Visit) {
    let (java, client, name) = (visit.java("one"), visit.client().await, visit.name());
    let lock = client.lock(&name);
    java.does(&name, "lock 60000").await;
    java.does(&name, "lock 60000").await;
    java.says(&name, "holdCount", "2").await;
    let waiting = lock.clone();
    let mut turn = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    visit.until_waiting(&name).await;
    java.does(&name, "unlock").await;
    java.says(&name, "holdCount", "1").await;
    assert!(lock.try_lock().await.expect("an answer").is_none());
    assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
    java.does(&name, "unlock").await;
    let guard = within(SOON, "the last unlock wakes it", turn).await.expect("no panic");
    java.holds_nothing(&name).await;
    guard.unlock().await.expect("held");
}

async fn our_reentries_are_our_own(visit: Visit) {
    let (java, client, name) = (visit.java("one"), visit.client().await, visit.name());
    let outer = client.lock(&name).lease(LONG).lock().await.expect("free");
    let inner = outer.reenter().await.expect("held");
    java.says(&name, "holdCount", "0").await;
    let mut turn = java.begins(&name, "lock 60000");
    visit.until_waiting(&name).await;
    // In whatever order they end.
    outer.unlock().await.expect("held");
    visit.java("two").says(&name, "tryLock", "false").await;
    assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
    inner.unlock().await.expect("held");
    soon(turn).await;
    java.says(&name, "holdCount", "1").await;
    java.does(&name, "unlock").await;
}

async fn the_end_of_a_lease_lets_the_other_in(visit: Visit) {
    const LEASE: Duration = ms(3_000);
    let (java, client, name) = (visit.java("one"), visit.client().await, visit.name());
    java.does(&name, "lock 3000").await;
    let guard = within(LEASE + SOON, "Java's lease ends", client.lock(&name).lease(LEASE).lock()).await;
    let guard = guard.expect("a turn");
    // Nobody gives it back, and nobody tells.
    let turn = java.begins(&name, "lock 60000");
    assert_eq!(within(LEASE + SOON, "our lease ends here", guard.lost()).await, LostReason::Expired);
    soon(turn).await;
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    java.does(&name, "unlock").await;
}

async fn java_takes_our_lock_by_force(visit: Visit) {
    let (java, name) = (visit.java("one"), visit.name());
    let (holder, waiter) = (visit.hasty_client().await, visit.client().await);
    java.says(&name, "forceUnlock", "false").await;
    let guard = holder.lock(&name).lock().await.expect("free");
    let lock = waiter.lock(&name);
    let waiting = lock.clone();
    let turn = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    visit.until_waiting(&name).await;
    java.says(&name, "forceUnlock", "true").await;
    // With a lease of four seconds, the next renewal is a second and a third away.
    assert_eq!(within(SOON, "the holder hears of it", guard.lost()).await, LostReason::Taken);
    let next = within(SOON, "the next one gets it", turn).await.expect("no panic");
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert!(next.is_valid());
    next.unlock().await.expect("held");
}

async fn we_take_javas_lock_by_force(visit: Visit) {
    let (one, two, name) = (visit.java("one"), visit.java("two"), visit.name());
    let lock = visit.client().await.lock(&name);
    assert!(!lock.force_unlock().await.expect("an answer"));
    one.does(&name, "lock 60000").await;
    let turn = two.begins(&name, "lock 60000");
    visit.until_waiting(&name).await;
    assert!(lock.force_unlock().await.expect("an answer"));
    soon(turn).await;
    one.says(&name, "isHeldByMe", "false").await;
    one.holds_nothing(&name).await;
    two.does(&name, "unlock").await;
    assert!(!lock.is_locked().await.expect("an answer"));
}

async fn each_sees_who_holds(visit: Visit) {
    let (java, client, name) = (visit.java("one"), visit.client().await, visit.name());
    let lock = client.lock(&name);
    java.does(&name, "lock 60000").await;
    java.does(&name, "lock 60000").await;
    let seen = lock.inspect().await.expect("an answer");
    let [holder] = seen.holders.as_slice() else { panic!("one holder, not {:?}", seen.holders) };
    let count = (holder.owner.to_string(), holder.count, holder.is_mine);
    assert_eq!(count, (visit.owner("one").await, 2, false));
    // Java's second write lock adds its lease to the first.
    let longest = if visit.kind == Kind::Write { 2 * LONG } else { LONG };
    assert!(seen.ttl.is_some_and(|ttl| ttl > ms(55_000) && ttl <= longest), "{:?}", seen.ttl);
    java.does(&name, "unlock").await;
    java.does(&name, "unlock").await;
    java.says(&name, "isLocked", "false").await;
    let guard = lock.lease(LONG).lock().await.expect("free");
    java.says(&name, "isLocked", "true").await;
    java.says(&name, "isHeldByMe", "false").await;
    assert!((55_000..=60_000).contains(&java.number(&name, "remainTime").await));
    guard.unlock().await.expect("held");
    java.says(&name, "isLocked", "false").await;
    let keys = keys_of_locks(&mut visit.plain().await).await;
    let is_left = |key: &&String| !key.starts_with("redisson_lock_token");
    assert_eq!(keys.iter().find(is_left), None, "nothing is left");
}
