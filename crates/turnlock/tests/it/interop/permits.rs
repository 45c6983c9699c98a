//! Permits with ids and leases, of Java and of turnlock.

use std::time::Duration;

use futures_util::FutureExt;
use turnlock::{Error, LostReason, PermitSemaphore, Permits, Role};
use turnlock_testkit::within;

use super::environment::SHORT_WATCHDOG;
use super::java::woken;
use super::{Context, Java, JavaCase, LONG_LEASE, WAKE_UP_LIMIT};
use crate::cases;
use crate::fixture::ms;

pub(crate) const CASES: &[JavaCase] = cases![
    counts_agree,
    a_java_permit_is_listed_with_its_id,
    a_permit_of_ours_is_known_to_java_by_its_id,
    our_release_wakes_java,
    javas_release_wakes_us,
    an_expired_permit_is_free_for_the_other,
    a_renewed_permit_outlives_its_lease_while_java_waits,
    a_permit_that_java_released_is_lost_here,
];

async fn setup(context: &Context) -> (String, Java, PermitSemaphore) {
    let name = context.name();
    let java = context.java("one").at("permits");
    (name.clone(), java, context.client().await.permit_semaphore(&name))
}

fn spawn_acquire(slots: &PermitSemaphore, count: u32) -> tokio::task::JoinHandle<Permits> {
    let waiting = slots.clone();
    tokio::spawn(async move { waiting.acquire(count).await.expect("a turn") })
}

async fn counts_agree(context: Context) {
    let client = context.client().await;
    for name in context.names() {
        let (java, slots) = (context.java("one").at("permits"), client.permit_semaphore(&name));
        java.expect(&name, "trySetPermits 4", "true").await;
        assert!(!slots.try_set_permits(9).await.expect("a reply"));
        let javas = java.call_ok(&name, "acquireSome 2 60000").await;
        let one = slots.with_lease(LONG_LEASE).acquire(1).await.expect("one of two");
        java.expect(&name, "available", "1").await;
        java.expect(&name, "acquired", "3").await;
        assert_eq!(slots.available().await.expect("a reply"), 1);
        assert_eq!(slots.inspect().await.expect("a reply").holders.len(), 3);
        assert!(slots.try_acquire(2).await.expect("a reply").is_busy());
        let two = slots.with_lease(LONG_LEASE).acquire(1).await.expect("the last one");
        java.expect(&name, "tryAcquire", "null").await;
        java.expect(&name, "tryAcquire 30 60000", "null").await;
        assert!(slots.try_acquire(1).await.expect("a reply").is_busy());
        two.release().await.expect("held");
        java.run(&name, &format!("releaseSome {javas}")).await;
        java.expect(&name, "available", "3").await;
        // These set the total, whatever is acquired.
        java.run(&name, "setPermits 6").await;
        assert_eq!(slots.available().await.expect("a reply"), 5);
        slots.set_permits(3).await.expect("a reply");
        java.expect(&name, "available", "2").await;
        slots.add_permits(2).await.expect("a reply");
        java.run(&name, "addPermits 1").await;
        one.release().await.expect("held");
        java.expect(&name, "available", "6").await;
        assert_eq!(slots.available().await.expect("a reply"), 6);
        java.expect(&name, "delete", "true").await;
    }
}

async fn a_java_permit_is_listed_with_its_id(context: Context) {
    let (name, java, slots) = setup(&context).await;
    slots.try_set_permits(3).await.expect("a reply");
    let short = java.call_ok(&name, "acquire 30000").await;
    let endless = java.call_ok(&name, "acquire").await;
    let ours = slots.with_lease(LONG_LEASE).acquire(1).await.expect("free");
    let seen = slots.inspect().await.expect("a reply").holders;
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|holder| holder.role == Role::Permit && holder.count == 1), "{seen:?}");
    let holder = |id: &str| seen.iter().find(|holder| holder.owner.as_str() == id).expect("it is acquired");
    let ttl = holder(&short).ttl.expect("it has an end");
    assert!(ttl > ms(20_000) && ttl <= ms(30_000), "{ttl:?}");
    assert_eq!(holder(&endless).ttl, None);
    assert!(!holder(&short).is_mine && holder(&ours.ids()[0]).is_mine);
    for id in [short, endless] {
        java.run(&name, &format!("release {id}")).await;
    }
}

async fn a_permit_of_ours_is_known_to_java_by_its_id(context: Context) {
    let (name, java, slots) = setup(&context).await;
    slots.try_set_permits(3).await.expect("a reply");
    let permits = slots.with_lease(LONG_LEASE).acquire(3).await.expect("free");
    assert_eq!(permits.ids().len(), 3);
    for id in permits.ids() {
        let left = java.number(&name, &format!("leaseTime {id}")).await;
        assert!((50_000..=60_000).contains(&left), "{left}");
    }
    permits.release().await.expect("held");
    java.expect(&name, "acquired", "0").await;
}

async fn our_release_wakes_java(context: Context) {
    for name in context.names() {
        let (java, slots) =
            (context.java("one").at("permits"), context.client().await.permit_semaphore(&name));
        slots.try_set_permits(1).await.expect("a reply");
        let permit = slots.with_lease(LONG_LEASE).acquire(1).await.expect("free");
        let mut turn = java.start(&name, "acquire 60000");
        context.until_subscribed(&name, 1).await;
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        permit.release().await.expect("held");
        let id = woken(turn).await;
        assert!(slots.try_acquire(1).await.expect("a reply").is_busy());
        // Added permits wake waiters too.
        let turn = context.java("two").at("permits").start(&name, "acquire 60000");
        context.until_subscribed(&name, 1).await;
        slots.add_permits(1).await.expect("a reply");
        woken(turn).await;
        java.run(&name, &format!("release {id}")).await;
    }
}

async fn javas_release_wakes_us(context: Context) {
    for name in context.names() {
        let (java, slots) =
            (context.java("one").at("permits"), context.client().await.permit_semaphore(&name));
        slots.try_set_permits(2).await.expect("a reply");
        let ids = java.call_ok(&name, "acquireSome 2 60000").await;
        let (first, second) = ids.split_once(',').expect("two of them");
        let mut turn = spawn_acquire(&slots, 2);
        context.until_subscribed(&name, 1).await;
        java.run(&name, &format!("release {first}")).await;
        assert_eq!(slots.available().await.expect("a reply"), 1);
        assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
        java.run(&name, &format!("release {second}")).await;
        let permits = within(WAKE_UP_LIMIT, "it is notified", turn).await.expect("no panic");
        permits.release().await.expect("held");
    }
}

async fn an_expired_permit_is_free_for_the_other(context: Context) {
    const LEASE: Duration = ms(3_000);
    let (name, java, slots) = setup(&context).await;
    slots.try_set_permits(1).await.expect("a reply");
    let javas = java.call_ok(&name, "acquire 3000").await;
    assert!(slots.try_acquire(1).await.expect("a reply").is_busy());
    let permit =
        within(LEASE + WAKE_UP_LIMIT, "Java's permit expires", slots.with_lease(LEASE).acquire(1)).await;
    let permit = permit.expect("a turn");
    java.expect(&name, &format!("tryRelease {javas}"), "false").await;
    let turn = java.start(&name, "acquire 60000");
    assert_eq!(within(LEASE + WAKE_UP_LIMIT, "our permit expires", permit.lost()).await, LostReason::Expired);
    let id = woken(turn).await;
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    java.run(&name, &format!("release {id}")).await;
    java.expect(&name, "available", "1").await;
}

async fn a_renewed_permit_outlives_its_lease_while_java_waits(context: Context) {
    let (name, java, _) = setup(&context).await;
    let slots = context.short_lease_client().await.permit_semaphore(&name);
    slots.try_set_permits(1).await.expect("a reply");
    let permit = slots.acquire(1).await.expect("free");
    let mut turn = java.start(&name, "acquire 60000");
    context.until_subscribed(&name, 1).await;
    // Java wakes at each expiry that it has read, and must find a later one.
    let over = tokio::time::timeout(3 * SHORT_WATCHDOG, &mut turn).await;
    assert!(over.is_err(), "it is still acquired: {over:?}");
    assert!(permit.is_valid());
    permit.release().await.expect("held");
    let id = woken(turn).await;
    java.run(&name, &format!("release {id}")).await;
}

async fn a_permit_that_java_released_is_lost_here(context: Context) {
    let (name, java, _) = setup(&context).await;
    let slots = context.short_lease_client().await.permit_semaphore(&name);
    slots.try_set_permits(1).await.expect("a reply");
    let permit = slots.acquire(1).await.expect("free");
    java.run(&name, &format!("release {}", permit.ids()[0])).await;
    assert_eq!(within(WAKE_UP_LIMIT, "it is notified", permit.lost()).await, LostReason::Taken);
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    java.expect(&name, "available", "1").await;
}
