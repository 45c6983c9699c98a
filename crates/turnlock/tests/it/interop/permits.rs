//! Permits with ids and leases, of Java's and of ours.

use std::time::Duration;

use futures_util::FutureExt;
use turnlock::{Error, LostReason, PermitSemaphore, Permits, Role};
use turnlock_testkit::within;

use super::house::HASTY;
use super::java::soon;
use super::{Java, JavaCase, LONG, SOON, Visit};
use crate::cases;
use crate::rig::ms;

pub(crate) const CASES: &[JavaCase] = cases![
    counts_agree,
    a_permit_of_javas_is_seen_with_its_id,
    a_permit_of_ours_is_known_to_java_by_its_id,
    our_release_wakes_java,
    javas_release_wakes_us,
    a_permit_that_ran_out_is_free_for_the_other,
    a_renewed_permit_outlives_its_lease_while_java_waits,
    a_permit_that_java_released_is_lost_here,
];

async fn scene(visit: &Visit) -> (String, Java, PermitSemaphore) {
    let name = visit.name();
    let java = visit.java("one").at("permits");
    (name.clone(), java, visit.client().await.permit_semaphore(&name))
}

fn wait_for(slots: &PermitSemaphore, count: u32) -> tokio::task::JoinHandle<Permits> {
    let waiting = slots.clone();
    tokio::spawn(async move { waiting.acquire(count).await.expect("a turn") })
}

async fn counts_agree(visit: Visit) {
    let client = visit.client().await;
    for name in visit.names() {
        let (java, slots) = (visit.java("one").at("permits"), client.permit_semaphore(&name));
        java.says(&name, "trySetPermits 4", "true").await;
        assert!(!slots.try_set_permits(9).await.expect("an answer"));
        let javas = java.ask(&name, "acquireSome 2 60000").await;
        let one = slots.lease(LONG).acquire(1).await.expect("one of two");
        java.says(&name, "available", "1").await;
        java.says(&name, "acquired", "3").await;
        assert_eq!(slots.available().await.expect("an answer"), 1);
        assert_eq!(slots.inspect().await.expect("an answer").holders.len(), 3);
        assert!(slots.try_acquire(2).await.expect("an answer").is_none());
        let two = slots.lease(LONG).acquire(1).await.expect("the last one");
        java.says(&name, "tryAcquire", "null").await;
        java.says(&name, "tryAcquire 30 60000", "null").await;
        assert!(slots.try_acquire(1).await.expect("an answer").is_none());
        two.release().await.expect("taken");
        java.does(&name, &format!("releaseSome {javas}")).await;
        java.says(&name, "available", "3").await;
        // By the total, whoever has them.
        java.does(&name, "setPermits 6").await;
        assert_eq!(slots.available().await.expect("an answer"), 5);
        slots.set_permits(3).await.expect("an answer");
        java.says(&name, "available", "2").await;
        slots.add_permits(2).await.expect("an answer");
        java.does(&name, "addPermits 1").await;
        one.release().await.expect("taken");
        java.says(&name, "available", "6").await;
        assert_eq!(slots.available().await.expect("an answer"), 6);
        java.says(&name, "delete", "true").await;
    }
}

async fn a_permit_of_javas_is_seen_with_its_id(visit: Visit) {
    let (name, java, slots) = scene(&visit).await;
    slots.try_set_permits(3).await.expect("an answer");
    let short = java.ask(&name, "acquire 30000").await;
    let endless = java.ask(&name, "acquire").await;
    let ours = slots.lease(LONG).acquire(1).await.expect("free");
    let seen = slots.inspect().await.expect("an answer").holders;
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|holder| holder.role == Role::Permit && holder.count == 1), "{seen:?}");
    let holder = |id: &str| seen.iter().find(|holder| holder.owner.as_str() == id).expect("it is out");
    let ttl = holder(&short).ttl.expect("it has an end");
    assert!(ttl > ms(20_000) && ttl <= ms(30_000), "{ttl:?}");
    assert_eq!(holder(&endless).ttl, None);
    assert!(!holder(&short).is_mine && holder(&ours.ids()[0]).is_mine);
    for id in [short, endless] {
        java.does(&name, &format!("release {id}")).await;
    }
}

async fn a_permit_of_ours_is_known_to_java_by_its_id(visit: Visit) {
    let (name, java, slots) = scene(&visit).await;
    slots.try_set_permits(3).await.expect("an answer");
    let permits = slots.lease(LONG).acquire(3).await.expect("free");
    assert_eq!(permits.ids().len(), 3);
    for id in permits.ids() {
        let left = java.number(&name, &format!("leaseTime {id}")).await;
        assert!((50_000..=60_000).contains(&left), "{left}");
    }
    permits.release().await.expect("taken");
    java.says(&name, "acquired", "0").await;
}

async fn our_release_wakes_java(visit: Visit) {
    for name in visit.names() {
        let (java, slots) = (visit.java("one").at("permits"), visit.client().await.permit_semaphore(&name));
        slots.try_set_permits(1).await.expect("an answer");
        let permit = slots.lease(LONG).acquire(1).await.expect("free");
        let mut turn = java.begins(&name, "acquire 60000");
        visit.until_listening(&name, 1).await;
        assert!((&mut turn).now_or_never().is_none(), "it waits");
        permit.release().await.expect("taken");
        let id = soon(turn).await;
        assert!(slots.try_acquire(1).await.expect("an answer").is_none());
        // More permits are news, too.
        let turn = visit.java("two").at("permits").begins(&name, "acquire 60000");
        visit.until_listening(&name, 1).await;
        slots.add_permits(1).await.expect("an answer");
        soon(turn).await;
        java.does(&name, &format!("release {id}")).await;
    }
}

async fn javas_release_wakes_us(visit: Visit) {
    for name in visit.names() {
        let (java, slots) = (visit.java("one").at("permits"), visit.client().await.permit_semaphore(&name));
        slots.try_set_permits(2).await.expect("an answer");
        let ids = java.ask(&name, "acquireSome 2 60000").await;
        let (first, second) = ids.split_once(',').expect("two of them");
        let mut turn = wait_for(&slots, 2);
        visit.until_listening(&name, 1).await;
        java.does(&name, &format!("release {first}")).await;
        assert_eq!(slots.available().await.expect("an answer"), 1);
        assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
        java.does(&name, &format!("release {second}")).await;
        let permits = within(SOON, "it is told", turn).await.expect("no panic");
        permits.release().await.expect("taken");
    }
}

async fn a_permit_that_ran_out_is_free_for_the_other(visit: Visit) {
    const LEASE: Duration = ms(3_000);
    let (name, java, slots) = scene(&visit).await;
    slots.try_set_permits(1).await.expect("an answer");
    let javas = java.ask(&name, "acquire 3000").await;
    assert!(slots.try_acquire(1).await.expect("an answer").is_none());
    let permit = within(LEASE + SOON, "Java's permit runs out", slots.lease(LEASE).acquire(1)).await;
    let permit = permit.expect("a turn");
    java.says(&name, &format!("tryRelease {javas}"), "false").await;
    let turn = java.begins(&name, "acquire 60000");
    assert_eq!(within(LEASE + SOON, "ours runs out", permit.lost()).await, LostReason::Expired);
    let id = soon(turn).await;
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    java.does(&name, &format!("release {id}")).await;
    java.says(&name, "available", "1").await;
}

async fn a_renewed_permit_outlives_its_lease_while_java_waits(visit: Visit) {
    let (name, java, _) = scene(&visit).await;
    let slots = visit.hasty_client().await.permit_semaphore(&name);
    slots.try_set_permits(1).await.expect("an answer");
    let permit = slots.acquire(1).await.expect("free");
    let mut turn = java.begins(&name, "acquire 60000");
    visit.until_listening(&name, 1).await;
    // Java wakes at each end that it has read, and must find another one.
    let over = tokio::time::timeout(3 * HASTY, &mut turn).await;
    assert!(over.is_err(), "it is still out: {over:?}");
    assert!(permit.is_valid());
    permit.release().await.expect("taken");
    let id = soon(turn).await;
    java.does(&name, &format!("release {id}")).await;
}

async fn a_permit_that_java_released_is_lost_here(visit: Visit) {
    let (name, java, _) = scene(&visit).await;
    let slots = visit.hasty_client().await.permit_semaphore(&name);
    slots.try_set_permits(1).await.expect("an answer");
    let permit = slots.acquire(1).await.expect("free");
    java.does(&name, &format!("release {}", permit.ids()[0])).await;
    assert_eq!(within(SOON, "it is told", permit.lost()).await, LostReason::Taken);
    assert!(matches!(permit.release().await, Err(Error::Lost { .. })));
    java.says(&name, "available", "1").await;
}
