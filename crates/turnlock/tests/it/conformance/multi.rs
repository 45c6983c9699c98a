//! Several locks as one: all of them or none.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Instant;

use turnlock::{Client, Error, Lock, LostReason, MultiGuard, MultiLock, blocking};
use turnlock_testkit::{eventually, in_time, within};

use super::exclusion::Unprotected;
use crate::rig::{Kind, KindClient, NO_POLL, PROMPT, Rig, joined, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    all_members_are_taken_or_none,
    a_waiting_multi_lock_holds_nothing,
    a_multi_lock_and_a_lock_wake_each_other,
    a_thousand_turns_in_opposed_orders_of_four_clients,
    a_thousand_turns_in_opposed_orders_of_one_client,
    turns_over_sets_that_overlap_in_a_ring,
    all_are_given_back_when_one_was_lost,
    a_multi_lock_ends_with_its_first_member,
    a_run_is_cancelled_when_any_member_is_lost,
    dropped_after_every_poll_a_multi_lock_leaves_nothing,
    a_multi_lock_that_gives_up_leaves_nothing,
    bad_sets_of_locks_are_refused,
    a_thread_gets_again_what_it_holds,
];

fn all_of(client: &KindClient, names: &[String]) -> MultiLock {
    MultiLock::new(names.iter().map(|name| client.lock(name))).expect("a good set")
}

fn names<const N: usize>(rig: &Rig) -> [String; N] {
    std::array::from_fn(|_| rig.name())
}

async fn are_locked(client: &KindClient, names: &[String]) -> Vec<bool> {
    let mut locked = Vec::new();
    for name in names {
        locked.push(client.lock(name).is_locked().await.expect("an answer"));
    }
    locked
}

async fn until_locked(client: &KindClient, names: &[String], expected: &[bool]) {
    let as_expected = async || are_locked(client, names).await == expected;
    eventually("they are as they should be", PROMPT, as_expected).await;
}

async fn until_free(client: &KindClient, names: &[String]) {
    eventually("all are free", PROMPT, async || !are_locked(client, names).await.contains(&true)).await;
}

async fn all_members_are_taken_or_none(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let names = names::<3>(&rig);
    let multi = all_of(&one, &names);
    for name in &names {
        let single = two.lock(name).lock().await.expect("free");
        assert!(multi.try_lock().await.expect("an answer").is_none());
        let locked: Vec<_> = names.iter().map(|other| other == name).collect();
        // What the slow ones grant is given back in the background.
        until_locked(&two, &names, &locked).await;
        single.unlock().await.expect("held");
    }
    let guard = multi.try_lock().await.expect("an answer").expect("all are free");
    assert_eq!((guard.held(), guard.is_valid()), (3, true));
    assert!((0..3).all(|member| guard.token(member).is_some() == (rig.kind == Kind::Fenced)));
    let seen = multi.inspect().await.expect("an answer");
    assert!(seen.iter().zip(&names).all(|(seen, name)| seen.name == *name && seen.is_locked()));
    for name in &names {
        assert!(two.lock(name).try_lock().await.expect("an answer").is_none());
    }
    // Another set that shares one member.
    let other = all_of(&two, &[rig.name(), names[1].clone()]);
    assert!(other.try_lock().await.expect("an answer").is_none());
    guard.unlock().await.expect("held");
    assert_eq!(are_locked(&two, &names).await, [false; 3]);
    drop(other.try_lock().await.expect("an answer").expect("free now"));
    drop(within(PROMPT, "a dropped guard gives all back", multi.lock()).await.expect("a turn"));
}

async fn a_waiting_multi_lock_holds_nothing(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let names = names::<3>(&rig);
    let single = two.lock(&names[1]).lock().await.expect("free");
    let multi = all_of(&one, &names);
    let waiter = tokio::spawn(async move { multi.lock().await.expect("a turn") });
    until_waiting(&one.lock(&names[1]), 1).await;
    // Its first question, to all of them, may still be under way, and hold what it got for a moment.
    let holds_nothing = async || {
        for _ in 0..20 {
            if are_locked(&two, &names).await != [false, true, false] {
                return false;
            }
        }
        true
    };
    eventually("it holds nothing while it waits", ms(5_000), holds_nothing).await;
    // Meanwhile another member goes to somebody else: the wait goes over to that one, and nothing is kept.
    let last = two.lock(&names[2]).try_lock().await.expect("an answer").expect("nobody has it");
    single.unlock().await.expect("held");
    until_waiting(&one.lock(&names[2]), 1).await;
    until_locked(&two, &names, &[false, false, true]).await;
    let other = two.lock(&names[0]).try_lock().await.expect("an answer").expect("nobody has it");
    other.unlock().await.expect("held");
    last.unlock().await.expect("held");
    let guard = within(PROMPT, "the message wakes it", waiter).await.expect("no panic");
    assert_eq!(are_locked(&two, &names).await, [true; 3]);
    guard.unlock().await.expect("held");
}

async fn a_multi_lock_and_a_lock_wake_each_other(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let names = names::<3>(&rig);
    let multi = all_of(&one, &names);
    for turn in 0..12 {
        let name = &names[turn % 3];
        let all = multi.lock().await.expect("a turn");
        let waiting = two.lock(name);
        let waiter = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(&two.lock(name), 1).await;
        if turn % 2 == 0 {
            all.unlock().await.expect("held");
        } else {
            drop(all);
        }
        let single = within(PROMPT, "the lock is woken", waiter).await.expect("no panic");
        let waiting = multi.clone();
        let waiter = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
        until_waiting(&one.lock(name), 1).await;
        single.unlock().await.expect("held");
        within(PROMPT, "the multi lock is woken", waiter)
            .await
            .expect("no panic")
            .unlock()
            .await
            .expect("held");
    }
}

/// Each lock takes its turns, and an unprotected counter must not lose one.
async fn take_turns(locks: Vec<MultiLock>, turns: u64, counters: Vec<Vec<Arc<Unprotected>>>) {
    let start = Instant::now();
    let mut tasks = Vec::new();
    for (number, (lock, counters)) in locks.into_iter().zip(counters).enumerate() {
        tasks.push(tokio::spawn(async move {
            for turn in 0..turns {
                let guard = lock.lock().await.expect("a turn");
                for counter in &counters {
                    counter.add_one().await;
                }
                // By turns the certain and the convenient way.
                if (turn + number as u64).is_multiple_of(2) {
                    guard.unlock().await.expect("held");
                } else {
                    drop(guard);
                }
            }
        }));
    }
    for task in tasks {
        within(ms(240_000), "neither deadlock nor livelock", task).await.expect("nobody else inside");
    }
    println!("{turns} turns each in {:?}", start.elapsed());
}

/// A thousand turns of four; fewer of the kinds that say the same in other words.
fn turns(rig: &Rig) -> u64 {
    if rig.kind == Kind::Lock { 250 } else { 50 }
}

/// The four orders of the same four locks that oppose each other most.
fn opposed(mut names: [String; 4], number: usize) -> [String; 4] {
    names.rotate_left(number);
    if number % 2 == 1 {
        names.reverse();
    }
    names
}

async fn a_thousand_turns_in_opposed_orders_of_four_clients(rig: Rig) {
    let names = names::<4>(&rig);
    let counter = Arc::new(Unprotected::default());
    let mut locks = Vec::new();
    for number in 0..4 {
        locks.push(all_of(&rig.client().await, &opposed(names.clone(), number)));
    }
    let turns = turns(&rig);
    take_turns(locks, turns, vec![vec![Arc::clone(&counter)]; 4]).await;
    assert_eq!(counter.value.load(Ordering::SeqCst), 4 * turns);
    until_free(&rig.client().await, &names).await;
}

async fn a_thousand_turns_in_opposed_orders_of_one_client(rig: Rig) {
    let names = names::<4>(&rig);
    let counter = Arc::new(Unprotected::default());
    let client = rig.client().await;
    let locks = (0..4).map(|number| all_of(&client, &opposed(names.clone(), number))).collect();
    let turns = turns(&rig);
    take_turns(locks, turns, vec![vec![Arc::clone(&counter)]; 4]).await;
    assert_eq!(counter.value.load(Ordering::SeqCst), 4 * turns);
    until_free(&client, &names).await;
}

/// Philosophers: each takes two neighbouring locks of a ring, the last in the order that closes it.
async fn turns_over_sets_that_overlap_in_a_ring(rig: Rig) {
    let names = names::<4>(&rig);
    let counters: [Arc<Unprotected>; 4] = std::array::from_fn(|_| Arc::default());
    let (one, two) = (rig.client().await, rig.client().await);
    let pair = |number: usize| [number, (number + 1) % 4];
    let locks = (0..4).map(|number| {
        all_of(if number % 2 == 0 { &one } else { &two }, &pair(number).map(|place| names[place].clone()))
    });
    let shared = (0..4).map(|number| pair(number).map(|place| Arc::clone(&counters[place])).to_vec());
    take_turns(locks.collect(), 100, shared.collect()).await;
    assert!(counters.iter().all(|counter| counter.value.load(Ordering::SeqCst) == 200));
    until_free(&one, &names).await;
}

async fn all_are_given_back_when_one_was_lost(rig: Rig) {
    let client = rig.client().await;
    let mut names = names::<3>(&rig);
    names.reverse();
    let multi = all_of(&client, &names);
    for (place, name) in names.iter().enumerate() {
        let guard = multi.lock().await.expect("free");
        assert!(client.lock(name).force_unlock().await.expect("an answer"));
        let lost = within(PROMPT, "it is told", guard.lost()).await;
        assert_eq!((lost.member, &lost.name, lost.reason), (place, name, LostReason::Taken));
        assert!(!guard.is_valid() && guard.held() == 2 && guard.valid_until() <= Instant::now());
        let error = guard.unlock().await.expect_err("one was gone");
        assert!(matches!(&error, Error::Lost { name: lost, .. } if lost == name), "{error}");
        assert_eq!(are_locked(&client, &names).await, [false; 3], "the others were given back all the same");
    }
}

async fn a_multi_lock_ends_with_its_first_member(rig: Rig) {
    let client = rig.client().await;
    let names = names::<2>(&rig);
    let short = client.lock(&names[1]).lease(ms(300));
    let multi = MultiLock::new([client.lock(&names[0]), short]).expect("a good set");
    let guard = multi.lock().await.expect("free");
    assert!(guard.valid_until() < Instant::now() + ms(300));
    let lost = within(PROMPT, "the lease ends", guard.lost()).await;
    assert_eq!((lost.member, lost.reason), (1, LostReason::Expired));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert!(!client.lock(&names[0]).is_locked().await.expect("an answer"));
    let guard = multi.lease(ms(5_000)).lock().await.expect("free");
    assert!(guard.valid_until() > Instant::now() + ms(4_000));
}

async fn a_run_is_cancelled_when_any_member_is_lost(rig: Rig) {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let client = rig.client().await;
    let names = names::<3>(&rig);
    let multi = all_of(&client, &names);
    assert_eq!(multi.run(|held| async move { held.held() }).await.expect("a turn"), 3);
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&cancelled));
    let running = multi.clone();
    let task = tokio::spawn(async move {
        running
            .run(|held| async move {
                let _flag = flag;
                assert!(held.is_valid());
                std::future::pending::<()>().await;
            })
            .await
    });
    eventually("it runs", PROMPT, async || are_locked(&client, &names).await == [true; 3]).await;
    let outcome = multi.try_run_for(ms(20), |_| async { panic!("it ran") }).await;
    assert!(matches!(outcome, Ok(None::<()>)));
    client.lock(&names[2]).force_unlock().await.expect("an answer");
    let outcome = within(PROMPT, "the run ends", task).await.expect("no panic");
    assert!(matches!(outcome, Err(Error::Lost { name, .. }) if name == names[2]));
    assert!(cancelled.load(Ordering::SeqCst));
    until_free(&client, &names).await;
}

type MultiFuture = Pin<Box<dyn Future<Output = Result<MultiGuard, Error>> + Send>>;

/// Polls until it was polled `polls` times or is done, each time after it asked for it. Whether it was done.
async fn poll_times(future: &mut MultiFuture, polls: usize) -> bool {
    let mut count = 0;
    std::future::poll_fn(|context| {
        count += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(outcome) => {
                drop(outcome.expect("a guard"));
                Poll::Ready(true)
            }
            Poll::Pending if count >= polls => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// For every k, and many times over: the future is dropped after its k-th poll, while others take turns.
async fn dropped_after_every_poll_a_multi_lock_leaves_nothing(rig: Rig) {
    const DEEPEST: usize = 20;
    let all = rig.times(600).await;
    let names = names::<3>(&rig);
    let (one, two) = (rig.client().await, rig.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicUsize::new(0));
    let mut others = Vec::new();
    for (number, client) in [&one, &two].into_iter().enumerate() {
        let single: Lock = client.lock(&names[number]);
        let (multi, stop, turns) = (all_of(client, &names), Arc::clone(&stop), Arc::clone(&turns));
        others.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                drop(within(ms(20_000), "the others go on", multi.lock()).await.expect("a turn"));
                drop(within(ms(20_000), "the others go on", single.lock()).await.expect("a turn"));
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut done = 0;
    for drops in 0..all {
        let multi = all_of(&one, &names);
        let mut future: MultiFuture = Box::pin(async move { multi.lock().await });
        let polls = 1 + drops % DEEPEST;
        done += usize::from(within(ms(20_000), "it is polled", poll_times(&mut future, polls)).await);
        drop(future);
    }
    stop.store(true, Ordering::Relaxed);
    for task in others {
        joined(task).await;
    }
    assert!(done < all, "some were dropped unfinished");
    assert!(turns.load(Ordering::Relaxed) > 0);
    until_free(&two, &names).await;
    for name in &names {
        until_waiting(&one.lock(name), 0).await;
    }
}

async fn a_multi_lock_that_gives_up_leaves_nothing(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client_with(Client::builder().poll(NO_POLL)).await);
    let names = names::<3>(&rig);
    let multi = all_of(&one, &names);
    let single = two.lock(&names[2]).lock().await.expect("free");
    let start = Instant::now();
    assert!(multi.try_lock_for(ms(80)).await.expect("an answer").is_none());
    assert!(start.elapsed() >= ms(80), "{:?}", start.elapsed());
    in_time("it gives up", start, ms(80) + PROMPT);
    until_locked(&two, &names, &[false, false, true]).await;
    until_waiting(&one.lock(&names[2]), 0).await;
    single.unlock().await.expect("held");
    multi.try_lock_for(PROMPT).await.expect("an answer").expect("free").unlock().await.expect("held");
}

async fn bad_sets_of_locks_are_refused(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let bad = |outcome: Result<MultiLock, Error>, word: &str| {
        let error = outcome.expect_err("a bad set");
        assert!(error.to_string().contains(word), "{error}");
    };
    let (a, b) = (rig.named("a"), rig.named("b"));
    bad(MultiLock::new([]), "at least one");
    bad(
        MultiLock::new([one.lock(&a), one.lock(&b), one.lock(&a).lease(ms(500))]),
        &format!("{a:?} is there twice"),
    );
    bad(MultiLock::new([one.lock(&a), one.lock("")]), "empty");
    let several = MultiLock::new([one.lock(&a), two.lock(&b)]).expect("several clients");
    several.lock().await.expect("free").unlock().await.expect("held");
    let zero = MultiLock::new([one.lock(&a), one.lock(&b)]).expect("good").lease(ms(0));
    assert!(matches!(zero.lock().await, Err(Error::BadLease(_))));
    until_free(&two, &[a, b]).await;
}

async fn a_thread_gets_again_what_it_holds(rig: Rig) {
    let on_a_thread = move || {
        let (one, two) = (rig.blocking_client(), rig.blocking_client());
        let (first, second) = (one.lock(&rig.name()), two.lock(&rig.name()));
        let multi = blocking::MultiLock::new([first.clone(), second.clone()]).expect("a good set");
        let single = first.lock().expect("free");
        let outer = multi.lock().expect("one is mine, the other free");
        let inner = multi.try_lock().expect("an answer").expect("all are mine");
        assert_eq!((first.hold_count().unwrap(), second.hold_count().unwrap()), (3, 2));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| multi.try_lock_for(ms(20)).map(|guard| guard.is_some()));
            assert!(!other.join().expect("no panic").expect("an answer"));
            let interrupt = blocking::Interrupt::new();
            let waiting = multi.interruptible(&interrupt);
            let waiter = scope.spawn(move || waiting.lock().map(drop));
            // It waits for the one that refused first.
            let waiting_here = |lock: &blocking::Lock| lock.inspect().expect("an answer").waiting_here;
            while waiting_here(&first) + waiting_here(&second) == 0 {
                std::thread::yield_now();
            }
            interrupt.interrupt();
            assert!(matches!(waiter.join().expect("no panic"), Err(Error::Interrupted { .. })));
        });
        assert!(inner.is_valid() && inner.held() == 2 && inner.valid_until() > Instant::now());
        inner.unlock().expect("held");
        assert!(outer.is_valid());
        drop(outer);
        single.unlock().expect("held");
        assert!(multi.run(blocking::MultiGuard::is_valid).expect("a turn"));
        assert!(multi.lease(ms(5_000)).try_run_for(PROMPT, |_| ()).expect("an answer").is_some());
        assert!(multi.inspect().expect("an answer").iter().all(|seen| !seen.is_locked()));
        let guard = multi.lock().expect("free");
        second.force_unlock().expect("an answer");
        assert_eq!(guard.wait_lost().member, 1);
    };
    joined(tokio::task::spawn_blocking(on_a_thread)).await;
}
