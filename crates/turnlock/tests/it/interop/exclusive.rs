//! Behaviour that each exclusive lock shares with Redisson's of that kind: lock, fair, fenced, spin and write.

use std::time::Duration;

use futures_util::FutureExt;
use turnlock::{Error, LostReason};
use turnlock_testkit::within;

use super::java::woken;
use super::{Context, JavaCase, LONG_LEASE, WAKE_UP_LIMIT};
use crate::cases;
use crate::fixture::{Kind, lock_keys, ms, until_waiting};

pub(crate) const CASES: &[JavaCase] = cases![
    a_java_hold_excludes_us_and_its_release_wakes_us,
    our_hold_excludes_java_and_its_release_wakes_it,
    java_reentries_count_for_java_alone,
    our_reentries_count_for_us_alone,
    an_expired_lease_frees_the_lock_for_the_other,
    java_force_unlocks_our_hold,
    we_force_unlock_javas_hold,
    each_sees_the_holder,
];

async fn a_java_hold_excludes_us_and_its_release_wakes_us(context: Context) {
    let (java, client) = (context.java("one"), context.client().await);
    for name in context.names() {
        let lock = client.lock(&name);
        java.run(&name, "lock 60000").await;
        assert!(lock.try_lock().await.expect("a reply").is_busy(), "{name}");
        assert!(lock.try_lock_for(ms(50)).await.expect("a reply").is_busy(), "{name}");
        let waiting = lock.clone();
        let mut turn = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(&lock, 1).await;
        context.until_waiting(&name).await;
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        java.run(&name, "unlock").await;
        let guard = within(WAKE_UP_LIMIT, "Java's unlock wakes it", turn).await.expect("no panic");
        java.expect(&name, "tryLock", "false").await;
        guard.unlock().await.expect("held");
    }
}

async fn our_hold_excludes_java_and_its_release_wakes_it(context: Context) {
    let (java, client) = (context.java("one"), context.client().await);
    for name in context.names() {
        let guard = client.lock(&name).with_lease(LONG_LEASE).lock().await.expect("free");
        java.expect(&name, "tryLock", "false").await;
        java.expect(&name, "tryLock 50 -1", "false").await;
        java.expect_not_held(&name).await;
        let mut turn = java.start(&name, "lock 60000");
        context.until_waiting(&name).await;
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        guard.unlock().await.expect("still held, whatever Java tried");
        woken(turn).await;
        assert!(client.lock(&name).try_lock().await.expect("a reply").is_busy());
        java.run(&name, "unlock").await;
    }
}

async fn java_reentries_count_for_java_alone(context: Context) {
    let (java, client, name) = (context.java("one"), context.client().await, context.name());
    let lock = client.lock(&name);
    java.run(&name, "lock 60000").await;
    java.run(&name, "lock 60000").await;
    java.expect(&name, "holdCount", "2").await;
    let waiting = lock.clone();
    let mut turn = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    context.until_waiting(&name).await;
    java.run(&name, "unlock").await;
    java.expect(&name, "holdCount", "1").await;
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
    java.run(&name, "unlock").await;
    let guard = within(WAKE_UP_LIMIT, "the last unlock wakes it", turn).await.expect("no panic");
    java.expect_not_held(&name).await;
    guard.unlock().await.expect("held");
}

async fn our_reentries_count_for_us_alone(context: Context) {
    let (java, client, name) = (context.java("one"), context.client().await, context.name());
    let outer = client.lock(&name).with_lease(LONG_LEASE).lock().await.expect("free");
    let inner = outer.reenter().await.expect("held");
    java.expect(&name, "holdCount", "0").await;
    let mut turn = java.start(&name, "lock 60000");
    context.until_waiting(&name).await;
    // Released in either order.
    outer.unlock().await.expect("held");
    context.java("two").expect(&name, "tryLock", "false").await;
    assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
    inner.unlock().await.expect("held");
    woken(turn).await;
    java.expect(&name, "holdCount", "1").await;
    java.run(&name, "unlock").await;
}

async fn an_expired_lease_frees_the_lock_for_the_other(context: Context) {
    const LEASE: Duration = ms(3_000);
    let (java, client, name) = (context.java("one"), context.client().await, context.name());
    java.run(&name, "lock 3000").await;
    let guard =
        within(LEASE + WAKE_UP_LIMIT, "Java's lease ends", client.lock(&name).with_lease(LEASE).lock()).await;
    let guard = guard.expect("a turn");
    // It is never released, so no message is published.
    let turn = java.start(&name, "lock 60000");
    assert_eq!(within(LEASE + WAKE_UP_LIMIT, "our lease ends here", guard.lost()).await, LostReason::Expired);
    woken(turn).await;
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    java.run(&name, "unlock").await;
}

async fn java_force_unlocks_our_hold(context: Context) {
    let (java, name) = (context.java("one"), context.name());
    let (holder, waiter) = (context.short_lease_client().await, context.client().await);
    java.expect(&name, "forceUnlock", "false").await;
    let guard = holder.lock(&name).lock().await.expect("free");
    let lock = waiter.lock(&name);
    let waiting = lock.clone();
    let turn = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    context.until_waiting(&name).await;
    java.expect(&name, "forceUnlock", "true").await;
    // With a lease of four seconds, the next renewal is at most a second and a third away.
    assert_eq!(within(WAKE_UP_LIMIT, "the holder is notified", guard.lost()).await, LostReason::Taken);
    let next = within(WAKE_UP_LIMIT, "the next waiter is granted it", turn).await.expect("no panic");
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert!(next.is_valid());
    next.unlock().await.expect("held");
}

async fn we_force_unlock_javas_hold(context: Context) {
    let (one, two, name) = (context.java("one"), context.java("two"), context.name());
    let lock = context.client().await.lock(&name);
    assert!(!lock.force_unlock().await.expect("a reply"));
    one.run(&name, "lock 60000").await;
    let turn = two.start(&name, "lock 60000");
    context.until_waiting(&name).await;
    assert!(lock.force_unlock().await.expect("a reply"));
    woken(turn).await;
    one.expect(&name, "isHeldByMe", "false").await;
    one.expect_not_held(&name).await;
    two.run(&name, "unlock").await;
    assert!(!lock.is_locked().await.expect("a reply"));
}

async fn each_sees_the_holder(context: Context) {
    let (java, client, name) = (context.java("one"), context.client().await, context.name());
    let lock = client.lock(&name);
    java.run(&name, "lock 60000").await;
    java.run(&name, "lock 60000").await;
    let seen = lock.inspect().await.expect("a reply");
    let [holder] = seen.holders.as_slice() else { panic!("one holder, not {:?}", seen.holders) };
    let count = (holder.owner.to_string(), holder.count, holder.is_mine);
    assert_eq!(count, (context.owner("one").await, 2, false));
    // Redisson's reentrant write lock adds its lease to the first.
    let longest = if context.kind == Kind::Write { 2 * LONG_LEASE } else { LONG_LEASE };
    assert!(seen.ttl.is_some_and(|ttl| ttl > ms(55_000) && ttl <= longest), "{:?}", seen.ttl);
    java.run(&name, "unlock").await;
    java.run(&name, "unlock").await;
    java.expect(&name, "isLocked", "false").await;
    let guard = lock.with_lease(LONG_LEASE).lock().await.expect("free");
    java.expect(&name, "isLocked", "true").await;
    java.expect(&name, "isHeldByMe", "false").await;
    assert!((55_000..=60_000).contains(&java.number(&name, "remainTime").await));
    guard.unlock().await.expect("held");
    java.expect(&name, "isLocked", "false").await;
    let keys = lock_keys(&mut context.plain().await).await;
    let is_left = |key: &&String| !key.starts_with("redisson_lock_token");
    assert_eq!(keys.iter().find(is_left), None, "nothing is left");
}
