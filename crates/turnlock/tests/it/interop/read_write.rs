//! Java's readers and writers, and ours.

use futures_util::FutureExt;
use redis::AsyncCommands;
use turnlock::{Error, LostReason, ReadWriteLock, Role};
use turnlock_testkit::{eventually, within};

use super::java::soon;
use super::{JavaCase, LIMIT, LONG, SOON, Visit};
use crate::cases;
use crate::rig::{keys_of_locks, ms};

pub(crate) const CASES: &[JavaCase] = cases![
    readers_of_both_go_together_and_keep_writers_out,
    javas_writer_keeps_readers_out_and_its_end_wakes_all,
    our_writer_keeps_readers_out_and_its_end_wakes_all,
    reading_twice_is_counted_by_each,
    a_writer_of_ours_becomes_a_reader_and_java_reads_beside_it,
    a_writer_of_javas_becomes_a_reader_and_we_read_beside_it,
    readers_are_thrown_out_by_force,
    each_reader_is_seen_with_its_own_lease,
    a_reader_that_leaves_does_not_shorten_the_others,
];

/// Waits for one of the sides, in a task.
fn turn_at(lock: &turnlock::Lock) -> tokio::task::JoinHandle<turnlock::Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.expect("a turn") })
}

async fn rw(visit: &Visit, name: &str) -> ReadWriteLock {
    visit.client().await.read_write_lock(name)
}

async fn readers_of_both_go_together_and_keep_writers_out(visit: Visit) {
    for name in visit.names() {
        let lock = rw(&visit, &name).await;
        let (reader, writer) = (visit.java("one").at("read"), visit.java("two").at("write"));
        // Java's goes first.
        reader.does(&name, "lock 60000").await;
        let guard = lock.read().lease(LONG).lock().await.expect("readers go together");
        reader.at("write").says(&name, "tryLock", "false").await;
        writer.says(&name, "tryLock", "false").await;
        assert!(lock.write().try_lock().await.expect("an answer").is_none());
        let mut turn = writer.begins(&name, "lock 60000");
        visit.until_listening(&name, 1).await;
        reader.does(&name, "unlock").await;
        assert!(guard.is_valid());
        assert!((&mut turn).now_or_never().is_none(), "one of two readers is left");
        guard.unlock().await.expect("held");
        soon(turn).await;
        writer.does(&name, "unlock").await;
        // Ours goes first.
        let guard = lock.read().lease(LONG).lock().await.expect("free");
        reader.does(&name, "lock 60000").await;
        let mut turn = turn_at(&lock.write());
        visit.until_listening(&name, 1).await;
        guard.unlock().await.expect("held");
        writer.says(&name, "tryLock", "false").await;
        assert!((&mut turn).now_or_never().is_none(), "one of two readers is left");
        reader.does(&name, "unlock").await;
        within(SOON, "the last reader wakes it", turn).await.expect("no panic").unlock().await.expect("held");
    }
}

async fn javas_writer_keeps_readers_out_and_its_end_wakes_all(visit: Visit) {
    let name = visit.name();
    let (lock, other) = (rw(&visit, &name).await, rw(&visit, &name).await);
    let writer = visit.java("one").at("write");
    writer.does(&name, "lock 60000").await;
    assert!(lock.read().try_lock().await.expect("an answer").is_none());
    let turns = [turn_at(&lock.read()), turn_at(&lock.read()), turn_at(&other.read())];
    visit.until_listening(&name, 2).await;
    writer.does(&name, "unlock").await;
    let mut guards = Vec::new();
    for turn in turns {
        guards.push(within(SOON, "all readers are woken", turn).await.expect("no panic"));
    }
    assert!(guards.iter().all(turnlock::Guard::is_valid));
    writer.says(&name, "tryLock", "false").await;
    for guard in guards {
        guard.unlock().await.expect("held");
    }
    writer.says(&name, "tryLock", "true").await;
    writer.does(&name, "unlock").await;
}

async fn our_writer_keeps_readers_out_and_its_end_wakes_all(visit: Visit) {
    let name = visit.name();
    let lock = rw(&visit, &name).await;
    let guard = lock.write().lease(LONG).lock().await.expect("free");
    let readers = ["one", "two", "three"].map(|thread| visit.java(thread).at("read"));
    readers[0].says(&name, "tryLock", "false").await;
    let before = visit.server().calls().await;
    let turns = readers.each_ref().map(|reader| reader.begins(&name, "lock 60000"));
    // Each asks once, subscribes, and asks again. A message wakes only those of Java's threads that wait already.
    let have_asked = async || {
        let calls = visit.server().calls().await.since(&before);
        calls.of("eval") + calls.of("evalsha") >= 2 * 3
    };
    eventually("all have been refused", LIMIT, have_asked).await;
    visit.until_listening(&name, 1).await;
    // Nothing tells when they have gone from the last refusal to their wait.
    tokio::time::sleep(ms(500)).await;
    guard.unlock().await.expect("held");
    for turn in turns {
        soon(turn).await;
    }
    assert!(lock.write().try_lock().await.expect("an answer").is_none());
    for reader in readers {
        reader.does(&name, "unlock").await;
    }
    lock.write().lock().await.expect("free").unlock().await.expect("held");
}

async fn reading_twice_is_counted_by_each(visit: Visit) {
    let name = visit.name();
    let lock = rw(&visit, &name).await;
    let reader = visit.java("one").at("read");
    reader.does(&name, "lock 60000").await;
    reader.does(&name, "lock 60000").await;
    let outer = lock.read().lease(LONG).lock().await.expect("readers go together");
    let inner = outer.reenter().await.expect("held");
    let turn = visit.java("two").at("write").begins(&name, "lock 60000");
    visit.until_listening(&name, 1).await;
    let seen = lock.inspect().await.expect("an answer");
    let mut counts: Vec<_> = seen.holders.iter().map(|holder| (holder.is_mine, holder.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [(false, 2), (true, 2)]);
    reader.says(&name, "holdCount", "2").await;
    outer.unlock().await.expect("held");
    reader.does(&name, "unlock").await;
    assert!(inner.is_valid());
    reader.says(&name, "holdCount", "1").await;
    inner.unlock().await.expect("held");
    assert!(lock.write().try_lock().await.expect("an answer").is_none());
    reader.does(&name, "unlock").await;
    soon(turn).await;
    visit.java("two").at("write").does(&name, "unlock").await;
    assert_eq!(keys_of_locks(&mut visit.plain().await).await, [""; 0], "nothing is left");
}

async fn a_writer_of_ours_becomes_a_reader_and_java_reads_beside_it(visit: Visit) {
    let name = visit.name();
    let lock = rw(&visit, &name).await;
    let guard = lock.write().lease(LONG).lock().await.expect("free");
    let (reader, writer) = (visit.java("one").at("read"), visit.java("two").at("write"));
    let turn = reader.begins(&name, "lock 60000");
    visit.until_listening(&name, 1).await;
    let guard = guard.downgrade().await.expect("held");
    // Redisson itself tells nobody here.
    soon(turn).await;
    writer.says(&name, "tryLock", "false").await;
    reader.does(&name, "unlock").await;
    writer.says(&name, "tryLock", "false").await;
    guard.unlock().await.expect("still held");
    writer.says(&name, "tryLock", "true").await;
    writer.does(&name, "unlock").await;
}

async fn a_writer_of_javas_becomes_a_reader_and_we_read_beside_it(visit: Visit) {
    let name = visit.name();
    let lock = rw(&visit, &name).await;
    let java = visit.java("one");
    java.at("write").does(&name, "lock 60000").await;
    java.at("read").does(&name, "lock 60000").await;
    assert!(lock.read().try_lock().await.expect("an answer").is_none());
    let seen = lock.inspect().await.expect("an answer");
    let owner = visit.owner("one").await;
    assert!(seen.holders.iter().all(|holder| holder.owner.as_str() == owner), "{seen:?}");
    let roles: Vec<_> = seen.holders.iter().map(|holder| holder.role).collect();
    assert!(roles.len() == 2 && roles.contains(&Role::Reader) && roles.contains(&Role::Writer), "{seen:?}");
    java.at("write").does(&name, "unlock").await;
    // Redisson tells nobody, so who waits finds it at its next look; who comes gets in at once.
    let guard = lock.read().lease(LONG).lock().await.expect("readers go together");
    java.at("read").does(&name, "unlock").await;
    visit.java("two").at("write").says(&name, "tryLock", "false").await;
    guard.unlock().await.expect("held");
    lock.write().lock().await.expect("free").unlock().await.expect("held");
}

async fn readers_are_thrown_out_by_force(visit: Visit) {
    let name = visit.name();
    let client = visit.hasty_client().await;
    let lock = client.read_write_lock(&name);
    let java = visit.java("one").at("read");
    let guard = lock.read().lock().await.expect("free");
    java.does(&name, "lock 60000").await;
    java.at("write").says(&name, "forceUnlock", "false").await;
    java.says(&name, "forceUnlock", "true").await;
    assert_eq!(within(SOON, "our reader hears of it", guard.lost()).await, LostReason::Taken);
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    java.holds_nothing(&name).await;
    // And the other way round.
    java.does(&name, "lock 60000").await;
    let turn = visit.java("two").at("write").begins(&name, "lock 60000");
    visit.until_listening(&name, 1).await;
    assert!(!lock.write().force_unlock().await.expect("an answer"));
    assert!(lock.read().force_unlock().await.expect("an answer"));
    soon(turn).await;
    java.holds_nothing(&name).await;
    assert!(!lock.read().force_unlock().await.expect("an answer"));
    assert!(lock.write().force_unlock().await.expect("an answer"));
    visit.java("two").at("write").holds_nothing(&name).await;
}

async fn each_reader_is_seen_with_its_own_lease(visit: Visit) {
    let name = visit.name();
    let lock = rw(&visit, &name).await;
    visit.java("one").at("read").does(&name, "lock 60000").await;
    visit.java("two").at("read").does(&name, "lock 20000").await;
    let _ours = lock.read().lease(ms(40_000)).lock().await.expect("readers go together");
    let seen = lock.inspect().await.expect("an answer");
    let mut holders = seen.holders.clone();
    holders.sort_by_key(|holder| holder.ttl);
    assert!(holders.iter().all(|holder| holder.role == Role::Reader && holder.count == 1), "{holders:?}");
    for (holder, most) in holders.iter().zip([20_000, 40_000, 60_000]) {
        let ttl = holder.ttl.expect("each has its own");
        assert!(ttl <= ms(most) && ttl > ms(most - 10_000), "{holders:?}");
    }
    assert_eq!(holders[0].owner.as_str(), visit.owner("two").await);
    assert_eq!(holders[2].owner.as_str(), visit.owner("one").await);
    assert!(holders[1].is_mine && !holders[0].is_mine && !holders[2].is_mine);
}

async fn a_reader_that_leaves_does_not_shorten_the_others(visit: Visit) {
    let (name, mut plain) = (visit.name(), visit.plain().await);
    let lock = rw(&visit, &name).await;
    let (short, long) = (visit.java("one").at("read"), visit.java("two").at("read"));
    let mut ttl = async || plain.pttl::<_, u64>(&name).await.expect("an answer");
    // Java's stays for a minute, ours comes and goes.
    long.does(&name, "lock 60000").await;
    let guard = lock.read().lease(ms(5_000)).lock().await.expect("readers go together");
    guard.unlock().await.expect("held");
    assert!(ttl().await > 50_000);
    long.does(&name, "unlock").await;
    // Ours stays for a minute, Java's comes and goes.
    let guard = lock.read().lease(LONG).lock().await.expect("free");
    short.does(&name, "lock 5000").await;
    short.does(&name, "unlock").await;
    assert!(ttl().await > 50_000);
    // One that dies leaves with its lease, and the writer is let in by the other's end.
    short.does(&name, "lock 100").await;
    let turn = turn_at(&lock.write());
    visit.until_listening(&name, 1).await;
    let key = format!("{{{name}}}:{}:rwlock_timeout:1", visit.owner("one").await);
    turnlock_testkit::eventually("it died", SOON, async || {
        !visit.plain().await.exists::<_, bool>(&key).await.expect("an answer")
    })
    .await;
    guard.unlock().await.expect("held");
    within(SOON, "the writer is told", turn).await.expect("no panic").unlock().await.expect("held");
}
