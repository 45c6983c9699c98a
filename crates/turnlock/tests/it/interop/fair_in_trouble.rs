//! A queue with dead ones in it, wrong clocks, and deadlines that Java has lowered.

use redis::AsyncCommands;
use turnlock::Client;
use turnlock_testkit::{Redisson, eventually, within};

use super::fair::{queue, until_queue, until_queued, wait_for};
use super::java::soon;
use super::{JavaCase, LIMIT, LONG, SOON, Visit};
use crate::{cases, child};

pub(crate) const CASES: &[JavaCase] = cases![
    a_killed_program_of_ours_delays_the_queue_for_six_seconds,
    a_java_clock_that_is_ahead_throws_nobody_out,
    one_that_java_threw_out_queues_again,
];

/// The cases that need a process with a wrong clock.
pub(crate) const NEEDS_A_CLOCK: &[&str] = &["a_java_clock_that_is_ahead_throws_nobody_out"];

/// Four seconds of silence, a second until the next look, and one for a busy machine.
const DEAD: std::time::Duration = std::time::Duration::from_secs(6);

async fn a_killed_program_of_ours_delays_the_queue_for_six_seconds(visit: Visit) {
    let (name, client) = (visit.name(), visit.client().await);
    let lock = client.lock(&name);
    let held = lock.lease(LONG).lock().await.expect("free");
    let mut program = child::spawn(&format!("queue,{name}"), &visit.url());
    until_queued(&lock, 1).await;
    // A Java waiter right behind it is let through by ours, since it would itself wait for five minutes.
    let javas = visit.java("one").begins(&name, "lock 60000");
    until_queued(&lock, 2).await;
    let ours = wait_for(&lock);
    until_queued(&lock, 3).await;
    program.kill().await.expect("killed");
    held.unlock().await.expect("held");
    within(DEAD, "the dead one is passed over", javas).await.expect("a turn");
    visit.java("one").does(&name, "unlock").await;
    let guard = within(SOON, "its turn", ours).await.expect("no panic").expect("a turn");
    // And with one of ours right behind it, which then looks as often as it does by itself: nobody tells it.
    let usual = Client::connect(&visit.url()).await.expect("a server").fair_lock(&name);
    let mut program = child::spawn(&format!("queue,{name}"), &visit.url());
    until_queued(&lock, 1).await;
    let ours = wait_for(&usual);
    until_queued(&lock, 2).await;
    program.kill().await.expect("killed");
    guard.unlock().await.expect("held");
    let guard = within(DEAD, "the dead one is passed over", ours).await.expect("no panic");
    guard.expect("a turn").unlock().await.expect("held");
}

async fn a_java_clock_that_is_ahead_throws_nobody_out(visit: Visit) {
    let (name, client) = (visit.name(), visit.client().await);
    let lock = client.lock(&name);
    let ahead = Redisson::start_with(visit.version(), &visit.url(), LONG, 10).await;
    let (one, two) = (visit.java_in(&ahead, "one"), visit.java_in(&ahead, "two"));
    let held = lock.lease(LONG).lock().await.expect("free");
    let (first, second) = (wait_for(&lock), wait_for(&lock));
    until_queued(&lock, 2).await;
    let ours = queue(&lock).await;
    // Each of these looks for heads whose time is up.
    one.says(&name, "tryLock", "false").await;
    one.says(&name, "tryLock 100 60000", "false").await;
    // Redisson fails if it cannot subscribe within the wait.
    one.says(&name, "tryLockAsync 3000 60000", "false").await;
    assert_eq!(queue(&lock).await, ours);
    let turn = two.begins(&name, "lock 60000");
    until_queued(&lock, 3).await;
    let third = wait_for(&lock);
    until_queued(&lock, 4).await;
    one.says(&name, "tryLock", "false").await;
    assert_eq!(queue(&lock).await[..2], ours);
    held.unlock().await.expect("held");
    for waiter in [first, second] {
        let guard = within(SOON, "its turn", waiter).await.expect("no panic").expect("a turn");
        one.says(&name, "tryLock", "false").await;
        guard.unlock().await.expect("held");
    }
    soon(turn).await;
    one.says(&name, "tryLock", "false").await;
    assert_eq!(queue(&lock).await.len(), 1);
    two.does(&name, "unlock").await;
    let guard = within(SOON, "its turn", third).await.expect("no panic").expect("a turn");
    guard.unlock().await.expect("held");
}

async fn one_that_java_threw_out_queues_again(visit: Visit) {
    let (name, client) = (visit.name(), visit.client().await);
    let lock = client.lock(&name);
    let held = lock.lease(LONG).lock().await.expect("free");
    let javas = [visit.java("one"), visit.java("two"), visit.java("three")];
    // Each of these lowers the deadlines behind it by five minutes when it gives up, and had added five seconds.
    let asked = [0, 1].map(|who| javas[who].begins(&name, "tryLockAsync 5000 60000"));
    until_queued(&lock, 2).await;
    let turn = wait_for(&lock);
    until_queued(&lock, 3).await;
    let ours = queue(&lock).await.pop().expect("ours is the last");
    for answer in asked {
        assert_eq!(within(LIMIT, "Java gives up", answer).await.expect("an answer"), "false");
    }
    // This looks for heads whose time is up, and finds ours: unless ours gave a sign of life in between, which mends it.
    let (deadlines, plain) = (format!("redisson_lock_timeout:{{{name}}}"), visit.plain().await);
    let is_thrown_out = async || {
        javas[2].says(&name, "tryLock", "false").await;
        let is_out = queue(&lock).await.is_empty();
        if !is_out {
            let _: () = plain.clone().zadd(&deadlines, &ours, 1).await.expect("lowered once more");
        }
        is_out
    };
    eventually("it is thrown out", LIMIT, is_thrown_out).await;
    within(SOON, "it notices", until_queue(&lock, &[&ours])).await;
    held.unlock().await.expect("held");
    let guard = within(SOON, "its turn", turn).await.expect("no panic").expect("a turn");
    guard.unlock().await.expect("held");
}
