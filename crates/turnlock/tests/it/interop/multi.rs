//! Several locks as one: Java acquires the members one after the other, turnlock all at once.

use futures_util::FutureExt;
use redis::AsyncCommands;
use turnlock::{Client, MultiGuard, MultiLock};
use turnlock_testkit::within;

use super::java::woken;
use super::{Context, JavaCase, LONG_LEASE, SETUP_LIMIT, WAKE_UP_LIMIT};
use crate::cases;
use crate::fixture::lock_keys;

pub(crate) const CASES: &[JavaCase] = cases![
    javas_multi_lock_excludes_ours_and_its_release_wakes_it,
    our_multi_lock_excludes_javas_and_its_release_wakes_it,
    one_held_member_excludes_the_other,
    java_force_unlocks_one_member,
    opposed_member_orders_lose_no_increment,
];

/// Three locks: the names as Java takes them together, the single names, a client, and a multi lock of them.
async fn setup(context: &Context) -> (String, [String; 3], Client, MultiLock) {
    let names = [context.name(), context.name(), context.name()];
    let client: Client = (*context.client().await).clone();
    let multi = MultiLock::new(names.iter().map(|name| client.lock(name))).expect("a good set");
    (names.join(","), names, client, multi)
}

fn spawn_lock(multi: &MultiLock) -> tokio::task::JoinHandle<MultiGuard> {
    let multi = multi.clone();
    tokio::spawn(async move { multi.lock().await.expect("a turn") })
}

async fn assert_no_keys(context: &Context) {
    assert_eq!(lock_keys(&mut context.plain().await).await, [""; 0], "nothing is left");
}

async fn javas_multi_lock_excludes_ours_and_its_release_wakes_it(context: Context) {
    let (all, names, client, multi) = setup(&context).await;
    let java = context.java("one").at("multi");
    java.run(&all, "lock 60000").await;
    assert!(multi.try_lock().await.expect("a reply").is_busy());
    for name in &names {
        assert!(client.lock(name).try_lock().await.expect("a reply").is_busy());
        let holders = client.lock(name).inspect().await.expect("a reply").holders;
        assert_eq!(holders[0].owner.as_str(), context.owner("one").await);
    }
    let mut turn = spawn_lock(&multi);
    context.until_subscribed("job-", 1).await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    java.run(&all, "unlock").await;
    let guard = within(WAKE_UP_LIMIT, "it is notified", turn).await.expect("no panic");
    assert_eq!(guard.held(), 3);
    guard.unlock().await.expect("held");
    assert_no_keys(&context).await;
}

async fn our_multi_lock_excludes_javas_and_its_release_wakes_it(context: Context) {
    let (all, names, _, multi) = setup(&context).await;
    let (java, single) = (context.java("one").at("multi"), context.java("two").at("lock"));
    let guard = multi.with_lease(LONG_LEASE).lock().await.expect("free");
    java.expect(&all, "tryLock", "false").await;
    java.expect(&all, "tryLock 50 60000", "false").await;
    for name in &names {
        single.expect(name, "tryLock", "false").await;
    }
    let mut turn = java.start(&all, "lock 60000");
    context.until_subscribed(&names[0], 1).await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    guard.unlock().await.expect("held");
    woken(turn).await;
    assert!(multi.try_lock().await.expect("a reply").is_busy());
    java.run(&all, "unlock").await;
    assert_no_keys(&context).await;
}

async fn one_held_member_excludes_the_other(context: Context) {
    let (all, names, client, multi) = setup(&context).await;
    let (java, single) = (context.java("one").at("multi"), context.java("two").at("lock"));
    single.run(&names[1], "lock 60000").await;
    assert!(multi.try_lock().await.expect("a reply").is_busy());
    let mut turn = spawn_lock(&multi);
    context.until_subscribed(&names[1], 1).await;
    // A waiting multi lock holds no member: the others are free for Java.
    context.java("three").at("lock").run(&names[0], "lock 60000").await;
    context.java("three").at("lock").run(&names[0], "unlock").await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    single.run(&names[1], "unlock").await;
    within(WAKE_UP_LIMIT, "it is notified", turn).await.expect("no panic").unlock().await.expect("held");
    // The other way round.
    let guard = client.lock(&names[1]).with_lease(LONG_LEASE).lock().await.expect("free");
    java.expect(&all, "tryLock", "false").await;
    java.expect(&all, "tryLock 50 60000", "false").await;
    assert!(!client.lock(&names[0]).is_locked().await.expect("a reply"), "Java has released it");
    guard.unlock().await.expect("held");
    java.expect(&all, "tryLock", "true").await;
    java.run(&all, "unlock").await;
    assert_no_keys(&context).await;
}

async fn java_force_unlocks_one_member(context: Context) {
    let (_, names, _, _) = setup(&context).await;
    let client = context.short_lease_client().await;
    let multi = MultiLock::new(names.iter().map(|name| client.lock(name))).expect("a good set");
    let guard = multi.lock().await.expect("free");
    context.java("one").at("lock").expect(&names[2], "forceUnlock", "true").await;
    let lost = within(WAKE_UP_LIMIT, "it is notified", guard.lost()).await;
    assert_eq!((lost.member, lost.name.as_str()), (2, names[2].as_str()));
    assert!(guard.unlock().await.is_err());
    for name in &names {
        context.java("one").at("lock").expect(name, "tryLock", "true").await;
        context.java("one").at("lock").run(name, "unlock").await;
    }
}

async fn opposed_member_orders_lose_no_increment(context: Context) {
    const TURNS: usize = 50;
    let (_, [one, two, three], _, multi) = setup(&context).await;
    let counter = context.name();
    let request = format!("herd multi {three},{two},{one} {counter} 2 {TURNS}");
    let javas = context.redisson().thread(&counter).begin(&request);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (multi, mut plain, counter) = (multi.clone(), context.plain().await, counter.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..TURNS {
                let guard = multi.lock().await.expect("a turn");
                let before: Option<usize> = plain.get(&counter).await.expect("a number");
                let _: () = plain.set(&counter, before.unwrap_or_default() + 1).await.expect("written");
                guard.unlock().await.expect("held");
            }
        }));
    }
    for task in tasks {
        within(4 * SETUP_LIMIT, "our turns", task).await.expect("no panic");
    }
    assert_eq!(within(4 * SETUP_LIMIT, "Java's turns", javas).await.as_deref(), Ok("100"));
    let count: usize = context.plain().await.get(&counter).await.expect("a counter");
    assert_eq!(count, 4 * TURNS);
}
