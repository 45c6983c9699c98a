//! Readers and writers of Java and of turnlock.

use futures_util::FutureExt;
use redis::AsyncCommands;
use turnlock::{Error, LostReason, ReadWriteLock, Role};
use turnlock_testkit::{eventually, within};

use super::java::woken;
use super::{Context, JavaCase, LONG_LEASE, SETUP_LIMIT, WAKE_UP_LIMIT};
use crate::cases;
use crate::fixture::{lock_keys, ms};

pub(crate) const CASES: &[JavaCase] = cases![
    readers_of_both_share_and_exclude_writers,
    javas_writer_excludes_readers_and_its_release_wakes_all,
    our_writer_excludes_readers_and_its_release_wakes_all,
    reentrant_reads_are_counted_for_each_owner,
    our_downgraded_writer_shares_with_java_readers,
    javas_downgraded_writer_shares_with_our_readers,
    readers_are_force_unlocked,
    each_reader_is_seen_with_its_own_lease,
    a_released_reader_does_not_shorten_the_others,
];

/// Spawns a task that waits for the read or the write lock.
fn spawn_lock(lock: &turnlock::Lock) -> tokio::task::JoinHandle<turnlock::Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.expect("a turn") })
}

async fn rw(context: &Context, name: &str) -> ReadWriteLock {
    context.client().await.read_write_lock(name)
}

async fn readers_of_both_share_and_exclude_writers(context: Context) {
    for name in context.names() {
        let lock = rw(&context, &name).await;
        let (reader, writer) = (context.java("one").at("read"), context.java("two").at("write"));
        // Java's reader comes first.
        reader.run(&name, "lock 60000").await;
        let guard = lock.reader().with_lease(LONG_LEASE).lock().await.expect("readers share");
        reader.at("write").expect(&name, "tryLock", "false").await;
        writer.expect(&name, "tryLock", "false").await;
        assert!(lock.writer().try_lock().await.expect("a reply").is_busy());
        let mut turn = writer.start(&name, "lock 60000");
        context.until_subscribed(&name, 1).await;
        reader.run(&name, "unlock").await;
        assert!(guard.is_valid());
        assert!((&mut turn).now_or_never().is_none(), "one of two readers is left");
        guard.unlock().await.expect("held");
        woken(turn).await;
        writer.run(&name, "unlock").await;
        // Our reader comes first.
        let guard = lock.reader().with_lease(LONG_LEASE).lock().await.expect("free");
        reader.run(&name, "lock 60000").await;
        let mut turn = spawn_lock(&lock.writer());
        context.until_subscribed(&name, 1).await;
        guard.unlock().await.expect("held");
        writer.expect(&name, "tryLock", "false").await;
        assert!((&mut turn).now_or_never().is_none(), "one of two readers is left");
        reader.run(&name, "unlock").await;
        within(WAKE_UP_LIMIT, "the last reader wakes it", turn)
            .await
            .expect("no panic")
            .unlock()
            .await
            .expect("held");
    }
}

async fn javas_writer_excludes_readers_and_its_release_wakes_all(context: Context) {
    let name = context.name();
    let (lock, other) = (rw(&context, &name).await, rw(&context, &name).await);
    let writer = context.java("one").at("write");
    writer.run(&name, "lock 60000").await;
    assert!(lock.reader().try_lock().await.expect("a reply").is_busy());
    let turns = [spawn_lock(&lock.reader()), spawn_lock(&lock.reader()), spawn_lock(&other.reader())];
    context.until_subscribed(&name, 2).await;
    writer.run(&name, "unlock").await;
    let mut guards = Vec::new();
    for turn in turns {
        guards.push(within(WAKE_UP_LIMIT, "all readers are woken", turn).await.expect("no panic"));
    }
    assert!(guards.iter().all(turnlock::Guard::is_valid));
    writer.expect(&name, "tryLock", "false").await;
    for guard in guards {
        guard.unlock().await.expect("held");
    }
    writer.expect(&name, "tryLock", "true").await;
    writer.run(&name, "unlock").await;
}

async fn our_writer_excludes_readers_and_its_release_wakes_all(context: Context) {
    let name = context.name();
    let lock = rw(&context, &name).await;
    let guard = lock.writer().with_lease(LONG_LEASE).lock().await.expect("free");
    let readers = ["one", "two", "three"].map(|thread| context.java(thread).at("read"));
    readers[0].expect(&name, "tryLock", "false").await;
    let before = context.server().calls().await;
    let turns = readers.each_ref().map(|reader| reader.start(&name, "lock 60000"));
    // Each thread tries once, subscribes, and tries again. A message wakes only those Java threads that already wait.
    let have_tried = async || {
        let calls = context.server().calls().await.since(&before);
        calls.of("eval") + calls.of("evalsha") >= 2 * 3
    };
    eventually("all have been refused", SETUP_LIMIT, have_tried).await;
    context.until_subscribed(&name, 1).await;
    // Nothing shows when they have gone from the last refusal to their wait.
    tokio::time::sleep(ms(500)).await;
    guard.unlock().await.expect("held");
    for turn in turns {
        woken(turn).await;
    }
    assert!(lock.writer().try_lock().await.expect("a reply").is_busy());
    for reader in readers {
        reader.run(&name, "unlock").await;
    }
    lock.writer().lock().await.expect("free").unlock().await.expect("held");
}

async fn reentrant_reads_are_counted_for_each_owner(context: Context) {
    let name = context.name();
    let lock = rw(&context, &name).await;
    let reader = context.java("one").at("read");
    reader.run(&name, "lock 60000").await;
    reader.run(&name, "lock 60000").await;
    let outer = lock.reader().with_lease(LONG_LEASE).lock().await.expect("readers share");
    let inner = outer.reenter().await.expect("held");
    let turn = context.java("two").at("write").start(&name, "lock 60000");
    context.until_subscribed(&name, 1).await;
    let seen = lock.inspect().await.expect("a reply");
    let mut counts: Vec<_> = seen.holders.iter().map(|holder| (holder.is_mine, holder.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [(false, 2), (true, 2)]);
    reader.expect(&name, "holdCount", "2").await;
    outer.unlock().await.expect("held");
    reader.run(&name, "unlock").await;
    assert!(inner.is_valid());
    reader.expect(&name, "holdCount", "1").await;
    inner.unlock().await.expect("held");
    assert!(lock.writer().try_lock().await.expect("a reply").is_busy());
    reader.run(&name, "unlock").await;
    woken(turn).await;
    context.java("two").at("write").run(&name, "unlock").await;
    assert_eq!(lock_keys(&mut context.plain().await).await, [""; 0], "nothing is left");
}

async fn our_downgraded_writer_shares_with_java_readers(context: Context) {
    let name = context.name();
    let lock = rw(&context, &name).await;
    let guard = lock.with_lease(LONG_LEASE).write().await.expect("free");
    let (reader, writer) = (context.java("one").at("read"), context.java("two").at("write"));
    let turn = reader.start(&name, "lock 60000");
    context.until_subscribed(&name, 1).await;
    let guard = guard.downgrade().await.expect("held");
    // Redisson itself publishes nothing on a downgrade.
    woken(turn).await;
    writer.expect(&name, "tryLock", "false").await;
    reader.run(&name, "unlock").await;
    writer.expect(&name, "tryLock", "false").await;
    guard.unlock().await.expect("still held");
    writer.expect(&name, "tryLock", "true").await;
    writer.run(&name, "unlock").await;
}

async fn javas_downgraded_writer_shares_with_our_readers(context: Context) {
    let name = context.name();
    let lock = rw(&context, &name).await;
    let java = context.java("one");
    java.at("write").run(&name, "lock 60000").await;
    java.at("read").run(&name, "lock 60000").await;
    assert!(lock.reader().try_lock().await.expect("a reply").is_busy());
    let seen = lock.inspect().await.expect("a reply");
    let owner = context.owner("one").await;
    assert!(seen.holders.iter().all(|holder| holder.owner.as_str() == owner), "{seen:?}");
    let roles: Vec<_> = seen.holders.iter().map(|holder| holder.role).collect();
    assert!(roles.len() == 2 && roles.contains(&Role::Reader) && roles.contains(&Role::Writer), "{seen:?}");
    java.at("write").run(&name, "unlock").await;
    // Redisson publishes nothing here: a waiter finds it free at its next poll, a new reader is granted it at once.
    let guard = lock.reader().with_lease(LONG_LEASE).lock().await.expect("readers share");
    java.at("read").run(&name, "unlock").await;
    context.java("two").at("write").expect(&name, "tryLock", "false").await;
    guard.unlock().await.expect("held");
    lock.writer().lock().await.expect("free").unlock().await.expect("held");
}

async fn readers_are_force_unlocked(context: Context) {
    let name = context.name();
    let client = context.short_lease_client().await;
    let lock = client.read_write_lock(&name);
    let java = context.java("one").at("read");
    let guard = lock.reader().lock().await.expect("free");
    java.run(&name, "lock 60000").await;
    java.at("write").expect(&name, "forceUnlock", "false").await;
    java.expect(&name, "forceUnlock", "true").await;
    assert_eq!(within(WAKE_UP_LIMIT, "our reader is notified", guard.lost()).await, LostReason::Taken);
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    java.expect_not_held(&name).await;
    // The other way round.
    java.run(&name, "lock 60000").await;
    let turn = context.java("two").at("write").start(&name, "lock 60000");
    context.until_subscribed(&name, 1).await;
    assert!(!lock.writer().force_unlock().await.expect("a reply"));
    assert!(lock.reader().force_unlock().await.expect("a reply"));
    woken(turn).await;
    java.expect_not_held(&name).await;
    assert!(!lock.reader().force_unlock().await.expect("a reply"));
    assert!(lock.writer().force_unlock().await.expect("a reply"));
    context.java("two").at("write").expect_not_held(&name).await;
}

async fn each_reader_is_seen_with_its_own_lease(context: Context) {
    let name = context.name();
    let lock = rw(&context, &name).await;
    context.java("one").at("read").run(&name, "lock 60000").await;
    context.java("two").at("read").run(&name, "lock 20000").await;
    let _ours = lock.reader().with_lease(ms(40_000)).lock().await.expect("readers share");
    let seen = lock.inspect().await.expect("a reply");
    let mut holders = seen.holders.clone();
    holders.sort_by_key(|holder| holder.ttl);
    assert!(holders.iter().all(|holder| holder.role == Role::Reader && holder.count == 1), "{holders:?}");
    for (holder, most) in holders.iter().zip([20_000, 40_000, 60_000]) {
        let ttl = holder.ttl.expect("each has its own");
        assert!(ttl <= ms(most) && ttl > ms(most - 10_000), "{holders:?}");
    }
    assert_eq!(holders[0].owner.as_str(), context.owner("two").await);
    assert_eq!(holders[2].owner.as_str(), context.owner("one").await);
    assert!(holders[1].is_mine && !holders[0].is_mine && !holders[2].is_mine);
}

async fn a_released_reader_does_not_shorten_the_others(context: Context) {
    let (name, mut plain) = (context.name(), context.plain().await);
    let lock = rw(&context, &name).await;
    let (short, long) = (context.java("one").at("read"), context.java("two").at("read"));
    let mut ttl = async || plain.pttl::<_, u64>(&name).await.expect("a reply");
    // Java's reader holds for a minute, ours is released before.
    long.run(&name, "lock 60000").await;
    let guard = lock.reader().with_lease(ms(5_000)).lock().await.expect("readers share");
    guard.unlock().await.expect("held");
    assert!(ttl().await > 50_000);
    long.run(&name, "unlock").await;
    // Our reader holds for a minute, Java's is released before.
    let guard = lock.reader().with_lease(LONG_LEASE).lock().await.expect("free");
    short.run(&name, "lock 5000").await;
    short.run(&name, "unlock").await;
    assert!(ttl().await > 50_000);
    // A dead reader ends with its lease, and the release of the other one admits the writer.
    short.run(&name, "lock 100").await;
    let turn = spawn_lock(&lock.writer());
    context.until_subscribed(&name, 1).await;
    let key = format!("{{{name}}}:{}:rwlock_timeout:1", context.owner("one").await);
    turnlock_testkit::eventually("its lease ends", WAKE_UP_LIMIT, async || {
        !context.plain().await.exists::<_, bool>(&key).await.expect("a reply")
    })
    .await;
    guard.unlock().await.expect("held");
    within(WAKE_UP_LIMIT, "the writer is notified", turn)
        .await
        .expect("no panic")
        .unlock()
        .await
        .expect("held");
}
