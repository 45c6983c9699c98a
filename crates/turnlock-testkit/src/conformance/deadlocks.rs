//! Deadlocks: certain ones, and what is only possible or none.

use super::waits::{SOON, abort, barrier, client, deadlocks, hold_and_wait, options, waiters};
use crate::conformance::{Case, Fixture, KindClient, cases, ms};
use crate::{eventually, eventually_some};
use turnlock::{Client, Deadlock, Error, Guard, Kind, MultiLock};

pub const CASES: &[Case] = cases![
    a_deadlock_of_three_clients_is_found,
    a_deadlock_of_tasks_of_one_client_is_found,
    a_deadlock_of_threads_is_found,
    readers_that_want_to_write_are_a_deadlock,
    a_wait_with_a_limit_is_no_certain_deadlock,
    a_fixed_lease_is_no_certain_deadlock,
    a_group_is_no_certain_deadlock,
    futures_of_one_task_are_no_certain_deadlock,
    a_task_that_seems_to_wait_for_itself_is_no_certain_deadlock,
    a_lock_that_another_task_may_release_is_no_certain_deadlock,
    a_lock_that_was_released_by_force_is_no_certain_deadlock,
    the_youngest_waiter_fails_if_set,
];

async fn certain_deadlock(reader: &Client, name: &str) -> Deadlock {
    eventually_some("the deadlock is found", SOON, async || {
        deadlocks(reader, name).await.into_iter().find(|deadlock| deadlock.is_certain)
    })
    .await
}

async fn a_deadlock_of_three_clients_is_found(fixture: Fixture) {
    let names = [fixture.name(), fixture.name(), fixture.name()];
    let clients =
        [client(&fixture, "one").await, client(&fixture, "two").await, client(&fixture, "three").await];
    let meeting = barrier(3);
    let hold_and_wait = |number: usize| {
        let client = &clients[number];
        hold_and_wait(client.lock(&names[number]), client.lock(&names[(number + 1) % 3]), &meeting)
    };
    let tasks = [0, 1, 2].map(hold_and_wait);
    let reader = fixture.client().await;
    let found = certain_deadlock(&reader, &names[0]).await;
    assert_eq!(found.waiters.len(), 3);
    // Each waits for what the next one holds.
    for (number, waiter) in found.waiters.iter().enumerate() {
        let next = &found.waiters[(number + 1) % 3];
        assert!(next.holds.iter().any(|held| held.name == waiter.name), "{found}");
    }
    let text = found.to_string();
    for part in ["(one)", "(two)", "(three)", &*names[0], &*names[1], &*names[2]] {
        assert!(text.contains(part), "{part} in {text}");
    }
    tasks[0].abort();
    eventually("the deadlock has ended", SOON, async || {
        deadlocks(&clients[0], &names[0]).await.is_empty() && tasks[2].is_finished()
    })
    .await;
    abort(tasks);
}

async fn a_deadlock_of_tasks_of_one_client_is_found(fixture: Fixture) {
    let (client, names) = (client(&fixture, "one").await, [(); 6].map(|()| fixture.name()));
    let pairs = [
        [client.lock(&names[0]), client.fair_lock(&names[1])],
        [client.spin_lock(&names[2]), client.plain_lock(&names[3])],
        [client.fenced_lock(&names[4]), client.read_write_lock(&names[5]).writer()],
    ];
    let mut tasks = Vec::new();
    for [one, two] in &pairs {
        let meeting = barrier(2);
        tasks.push(hold_and_wait(one.clone(), two.clone(), &meeting));
        tasks.push(hold_and_wait(two.clone(), one.clone(), &meeting));
    }
    for name in &names {
        let found = certain_deadlock(&client, name).await;
        let held: Vec<_> = found.waiters.iter().map(|waiter| (waiter.task.clone(), waiter.is_mine)).collect();
        assert!(
            held.len() == 2 && held[0].0 != held[1].0 && held.iter().all(|(_, is_mine)| *is_mine),
            "{found:?}"
        );
    }
    abort(tasks);
}

async fn a_deadlock_of_threads_is_found(fixture: Fixture) {
    let (client, one, two) = (fixture.blocking_client(), fixture.name(), fixture.name());
    let reader = fixture.client().await;
    let meeting = std::sync::Arc::new(std::sync::Barrier::new(2));
    let interrupt = turnlock::blocking::Interrupt::default();
    let thread = |first: &str, second: &str| {
        let (first, second) = (client.lock(first), client.lock(second).interruptible(&interrupt));
        let meeting = std::sync::Arc::clone(&meeting);
        std::thread::spawn(move || {
            let _held = first.lock().expect("free");
            meeting.wait();
            second.lock().map(drop)
        })
    };
    let threads = [thread(&one, &two), thread(&two, &one)];
    let found = certain_deadlock(&reader, &one).await;
    assert!(
        found
            .waiters
            .iter()
            .all(|waiter| waiter.task.as_ref().is_some_and(|task| task.starts_with("thread ")))
    );
    interrupt.interrupt();
    for thread in threads {
        // The other one goes on if it is not interrupted first.
        let joined = tokio::task::spawn_blocking(move || thread.join());
        let _ = joined.await.expect("no panic").expect("no panic");
    }
}

async fn readers_that_want_to_write_are_a_deadlock(fixture: Fixture) {
    let (client, name) = (client(&fixture, "reads").await, fixture.name());
    let lock = client.read_write_lock(&name);
    let meeting = barrier(2);
    let task = || hold_and_wait(lock.reader(), lock.writer(), &meeting);
    let tasks = [task(), task()];
    let found = certain_deadlock(&client, &name).await;
    assert!(
        found.waiters.iter().all(|waiter| waiter.kind == Kind::Write && waiter.holds[0].kind == Kind::Read)
    );
    abort(tasks);
}

/// Waits until a possible deadlock is found, and then for a moment in which it would become certain.
async fn assert_only_possible(reader: &Client, name: &str) {
    eventually("a possible deadlock", SOON, async || !deadlocks(reader, name).await.is_empty()).await;
    assert_not_certain(reader, name).await;
}

async fn assert_not_certain(reader: &Client, name: &str) {
    for _ in 0..20 {
        assert!(deadlocks(reader, name).await.iter().all(|deadlock| !deadlock.is_certain));
        tokio::time::sleep(ms(100)).await;
    }
}

async fn a_wait_with_a_limit_is_no_certain_deadlock(fixture: Fixture) {
    let (client, one, two) = (client(&fixture, "waits").await, fixture.name(), fixture.name());
    let meeting = barrier(2);
    let endless = hold_and_wait(client.lock(&one), client.lock(&two), &meeting);
    let (first, second) = (client.lock(&two), client.lock(&one));
    let limited = tokio::spawn(async move {
        let _held = first.lock().await.expect("free");
        meeting.wait().await;
        second.try_lock_for(ms(600_000)).await.map(drop)
    });
    assert_only_possible(&client, &one).await;
    let found = waiters(&client, &one, 1).await;
    assert!(found[0].time_left.is_some_and(|left| left <= ms(600_000)), "{found:?}");
    limited.abort();
    endless.abort();
}

async fn a_fixed_lease_is_no_certain_deadlock(fixture: Fixture) {
    let (client, one, two) = (client(&fixture, "waits").await, fixture.name(), fixture.name());
    let (meeting, fixed) = (barrier(2), client.lock(&two).with_lease(ms(600_000)));
    let tasks = [
        hold_and_wait(client.lock(&one), client.lock(&two), &meeting),
        hold_and_wait(fixed, client.lock(&one), &meeting),
    ];
    assert_only_possible(&client, &one).await;
    abort(tasks);
}

async fn a_group_is_no_certain_deadlock(fixture: Fixture) {
    let (client, one, two) = (client(&fixture, "waits").await, fixture.name(), fixture.name());
    let other = fixture.name();
    let meeting = barrier(2);
    let task = hold_and_wait(client.lock(&one), client.lock(&two), &meeting);
    let both = MultiLock::new([client.lock(&one), client.lock(&other)]).expect("two locks");
    let held = client.lock(&two);
    let group = tokio::spawn(async move {
        let _held = held.lock().await.expect("free");
        meeting.wait().await;
        both.lock().await.map(drop)
    });
    assert_only_possible(&client, &one).await;
    task.abort();
    group.abort();
}

async fn futures_of_one_task_are_no_certain_deadlock(fixture: Fixture) {
    let (joins, other) = (client(&fixture, "joins").await, client(&fixture, "other").await);
    let (held, wanted, also) = (fixture.name(), fixture.name(), fixture.name());
    let blocking = other.lock(&also).lock().await.expect("free");
    let meeting = barrier(2);
    let rival = hold_and_wait(other.lock(&wanted), other.lock(&held), &meeting);
    let (granted, until_granted) = tokio::sync::oneshot::channel();
    let locks = [joins.lock(&held), joins.lock(&wanted), joins.lock(&also)];
    let task = tokio::spawn(async move {
        let _held = locks[0].lock().await.expect("free");
        meeting.wait().await;
        let works = async {
            let _also = locks[2].lock().await.expect("a turn");
            granted.send(()).expect("awaited");
            std::future::pending::<()>().await;
        };
        tokio::join!(works, locks[1].lock()).1.map(drop)
    });
    // Both futures wait, and then one of them works with both locks.
    waiters(&other, &wanted, 1).await;
    waiters(&other, &also, 1).await;
    assert_only_possible(&other, &held).await;
    blocking.unlock().await.expect("held");
    until_granted.await.expect("no panic");
    assert_only_possible(&other, &held).await;
    task.abort();
    rival.abort();
}

async fn a_task_that_seems_to_wait_for_itself_is_no_certain_deadlock(fixture: Fixture) {
    let (client, name) = (client(&fixture, "joins").await, fixture.name());
    let lock = client.lock(&name);
    let (reader, watched) = (fixture.client().await, name.clone());
    let held = async || {
        let _held = lock.lock().await.expect("a turn");
        assert_only_possible(&reader, &watched).await;
    };
    // One holds and the other waits, in the same task.
    let one_of_two = async {
        tokio::select! {
            () = held() => {}
            () = held() => {}
        }
    };
    one_of_two.await;
    // The wait begins when the lock is held: nothing shows that the task runs two futures.
    let guard = lock.lock().await.expect("free");
    tokio::select! {
        waited = lock.lock() => panic!("the lock is held: {waited:?}"),
        () = assert_only_possible(&reader, &name) => {}
    }
    guard.unlock().await.expect("held");
}

/// How the task that acquired a lock leaves it to another one.
#[derive(Clone, Copy)]
enum LeftBy {
    Owner,
    Reentry,
    Detaching,
}

async fn a_lock_that_another_task_may_release_is_no_certain_deadlock(fixture: Fixture) {
    let (shares, other) = (client(&fixture, "shares").await, client(&fixture, "other").await);
    for left_by in [LeftBy::Owner, LeftBy::Reentry, LeftBy::Detaching] {
        let (held, wanted) = (fixture.name(), fixture.name());
        let meeting = barrier(2);
        let rival = hold_and_wait(other.lock(&wanted), other.lock(&held), &meeting);
        let owner = shares.owner();
        let (first, second) = (shares.lock(&held).with_owner(&owner), shares.lock(&wanted));
        let task = tokio::spawn(async move {
            let guard = first.lock().await.expect("free");
            let keeps =
                |guard: Guard| tokio::spawn(async move { drop((guard, std::future::pending::<()>().await)) });
            match left_by {
                LeftBy::Owner => {
                    let reenters = tokio::spawn(async move { first.lock().await.expect("held") });
                    keeps(reenters.await.expect("no panic"));
                    drop(guard);
                }
                LeftBy::Reentry => {
                    keeps(guard.reenter().await.expect("held"));
                    drop(guard);
                }
                LeftBy::Detaching => owner.detach(guard),
            }
            meeting.wait().await;
            second.lock().await.map(drop)
        });
        assert_only_possible(&other, &held).await;
        task.abort();
        rival.abort();
    }
}

async fn a_lock_that_was_released_by_force_is_no_certain_deadlock(fixture: Fixture) {
    let (waits, other) = (client(&fixture, "waits").await, client(&fixture, "other").await);
    let (reader, released, wanted) = (fixture.client().await, fixture.name(), fixture.name());
    let meeting = barrier(2);
    let rival = hold_and_wait(other.lock(&wanted), other.lock(&released), &meeting);
    until_held(&other, &wanted).await;
    let task = hold_and_wait(waits.lock(&released), waits.lock(&wanted), &barrier(1));
    waiters(&reader, &wanted, 1).await;
    // Its client may learn of this with the next renewal only.
    assert!(reader.lock(&released).force_unlock().await.expect("a reply"));
    let _works = reader.lock(&released).lock().await.expect("free");
    meeting.wait().await;
    waiters(&reader, &released, 1).await;
    assert_not_certain(&reader, &released).await;
    abort([task, rival]);
}

async fn the_youngest_waiter_fails_if_set(fixture: Fixture) {
    for is_set_in_both in [true, false] {
        let (one, two) = (fixture.name(), fixture.name());
        let older = fixture.client_with(options("older").fail_on_deadlock(true)).await;
        let younger = fixture.client_with(options("younger").fail_on_deadlock(is_set_in_both)).await;
        let meeting = barrier(2);
        let second = hold_and_wait(younger.lock(&two), younger.lock(&one), &meeting);
        until_held(&younger, &two).await;
        let first = hold_and_wait(older.lock(&one), older.lock(&two), &barrier(1));
        // From its first announcement on, it is older than any that follow.
        waiters(&younger, &two, 1).await;
        meeting.wait().await;
        let (ends, waits, name) = if is_set_in_both { (second, first, one) } else { (first, second, two) };
        let error = ends.await.expect("no panic").expect_err("in a deadlock");
        let Error::WouldDeadlock { name: awaited, reason } = &error else { panic!("{error}") };
        assert!(*awaited == name && reason.contains("(older)") && reason.contains("(younger)"), "{error}");
        waits.await.expect("no panic").expect("the other one goes on").unlock().await.expect("held");
    }
}

async fn until_held(client: &KindClient, name: &str) {
    let is_held = async || client.lock(name).is_locked().await.expect("a reply");
    eventually("the lock is held", SOON, is_held).await;
}
