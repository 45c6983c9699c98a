//! Read-write locks: shared readers, an exclusive writer, and a lease for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::conformance::{Case, Fixture, NO_POLL, PROMPT, cases, ms, until_waiting};
use crate::{eventually, within};
use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard, Lock, LostReason, ReadWriteLock};

pub(super) const CASES: &[Case] = cases![
    readers_share_the_lock_and_a_writer_excludes_all,
    readers_of_several_clients_exclude_a_writer,
    a_writer_waits_for_the_longest_read_lease,
    a_writer_acquires_when_the_last_read_lease_expires,
    releasing_one_of_several_reads_leaves_the_longest_lease,
    a_writer_acquires_despite_a_stream_of_readers,
    a_writer_that_stops_waiting_lets_readers_in,
    a_release_by_a_writer_wakes_all_readers,
];

/// Returns the lock of one name in two clients.
pub(super) async fn two(fixture: &Fixture) -> (ReadWriteLock, ReadWriteLock) {
    let name = fixture.name();
    (fixture.client().await.read_write_lock(&name), fixture.client().await.read_write_lock(&name))
}

/// Spawns a task that waits to read or to write, and returns once it waits.
pub(super) async fn waiter(lock: &Lock, before: usize) -> JoinHandle<Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_waiting(lock, before + 1).await;
    task
}

/// Two numbers that are equal unless a writer is inside, and the numbers of tasks inside.
#[derive(Default)]
struct SharedPair {
    values: [AtomicU64; 2],
    readers: AtomicU64,
    writers: AtomicU64,
    most_readers: AtomicU64,
}

impl SharedPair {
    async fn read(&self) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_readers.fetch_max(readers, Ordering::SeqCst);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a writer beside a reader");
        let first = self.values[0].load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        assert_eq!(self.values[1].load(Ordering::SeqCst), first, "a half-done write");
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    async fn write(&self) {
        assert_eq!(self.writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a reader beside a writer");
        for value in &self.values {
            let old = value.load(Ordering::SeqCst);
            tokio::task::yield_now().await;
            value.store(old + 1, Ordering::SeqCst);
        }
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn readers_share_the_lock_and_a_writer_excludes_all(fixture: Fixture) {
    const CLIENTS: u64 = 3;
    const TURNS: u64 = 30;
    let (pair, name) = (Arc::new(SharedPair::default()), fixture.name());
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let lock = fixture.client().await.read_write_lock(&name);
        for task in 0..4 {
            let (lock, pair) = (lock.clone(), Arc::clone(&pair));
            tasks.push(tokio::spawn(async move {
                for turn in 0..TURNS {
                    let guard = if task == 0 {
                        let guard = lock.writer().lock().await.expect("acquired");
                        pair.write().await;
                        guard
                    } else {
                        let guard = lock.reader().lock().await.expect("acquired");
                        pair.read().await;
                        guard
                    };
                    if turn % 2 == 0 { guard.unlock().await.expect("held") } else { drop(guard) }
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("the task saw no conflict");
    }
    assert_eq!(pair.values.each_ref().map(|value| value.load(Ordering::SeqCst)), [CLIENTS * TURNS; 2]);
    assert!(pair.most_readers.load(Ordering::SeqCst) > 1, "readers never shared the lock");
}

async fn readers_of_several_clients_exclude_a_writer(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let first = one.reader().lock().await.expect("free");
    let second = one.reader().try_lock().await.expect("a reply").acquired().expect("readers share the lock");
    let third = two.reader().try_lock().await.expect("a reply").acquired().expect("readers share the lock");
    for writer in [one.writer(), two.writer()] {
        assert!(writer.try_lock().await.expect("a reply").is_busy());
    }
    let task = waiter(&two.writer(), 0).await;
    for reader in [second, first] {
        reader.unlock().await.expect("held");
        assert!(!task.is_finished());
    }
    assert!(third.is_valid());
    third.unlock().await.expect("held");
    let writer = within(PROMPT, "the writer is woken", task).await.expect("no panic");
    for lock in [&one, &two] {
        assert!(lock.reader().try_lock().await.expect("a reply").is_busy());
        assert!(lock.writer().try_lock().await.expect("a reply").is_busy());
    }
    writer.unlock().await.expect("held");
}

async fn a_writer_waits_for_the_longest_read_lease(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let short = one.with_lease(ms(1_500)).reader().lock().await.expect("free");
    let long = one.reader().lock().await.expect("readers share the lock");
    let task = waiter(&two.writer(), 0).await;
    assert_eq!(within(ms(1_500) + PROMPT, "the short lease ends", short.lost()).await, LostReason::Expired);
    eventually("also in the store", PROMPT, async || {
        one.inspect().await.is_ok_and(|seen| seen.holders.len() == 1)
    })
    .await;
    assert!(long.is_valid() && !task.is_finished(), "the long lease continues");
    // The expired reader has left a mark in the store, which blocks no other owner.
    long.unlock().await.expect("held");
    let writer = within(PROMPT, "the writer is woken", task).await.expect("no panic");
    assert!(matches!(short.unlock().await, Err(Error::Lost { .. })));
    assert!(writer.is_valid());
    writer.unlock().await.expect("held");
}

async fn a_writer_acquires_when_the_last_read_lease_expires(fixture: Fixture) {
    let name = fixture.name();
    let one = fixture.client().await.read_write_lock(&name);
    // With the default poll interval, because the end of a lease sends no message.
    let two = fixture.client_with(Client::builder()).await.read_write_lock(&name);
    let short = one.with_lease(ms(1_500)).reader().lock().await.expect("free");
    let long = one.reader().lock().await.expect("readers share the lock");
    let task = waiter(&two.writer(), 0).await;
    long.unlock().await.expect("held");
    let start = Instant::now();
    let writer = within(ms(1_500) + PROMPT, "the short lease ends", task).await.expect("no panic");
    assert!(!short.is_valid(), "a writer beside a reader after {:?}", start.elapsed());
    writer.unlock().await.expect("held");
}

async fn releasing_one_of_several_reads_leaves_the_longest_lease(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    // Two owners.
    let long = one.with_lease(ms(20_000)).reader().lock().await.expect("free");
    let short = one.with_lease(ms(2_000)).reader().lock().await.expect("readers share the lock");
    short.unlock().await.expect("held");
    assert!(one.inspect().await.unwrap().ttl.expect("a lease") > ms(15_000));
    assert!(two.writer().try_lock().await.expect("a reply").is_busy());
    let short = two.with_lease(ms(2_000)).reader().lock().await.expect("readers share the lock");
    long.unlock().await.expect("held");
    let seen = one.inspect().await.expect("a reply");
    assert!(seen.ttl.expect("a lease") <= ms(2_000), "the long lease ended with its holder: {seen:?}");
    assert!(short.is_valid());
    short.unlock().await.expect("held");
    assert!(!one.inspect().await.unwrap().is_locked());
    // One owner with two reads.
    let client = fixture.client().await;
    let lock = client.read_write_lock(one.reader().name()).with_owner(&client.owner());
    let long = lock.with_lease(ms(20_000)).reader().lock().await.expect("free");
    let short = lock.with_lease(ms(2_000)).reader().lock().await.expect("the same owner");
    assert_eq!(long.hold_count(), 2);
    for guard in [short, long] {
        let seen = one.inspect().await.expect("a reply");
        assert!(guard.is_valid() && seen.holders[0].ttl.expect("a lease") > ms(15_000), "{seen:?}");
        guard.unlock().await.expect("held");
    }
    assert!(!one.inspect().await.unwrap().is_locked());
}

async fn a_writer_acquires_despite_a_stream_of_readers(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let (stop, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut readers = Vec::new();
    for task in 0..6 {
        let lock = if task % 2 == 0 { one.reader() } else { two.reader() };
        let (stop, inside) = (Arc::clone(&stop), Arc::clone(&inside));
        readers.push(tokio::spawn(async move {
            tokio::time::sleep(ms(10 * task)).await;
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.lock().await.expect("acquired");
                inside.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(ms(60)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
            }
        }));
    }
    eventually("readers overlap", ms(20_000), async || inside.load(Ordering::SeqCst) >= 3).await;
    for writer in [two.writer(), one.writer(), two.writer()] {
        let guard = within(ms(20_000), "the writer acquires", writer.lock()).await.expect("acquired");
        assert_eq!(inside.load(Ordering::SeqCst), 0, "a reader beside a writer");
        guard.unlock().await.expect("held");
        eventually("readers continue", ms(20_000), async || inside.load(Ordering::SeqCst) >= 2).await;
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        within(ms(20_000), "each reader ends", reader).await.expect("no panic");
    }
    eventually("no holder is left", PROMPT, async || one.inspect().await.is_ok_and(|seen| !seen.is_locked()))
        .await;
}

async fn a_writer_that_stops_waiting_lets_readers_in(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let reader = one.reader().lock().await.expect("free");
    for cancelled in [false, true] {
        let writer = two.writer();
        // Longer than the steps before its time-out, also on a busy machine.
        let wait = if cancelled { NO_POLL } else { ms(5_000) };
        let waiting = tokio::spawn(async move { writer.try_lock_for(wait).await.expect("a reply") });
        until_waiting(&two.writer(), 1).await;
        eventually("new readers wait behind the writer", ms(4_000), async || {
            one.reader().try_lock().await.expect("a reply").is_busy()
        })
        .await;
        let task = waiter(&one.reader(), 0).await;
        if cancelled {
            waiting.abort();
            assert!(waiting.await.expect_err("cancelled").is_cancelled());
        } else {
            assert!(waiting.await.expect("no panic").is_busy());
        }
        let second = within(PROMPT, "the reader is woken", task).await.expect("no panic");
        second.unlock().await.expect("held");
    }
    reader.unlock().await.expect("held");
}

async fn a_release_by_a_writer_wakes_all_readers(fixture: Fixture) {
    let (one, two) = two(&fixture).await;
    let writer = one.writer().lock().await.expect("free");
    let mut readers = Vec::new();
    for before in 0..5 {
        readers.push(waiter(&one.reader(), before).await);
        readers.push(waiter(&two.reader(), before).await);
    }
    writer.unlock().await.expect("held");
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(within(PROMPT, "each reader acquires", reader).await.expect("no panic"));
    }
    assert!(guards.iter().all(Guard::is_valid));
    assert_eq!(one.inspect().await.expect("a reply").holders.len(), 10);
}
