//! Java's waiters and ours in one queue.

use std::sync::{Arc, Mutex};

use turnlock::{Error, Guard, Lock, OwnerId};
use turnlock_testkit::{eventually, within};

use super::java::soon;
use super::{JavaCase, LIMIT, LONG, SOON, Visit};
use crate::cases;
use crate::rig::ms;

pub(crate) const CASES: &[JavaCase] = cases![
    eight_waiters_are_served_in_the_order_they_came,
    nobody_pushes_in,
    ours_that_is_cancelled_leaves_at_once,
    ours_that_gives_up_leaves_at_once,
    javas_that_gives_up_leaves_at_once,
    a_waiter_that_is_told_and_leaves_passes_it_on,
];

/// Waits until this is the queue.
pub(super) async fn until_queue(lock: &Lock, expected: &[&str]) {
    eventually("the queue", LIMIT, async || queue(lock).await == expected).await;
}

pub(super) async fn queue(lock: &Lock) -> Vec<String> {
    lock.inspect().await.expect("an answer").queue.iter().map(ToString::to_string).collect()
}

/// Waits until so many stand in the queue.
pub(super) async fn until_queued(lock: &Lock, count: usize) {
    eventually("it stands in the queue", LIMIT, async || queue(lock).await.len() == count).await;
}

/// One of ours that waits.
pub(super) fn wait_for(lock: &Lock) -> tokio::task::JoinHandle<Result<Guard, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

async fn eight_waiters_are_served_in_the_order_they_came(visit: Visit) {
    let name = visit.name();
    let clients = [visit.client().await, visit.client().await];
    let lock = clients[0].lock(&name);
    let held = lock.lease(LONG).lock().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    let mut ours = Vec::new();
    for place in 0..8 {
        let served = Arc::clone(&served);
        if place % 2 == 0 {
            let java = visit.java(&format!("waiter-{place}"));
            let (turn, name) = (java.begins(&name, "lock 60000"), name.clone());
            tasks.push(tokio::spawn(async move {
                turn.await.expect("a turn");
                served.lock().unwrap().push(place);
                java.does(&name, "unlock").await;
            }));
        } else {
            let turn = wait_for(&clients[place / 2 % 2].lock(&name));
            tasks.push(tokio::spawn(async move {
                let guard = turn.await.expect("no panic").expect("a turn");
                served.lock().unwrap().push(place);
                guard.unlock().await.expect("held");
            }));
        }
        until_queued(&lock, place + 1).await;
        ours.push(place % 2 == 1);
    }
    // Both see the same queue, and know their own.
    let seen = lock.inspect().await.expect("an answer");
    let ids = clients.each_ref().map(|client| client.id());
    let is_ours = |waiter: &OwnerId| ids.iter().any(|id| waiter.is_of(*id));
    assert_eq!(seen.queue.iter().map(is_ours).collect::<Vec<_>>(), ours);
    assert_eq!(seen.queue[4].as_str(), visit.owner("waiter-4").await);
    assert_eq!(seen.waiting_here, 2);
    held.unlock().await.expect("held");
    for task in tasks {
        within(LIMIT, "a turn", task).await.expect("no panic");
    }
    assert_eq!(*served.lock().unwrap(), (0..8).collect::<Vec<_>>());
    assert_eq!(queue(&lock).await, [""; 0]);
}

async fn nobody_pushes_in(visit: Visit) {
    let (name, client) = (visit.name(), visit.client().await);
    let lock = client.lock(&name);
    let (one, two) = (visit.java("one"), visit.java("two"));
    one.does(&name, "lock 60000").await;
    // Ours is next, and Java's tries come first each time that the lock is free.
    let turn = wait_for(&lock);
    until_queued(&lock, 1).await;
    one.does(&name, "unlock").await;
    two.says(&name, "tryLock", "false").await;
    let guard = within(SOON, "its turn", turn).await.expect("no panic").expect("a turn");
    // And the other way round.
    let turn = one.begins(&name, "lock 60000");
    until_queue(&lock, &[&visit.owner("one").await]).await;
    guard.unlock().await.expect("held");
    assert!(lock.try_lock().await.expect("an answer").is_none());
    soon(turn).await;
    one.does(&name, "unlock").await;
}

async fn ours_that_is_cancelled_leaves_at_once(visit: Visit) {
    let (name, lock) = (visit.name(), visit.client().await);
    let lock = lock.lock(&name);
    let (one, two) = (visit.java("one"), visit.java("two"));
    one.does(&name, "lock 60000").await;
    let ours = wait_for(&lock);
    until_queued(&lock, 1).await;
    let turn = two.begins(&name, "lock 60000");
    until_queued(&lock, 2).await;
    visit.until_listening(&name, 2).await;
    ours.abort();
    let next = visit.owner("two").await;
    within(SOON, "it is gone", until_queue(&lock, &[&next])).await;
    one.does(&name, "unlock").await;
    soon(turn).await;
    two.does(&name, "unlock").await;
}

async fn ours_that_gives_up_leaves_at_once(visit: Visit) {
    let (name, client) = (visit.name(), visit.client().await);
    let lock = client.lock(&name);
    let (one, two) = (visit.java("one"), visit.java("two"));
    one.does(&name, "lock 60000").await;
    let waiting = lock.clone();
    let ours = tokio::spawn(async move { waiting.try_lock_for(ms(5_000)).await });
    until_queued(&lock, 1).await;
    let turn = two.begins(&name, "lock 60000");
    until_queued(&lock, 2).await;
    assert!(ours.await.expect("no panic").expect("an answer").is_none());
    assert_eq!(queue(&lock).await, [visit.owner("two").await]);
    one.does(&name, "unlock").await;
    soon(turn).await;
    two.does(&name, "unlock").await;
}

async fn javas_that_gives_up_leaves_at_once(visit: Visit) {
    let (name, client) = (visit.name(), visit.client().await);
    let lock = client.lock(&name);
    let held = lock.lease(LONG).lock().await.expect("free");
    let java = visit.java("one").begins(&name, "tryLock 5000 60000");
    until_queued(&lock, 1).await;
    let turn = wait_for(&lock);
    until_queued(&lock, 2).await;
    assert_eq!(java.await.expect("an answer"), "false");
    until_queued(&lock, 1).await;
    held.unlock().await.expect("held");
    let guard = within(SOON, "its turn", turn).await.expect("no panic").expect("a turn");
    guard.unlock().await.expect("held");
}

async fn a_waiter_that_is_told_and_leaves_passes_it_on(visit: Visit) {
    let name = visit.name();
    let (holder, leaver) = (visit.client().await, visit.client().await);
    let lock = holder.lock(&name);
    let java = visit.java("one");
    for pause in [0, 1, 2, 5] {
        let held = lock.lease(LONG).lock().await.expect("free");
        let ours = wait_for(&leaver.lock(&name));
        until_queued(&lock, 1).await;
        let turn = java.begins(&name, "lock 60000");
        until_queued(&lock, 2).await;
        // Cancelled just when it is told that the lock is free, or has just got it.
        held.unlock().await.expect("held");
        tokio::time::sleep(ms(pause)).await;
        ours.abort();
        drop(ours.await);
        soon(turn).await;
        java.does(&name, "unlock").await;
    }
}
