//! The fair lock: one queue over all clients.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::task::JoinHandle;
use turnlock::{Client, Guard, Lock};
use turnlock_testkit::{FaultProxy, eventually, within};

use crate::child::child;
use crate::rig::{NO_POLL, PROMPT, Rig, keys_of_locks, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    turns_go_in_the_order_of_arrival_over_clients,
    two_hundred_waiters_of_one_client_are_served_in_order,
    who_leaves_the_queue_is_out_at_once_and_the_next_is_told,
    nobody_barges_past_a_queue,
    a_forced_unlock_and_an_expiry_go_to_the_head,
];

pub(super) const REDIS_CASES: &[Case] = cases![
    who_leaves_the_queue_leaves_no_key,
    a_killed_head_of_a_free_lock_is_passed_within_six_seconds,
    a_waiter_that_was_cut_off_queues_again,
    waiting_costs_no_calls,
];

async fn in_queue(lock: &Lock) -> usize {
    lock.inspect().await.expect("an answer").queue.len()
}

async fn until_queued(lock: &Lock, count: usize) {
    let is_queued = async || lock.inspect().await.is_ok_and(|seen| seen.queue.len() == count);
    eventually("it is in the queue", ms(20_000), is_queued).await;
}

/// A task that waits, once it stands in the queue behind `before` others.
async fn waiter(lock: &Lock, before: usize) -> JoinHandle<Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_queued(lock, before + 1).await;
    task
}

/// Lets `waiters` enter the queue one after the other, by turns of the given locks. The order in which they were served.
async fn served(locks: &[Lock], waiters: usize) -> Vec<usize> {
    let holder = locks[0].lock().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..waiters {
        let (waiting, served) = (locks[number % locks.len()].clone(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let guard = waiting.lock().await.expect("a turn");
            served.lock().unwrap().push(number);
            // By turns the certain and the convenient way.
            if number % 2 == 0 { guard.unlock().await.expect("held") } else { drop(guard) }
        }));
        until_queued(&locks[0], number + 1).await;
    }
    holder.unlock().await.expect("held");
    for task in tasks {
        within(ms(30_000), "each gets its turn", task).await.expect("no panic");
    }
    Arc::into_inner(served).expect("all have ended").into_inner().unwrap()
}

async fn turns_go_in_the_order_of_arrival_over_clients(rig: Rig) {
    let name = rig.name();
    let mut locks = Vec::new();
    for _ in 0..3 {
        locks.push(rig.client().await.lock(&name));
    }
    assert_eq!(served(&locks, 18).await, (0..18).collect::<Vec<_>>());
}

async fn two_hundred_waiters_of_one_client_are_served_in_order(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    assert_eq!(served(&[lock], 200).await, (0..200).collect::<Vec<_>>());
}

async fn who_leaves_the_queue_is_out_at_once_and_the_next_is_told(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    for round in 0..4 {
        let holder = one.lock().await.expect("free");
        // The head gives up while the lock is held, or is cancelled when it has just become free.
        let head = two.clone();
        let head = tokio::spawn(async move {
            // Long enough for the second to come, on a busy machine too.
            let wait = if round % 2 == 0 { ms(2_500) } else { NO_POLL };
            head.try_lock_for(wait).await.expect("an answer").is_none()
        });
        until_queued(&one, 1).await;
        let second = waiter(if round % 4 < 2 { &two } else { &one }, 1).await;
        if round % 2 == 0 {
            assert!(head.await.expect("no panic"));
            assert_eq!(in_queue(&one).await, 1, "who gave up is out before it is told so");
            holder.unlock().await.expect("held");
        } else {
            head.abort();
            holder.unlock().await.expect("held");
        }
        let guard = within(PROMPT, "the second is told", second).await.expect("no panic");
        eventually("nobody is left", PROMPT, async || {
            one.inspect().await.is_ok_and(|seen| seen.queue.is_empty())
        })
        .await;
        guard.unlock().await.expect("held");
    }
}

async fn nobody_barges_past_a_queue(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    let holder = one.lock().await.expect("free");
    let mut head = Box::pin(two.lock());
    let enter = async {
        while in_queue(&one).await == 0 {
            assert!(tokio::time::timeout(ms(1), &mut head).await.is_err(), "the lock is held");
        }
    };
    within(ms(5_000), "it has its place", enter).await;
    // The lock is free, and the head is not polled: so it stays free.
    holder.unlock().await.expect("held");
    assert!(!one.is_locked().await.expect("an answer"));
    for lock in [&one, &two] {
        assert!(lock.try_lock().await.expect("an answer").is_none(), "who will not wait pushed in");
        assert!(lock.try_lock_for(ms(30)).await.expect("an answer").is_none(), "who gave up pushed in");
    }
    let late = waiter(&one, 1).await;
    let guard = within(PROMPT, "the head has its turn", head).await.expect("a turn");
    assert!(!late.is_finished());
    guard.unlock().await.expect("held");
    let guard = within(PROMPT, "then the late one", late).await.expect("no panic");
    guard.unlock().await.expect("held");
}

async fn a_forced_unlock_and_an_expiry_go_to_the_head(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    for forced in [true, false] {
        let lease = if forced { ms(20_000) } else { ms(3_000) };
        let lost = one.lease(lease).lock().await.expect("free");
        let (first, second) = (waiter(&two, 0).await, waiter(&one, 1).await);
        if forced {
            assert!(two.force_unlock().await.expect("an answer"));
        }
        let guard = within(ms(3_000) + PROMPT, "the head gets it", first).await.expect("no panic");
        assert!(!second.is_finished());
        within(PROMPT, "the old holder knows", async {
            if forced {
                assert!(lost.unlock().await.is_err());
            } else {
                assert!(!lost.is_valid(), "two holders at once");
            }
        })
        .await;
        guard.unlock().await.expect("held");
        let guard = within(PROMPT, "and then the second", second).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

/// The keys of all that is on the server.
async fn keys(rig: &Rig) -> Vec<String> {
    keys_of_locks(&mut rig.plain().await).await
}

async fn who_leaves_the_queue_leaves_no_key(rig: Rig) {
    let (one, two) = (rig.client().await.lock("tidy"), rig.client().await.lock("tidy"));
    let holder = one.lock().await.expect("free");
    for cancelled in [false, true] {
        let waiting = two.clone();
        let head =
            tokio::spawn(async move { waiting.try_lock_for(ms(1_500)).await.expect("an answer").is_none() });
        until_queued(&one, 1).await;
        assert_eq!(keys(&rig).await.len(), 4, "the lock, the queue, its deadlines and signs of life");
        if cancelled {
            head.abort();
        } else {
            assert!(head.await.expect("no panic"));
        }
        eventually("only the lock is left", PROMPT, async || keys(&rig).await == ["tidy"]).await;
    }
    let next = waiter(&two, 0).await;
    holder.unlock().await.expect("held");
    let guard = within(PROMPT, "the next one", next).await.expect("no panic");
    assert_eq!(keys(&rig).await, ["tidy"], "who got it stands in no queue");
    guard.unlock().await.expect("held");
    assert!(keys(&rig).await.is_empty());
}

async fn a_killed_head_of_a_free_lock_is_passed_within_six_seconds(rig: Rig) {
    // Who looks less often than every second comes forward with the sign of life after the one that tells it.
    for (builder, limit) in [(Client::builder(), ms(6_000)), (Client::builder().poll(NO_POLL), ms(7_500))] {
        let lock = rig.client_with(builder).await.lock("child");
        let holder = lock.lock().await.expect("free");
        let mut head = child(&rig, "queue");
        until_queued(&lock, 1).await;
        let second = waiter(&lock, 1).await;
        head.kill().await.expect("killed");
        holder.unlock().await.expect("held");
        let guard = within(limit, "the dead are passed", second).await.expect("no panic");
        guard.unlock().await.expect("held");
        assert!(keys(&rig).await.is_empty(), "{:?}", keys(&rig).await);
    }
}

async fn a_waiter_that_was_cut_off_queues_again(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let builder = Client::builder().poll(NO_POLL).response_timeout(ms(200));
    let cut_off = builder.connect(&proxy.url()).await.expect("a server behind the proxy");
    let id = cut_off.id();
    let cut_off = cut_off.fair_lock("cut");
    let lock = rig.client().await.lock("cut");
    let holder = lock.lock().await.expect("free");
    let first = waiter(&cut_off, 0).await;
    let second = waiter(&lock, 1).await;
    proxy.black_hole();
    // Longer than a waiter may be silent.
    tokio::time::sleep(ms(5_000)).await;
    eventually("it has lost its place", PROMPT, async || {
        lock.inspect().await.is_ok_and(|seen| seen.queue.len() == 1)
    })
    .await;
    let third = waiter(&lock, 1).await;
    proxy.pass();
    eventually("it stands at the end", PROMPT, async || {
        let queue = lock.inspect().await.map(|seen| seen.queue);
        queue.is_ok_and(|queue| queue.len() == 3 && queue.last().is_some_and(|last| last.is_of(id)))
    })
    .await;
    holder.unlock().await.expect("held");
    for (task, what) in [(second, "the second"), (third, "the third"), (first, "the one that was cut off")] {
        let guard = within(PROMPT, what, task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn waiting_costs_no_calls(rig: Rig) {
    let (one, two) = (rig.client().await.lock("herd"), rig.client().await.lock("herd"));
    let holder = one.lock().await.expect("free");
    let mut tasks = Vec::new();
    for number in 0..20 {
        tasks.push(waiter(if number % 2 == 0 { &one } else { &two }, number).await);
    }
    // Each has subscribed, and has asked once more since then.
    eventually("they sleep", ms(20_000), async || {
        let before = rig.server().calls().await;
        tokio::time::sleep(ms(50)).await;
        rig.server().calls().await.since(&before).of("evalsha") == 0
    })
    .await;
    let (start, before) = (Instant::now(), rig.server().calls().await);
    tokio::time::sleep(ms(2_000)).await;
    let spent = rig.server().calls().await.since(&before);
    // One sign of life a second and client, for all of its waiters; it may be late.
    let most = 2 * (1 + start.elapsed().as_secs());
    assert!((1..=most).contains(&spent.of("evalsha")), "{spent:?}");
    holder.unlock().await.expect("held");
    for task in tasks {
        let guard = within(PROMPT, "each gets its turn", task).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}
