//! A semaphore whose permits Java and turnlock acquire and release.

use futures_util::FutureExt;
use turnlock::{Permits, Semaphore};
use turnlock_testkit::{PendingReply, within};

use super::java::woken;
use super::{Context, Java, JavaCase, WAKE_UP_LIMIT};
use crate::cases;
use crate::fixture::ms;

pub(crate) const CASES: &[JavaCase] = cases![
    counts_agree,
    our_release_wakes_java,
    javas_release_wakes_us,
    an_acquire_of_two_waits_for_both,
    added_permits_wake_the_other_side,
];

async fn setup(context: &Context) -> (String, Java, Semaphore) {
    let name = context.name();
    let java = context.java("one").at("semaphore");
    (name.clone(), java, context.client().await.semaphore(&name))
}

/// Spawns a task that waits for permits.
async fn spawn_acquire(context: &Context, slots: &Semaphore, count: u32) -> tokio::task::JoinHandle<Permits> {
    let waiting = slots.clone();
    let mut turn = tokio::spawn(async move { waiting.acquire(count).await.expect("a turn") });
    context.until_subscribed(slots.name(), 1).await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    turn
}

/// Starts a Java thread that waits for permits.
async fn start_java_acquire(context: &Context, java: &Java, name: &str, count: u32) -> PendingReply {
    let mut turn = java.start(name, &format!("acquire {count}"));
    context.until_subscribed(name, 1).await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    turn
}

async fn granted(turn: tokio::task::JoinHandle<Permits>) -> Permits {
    within(WAKE_UP_LIMIT, "it is notified", turn).await.expect("no panic")
}

async fn counts_agree(context: Context) {
    let client = context.client().await;
    for name in context.names() {
        let (java, slots) = (context.java("one").at("semaphore"), client.semaphore(&name));
        java.expect(&name, "tryAcquire 1", "false").await;
        assert!(slots.try_acquire(1).await.expect("a reply").is_busy());
        java.expect(&name, "trySetPermits 5", "true").await;
        assert!(!slots.try_set_permits(9).await.expect("a reply"));
        assert_eq!(slots.available().await.expect("a reply"), 5);
        java.run(&name, "acquire 2").await;
        let two = slots.acquire(2).await.expect("two of three");
        java.expect(&name, "availablePermits", "1").await;
        assert_eq!(slots.inspect().await.expect("a reply").available, Some(1));
        java.expect(&name, "tryAcquire 2", "false").await;
        java.expect(&name, "tryAcquire 2 30", "false").await;
        assert!(slots.try_acquire(2).await.expect("a reply").is_busy());
        assert!(slots.try_acquire_for(2, ms(30)).await.expect("a reply").is_busy());
        java.expect(&name, "tryAcquire 1", "true").await;
        two.release().await.expect("held");
        java.expect(&name, "availablePermits", "2").await;
        // We can release what Java acquired, and the other way round.
        assert_eq!(slots.release(3).await.expect("a reply"), 5);
        slots.acquire(2).await.expect("free").detach();
        java.run(&name, "release 2").await;
        assert_eq!(slots.drain().await.expect("a reply"), 5);
        java.expect(&name, "availablePermits", "0").await;
        java.run(&name, "addPermits 3").await;
        java.expect(&name, "drainPermits", "3").await;
        assert_eq!(slots.available().await.expect("a reply"), 0);
        assert!(slots.delete().await.expect("a reply"));
        assert!(slots.try_set_permits(1).await.expect("a reply"));
        java.expect(&name, "trySetPermits 2", "false").await;
        java.expect(&name, "delete", "true").await;
        assert_eq!(slots.inspect().await.expect("a reply").available, None);
    }
}

async fn our_release_wakes_java(context: Context) {
    for name in context.names() {
        let (java, slots) = (context.java("one").at("semaphore"), context.client().await.semaphore(&name));
        slots.try_set_permits(1).await.expect("a reply");
        let permit = slots.acquire(1).await.expect("free");
        let turn = start_java_acquire(&context, &java, &name, 1).await;
        permit.release().await.expect("held");
        woken(turn).await;
        // A dropped guard, and a release without a guard.
        java.run(&name, "release 1").await;
        let permit = slots.acquire(1).await.expect("free");
        let turn = start_java_acquire(&context, &java, &name, 1).await;
        drop(permit);
        woken(turn).await;
        let turn = start_java_acquire(&context, &java, &name, 1).await;
        slots.release(1).await.expect("a reply");
        woken(turn).await;
    }
}

async fn javas_release_wakes_us(context: Context) {
    for name in context.names() {
        let (java, slots) = (context.java("one").at("semaphore"), context.client().await.semaphore(&name));
        java.expect(&name, "trySetPermits 1", "true").await;
        java.run(&name, "acquire 1").await;
        let turn = spawn_acquire(&context, &slots, 1).await;
        java.run(&name, "release 1").await;
        granted(turn).await.release().await.expect("held");
        java.expect(&name, "availablePermits", "1").await;
    }
}

async fn an_acquire_of_two_waits_for_both(context: Context) {
    let (name, java, slots) = setup(&context).await;
    slots.try_set_permits(2).await.expect("a reply");
    let (first, second) = (slots.acquire(1).await.expect("free"), slots.acquire(1).await.expect("free"));
    let mut turn = start_java_acquire(&context, &java, &name, 2).await;
    first.release().await.expect("held");
    context.java("two").at("semaphore").expect(&name, "availablePermits", "1").await;
    assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
    second.release().await.expect("held");
    woken(turn).await;
    let mut turn = spawn_acquire(&context, &slots, 2).await;
    java.run(&name, "release 1").await;
    assert_eq!(slots.available().await.expect("a reply"), 1);
    assert!((&mut turn).now_or_never().is_none(), "one of two is not enough");
    java.run(&name, "release 1").await;
    assert_eq!(granted(turn).await.count(), 2);
}

async fn added_permits_wake_the_other_side(context: Context) {
    let (name, java, slots) = setup(&context).await;
    let turn = start_java_acquire(&context, &java, &name, 1).await;
    // Setting the first number of permits wakes waiters as well.
    assert!(slots.try_set_permits(1).await.expect("a reply"));
    woken(turn).await;
    let turn = start_java_acquire(&context, &java, &name, 2).await;
    assert_eq!(slots.add_permits(2).await.expect("a reply"), 2);
    woken(turn).await;
    let turn = spawn_acquire(&context, &slots, 2).await;
    java.run(&name, "addPermits 2").await;
    granted(turn).await.release().await.expect("held");
    assert_eq!(slots.drain().await.expect("a reply"), 2);
    java.expect(&name, "delete", "true").await;
    let turn = spawn_acquire(&context, &slots, 1).await;
    java.expect(&name, "trySetPermits 1", "true").await;
    granted(turn).await.release().await.expect("held");
}
