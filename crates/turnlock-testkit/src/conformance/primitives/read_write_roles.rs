//! The read and write roles of one owner, downgrades, and what `inspect` shows of them.

use std::task::Poll;

use turnlock::{Client, Error, Guard, LostReason, Role, blocking};

use super::read_write::{two, waiter};
use crate::conformance::{Case, Fixture, NO_POLL, PROMPT, cases, ms, until_waiting};
use crate::{eventually, within};

pub(super) const CASES: &[Case] = cases![
    a_writer_may_read,
    a_thread_that_writes_may_read,
    a_downgrade_lets_readers_in_and_keeps_writers_out,
    a_reader_that_requests_to_write_gets_would_deadlock_at_once,
    an_owner_with_two_read_holds_is_known_by_either,
    a_thread_that_downgraded_is_known_as_a_reader,
    a_downgrade_dropped_after_any_poll_leaves_nothing,
    a_guard_of_another_lock_is_refused,
    force_unlock_ends_either_the_readers_or_the_writer,
    inspect_shows_readers_and_the_writer,
];

async fn a_writer_may_read(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    // With a guard.
    let writer = one.writer().lock().await.expect("free");
    let reader = one.reader().lock_with(&writer).await.expect("a writer may read");
    let roles: Vec<_> = one.inspect().await.unwrap().holders.iter().map(|holder| holder.role).collect();
    assert!(roles.contains(&Role::Reader) && roles.contains(&Role::Writer), "{roles:?}");
    assert!(two.reader().try_lock().await.expect("a reply").is_busy(), "another owner may not read");
    writer.unlock().await.expect("held");
    assert!(reader.is_valid());
    let other = two.reader().try_lock().await.expect("a reply").acquired().expect("readers share the lock");
    assert!(two.writer().try_lock().await.expect("a reply").is_busy());
    drop(other);
    reader.unlock().await.expect("held");
    // With an owner, and the read released first.
    let client = fixture.client().await;
    let owned = client.read_write_lock(one.reader().name()).with_owner(&client.owner());
    let writer = within(PROMPT, "free", owned.writer().lock()).await.expect("acquired");
    let reader = owned.reader().try_lock().await.expect("a reply").acquired().expect("the same owner");
    let again =
        owned.reader().try_lock_for(ms(100)).await.expect("a reply").acquired().expect("the same owner");
    assert_eq!(again.hold_count(), 2);
    drop(again);
    reader.unlock().await.expect("held");
    assert!(writer.is_valid() && two.reader().try_lock().await.expect("a reply").is_busy());
    writer.unlock().await.expect("held");
    assert!(!two.inspect().await.unwrap().is_locked());
}

async fn a_thread_that_writes_may_read(fixture: Fixture) {
    let body = move || {
        let lock = fixture.blocking_client().read_write_lock(&fixture.name());
        let other = fixture.blocking_client().read_write_lock(lock.reader().name());
        let writer = lock.writer().lock().expect("free");
        let reader = lock.reader().lock().expect("the same thread");
        let refused = |lock: &blocking::Lock| lock.try_lock().expect("a reply").is_busy();
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| refused(&lock.reader()) && refused(&other.reader()));
            assert!(elsewhere.join().expect("no panic"), "another thread is another owner");
        });
        writer.unlock().expect("held");
        assert!(!refused(&other.reader()) && refused(&other.writer()));
        assert!(matches!(lock.writer().lock(), Err(Error::WouldDeadlock { .. })));
        assert!(refused(&lock.writer()));
        reader.unlock().expect("held");
        // The reader of the other client is being released.
        lock.writer().lock().expect("no reader is left").unlock().expect("held");
    };
    tokio::task::spawn_blocking(body).await.expect("no panic");
}

async fn a_downgrade_lets_readers_in_and_keeps_writers_out(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    for holder in [&one, &two] {
        let writer = holder.write().await.expect("free");
        let readers = [waiter(&one.reader(), 0).await, waiter(&two.reader(), 0).await];
        let reader = writer.downgrade().await.expect("held");
        let mut guards = vec![reader];
        for task in readers {
            guards.push(within(PROMPT, "the waiting reader is woken", task).await.expect("no panic"));
        }
        assert_eq!(one.inspect().await.expect("a reply").holders.len(), 3);
        let next = waiter(&two.writer(), 0).await;
        for guard in guards {
            assert!(guard.is_valid() && !next.is_finished(), "no writer before all readers have released");
            guard.unlock().await.expect("held");
        }
        let next = within(PROMPT, "the writer acquires", next).await.expect("no panic");
        next.unlock().await.expect("held");
    }
}

async fn a_reader_that_requests_to_write_gets_would_deadlock_at_once(fixture: Fixture) {
    let client = fixture.client().await;
    let lock = client.read_write_lock(&fixture.name());
    let owned = lock.with_owner(&client.owner());
    let reader = owned.reader().lock().await.expect("free");
    let is_deadlock = |outcome: Result<(), Error>| matches!(outcome, Err(Error::WouldDeadlock { .. }));
    assert!(is_deadlock(within(PROMPT, "at once", owned.writer().lock()).await.map(drop)));
    assert!(is_deadlock(within(PROMPT, "at once", owned.writer().try_lock_for(ms(60_000))).await.map(drop)));
    assert!(owned.writer().try_lock().await.expect("a reply").is_busy());
    assert!(is_deadlock(within(PROMPT, "at once", lock.writer().lock_with(&reader)).await.map(drop)));
    assert!(reader.is_valid());
    until_waiting(&lock.writer(), 0).await;
    // Another owner may wait.
    assert!(lock.writer().try_lock_for(ms(30)).await.expect("a reply").is_busy());
    reader.unlock().await.expect("held");
    owned.writer().try_lock().await.expect("a reply").acquired().expect("free").unlock().await.expect("held");
}

async fn an_owner_with_two_read_holds_is_known_by_either(fixture: Fixture) {
    let client = fixture.client().await;
    let owner = client.owner();
    let lock = client.read_write_lock(&fixture.name()).with_owner(&owner);
    for first_ends_first in [true, false] {
        for by_downgrade in [true, false] {
            let writer = within(PROMPT, "free", lock.write()).await.expect("acquired");
            let first = lock.reader().lock().await.expect("the same owner");
            let second = if by_downgrade {
                writer.downgrade().await.expect("held")
            } else {
                let second = lock.reader().lock_with(&writer).await.expect("the same owner");
                writer.unlock().await.expect("held");
                second
            };
            let (one, other) = if first_ends_first { (first, second) } else { (second, first) };
            one.unlock().await.expect("held");
            assert!(other.is_valid() && lock.reader().is_held_by(&owner).await.expect("a reply"));
            let outcome = within(PROMPT, "the owner still reads", lock.writer().lock()).await;
            assert!(matches!(outcome, Err(Error::WouldDeadlock { .. })), "{outcome:?}");
            other.unlock().await.expect("held");
        }
    }
}

async fn a_thread_that_downgraded_is_known_as_a_reader(fixture: Fixture) {
    let body = move || {
        let lock = fixture.blocking_client().read_write_lock(&fixture.name());
        let reader = lock.write().expect("free").downgrade().expect("held");
        assert!(lock.reader().is_held_by_current_thread().expect("a reply"));
        let again = lock.reader().try_lock().expect("a reply").acquired().expect("the same thread");
        let outcome = lock.writer().try_lock_for(ms(500));
        assert!(matches!(outcome, Err(Error::WouldDeadlock { .. })), "{outcome:?}");
        again.unlock().expect("held");
        reader.unlock().expect("held");
        lock.writer().try_lock().expect("a reply").acquired().expect("free").unlock().expect("held");
    };
    tokio::task::spawn_blocking(body).await.expect("no panic");
}

async fn a_downgrade_dropped_after_any_poll_leaves_nothing(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let mut unfinished = 0;
    for round in 0..200 {
        let writer = within(PROMPT, "all was released", one.write()).await.expect("acquired");
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
    eventually("no holder is left", PROMPT, async || two.inspect().await.is_ok_and(|seen| !seen.is_locked()))
        .await;
    // In memory the first poll completes each step.
    assert!(unfinished > 0 || fixture.store().replies_on_first_poll());
    two.writer().try_lock().await.expect("a reply").acquired().expect("free").unlock().await.expect("held");
}

async fn a_guard_of_another_lock_is_refused(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let client = fixture.client().await;
    let elsewhere = client.read_write_lock(&fixture.name());
    let writer = elsewhere.writer().lock().await.expect("free");
    for lock in [&one, &two, &client.read_write_lock(&fixture.name())] {
        let outcome = lock.reader().lock_with(&writer).await;
        assert!(matches!(outcome, Err(Error::BadArgument { .. })), "{outcome:?}");
    }
    assert!(elsewhere.reader().lock_with(&writer).await.is_ok());
}

async fn force_unlock_ends_either_the_readers_or_the_writer(fixture: Fixture) {
    let name = fixture.name();
    let one = fixture
        .client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL))
        .await
        .read_write_lock(&name);
    let two = fixture.client().await.read_write_lock(&name);
    let readers = [
        one.reader().lock().await.expect("free"),
        one.reader().lock().await.expect("readers share the lock"),
    ];
    let task = waiter(&two.writer(), 0).await;
    assert!(!two.writer().force_unlock().await.expect("a reply"), "there is no writer");
    assert!(readers.iter().all(Guard::is_valid) && !task.is_finished());
    assert!(two.reader().force_unlock().await.expect("a reply"));
    let writer = within(PROMPT, "the writer is woken", task).await.expect("no panic");
    for reader in readers {
        assert_eq!(within(ms(3_000), "the reader is notified", reader.lost()).await, LostReason::Taken);
    }
    let task = waiter(&one.reader(), 0).await;
    assert!(!one.reader().force_unlock().await.expect("a reply"), "there is no reader");
    assert!(one.writer().force_unlock().await.expect("a reply"));
    let reader = within(PROMPT, "the reader is woken", task).await.expect("no panic");
    assert!(matches!(writer.unlock().await, Err(Error::Lost { .. })));
    assert!(reader.is_valid(), "the old writer's release did not affect it");
    reader.unlock().await.expect("held");
}

async fn inspect_shows_readers_and_the_writer(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let ours = one.with_lease(ms(20_000)).reader().lock().await.expect("free");
    let again = ours.reenter().await.expect("held");
    let theirs = two.with_lease(ms(5_000)).reader().lock().await.expect("readers share the lock");
    let seen = one.inspect().await.expect("a reply");
    assert!(one.reader().is_locked().await.unwrap() && !one.writer().is_locked().await.unwrap());
    let find = |owner| seen.holders.iter().find(|holder| holder.owner == owner).expect("a reader");
    let (first, second) = (find(ours.owner_id().clone()), find(theirs.owner_id().clone()));
    assert_eq!((first.role, first.count, first.is_mine), (Role::Reader, 2, true));
    assert_eq!((second.role, second.count, second.is_mine), (Role::Reader, 1, false));
    assert!(first.ttl.expect("its own lease") > ms(15_000), "{seen:?}");
    assert!(second.ttl.expect("its own lease") <= ms(5_000), "{seen:?}");
    drop((ours, again));
    theirs.unlock().await.expect("held");
    let writer = within(PROMPT, "all have released", two.writer().lock()).await.expect("acquired");
    let seen = one.inspect().await.expect("a reply");
    assert_eq!((seen.holders.len(), seen.holders[0].role), (1, Role::Writer));
    assert_eq!((&seen.holders[0].owner, seen.holders[0].is_mine), (writer.owner_id(), false));
    assert!(one.writer().is_locked().await.unwrap() && !one.reader().is_locked().await.unwrap());
    assert!(seen.ttl.expect("a lease") > ms(25_000));
}
