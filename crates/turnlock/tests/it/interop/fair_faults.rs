//! A fair queue with dead waiters, wrong clocks, and deadlines that Java has lowered.

use redis::AsyncCommands;
use turnlock::Client;
use turnlock_testkit::{Redisson, eventually, within};

use super::fair::{queue, spawn_lock, until_queue, until_queued};
use super::java::woken;
use super::{Context, JavaCase, LONG_LEASE, SETUP_LIMIT, WAKE_UP_LIMIT};
use crate::{cases, child};

pub(crate) const CASES: &[JavaCase] = cases![
    our_killed_process_delays_the_queue_for_at_most_six_seconds,
    a_java_clock_that_is_ahead_evicts_no_waiter,
    a_waiter_evicted_by_java_queues_again,
];

/// The cases that need a process with a wrong clock.
pub(crate) const CLOCK_CASES: &[&str] = &["a_java_clock_that_is_ahead_evicts_no_waiter"];

/// Four seconds without a heartbeat, a second until the next poll, and one for a busy machine.
const DEAD_WAITER_LIMIT: std::time::Duration = std::time::Duration::from_secs(6);

async fn our_killed_process_delays_the_queue_for_at_most_six_seconds(context: Context) {
    let (name, client) = (context.name(), context.client().await);
    let lock = client.lock(&name);
    let held = lock.with_lease(LONG_LEASE).lock().await.expect("free");
    let mut program = child::spawn(&format!("queue,{name}"), &context.url());
    until_queued(&lock, 1).await;
    // Our waiter removes the dead one ahead of Java's, which by itself would wait for five minutes.
    let javas = context.java("one").start(&name, "lock 60000");
    until_queued(&lock, 2).await;
    let ours = spawn_lock(&lock);
    until_queued(&lock, 3).await;
    program.kill().await.expect("killed");
    held.unlock().await.expect("held");
    within(DEAD_WAITER_LIMIT, "the dead waiter is removed", javas).await.expect("a turn");
    context.java("one").run(&name, "unlock").await;
    let guard = within(WAKE_UP_LIMIT, "its turn", ours).await.expect("no panic").expect("a turn");
    // The same with our waiter right behind it. No message wakes that one: it polls at the default interval.
    let polling = Client::connect(&context.url()).await.expect("a server").fair_lock(&name);
    let mut program = child::spawn(&format!("queue,{name}"), &context.url());
    until_queued(&lock, 1).await;
    let ours = spawn_lock(&polling);
    until_queued(&lock, 2).await;
    program.kill().await.expect("killed");
    guard.unlock().await.expect("held");
    let guard = within(DEAD_WAITER_LIMIT, "the dead waiter is removed", ours).await.expect("no panic");
    guard.expect("a turn").unlock().await.expect("held");
}

async fn a_java_clock_that_is_ahead_evicts_no_waiter(context: Context) {
    let (name, client) = (context.name(), context.client().await);
    let lock = client.lock(&name);
    let ahead = Redisson::start_with(context.version(), &context.url(), LONG_LEASE, 10).await;
    let (one, two) = (context.java_in(&ahead, "one"), context.java_in(&ahead, "two"));
    let held = lock.with_lease(LONG_LEASE).lock().await.expect("free");
    let first = spawn_lock(&lock);
    until_queued(&lock, 1).await;
    let second = spawn_lock(&lock);
    until_queued(&lock, 2).await;
    let ours = queue(&lock).await;
    // Each of these calls evicts heads of the queue whose deadline has passed.
    one.expect(&name, "tryLock", "false").await;
    one.expect(&name, "tryLock 100 60000", "false").await;
    // Redisson fails if it cannot subscribe within the wait.
    one.expect(&name, "tryLockAsync 3000 60000", "false").await;
    assert_eq!(queue(&lock).await, ours);
    let turn = two.start(&name, "lock 60000");
    until_queued(&lock, 3).await;
    let third = spawn_lock(&lock);
    until_queued(&lock, 4).await;
    one.expect(&name, "tryLock", "false").await;
    assert_eq!(queue(&lock).await[..2], ours);
    held.unlock().await.expect("held");
    for waiter in [first, second] {
        let guard = within(WAKE_UP_LIMIT, "its turn", waiter).await.expect("no panic").expect("a turn");
        one.expect(&name, "tryLock", "false").await;
        guard.unlock().await.expect("held");
    }
    woken(turn).await;
    one.expect(&name, "tryLock", "false").await;
    assert_eq!(queue(&lock).await.len(), 1);
    two.run(&name, "unlock").await;
    let guard = within(WAKE_UP_LIMIT, "its turn", third).await.expect("no panic").expect("a turn");
    guard.unlock().await.expect("held");
}

async fn a_waiter_evicted_by_java_queues_again(context: Context) {
    let (name, client) = (context.name(), context.client().await);
    let lock = client.lock(&name);
    let held = lock.with_lease(LONG_LEASE).lock().await.expect("free");
    let javas = [context.java("one"), context.java("two"), context.java("three")];
    // Each of these adds five seconds to the deadlines behind it, and lowers them by five minutes when it times out.
    let tries = [0, 1].map(|thread| javas[thread].start(&name, "tryLockAsync 10000 60000"));
    until_queued(&lock, 2).await;
    let turn = spawn_lock(&lock);
    until_queued(&lock, 3).await;
    let ours = queue(&lock).await.pop().expect("ours is the last");
    for reply in tries {
        assert_eq!(within(SETUP_LIMIT, "Java times out", reply).await.expect("a reply"), "false");
    }
    // `tryLock` evicts heads whose deadline has passed, and so ours, unless our heartbeat has corrected its deadline since.
    let (deadlines, plain) = (format!("redisson_lock_timeout:{{{name}}}"), context.plain().await);
    let is_evicted = async || {
        javas[2].expect(&name, "tryLock", "false").await;
        let is_empty = queue(&lock).await.is_empty();
        if !is_empty {
            let _: () = plain.clone().zadd(&deadlines, &ours, 1).await.expect("lowered once more");
        }
        is_empty
    };
    eventually("it is evicted", SETUP_LIMIT, is_evicted).await;
    within(WAKE_UP_LIMIT, "it notices", until_queue(&lock, &[&ours])).await;
    held.unlock().await.expect("held");
    let guard = within(WAKE_UP_LIMIT, "its turn", turn).await.expect("no panic").expect("a turn");
    guard.unlock().await.expect("held");
}
