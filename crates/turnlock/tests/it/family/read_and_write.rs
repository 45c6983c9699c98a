//! Both sides of a read-write lock: who writes may read, who reads must not ask to write, and what a look shows.

use std::task::Poll;

use redis::AsyncCommands;
use turnlock::{Client, Error, Guard, LostReason, Role, blocking};
use turnlock_testkit::{eventually, within};

use super::read_write::{two, waiter};
use crate::rig::{NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    who_writes_may_read,
    a_thread_that_writes_may_read,
    a_downgrade_lets_readers_in_and_keeps_writers_out,
    who_reads_and_asks_to_write_is_told_at_once,
    an_owner_with_two_reads_is_known_by_either,
    a_thread_that_reads_after_a_downgrade_is_told,
    a_downgrade_dropped_after_any_poll_leaves_nothing,
    a_guard_of_another_lock_is_refused,
    force_unlock_takes_one_side,
    a_look_shows_readers_and_the_writer,
];

pub(super) const REDIS_CASES: &[Case] = cases![a_fixed_lease_that_a_neighbour_shortened_is_said_again];

async fn who_writes_may_read(rig: Rig) {
    let (one, two) = two(&rig).await;
    // By a guard.
    let writer = one.write().lock().await.expect("free");
    let reader = one.read().lock_with(&writer).await.expect("its own write lock lets it read");
    let roles: Vec<_> = one.inspect().await.unwrap().holders.iter().map(|holder| holder.role).collect();
    assert!(roles.contains(&Role::Reader) && roles.contains(&Role::Writer), "{roles:?}");
    assert!(two.read().try_lock().await.expect("an answer").is_none(), "not for others");
    writer.unlock().await.expect("held");
    assert!(reader.is_valid());
    let other = two.read().try_lock().await.expect("an answer").expect("readers go together");
    assert!(two.write().try_lock().await.expect("an answer").is_none());
    drop(other);
    reader.unlock().await.expect("held");
    // By an owner, and the read given back first.
    let client = rig.client().await;
    let mine = client.read_write_lock(one.read().name()).owned_by(&client.owner());
    let writer = within(PROMPT, "free", mine.write().lock()).await.expect("a turn");
    let reader = mine.read().try_lock().await.expect("an answer").expect("the same owner");
    let again = mine.read().try_lock_for(ms(100)).await.expect("an answer").expect("the same owner");
    assert_eq!(again.hold_count(), 2);
    drop(again);
    reader.unlock().await.expect("held");
    assert!(writer.is_valid() && two.read().try_lock().await.expect("an answer").is_none());
    writer.unlock().await.expect("held");
    assert!(!two.inspect().await.unwrap().is_locked());
}

async fn a_thread_that_writes_may_read(rig: Rig) {
    let body = move || {
        let lock = rig.blocking_client().read_write_lock(&rig.name());
        let other = rig.blocking_client().read_write_lock(lock.read().name());
        let writer = lock.write().lock().expect("free");
        let reader = lock.read().lock().expect("the same thread");
        let refused = |lock: &blocking::Lock| lock.try_lock().expect("an answer").is_none();
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| refused(&lock.read()) && refused(&other.read()));
            assert!(elsewhere.join().expect("no panic"), "another thread is somebody else");
        });
        writer.unlock().expect("held");
        assert!(!refused(&other.read()) && refused(&other.write()));
        assert!(matches!(lock.write().lock(), Err(Error::WouldDeadlock { .. })));
        assert!(refused(&lock.write()));
        reader.unlock().expect("held");
        // The reader of the other client is being given back.
        lock.write().lock().expect("nobody reads").unlock().expect("held");
    };
    tokio::task::spawn_blocking(body).await.expect("no panic");
}

async fn a_downgrade_lets_readers_in_and_keeps_writers_out(rig: Rig) {
    let (one, two) = two(&rig).await;
    for holder in [&one, &two] {
        let writer = holder.write().lock().await.expect("free");
        let readers = [waiter(&one.read(), 0).await, waiter(&two.read(), 0).await];
        let reader = writer.downgrade().await.expect("held");
        let mut guards = vec![reader];
        for task in readers {
            guards.push(within(PROMPT, "the waiting reader is told", task).await.expect("no panic"));
        }
        assert_eq!(one.inspect().await.expect("an answer").holders.len(), 3);
        let next = waiter(&two.write(), 0).await;
        for guard in guards {
            assert!(guard.is_valid() && !next.is_finished(), "no writer before all have read");
            guard.unlock().await.expect("held");
        }
        let next = within(PROMPT, "then the writer", next).await.expect("no panic");
        next.unlock().await.expect("held");
    }
    let reader = one.read().lock().await.expect("free");
    assert!(matches!(reader.downgrade().await, Err(Error::Unsupported(_))));
    eventually("it is given back", PROMPT, async || one.inspect().await.is_ok_and(|seen| !seen.is_locked()))
        .await;
}

async fn who_reads_and_asks_to_write_is_told_at_once(rig: Rig) {
    let client = rig.client().await;
    let lock = client.read_write_lock(&rig.name());
    let mine = lock.owned_by(&client.owner());
    let reader = mine.read().lock().await.expect("free");
    let told = |outcome: Result<(), Error>| matches!(outcome, Err(Error::WouldDeadlock { .. }));
    assert!(told(within(PROMPT, "at once", mine.write().lock()).await.map(drop)));
    assert!(told(within(PROMPT, "at once", mine.write().try_lock_for(ms(60_000))).await.map(drop)));
    assert!(mine.write().try_lock().await.expect("an answer").is_none());
    assert!(told(within(PROMPT, "at once", lock.write().lock_with(&reader)).await.map(drop)));
    assert!(reader.is_valid());
    until_waiting(&lock.write(), 0).await;
    // Somebody else waits, and is no fool for that.
    assert!(lock.write().try_lock_for(ms(30)).await.expect("an answer").is_none());
    reader.unlock().await.expect("held");
    mine.write().try_lock().await.expect("an answer").expect("free").unlock().await.expect("held");
}

async fn an_owner_with_two_reads_is_known_by_either(rig: Rig) {
    let client = rig.client().await;
    let me = client.owner();
    let lock = client.read_write_lock(&rig.name()).owned_by(&me);
    for first_ends_first in [true, false] {
        for by_downgrade in [true, false] {
            let writer = within(PROMPT, "free", lock.write().lock()).await.expect("a turn");
            let first = lock.read().lock().await.expect("the same owner");
            let second = if by_downgrade {
                writer.downgrade().await.expect("held")
            } else {
                let second = lock.read().lock_with(&writer).await.expect("the same owner");
                writer.unlock().await.expect("held");
                second
            };
            let (one, other) = if first_ends_first { (first, second) } else { (second, first) };
            one.unlock().await.expect("held");
            assert!(other.is_valid() && lock.read().is_held_by(&me).await.expect("an answer"));
            let outcome = within(PROMPT, "it still reads, and is told so", lock.write().lock()).await;
            assert!(matches!(outcome, Err(Error::WouldDeadlock { .. })), "{outcome:?}");
            other.unlock().await.expect("held");
        }
    }
}

async fn a_thread_that_reads_after_a_downgrade_is_told(rig: Rig) {
    let body = move || {
        let lock = rig.blocking_client().read_write_lock(&rig.name());
        let reader = lock.write().lock().expect("free").downgrade().expect("held");
        assert!(lock.read().is_held_by_current_thread().expect("an answer"));
        let again = lock.read().try_lock().expect("an answer").expect("the same thread");
        let outcome = lock.write().try_lock_for(ms(500));
        assert!(matches!(outcome, Err(Error::WouldDeadlock { .. })), "{outcome:?}");
        again.unlock().expect("held");
        reader.unlock().expect("held");
        lock.write().try_lock().expect("an answer").expect("free").unlock().expect("held");
    };
    tokio::task::spawn_blocking(body).await.expect("no panic");
}

async fn a_downgrade_dropped_after_any_poll_leaves_nothing(rig: Rig) {
    let (one, two) = two(&rig).await;
    let mut unfinished = 0;
    for round in 0..200 {
        let writer = within(PROMPT, "all was given back", one.write().lock()).await.expect("a turn");
        let mut downgrade = Box::pin(writer.downgrade());
        let mut polls = round % 5;
        let polled = std::future::poll_fn(|context| match downgrade.as_mut().poll(context) {
            Poll::Pending if polls > 0 => {
                polls -= 1;
                Poll::Pending
            }
            outcome => Poll::Ready(outcome.is_pending()),
        });
        unfinished += usize::from(within(ms(20_000), "it is polled", polled).await);
    }
    eventually("nobody is left", PROMPT, async || two.inspect().await.is_ok_and(|seen| !seen.is_locked()))
        .await;
    // In memory each step is done with the first poll of it.
    assert!(unfinished > 0 || rig.is_memory());
    two.write().try_lock().await.expect("an answer").expect("free").unlock().await.expect("held");
}

async fn a_guard_of_another_lock_is_refused(rig: Rig) {
    let (one, two) = two(&rig).await;
    let client = rig.client().await;
    let elsewhere = client.read_write_lock(&rig.name());
    let writer = elsewhere.write().lock().await.expect("free");
    for lock in [&one, &two, &client.read_write_lock(&rig.name())] {
        let outcome = lock.read().lock_with(&writer).await;
        assert!(matches!(outcome, Err(Error::BadConfiguration { .. })), "{outcome:?}");
    }
    assert!(elsewhere.read().lock_with(&writer).await.is_ok());
}

async fn force_unlock_takes_one_side(rig: Rig) {
    let name = rig.name();
    let one =
        rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await.read_write_lock(&name);
    let two = rig.client().await.read_write_lock(&name);
    let readers = [one.read().lock().await.expect("free"), one.read().lock().await.expect("together")];
    let task = waiter(&two.write(), 0).await;
    assert!(!two.write().force_unlock().await.expect("an answer"), "nobody writes");
    assert!(readers.iter().all(Guard::is_valid) && !task.is_finished());
    assert!(two.read().force_unlock().await.expect("an answer"));
    let writer = within(PROMPT, "the writer is woken", task).await.expect("no panic");
    for reader in readers {
        assert_eq!(within(ms(3_000), "the reader hears of it", reader.lost()).await, LostReason::Taken);
    }
    let task = waiter(&one.read(), 0).await;
    assert!(!one.read().force_unlock().await.expect("an answer"), "nobody reads");
    assert!(one.write().force_unlock().await.expect("an answer"));
    let reader = within(PROMPT, "the reader is woken", task).await.expect("no panic");
    assert!(matches!(writer.unlock().await, Err(Error::Lost { .. })));
    assert!(reader.is_valid(), "the old writer's end did not touch it");
    reader.unlock().await.expect("held");
}

async fn a_look_shows_readers_and_the_writer(rig: Rig) {
    let (one, two) = two(&rig).await;
    let mine = one.lease(ms(20_000)).read().lock().await.expect("free");
    let again = mine.reenter().await.expect("held");
    let theirs = two.lease(ms(5_000)).read().lock().await.expect("together");
    let seen = one.inspect().await.expect("an answer");
    assert!(one.read().is_locked().await.unwrap() && !one.write().is_locked().await.unwrap());
    let look = |owner| seen.holders.iter().find(|holder| holder.owner == owner).expect("a reader");
    let (first, second) = (look(mine.owner_id().clone()), look(theirs.owner_id().clone()));
    assert_eq!((first.role, first.count, first.is_mine), (Role::Reader, 2, true));
    assert_eq!((second.role, second.count, second.is_mine), (Role::Reader, 1, false));
    assert!(first.ttl.expect("its own") > ms(15_000), "{seen:?}");
    assert!(second.ttl.expect("its own") <= ms(5_000), "{seen:?}");
    drop((mine, again));
    theirs.unlock().await.expect("held");
    let writer = within(PROMPT, "all have gone", two.write().lock()).await.expect("a turn");
    let seen = one.inspect().await.expect("an answer");
    assert_eq!((seen.holders.len(), seen.holders[0].role), (1, Role::Writer));
    assert_eq!((&seen.holders[0].owner, seen.holders[0].is_mine), (writer.owner_id(), false));
    assert!(one.write().is_locked().await.unwrap() && !one.read().is_locked().await.unwrap());
    assert!(seen.ttl.expect("a lease") > ms(25_000));
}

/// Redisson sets the expiry of the whole lock to its own lease when it renews a reader, however long others have.
async fn a_fixed_lease_that_a_neighbour_shortened_is_said_again(rig: Rig) {
    let mut plain = rig.plain().await;
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let (read, write) = (client.read_write_lock("read"), client.read_write_lock("write"));
    let guards = [
        read.lease(ms(9_000)).read().lock().await.expect("free"),
        write.lease(ms(9_000)).write().lock().await.expect("free"),
    ];
    for round in 0..2 {
        for guard in &guards {
            let _: () = plain.pexpire(guard.name(), 3_000).await.expect("an answer");
        }
        for guard in &guards {
            eventually("it is said again", ms(2_900), async || {
                plain.clone().pttl::<_, i64>(guard.name()).await.expect("an answer") > 3_000
            })
            .await;
            assert!(guard.is_valid(), "round {round} of {}", guard.name());
        }
    }
    for guard in guards {
        let end = guard.valid_until();
        guard.lost().await;
        assert!(std::time::Instant::now() + ms(100) >= end, "lost before its lease ended");
        let left: i64 = plain.pttl(guard.name()).await.expect("an answer");
        assert!(left <= 200, "and no longer than it: {left}");
    }
}
