//! One number of permits, counted by Java and by us.

use futures_util::FutureExt;
use turnlock::{Permits, Semaphore};
use turnlock_testkit::{Answer, within};

use super::java::soon;
use super::{Java, JavaCase, SOON, Visit};
use crate::cases;
use crate::rig::ms;

pub(crate) const CASES: &[JavaCase] = cases![
    counts_agree,
    our_release_wakes_java,
    javas_release_wakes_us,
    one_who_wants_two_waits_for_both,
    added_permits_wake_the_other_side,
];

async fn scene(visit: &Visit) -> (String, Java, Semaphore) {
    let name = visit.name();
    let java = visit.java("one").at("semaphore");
    (name.clone(), java, visit.client().await.semaphore(&name))
}

/// One of ours that waits for permits.
async fn wait_for(visit: &Visit, slots: &Semaphore, count: u32) -> tokio::task::JoinHandle<Permits> {
    let waiting = slots.clone();
    let mut turn = tokio::spawn(async move { waiting.acquire(count).await.expect("a turn") });
    visit.until_listening(slots.name(), 1).await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    turn
}

/// Java waits for permits.
async fn java_waits(visit: &Visit, java: &Java, name: &str, count: u32) -> Answer {
    let mut turn = java.begins(name, &format!("acquire {count}"));
    visit.until_listening(name, 1).await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    turn
}

async fn ours(turn: tokio::task::JoinHandle<Permits>) -> Permits {
    within(SOON, "it is told", turn).await.expect("no panic")
}

async fn counts_agree(visit: Visit) {
    let client = visit.client().await;
    for name in visit.names() {
        let (java, slots) = (visit.java("one").at("semaphore"), client.semaphore(&name));
        java.says(&name, "tryAcquire 1", "false").await;
        assert!(slots.try_acquire(1).await.expect("an answer").is_none());
        java.says(&name, "trySetPermits 5", "true").await;
        assert!(!slots.try_set_permits(9).await.expect("an answer"));
        assert_eq!(slots.available().await.expect("an answer"), 5);
        java.does(&name, "acquire 2").await;
        let two = slots.acquire(2).await.expect("two of three");
        java.says(&name, "availablePermits", "1").await;
        assert_eq!(slots.inspect().await.expect("an answer").available, Some(1));
        java.says(&name, "tryAcquire 2", "false").await;
        java.says(&name, "tryAcquire 2 30", "false").await;
        assert!(slots.try_acquire(2).await.expect("an answer").is_none());
        assert!(slots.try_acquire_for(2, ms(30)).await.expect("an answer").is_none());
        java.says(&name, "tryAcquire 1", "true").await;
        two.release().await.expect("taken");
        java.says(&name, "availablePermits", "2").await;
        // What Java took may be given back by us, and the other way round.
        assert_eq!(slots.release(3).await.expect("an answer"), 5);
        slots.acquire(2).await.expect("free").forget();
        java.does(&name, "release 2").await;
        assert_eq!(slots.drain().await.expect("an answer"), 5);
        java.says(&name, "availablePermits", "0").await;
        java.does(&name, "addPermits 3").await;
        java.says(&name, "drainPermits", "3").await;
        assert_eq!(slots.available().await.expect("an answer"), 0);
        assert!(slots.delete().await.expect("an answer"));
        assert!(slots.try_set_permits(1).await.expect("an answer"));
        java.says(&name, "trySetPermits 2", "false").await;
        java.says(&name, "delete", "true").await;
        assert_eq!(slots.inspect().await.expect("an answer").available, None);
    }
}

async fn our_release_wakes_java(visit: Visit) {
    for name in visit.names() {
        let (java, slots) = (visit.java("one").at("semaphore"), visit.client().await.semaphore(&name));
        slots.try_set_permits(1).await.expect("an answer");
        let permit = slots.acquire(1).await.expect("free");
        let turn = java_waits(&visit, &java, &name, 1).await;
        permit.release().await.expect("taken");
        soon(turn).await;
        // A guard that is dropped, and one who never had a guard.
        java.does(&name, "release 1").await;
        let permit = slots.acquire(1).await.expect("free");
        let turn = java_waits(&visit, &java, &name, 1).await;
        drop(permit);
        soon(turn).await;
        let turn = java_waits(&visit, &java, &name, 1).await;
        slots.release(1).await.expect("an answer");
        soon(turn).await;
    }
}

async fn javas_release_wakes_us(visit: Visit) {
    for name in visit.names() {
        let (java, slots) = (visit.java("one").at("semaphore"), visit.client().await.semaphore(&name));
        java.says(&name, "trySetPermits 1", "true").await;
        java.does(&name, "acquire 1").await;
        let turn = wait_for(&visit, &slots, 1).await;
        java.does(&name, "release 1").await;
        ours(turn).await.release().await.expect("taken");
        java.says(&name, "availablePermits", "1").await;
    }
}

async fn one_who_wants_two_waits_for_both(visit: Visit) {
    let (name, java, slots) = scene(&visit).await;
    slots.try_set_permits(2).await.expect("an answer");
    let (first, second) = (slots.acquire(1).await.expect("free"), slots.acquire(1).await.expect("free"));
    let mut turn = java_waits(&visit, &java, &name, 2).await;
    first.release().await.expect("taken");
    visit.java("two").at("semaphore").says(&name, "availablePermits", "1").await;
    assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
    second.release().await.expect("taken");
    soon(turn).await;
    let mut turn = wait_for(&visit, &slots, 2).await;
    java.does(&name, "release 1").await;
    assert_eq!(slots.available().await.expect("an answer"), 1);
    assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
    java.does(&name, "release 1").await;
    assert_eq!(ours(turn).await.count(), 2);
}

async fn added_permits_wake_the_other_side(visit: Visit) {
    let (name, java, slots) = scene(&visit).await;
    let turn = java_waits(&visit, &java, &name, 1).await;
    // The first number is a number that is added, too.
    assert!(slots.try_set_permits(1).await.expect("an answer"));
    soon(turn).await;
    let turn = java_waits(&visit, &java, &name, 2).await;
    assert_eq!(slots.add_permits(2).await.expect("an answer"), 2);
    soon(turn).await;
    let turn = wait_for(&visit, &slots, 2).await;
    java.does(&name, "addPermits 2").await;
    ours(turn).await.release().await.expect("taken");
    assert_eq!(slots.drain().await.expect("an answer"), 2);
    java.says(&name, "delete", "true").await;
    let turn = wait_for(&visit, &slots, 1).await;
    java.says(&name, "trySetPermits 1", "true").await;
    ours(turn).await.release().await.expect("taken");
}
