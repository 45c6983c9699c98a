//! `MultiLock`: all members are acquired, or none.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Instant;

use turnlock::{Client, Error, Guard, Lock, LostReason, MultiGuard, MultiLock, blocking};

use super::exclusion::UnprotectedCounter;
use crate::conformance::{
    Case, Fixture, Kind, KindClient, NO_POLL, PROMPT, cases, joined, ms, until_waiting,
};
use crate::{eventually, in_time, within};

pub(super) const CASES: &[Case] = cases![
    all_members_are_acquired_or_none,
    a_waiting_multi_lock_holds_nothing,
    a_multi_lock_and_a_lock_wake_each_other,
    four_clients_locking_in_opposed_orders_do_not_deadlock,
    one_client_locking_in_opposed_orders_does_not_deadlock,
    multi_locks_that_overlap_in_a_ring_do_not_deadlock,
    the_other_members_are_released_when_one_was_lost,
    a_multi_lock_is_valid_until_its_first_member_expires,
    a_run_is_cancelled_when_any_member_is_lost,
    a_multi_lock_future_dropped_after_any_poll_leaves_nothing,
    a_timed_out_multi_lock_leaves_nothing,
    bad_multi_lock_members_are_refused,
    a_thread_can_lock_its_multi_lock_again,
];

fn all_of(client: &KindClient, names: &[String]) -> MultiLock {
    MultiLock::new(names.iter().map(|name| client.lock(name))).expect("valid members")
}

fn names<const N: usize>(fixture: &Fixture) -> [String; N] {
    std::array::from_fn(|_| fixture.name())
}

async fn are_locked(client: &KindClient, names: &[String]) -> Vec<bool> {
    let mut locked = Vec::new();
    for name in names {
        locked.push(client.lock(name).is_locked().await.expect("a reply"));
    }
    locked
}

async fn until_locked(client: &KindClient, names: &[String], expected: &[bool]) {
    let as_expected = async || are_locked(client, names).await == expected;
    eventually("the members are locked as expected", PROMPT, as_expected).await;
}

async fn until_free(client: &KindClient, names: &[String]) {
    eventually("all are free", PROMPT, async || !are_locked(client, names).await.contains(&true)).await;
}

/// Acquires a lock that no client holds for longer than a moment, without a place in a queue.
async fn acquired_soon(lock: &Lock) -> Guard {
    let acquired = async {
        loop {
            if let Some(guard) = lock.try_lock().await.expect("a reply").acquired() {
                return guard;
            }
            tokio::time::sleep(ms(5)).await;
        }
    };
    within(PROMPT, "another client acquires a free member", acquired).await
}

async fn all_members_are_acquired_or_none(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let names = names::<3>(&fixture);
    let multi = all_of(&one, &names);
    for name in &names {
        let single = two.lock(name).lock().await.expect("free");
        assert!(multi.try_lock().await.expect("a reply").is_busy());
        let locked: Vec<_> = names.iter().map(|other| other == name).collect();
        // Late grants of the other members are undone in the background.
        until_locked(&two, &names, &locked).await;
        single.unlock().await.expect("held");
    }
    let guard = multi.try_lock().await.expect("a reply").acquired().expect("all are free");
    assert_eq!((guard.held(), guard.is_valid()), (3, true));
    assert!((0..3).all(|member| guard.token(member).is_some() == (fixture.kind == Kind::Fenced)));
    let seen = multi.inspect().await.expect("a reply");
    assert!(seen.iter().zip(&names).all(|(seen, name)| seen.name == *name && seen.is_locked()));
    for name in &names {
        assert!(two.lock(name).try_lock().await.expect("a reply").is_busy());
    }
    // Another set that shares one member.
    let other = all_of(&two, &[fixture.name(), names[1].clone()]);
    assert!(other.try_lock().await.expect("a reply").is_busy());
    guard.unlock().await.expect("held");
    assert_eq!(are_locked(&two, &names).await, [false; 3]);
    drop(other.try_lock().await.expect("a reply").acquired().expect("free now"));
    drop(within(PROMPT, "a dropped guard releases all members", multi.lock()).await.expect("acquired"));
}

async fn a_waiting_multi_lock_holds_nothing(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let names = names::<3>(&fixture);
    let single = two.lock(&names[1]).lock().await.expect("free");
    let multi = all_of(&one, &names);
    let waiter = tokio::spawn(async move { multi.lock().await.expect("acquired") });
    until_waiting(&one.lock(&names[1]), 1).await;
    // What it is granted in a round it holds for a moment; while it waits it holds nothing, so others get the members.
    let last = acquired_soon(&two.lock(&names[2])).await;
    acquired_soon(&two.lock(&names[0])).await.unlock().await.expect("held");
    // Another client has another member now: the multi lock then waits for that one, and holds nothing.
    single.unlock().await.expect("held");
    until_waiting(&one.lock(&names[2]), 1).await;
    until_locked(&two, &names, &[false, false, true]).await;
    acquired_soon(&two.lock(&names[0])).await.unlock().await.expect("held");
    acquired_soon(&two.lock(&names[1])).await.unlock().await.expect("held");
    last.unlock().await.expect("held");
    let guard = within(PROMPT, "the message wakes the waiter", waiter).await.expect("no panic");
    assert_eq!(are_locked(&two, &names).await, [true; 3]);
    guard.unlock().await.expect("held");
}

async fn a_multi_lock_and_a_lock_wake_each_other(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let names = names::<3>(&fixture);
    let multi = all_of(&one, &names);
    for turn in 0..12 {
        let name = &names[turn % 3];
        let all = multi.lock().await.expect("acquired");
        let waiting = two.lock(name);
        let waiter = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
        until_waiting(&two.lock(name), 1).await;
        if turn % 2 == 0 {
            all.unlock().await.expect("held");
        } else {
            drop(all);
        }
        let single = within(PROMPT, "the lock is woken", waiter).await.expect("no panic");
        let waiting = multi.clone();
        let waiter = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
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

/// Lets each lock take its turns. The unprotected counters must not lose an increment.
async fn take_turns(locks: Vec<MultiLock>, turns: u64, counters: Vec<Vec<Arc<UnprotectedCounter>>>) {
    let start = Instant::now();
    let mut tasks = Vec::new();
    for (number, (lock, counters)) in locks.into_iter().zip(counters).enumerate() {
        tasks.push(tokio::spawn(async move {
            for turn in 0..turns {
                let guard = lock.lock().await.expect("acquired");
                for counter in &counters {
                    counter.add_one().await;
                }
                // Alternate between unlock and drop.
                if (turn + number as u64).is_multiple_of(2) {
                    guard.unlock().await.expect("held");
                } else {
                    drop(guard);
                }
            }
        }));
    }
    for task in tasks {
        within(ms(240_000), "no deadlock and no livelock", task).await.expect("no other task inside");
    }
    println!("{turns} turns each in {:?}", start.elapsed());
}

/// The turns of each of four tasks: a thousand in total on the quickest store, and fewer for the other kinds,
/// which use the same code.
async fn turns(fixture: &Fixture) -> u64 {
    let all = if fixture.kind == Kind::Lock { 250 } else { 50 };
    fixture.rounds(all).await.max(20) as u64
}

/// Returns one of four orders of the same locks that oppose each other most.
fn opposed(mut names: [String; 4], number: usize) -> [String; 4] {
    names.rotate_left(number);
    if number % 2 == 1 {
        names.reverse();
    }
    names
}

async fn four_clients_locking_in_opposed_orders_do_not_deadlock(fixture: Fixture) {
    let names = names::<4>(&fixture);
    let counter = Arc::new(UnprotectedCounter::default());
    let mut locks = Vec::new();
    for number in 0..4 {
        locks.push(all_of(&fixture.client().await, &opposed(names.clone(), number)));
    }
    let turns = turns(&fixture).await;
    take_turns(locks, turns, vec![vec![Arc::clone(&counter)]; 4]).await;
    assert_eq!(counter.value.load(Ordering::SeqCst), 4 * turns);
    until_free(&fixture.client().await, &names).await;
}

async fn one_client_locking_in_opposed_orders_does_not_deadlock(fixture: Fixture) {
    let names = names::<4>(&fixture);
    let counter = Arc::new(UnprotectedCounter::default());
    let client = fixture.client().await;
    let locks = (0..4).map(|number| all_of(&client, &opposed(names.clone(), number))).collect();
    let turns = turns(&fixture).await;
    take_turns(locks, turns, vec![vec![Arc::clone(&counter)]; 4]).await;
    assert_eq!(counter.value.load(Ordering::SeqCst), 4 * turns);
    until_free(&client, &names).await;
}

/// The dining philosophers: each takes two neighbouring locks of a ring.
async fn multi_locks_that_overlap_in_a_ring_do_not_deadlock(fixture: Fixture) {
    let names = names::<4>(&fixture);
    let counters: [Arc<UnprotectedCounter>; 4] = std::array::from_fn(|_| Arc::default());
    let (one, two) = (fixture.client().await, fixture.client().await);
    let pair = |number: usize| [number, (number + 1) % 4];
    let locks = (0..4).map(|number| {
        all_of(if number % 2 == 0 { &one } else { &two }, &pair(number).map(|index| names[index].clone()))
    });
    let shared = (0..4).map(|number| pair(number).map(|index| Arc::clone(&counters[index])).to_vec());
    let turns = turns(&fixture).await;
    take_turns(locks.collect(), turns, shared.collect()).await;
    assert!(counters.iter().all(|counter| counter.value.load(Ordering::SeqCst) == 2 * turns));
    until_free(&one, &names).await;
}

async fn the_other_members_are_released_when_one_was_lost(fixture: Fixture) {
    let client = fixture.client().await;
    let mut names = names::<3>(&fixture);
    names.reverse();
    let multi = all_of(&client, &names);
    for (index, name) in names.iter().enumerate() {
        let guard = multi.lock().await.expect("free");
        assert!(client.lock(name).force_unlock().await.expect("a reply"));
        let lost = within(PROMPT, "the loss is reported", guard.lost()).await;
        assert_eq!((lost.member, &lost.name, lost.reason), (index, name, LostReason::Taken));
        assert!(!guard.is_valid() && guard.held() == 2 && guard.valid_until() <= Instant::now());
        let error = guard.unlock().await.expect_err("one member was lost");
        assert!(matches!(&error, Error::Lost { name: lost, .. } if lost == name), "{error}");
        assert_eq!(are_locked(&client, &names).await, [false; 3], "the other members are released");
    }
}

async fn a_multi_lock_is_valid_until_its_first_member_expires(fixture: Fixture) {
    let client = fixture.client().await;
    let names = names::<2>(&fixture);
    let short = client.lock(&names[1]).with_lease(ms(300));
    let multi = MultiLock::new([client.lock(&names[0]), short]).expect("valid members");
    let guard = multi.lock().await.expect("free");
    assert!(guard.valid_until() < Instant::now() + ms(300));
    let lost = within(PROMPT, "the lease ends", guard.lost()).await;
    assert_eq!((lost.member, lost.reason), (1, LostReason::Expired));
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert!(!client.lock(&names[0]).is_locked().await.expect("a reply"));
    let guard = multi.with_lease(ms(5_000)).lock().await.expect("free");
    assert!(guard.valid_until() > Instant::now() + ms(4_000));
}

async fn a_run_is_cancelled_when_any_member_is_lost(fixture: Fixture) {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let client = fixture.client().await;
    let names = names::<3>(&fixture);
    let multi = all_of(&client, &names);
    assert_eq!(multi.run(|held| async move { held.held() }).await.expect("acquired"), 3);
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
    eventually("the body runs", PROMPT, async || are_locked(&client, &names).await == [true; 3]).await;
    let outcome = multi.try_run_for(ms(20), |_| async { panic!("the body ran") }).await;
    assert!(matches!(outcome, Ok(None::<()>)));
    client.lock(&names[2]).force_unlock().await.expect("a reply");
    let outcome = within(PROMPT, "the run ends", task).await.expect("no panic");
    assert!(matches!(outcome, Err(Error::Lost { name, .. }) if name == names[2]));
    assert!(cancelled.load(Ordering::SeqCst));
    until_free(&client, &names).await;
}

type MultiFuture = Pin<Box<dyn Future<Output = Result<MultiGuard, Error>> + Send>>;

/// Polls up to `polls` times, each time after a wake-up. Returns `true` if the future is complete.
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

/// Drops futures after every number of polls, many times over, while other tasks take turns.
async fn a_multi_lock_future_dropped_after_any_poll_leaves_nothing(fixture: Fixture) {
    const MAX_POLLS: usize = 20;
    let all = fixture.rounds(600).await;
    let names = names::<3>(&fixture);
    let (one, two) = (fixture.client().await, fixture.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicUsize::new(0));
    let mut others = Vec::new();
    for (number, client) in [&one, &two].into_iter().enumerate() {
        let single: Lock = client.lock(&names[number]);
        let (multi, stop, turns) = (all_of(client, &names), Arc::clone(&stop), Arc::clone(&turns));
        others.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                drop(
                    within(ms(20_000), "the other tasks make progress", multi.lock())
                        .await
                        .expect("acquired"),
                );
                drop(
                    within(ms(20_000), "the other tasks make progress", single.lock())
                        .await
                        .expect("acquired"),
                );
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut completed = 0;
    for drops in 0..all {
        let multi = all_of(&one, &names);
        let mut future: MultiFuture = Box::pin(async move { multi.lock().await });
        let polls = 1 + drops % MAX_POLLS;
        completed += usize::from(within(ms(20_000), "it is polled", poll_times(&mut future, polls)).await);
        drop(future);
    }
    stop.store(true, Ordering::Relaxed);
    for task in others {
        joined(task).await;
    }
    assert!(completed < all, "some were dropped unfinished");
    assert!(turns.load(Ordering::Relaxed) > 0);
    until_free(&two, &names).await;
    for name in &names {
        until_waiting(&one.lock(name), 0).await;
    }
}

async fn a_timed_out_multi_lock_leaves_nothing(fixture: Fixture) {
    let (one, two) =
        (fixture.client().await, fixture.client_with(Client::builder().poll_interval(NO_POLL)).await);
    let names = names::<3>(&fixture);
    let multi = all_of(&one, &names);
    let single = two.lock(&names[2]).lock().await.expect("free");
    let start = Instant::now();
    assert!(multi.try_lock_for(ms(80)).await.expect("a reply").is_busy());
    assert!(start.elapsed() >= ms(80), "{:?}", start.elapsed());
    in_time("the wait times out", start, ms(80) + PROMPT);
    until_locked(&two, &names, &[false, false, true]).await;
    until_waiting(&one.lock(&names[2]), 0).await;
    single.unlock().await.expect("held");
    multi
        .try_lock_for(PROMPT)
        .await
        .expect("a reply")
        .acquired()
        .expect("free")
        .unlock()
        .await
        .expect("held");
}

async fn bad_multi_lock_members_are_refused(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let bad = |outcome: Result<MultiLock, Error>, text: &str| {
        let error = outcome.expect_err("bad members");
        assert!(error.to_string().contains(text), "{error}");
    };
    let (a, b) = (fixture.named("a"), fixture.named("b"));
    bad(MultiLock::new([]), "at least one");
    bad(
        MultiLock::new([one.lock(&a), one.lock(&b), one.lock(&a).with_lease(ms(500))]),
        &format!("{a:?} is given twice"),
    );
    bad(MultiLock::new([one.lock(&a), one.lock("")]), "empty");
    let several = MultiLock::new([one.lock(&a), two.lock(&b)]).expect("several clients");
    several.lock().await.expect("free").unlock().await.expect("held");
    let zero = MultiLock::new([one.lock(&a), one.lock(&b)]).expect("valid members").with_lease(ms(0));
    assert!(matches!(zero.lock().await, Err(Error::BadLease(_))));
    until_free(&two, &[a, b]).await;
}

async fn a_thread_can_lock_its_multi_lock_again(fixture: Fixture) {
    let on_a_thread = move || {
        let (one, two) = (fixture.blocking_client(), fixture.blocking_client());
        let (first, second) = (one.lock(&fixture.name()), two.lock(&fixture.name()));
        let multi = blocking::MultiLock::new([first.clone(), second.clone()]).expect("valid members");
        let single = first.lock().expect("free");
        let outer = multi.lock().expect("one is held by this thread, the other is free");
        let inner = multi.try_lock().expect("a reply").acquired().expect("all are held by this thread");
        assert_eq!((first.hold_count().unwrap(), second.hold_count().unwrap()), (3, 2));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| multi.try_lock_for(ms(20)).map(|guard| guard.acquired().is_some()));
            assert!(!other.join().expect("no panic").expect("a reply"));
            let interrupt = blocking::Interrupt::new();
            let waiting = multi.interruptible(&interrupt);
            let waiter = scope.spawn(move || waiting.lock().map(drop));
            // It waits for the member that refused first.
            let waiting_here = |lock: &blocking::Lock| lock.inspect().expect("a reply").waiting_here;
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
        assert!(multi.run(blocking::MultiGuard::is_valid).expect("acquired"));
        assert!(multi.with_lease(ms(5_000)).try_run_for(PROMPT, |_| ()).expect("a reply").is_some());
        assert!(multi.inspect().expect("a reply").iter().all(|seen| !seen.is_locked()));
        let guard = multi.lock().expect("free");
        second.force_unlock().expect("a reply");
        assert_eq!(guard.wait_lost().member, 1);
    };
    joined(tokio::task::spawn_blocking(on_a_thread)).await;
}
