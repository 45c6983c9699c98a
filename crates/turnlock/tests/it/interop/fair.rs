//! Java waiters and turnlock waiters in one fair queue.

use std::sync::{Arc, Mutex};

use turnlock::{Error, Guard, Lock, OwnerId};
use turnlock_testkit::{eventually, within};

use super::java::woken;
use super::{Context, JavaCase, LONG_LEASE, SETUP_LIMIT, WAKE_UP_LIMIT};
use crate::cases;
use crate::fixture::ms;

pub(crate) const CASES: &[JavaCase] = cases![
    eight_waiters_are_served_in_arrival_order,
    no_client_overtakes_the_queue,
    our_cancelled_waiter_leaves_the_queue_at_once,
    our_timed_out_waiter_leaves_the_queue_at_once,
    javas_timed_out_waiter_leaves_the_queue_at_once,
    a_notified_waiter_that_leaves_wakes_the_next,
];

/// Waits until the queue is as expected.
pub(super) async fn until_queue(lock: &Lock, expected: &[&str]) {
    eventually("the queue", SETUP_LIMIT, async || queue(lock).await == expected).await;
}

pub(super) async fn queue(lock: &Lock) -> Vec<String> {
    lock.inspect().await.expect("a reply").queue.iter().map(ToString::to_string).collect()
}

/// Waits until `count` waiters are in the queue.
pub(super) async fn until_queued(lock: &Lock, count: usize) {
    eventually("it is in the queue", SETUP_LIMIT, async || queue(lock).await.len() == count).await;
}

/// Spawns a task that waits for the lock.
pub(super) fn spawn_lock(lock: &Lock) -> tokio::task::JoinHandle<Result<Guard, Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

async fn eight_waiters_are_served_in_arrival_order(context: Context) {
    let name = context.name();
    let clients = [context.client().await, context.client().await];
    let lock = clients[0].lock(&name);
    let held = lock.with_lease(LONG_LEASE).lock().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    let mut ours = Vec::new();
    for position in 0..8 {
        let served = Arc::clone(&served);
        if position % 2 == 0 {
            let java = context.java(&format!("waiter-{position}"));
            let (turn, name) = (java.start(&name, "lock 60000"), name.clone());
            tasks.push(tokio::spawn(async move {
                turn.await.expect("a turn");
                served.lock().unwrap().push(position);
                java.run(&name, "unlock").await;
            }));
        } else {
            let turn = spawn_lock(&clients[position / 2 % 2].lock(&name));
            tasks.push(tokio::spawn(async move {
                let guard = turn.await.expect("no panic").expect("a turn");
                served.lock().unwrap().push(position);
                guard.unlock().await.expect("held");
            }));
        }
        until_queued(&lock, position + 1).await;
        ours.push(position % 2 == 1);
    }
    // Both sides see the same queue, and recognize their own waiters.
    let seen = lock.inspect().await.expect("a reply");
    let ids = clients.each_ref().map(|client| client.id());
    let is_ours = |waiter: &OwnerId| ids.iter().any(|id| waiter.belongs_to(*id));
    assert_eq!(seen.queue.iter().map(is_ours).collect::<Vec<_>>(), ours);
    assert_eq!(seen.queue[4].as_str(), context.owner("waiter-4").await);
    assert_eq!(seen.waiting_here, 2);
    held.unlock().await.expect("held");
    for task in tasks {
        within(SETUP_LIMIT, "a turn", task).await.expect("no panic");
    }
    assert_eq!(*served.lock().unwrap(), (0..8).collect::<Vec<_>>());
    assert_eq!(queue(&lock).await, [""; 0]);
}

async fn no_client_overtakes_the_queue(context: Context) {
    let (name, client) = (context.name(), context.client().await);
    let lock = client.lock(&name);
    let (one, two) = (context.java("one"), context.java("two"));
    one.run(&name, "lock 60000").await;
    // Ours is next in the queue, and Java tries first whenever the lock is free.
    let turn = spawn_lock(&lock);
    until_queued(&lock, 1).await;
    one.run(&name, "unlock").await;
    two.expect(&name, "tryLock", "false").await;
    let guard = within(WAKE_UP_LIMIT, "its turn", turn).await.expect("no panic").expect("a turn");
    // The other way round.
    let turn = one.start(&name, "lock 60000");
    until_queue(&lock, &[&context.owner("one").await]).await;
    guard.unlock().await.expect("held");
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    woken(turn).await;
    one.run(&name, "unlock").await;
}

async fn our_cancelled_waiter_leaves_the_queue_at_once(context: Context) {
    let (name, lock) = (context.name(), context.client().await);
    let lock = lock.lock(&name);
    let (one, two) = (context.java("one"), context.java("two"));
    one.run(&name, "lock 60000").await;
    let ours = spawn_lock(&lock);
    until_queued(&lock, 1).await;
    let turn = two.start(&name, "lock 60000");
    until_queued(&lock, 2).await;
    context.until_subscribed(&name, 2).await;
    ours.abort();
    let next = context.owner("two").await;
    within(WAKE_UP_LIMIT, "it has left the queue", until_queue(&lock, &[&next])).await;
    one.run(&name, "unlock").await;
    woken(turn).await;
    two.run(&name, "unlock").await;
}

async fn our_timed_out_waiter_leaves_the_queue_at_once(context: Context) {
    let (name, client) = (context.name(), context.client().await);
    let lock = client.lock(&name);
    let (one, two) = (context.java("one"), context.java("two"));
    one.run(&name, "lock 60000").await;
    let waiting = lock.clone();
    let ours = tokio::spawn(async move { waiting.try_lock_for(ms(5_000)).await });
    until_queued(&lock, 1).await;
    let turn = two.start(&name, "lock 60000");
    until_queued(&lock, 2).await;
    assert!(ours.await.expect("no panic").expect("a reply").is_busy());
    assert_eq!(queue(&lock).await, [context.owner("two").await]);
    one.run(&name, "unlock").await;
    woken(turn).await;
    two.run(&name, "unlock").await;
}

async fn javas_timed_out_waiter_leaves_the_queue_at_once(context: Context) {
    let (name, client) = (context.name(), context.client().await);
    let lock = client.lock(&name);
    let held = lock.with_lease(LONG_LEASE).lock().await.expect("free");
    let java = context.java("one").start(&name, "tryLock 5000 60000");
    until_queued(&lock, 1).await;
    let turn = spawn_lock(&lock);
    until_queued(&lock, 2).await;
    assert_eq!(java.await.expect("a reply"), "false");
    until_queued(&lock, 1).await;
    held.unlock().await.expect("held");
    let guard = within(WAKE_UP_LIMIT, "its turn", turn).await.expect("no panic").expect("a turn");
    guard.unlock().await.expect("held");
}

async fn a_notified_waiter_that_leaves_wakes_the_next(context: Context) {
    let name = context.name();
    let (holder, leaver) = (context.client().await, context.client().await);
    let lock = holder.lock(&name);
    let java = context.java("one");
    for pause in [0, 1, 2, 5] {
        let held = lock.with_lease(LONG_LEASE).lock().await.expect("free");
        let ours = spawn_lock(&leaver.lock(&name));
        until_queued(&lock, 1).await;
        let turn = java.start(&name, "lock 60000");
        until_queued(&lock, 2).await;
        // Cancelled while it is being notified, or just after it was granted the lock.
        held.unlock().await.expect("held");
        tokio::time::sleep(ms(pause)).await;
        ours.abort();
        drop(ours.await);
        woken(turn).await;
        java.run(&name, "unlock").await;
    }
}
