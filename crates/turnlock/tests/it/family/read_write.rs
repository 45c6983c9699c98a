//! Many readers together, one writer alone, and each with its own lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tokio::task::JoinHandle;
use turnlock::{Client, Error, Guard, Lock, LostReason, ReadWriteLock};
use turnlock_testkit::{eventually, within};

use crate::rig::{NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    readers_go_together_and_a_writer_alone,
    readers_of_several_clients_keep_a_writer_out,
    a_writer_waits_for_the_longest_reader,
    a_writer_gets_in_when_the_last_short_lease_ends,
    giving_back_one_of_several_reads_keeps_the_longest,
    a_writer_gets_in_under_a_stream_of_readers,
    a_writer_that_gives_up_lets_readers_in,
    the_end_of_a_writer_wakes_all_readers,
];

/// The lock of one name in two clients.
pub(super) async fn two(rig: &Rig) -> (ReadWriteLock, ReadWriteLock) {
    let name = rig.name();
    (rig.client().await.read_write_lock(&name), rig.client().await.read_write_lock(&name))
}

/// A task that waits for one side, once it is known to wait.
pub(super) async fn waiter(lock: &Lock, before: usize) -> JoinHandle<Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(lock, before + 1).await;
    task
}

/// Two numbers that are the same whenever no writer is at work, and who is inside.
#[derive(Default)]
struct Book {
    pages: [AtomicU64; 2],
    readers: AtomicU64,
    writers: AtomicU64,
    most_readers: AtomicU64,
}

impl Book {
    async fn read(&self) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_readers.fetch_max(readers, Ordering::SeqCst);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a writer beside a reader");
        let first = self.pages[0].load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        assert_eq!(self.pages[1].load(Ordering::SeqCst), first, "a half-done write");
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    async fn write(&self) {
        assert_eq!(self.writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a reader beside a writer");
        for page in &self.pages {
            let value = page.load(Ordering::SeqCst);
            tokio::task::yield_now().await;
            page.store(value + 1, Ordering::SeqCst);
        }
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn readers_go_together_and_a_writer_alone(rig: Rig) {
    const CLIENTS: u64 = 3;
    const TURNS: u64 = 30;
    let (book, name) = (Arc::new(Book::default()), rig.name());
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let lock = rig.client().await.read_write_lock(&name);
        for task in 0..4 {
            let (lock, book) = (lock.clone(), Arc::clone(&book));
            tasks.push(tokio::spawn(async move {
                for turn in 0..TURNS {
                    let guard = if task == 0 {
                        let guard = lock.write().lock().await.expect("a turn");
                        book.write().await;
                        guard
                    } else {
                        let guard = lock.read().lock().await.expect("a turn");
                        book.read().await;
                        guard
                    };
                    if turn % 2 == 0 { guard.unlock().await.expect("held") } else { drop(guard) }
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("a task that saw nothing wrong");
    }
    assert_eq!(book.pages.each_ref().map(|page| page.load(Ordering::SeqCst)), [CLIENTS * TURNS; 2]);
    assert!(book.most_readers.load(Ordering::SeqCst) > 1, "readers never went together");
}

async fn readers_of_several_clients_keep_a_writer_out(rig: Rig) {
    let (one, two) = two(&rig).await;
    let first = one.read().lock().await.expect("free");
    let second = one.read().try_lock().await.expect("an answer").expect("readers go together");
    let third = two.read().try_lock().await.expect("an answer").expect("readers go together");
    for writer in [one.write(), two.write()] {
        assert!(writer.try_lock().await.expect("an answer").is_none());
    }
    let task = waiter(&two.write(), 0).await;
    for reader in [second, first] {
        reader.unlock().await.expect("held");
        assert!(!task.is_finished());
    }
    assert!(third.is_valid());
    third.unlock().await.expect("held");
    let writer = within(PROMPT, "the last reader's end is told", task).await.expect("no panic");
    for lock in [&one, &two] {
        assert!(lock.read().try_lock().await.expect("an answer").is_none());
        assert!(lock.write().try_lock().await.expect("an answer").is_none());
    }
    writer.unlock().await.expect("held");
}

async fn a_writer_waits_for_the_longest_reader(rig: Rig) {
    let (one, two) = two(&rig).await;
    let short = one.lease(ms(1_500)).read().lock().await.expect("free");
    let long = one.read().lock().await.expect("readers go together");
    let task = waiter(&two.write(), 0).await;
    assert_eq!(within(ms(1_500) + PROMPT, "the short one ends", short.lost()).await, LostReason::Expired);
    eventually("also on the store", PROMPT, async || {
        one.inspect().await.is_ok_and(|seen| seen.holders.len() == 1)
    })
    .await;
    assert!(long.is_valid() && !task.is_finished(), "the long one reads on");
    // The dead one has left its mark, which is in nobody's way.
    long.unlock().await.expect("held");
    let writer = within(PROMPT, "the writer is told", task).await.expect("no panic");
    assert!(matches!(short.unlock().await, Err(Error::Lost { .. })));
    assert!(writer.is_valid());
    writer.unlock().await.expect("held");
}

async fn a_writer_gets_in_when_the_last_short_lease_ends(rig: Rig) {
    let name = rig.name();
    let one = rig.client().await.read_write_lock(&name);
    // With the usual poll: nobody tells when a lease ends.
    let two = rig.client_with(Client::builder()).await.read_write_lock(&name);
    let short = one.lease(ms(1_500)).read().lock().await.expect("free");
    let long = one.read().lock().await.expect("readers go together");
    let task = waiter(&two.write(), 0).await;
    long.unlock().await.expect("held");
    let start = Instant::now();
    let writer = within(ms(1_500) + PROMPT, "the short lease ends", task).await.expect("no panic");
    assert!(!short.is_valid(), "a writer beside a reader after {:?}", start.elapsed());
    writer.unlock().await.expect("held");
}

async fn giving_back_one_of_several_reads_keeps_the_longest(rig: Rig) {
    let (one, two) = two(&rig).await;
    // Two owners.
    let long = one.lease(ms(20_000)).read().lock().await.expect("free");
    let short = one.lease(ms(2_000)).read().lock().await.expect("readers go together");
    short.unlock().await.expect("held");
    assert!(one.inspect().await.unwrap().ttl.expect("a lease") > ms(15_000));
    assert!(two.write().try_lock().await.expect("an answer").is_none());
    let short = two.lease(ms(2_000)).read().lock().await.expect("readers go together");
    long.unlock().await.expect("held");
    let seen = one.inspect().await.expect("an answer");
    assert!(seen.ttl.expect("a lease") <= ms(2_000), "the long lease went with its holder: {seen:?}");
    assert!(short.is_valid());
    short.unlock().await.expect("held");
    assert!(!one.inspect().await.unwrap().is_locked());
    // One owner that reads twice.
    let me = rig.client().await;
    let lock = me.read_write_lock(one.read().name()).owned_by(&me.owner());
    let long = lock.lease(ms(20_000)).read().lock().await.expect("free");
    let short = lock.lease(ms(2_000)).read().lock().await.expect("mine");
    assert_eq!(long.hold_count(), 2);
    for guard in [short, long] {
        let seen = one.inspect().await.expect("an answer");
        assert!(guard.is_valid() && seen.holders[0].ttl.expect("a lease") > ms(15_000), "{seen:?}");
        guard.unlock().await.expect("held");
    }
    assert!(!one.inspect().await.unwrap().is_locked());
}

async fn a_writer_gets_in_under_a_stream_of_readers(rig: Rig) {
    let (one, two) = two(&rig).await;
    let (stop, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut readers = Vec::new();
    for task in 0..6 {
        let lock = if task % 2 == 0 { one.read() } else { two.read() };
        let (stop, inside) = (Arc::clone(&stop), Arc::clone(&inside));
        readers.push(tokio::spawn(async move {
            tokio::time::sleep(ms(10 * task)).await;
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.lock().await.expect("a turn");
                inside.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(ms(60)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(guard);
            }
        }));
    }
    eventually("they overlap", ms(20_000), async || inside.load(Ordering::SeqCst) >= 3).await;
    for writer in [two.write(), one.write(), two.write()] {
        let guard = within(ms(20_000), "a writer gets in", writer.lock()).await.expect("a turn");
        assert_eq!(inside.load(Ordering::SeqCst), 0, "a reader beside a writer");
        guard.unlock().await.expect("held");
        eventually("readers go on", ms(20_000), async || inside.load(Ordering::SeqCst) >= 2).await;
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        within(ms(20_000), "each ends", reader).await.expect("no panic");
    }
    eventually("nobody is left", PROMPT, async || one.inspect().await.is_ok_and(|seen| !seen.is_locked()))
        .await;
}

async fn a_writer_that_gives_up_lets_readers_in(rig: Rig) {
    let (one, two) = two(&rig).await;
    let reader = one.read().lock().await.expect("free");
    for cancelled in [false, true] {
        let writer = two.write();
        // Longer than what comes before it gives up, on a busy machine too.
        let wait = if cancelled { NO_POLL } else { ms(5_000) };
        let waiting = tokio::spawn(async move { writer.try_lock_for(wait).await.expect("an answer") });
        until_waiting(&two.write(), 1).await;
        eventually("new readers stay behind it", ms(4_000), async || {
            one.read().try_lock().await.expect("an answer").is_none()
        })
        .await;
        let task = waiter(&one.read(), 0).await;
        if cancelled {
            waiting.abort();
            assert!(waiting.await.expect_err("cancelled").is_cancelled());
        } else {
            assert!(waiting.await.expect("no panic").is_none());
        }
        let second = within(PROMPT, "the reader is told", task).await.expect("no panic");
        second.unlock().await.expect("held");
    }
    reader.unlock().await.expect("held");
}

async fn the_end_of_a_writer_wakes_all_readers(rig: Rig) {
    let (one, two) = two(&rig).await;
    let writer = one.write().lock().await.expect("free");
    let mut readers = Vec::new();
    for before in 0..5 {
        readers.push(waiter(&one.read(), before).await);
        readers.push(waiter(&two.read(), before).await);
    }
    writer.unlock().await.expect("held");
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(within(PROMPT, "each reader gets in beside the others", reader).await.expect("no panic"));
    }
    assert!(guards.iter().all(Guard::is_valid));
    assert_eq!(one.inspect().await.expect("an answer").holders.len(), 10);
}
