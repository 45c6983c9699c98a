//! Several locks as one, taken by Java one after the other and by us at once.

use futures_util::FutureExt;
use redis::AsyncCommands;
use turnlock::{Client, MultiGuard, MultiLock};
use turnlock_testkit::within;

use super::java::soon;
use super::{JavaCase, LIMIT, LONG, SOON, Visit};
use crate::cases;
use crate::rig::keys_of_locks;

pub(crate) const CASES: &[JavaCase] = cases![
    javas_multi_lock_keeps_ours_out_and_its_end_wakes_it,
    our_multi_lock_keeps_javas_out_and_its_end_wakes_it,
    one_member_is_enough_to_keep_the_other_out,
    java_ends_one_member_by_force,
    turns_in_opposed_orders_lose_none,
];

/// Three locks: as Java names them together, one by one, and as one of ours.
async fn scene(visit: &Visit) -> (String, [String; 3], Client, MultiLock) {
    let names = [visit.name(), visit.name(), visit.name()];
    let client: Client = (*visit.client().await).clone();
    let multi = MultiLock::new(names.iter().map(|name| client.lock(name))).expect("a good set");
    (names.join(","), names, client, multi)
}

fn wait_for(multi: &MultiLock) -> tokio::task::JoinHandle<MultiGuard> {
    let multi = multi.clone();
    tokio::spawn(async move { multi.lock().await.expect("a turn") })
}

async fn nothing_is_left(visit: &Visit) {
    assert_eq!(keys_of_locks(&mut visit.plain().await).await, [""; 0], "nothing is left");
}

async fn javas_multi_lock_keeps_ours_out_and_its_end_wakes_it(visit: Visit) {
    let (all, names, client, multi) = scene(&visit).await;
    let java = visit.java("one").at("multi");
    java.does(&all, "lock 60000").await;
    assert!(multi.try_lock().await.expect("an answer").is_none());
    for name in &names {
        assert!(client.lock(name).try_lock().await.expect("an answer").is_none());
        let holders = client.lock(name).inspect().await.expect("an answer").holders;
        assert_eq!(holders[0].owner.as_str(), visit.owner("one").await);
    }
    let mut turn = wait_for(&multi);
    visit.until_listening("job-", 1).await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    java.does(&all, "unlock").await;
    let guard = within(SOON, "it is told", turn).await.expect("no panic");
    assert_eq!(guard.held(), 3);
    guard.unlock().await.expect("held");
    nothing_is_left(&visit).await;
}

async fn our_multi_lock_keeps_javas_out_and_its_end_wakes_it(visit: Visit) {
    let (all, names, _, multi) = scene(&visit).await;
    let (java, single) = (visit.java("one").at("multi"), visit.java("two").at("lock"));
    let guard = multi.lease(LONG).lock().await.expect("free");
    java.says(&all, "tryLock", "false").await;
    java.says(&all, "tryLock 50 60000", "false").await;
    for name in &names {
        single.says(name, "tryLock", "false").await;
    }
    let mut turn = java.begins(&all, "lock 60000");
    visit.until_listening(&names[0], 1).await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    guard.unlock().await.expect("held");
    soon(turn).await;
    assert!(multi.try_lock().await.expect("an answer").is_none());
    java.does(&all, "unlock").await;
    nothing_is_left(&visit).await;
}

async fn one_member_is_enough_to_keep_the_other_out(visit: Visit) {
    let (all, names, client, multi) = scene(&visit).await;
    let (java, single) = (visit.java("one").at("multi"), visit.java("two").at("lock"));
    single.does(&names[1], "lock 60000").await;
    assert!(multi.try_lock().await.expect("an answer").is_none());
    let mut turn = wait_for(&multi);
    visit.until_listening(&names[1], 1).await;
    // Who waits holds nothing: the others are free for Java.
    visit.java("three").at("lock").does(&names[0], "lock 60000").await;
    visit.java("three").at("lock").does(&names[0], "unlock").await;
    assert!((&mut turn).now_or_never().is_none(), "it waits");
    single.does(&names[1], "unlock").await;
    within(SOON, "it is told", turn).await.expect("no panic").unlock().await.expect("held");
    // And the other way round.
    let guard = client.lock(&names[1]).lease(LONG).lock().await.expect("free");
    java.says(&all, "tryLock", "false").await;
    java.says(&all, "tryLock 50 60000", "false").await;
    assert!(!client.lock(&names[0]).is_locked().await.expect("an answer"), "Java has given it back");
    guard.unlock().await.expect("held");
    java.says(&all, "tryLock", "true").await;
    java.does(&all, "unlock").await;
    nothing_is_left(&visit).await;
}

async fn java_ends_one_member_by_force(visit: Visit) {
    let (_, names, _, _) = scene(&visit).await;
    let client = visit.hasty_client().await;
    let multi = MultiLock::new(names.iter().map(|name| client.lock(name))).expect("a good set");
    let guard = multi.lock().await.expect("free");
    visit.java("one").at("lock").says(&names[2], "forceUnlock", "true").await;
    let lost = within(SOON, "it is told", guard.lost()).await;
    assert_eq!((lost.member, lost.name.as_str()), (2, names[2].as_str()));
    assert!(guard.unlock().await.is_err());
    for name in &names {
        visit.java("one").at("lock").says(name, "tryLock", "true").await;
        visit.java("one").at("lock").does(name, "unlock").await;
    }
}

async fn turns_in_opposed_orders_lose_none(visit: Visit) {
    const TURNS: usize = 50;
    let (_, [one, two, three], _, multi) = scene(&visit).await;
    let counter = visit.name();
    let request = format!("herd multi {three},{two},{one} {counter} 2 {TURNS}");
    let javas = visit.redisson().thread(&counter).begin(&request);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let (multi, mut plain, counter) = (multi.clone(), visit.plain().await, counter.clone());
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
        within(4 * LIMIT, "our turns", task).await.expect("no panic");
    }
    assert_eq!(within(4 * LIMIT, "Java's turns", javas).await.as_deref(), Ok("100"));
    let count: usize = visit.plain().await.get(&counter).await.expect("a counter");
    assert_eq!(count, 4 * TURNS);
}
