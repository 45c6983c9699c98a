//! Exclusion and wake-ups by message between Java and turnlock on several servers: behind sentinels, and in a cluster.
//!
//! There, both sides must use the same servers, and the same kind of channels.

use futures_util::FutureExt;
use redis::AsyncCommands;
use tokio::task::JoinHandle;
use turnlock::{Guard, Lock};

use super::any_mutex::{AnyGuard, AnyMutex};
use super::contention::{TASKS, take_turns};
use super::deployment::{Deployment, Topology};
use super::java_mutex::{JavaMutex, promptly};
use super::{Context, JavaCase, LONG_LEASE};
use crate::cases;
use crate::fixture::Kind;

/// The exclusive kinds that notify their waiters.
const MUTEXES: [Kind; 6] =
    [Kind::Lock, Kind::Fair, Kind::Fenced, Kind::Write, Kind::Semaphore, Kind::Permits];

const MUTEX_CASES: &[JavaCase] =
    cases![a_java_hold_excludes_us_and_its_release_wakes_us, our_hold_excludes_java_and_its_release_wakes_it];
const READER_CASES: &[JavaCase] =
    cases![readers_share_and_the_last_release_wakes_a_writer, the_release_of_a_writer_wakes_readers];
const LATCH_CASES: &[JavaCase] = cases![the_last_count_down_wakes_all_waiters];
const CONTENTION_CASES: &[JavaCase] = cases![no_increment_of_java_and_us_is_lost];

/// Increments of each thread and task.
const TURNS: usize = 300;

pub(super) fn cases() -> Vec<(&'static str, Kind, JavaCase)> {
    let mutexes = MUTEXES.into_iter().flat_map(|kind| MUTEX_CASES.iter().map(move |case| (kind, case)));
    let readers = READER_CASES.iter().map(|case| (Kind::Read, case));
    let latches = LATCH_CASES.iter().map(|case| (Kind::Latch, case));
    let contention = CONTENTION_CASES.iter().map(|case| (Kind::Lock, case));
    let all = mutexes.chain(readers).chain(latches).chain(contention);
    all.map(|(kind, case)| (kind.name(), kind, *case)).collect()
}

/// Names of the forms that Redisson supports everywhere, in slots of several nodes.
fn names(context: &Context) -> Vec<String> {
    let mut names = vec![context.name(), format!("é:{}", context.name())];
    // In a cluster, the channel of Redisson's latch is in another slot than such a name.
    if context.kind != Kind::Latch || context.deployment().topology() != Topology::Cluster {
        names.push(format!("a:{{{}}}:b", context.name()));
    }
    names
}

async fn a_java_hold_excludes_us_and_its_release_wakes_us(context: Context) {
    let (client, java) = (context.client().await, context.java("one"));
    for name in names(&context) {
        let (ours, theirs) =
            (AnyMutex::new(&client, context.kind, &name), JavaMutex::new(&java, context.kind, &name));
        ours.create().await;
        java_excludes_and_wakes_us(context.deployment(), &theirs, &ours, &name).await;
    }
}

async fn our_hold_excludes_java_and_its_release_wakes_it(context: Context) {
    let (client, java) = (context.client().await, context.java("one"));
    for name in names(&context) {
        let (ours, theirs) =
            (AnyMutex::new(&client, context.kind, &name), JavaMutex::new(&java, context.kind, &name));
        ours.create().await;
        we_exclude_and_wake_java(context.deployment(), &ours, &theirs, &name).await;
    }
}

/// Java holds the lock and we wait; its release wakes us.
pub(super) async fn java_excludes_and_wakes_us(
    deployment: &Deployment,
    theirs: &JavaMutex,
    ours: &AnyMutex,
    name: &str,
) {
    let held = theirs.lock().await;
    assert!(ours.try_lock().await.expect("a reply").is_none(), "{name}");
    let mut waiting = spawn_any_lock(ours);
    deployment.until_subscribed(name, 1).await;
    assert!((&mut waiting).now_or_never().is_none(), "it waits");
    theirs.unlock(&held).await;
    let guard = promptly("we are notified", waiting).await.expect("no panic");
    assert!(!theirs.try_lock_and_unlock().await.expect("a reply"), "{name}");
    guard.unlock().await;
}

/// We hold the lock and Java waits; our release wakes it.
pub(super) async fn we_exclude_and_wake_java(
    deployment: &Deployment,
    ours: &AnyMutex,
    theirs: &JavaMutex,
    name: &str,
) {
    let held = ours.clone().with_long_lease().lock().await.expect("free");
    assert!(!theirs.try_lock_and_unlock().await.expect("a reply"), "{name}");
    let mut waiting = theirs.start_lock();
    deployment.until_subscribed(name, 1).await;
    assert!((&mut waiting).now_or_never().is_none(), "it waits");
    held.unlock().await;
    let granted = JavaMutex::promptly(waiting).await;
    assert!(ours.try_lock().await.expect("a reply").is_none(), "{name}");
    theirs.unlock(&granted).await;
}

/// Spawns a task that waits for the lock.
pub(super) fn spawn_any_lock(mutex: &AnyMutex) -> JoinHandle<AnyGuard> {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.lock().await.expect("a turn") })
}

fn spawn_lock(lock: &Lock) -> JoinHandle<Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.expect("a turn") })
}

async fn readers_share_and_the_last_release_wakes_a_writer(context: Context) {
    let client = context.client().await;
    for name in names(&context) {
        let lock = client.read_write_lock(&name);
        let reader = JavaMutex::new(&context.java("one"), Kind::Read, &name);
        let writer = JavaMutex::new(&context.java("two"), Kind::Write, &name);
        // Our reader releases last, and Java's writer is woken.
        let read = reader.lock().await;
        let guard = lock.reader().with_lease(LONG_LEASE).lock().await.expect("readers share");
        assert!(!writer.try_lock_and_unlock().await.expect("a reply"), "{name}");
        let mut waiting = writer.start_lock();
        context.until_subscribed(&name, 1).await;
        reader.unlock(&read).await;
        assert!((&mut waiting).now_or_never().is_none(), "one of two readers is left");
        guard.unlock().await.expect("held");
        let written = JavaMutex::promptly(waiting).await;
        assert!(lock.reader().try_lock().await.expect("a reply").is_busy(), "{name}");
        writer.unlock(&written).await;
        // Java's reader releases last, and our writer is woken.
        let guard = lock.reader().with_lease(LONG_LEASE).lock().await.expect("free");
        let read = reader.lock().await;
        assert!(lock.writer().try_lock().await.expect("a reply").is_busy(), "{name}");
        let mut waiting = spawn_lock(&lock.writer());
        context.until_subscribed(&name, 1).await;
        guard.unlock().await.expect("held");
        assert!((&mut waiting).now_or_never().is_none(), "one of two readers is left");
        reader.unlock(&read).await;
        let guard = promptly("we are notified", waiting).await.expect("no panic");
        assert!(!reader.try_lock_and_unlock().await.expect("a reply"), "{name}");
        guard.unlock().await.expect("held");
    }
}

async fn the_release_of_a_writer_wakes_readers(context: Context) {
    let client = context.client().await;
    for name in names(&context) {
        let lock = client.read_write_lock(&name);
        let readers = ["one", "two"].map(|thread| JavaMutex::new(&context.java(thread), Kind::Read, &name));
        let writer = JavaMutex::new(&context.java("three"), Kind::Write, &name);
        // Our writer wakes both of Java's readers.
        let guard = lock.writer().with_lease(LONG_LEASE).lock().await.expect("free");
        assert!(!readers[0].try_lock_and_unlock().await.expect("a reply"), "{name}");
        let waiting = readers.each_ref().map(JavaMutex::start_lock);
        context.until_subscribed(&name, 1).await;
        guard.unlock().await.expect("held");
        for (reader, reply) in readers.iter().zip(waiting) {
            let read = JavaMutex::promptly(reply).await;
            reader.unlock(&read).await;
        }
        // Java's writer wakes both of our readers.
        let written = writer.lock().await;
        assert!(lock.reader().try_lock().await.expect("a reply").is_busy(), "{name}");
        let waiting = [spawn_lock(&lock.reader()), spawn_lock(&lock.reader())];
        context.until_subscribed(&name, 1).await;
        writer.unlock(&written).await;
        for turn in waiting {
            let guard = promptly("we are notified", turn).await.expect("no panic");
            guard.unlock().await.expect("held");
        }
    }
}

async fn the_last_count_down_wakes_all_waiters(context: Context) {
    let (java, waiter) = (context.java("one"), context.java("two"));
    for is_ours_last in [false, true] {
        for name in names(&context) {
            let latch = context.client().await.latch(&name);
            java.expect(&name, "trySetCount 2", "true").await;
            assert!(!latch.try_set_count(3).await.expect("a reply"), "{name}");
            let mut theirs = waiter.start(&name, "await");
            let waiting = latch.clone();
            let mut ours = tokio::spawn(async move { waiting.wait().await });
            context.until_subscribed(&name, 2).await;
            if is_ours_last {
                java.run(&name, "countDown").await;
                assert_eq!(latch.count().await.expect("a reply"), 1, "{name}");
            } else {
                assert_eq!(latch.count_down().await.expect("a reply"), 1, "{name}");
                java.expect(&name, "getCount", "1").await;
            }
            assert!(
                (&mut theirs).now_or_never().is_none() && (&mut ours).now_or_never().is_none(),
                "they wait"
            );
            if is_ours_last {
                assert_eq!(latch.count_down().await.expect("a reply"), 0, "{name}");
            } else {
                java.run(&name, "countDown").await;
            }
            promptly("we are notified", ours).await.expect("no panic").expect("a reply");
            JavaMutex::promptly(theirs).await;
        }
    }
}

async fn no_increment_of_java_and_us_is_lost(context: Context) {
    let (name, counter, client) = (context.name(), context.name(), context.client().await);
    let request = format!("herd {} {name} {counter} {TASKS} {TURNS}", context.kind.name());
    let java = context.redisson().thread(&counter).begin(&request);
    let server = context.deployment().master_of(&counter).await;
    take_turns(&client, &server.url(), [context.kind.name(), &name, &counter], TURNS).await;
    assert_eq!(java.await.expect("no exception"), (TASKS * TURNS).to_string());
    let count: usize = server.client().await.get(&counter).await.expect("a counter");
    assert_eq!(count, 2 * TASKS * TURNS);
}
