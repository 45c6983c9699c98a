//! Each keeps the other out and wakes it by message, where there are several servers: behind sentinels, and in a cluster.
//! There, both sides must have chosen the same servers, and the same kind of messages.

use futures_util::FutureExt;
use redis::AsyncCommands;
use tokio::task::JoinHandle;
use turnlock::{Guard, Lock};

use super::gate::{Gate, Turn};
use super::herd::{MEMBERS, take_turns};
use super::java_gate::{JavaGate, promptly};
use super::site::{Shape, Site};
use super::{JavaCase, LONG, Visit};
use crate::cases;
use crate::rig::Kind;

/// Everything that lets one in at a time, and tells.
const GATES: [Kind; 6] = [Kind::Lock, Kind::Fair, Kind::Fenced, Kind::Write, Kind::Semaphore, Kind::Permits];

const OF_GATES: &[JavaCase] =
    cases![java_keeps_us_out_and_wakes_us_by_message, we_keep_java_out_and_wake_it_by_message];
const OF_READERS: &[JavaCase] =
    cases![readers_go_together_and_their_last_end_is_told, the_end_of_a_writer_is_told_to_readers];
const OF_LATCHES: &[JavaCase] = cases![the_end_of_a_count_is_told];
const OF_HERDS: &[JavaCase] = cases![turns_of_java_and_us_lose_none];

/// Of each thread and task.
const TURNS: usize = 300;

pub(super) fn cases() -> Vec<(&'static str, Kind, JavaCase)> {
    let gates = GATES.into_iter().flat_map(|kind| OF_GATES.iter().map(move |case| (kind, case)));
    let readers = OF_READERS.iter().map(|case| (Kind::Read, case));
    let latches = OF_LATCHES.iter().map(|case| (Kind::Latch, case));
    let herds = OF_HERDS.iter().map(|case| (Kind::Lock, case));
    let all = gates.chain(readers).chain(latches).chain(herds);
    all.map(|(kind, case)| (kind.name(), kind, *case)).collect()
}

/// Names of the forms that Redisson can use everywhere, in slots of several nodes.
fn names(visit: &Visit) -> Vec<String> {
    let mut names = vec![visit.name(), format!("é:{}", visit.name())];
    // In a cluster, Redisson's latch has its channel in another slot than such a name.
    if visit.kind != Kind::Latch || visit.site().shape() != Shape::Cluster {
        names.push(format!("a:{{{}}}:b", visit.name()));
    }
    names
}

async fn java_keeps_us_out_and_wakes_us_by_message(visit: Visit) {
    let (client, java) = (visit.client().await, visit.java("one"));
    for name in names(&visit) {
        let (ours, theirs) = (Gate::new(&client, visit.kind, &name), JavaGate::new(&java, visit.kind, &name));
        ours.open().await;
        java_lets_us_in(visit.site(), &theirs, &ours, &name).await;
    }
}

async fn we_keep_java_out_and_wake_it_by_message(visit: Visit) {
    let (client, java) = (visit.client().await, visit.java("one"));
    for name in names(&visit) {
        let (ours, theirs) = (Gate::new(&client, visit.kind, &name), JavaGate::new(&java, visit.kind, &name));
        ours.open().await;
        we_let_java_in(visit.site(), &ours, &theirs, &name).await;
    }
}

/// Java is in, and we are not; then it leaves, and tells us.
pub(super) async fn java_lets_us_in(site: &Site, theirs: &JavaGate, ours: &Gate, name: &str) {
    let held = theirs.enters().await;
    assert!(ours.try_enter().await.expect("an answer").is_none(), "{name}");
    let mut waiting = wait_at(ours);
    site.until_listening(name, 1).await;
    assert!((&mut waiting).now_or_never().is_none(), "it waits");
    theirs.leaves(&held).await;
    let turn = promptly("we are told", waiting).await.expect("no panic");
    assert!(!theirs.gets_in().await.expect("an answer"), "{name}");
    turn.leave().await;
}

/// We are in, and Java is not; then we leave, and tell it.
pub(super) async fn we_let_java_in(site: &Site, ours: &Gate, theirs: &JavaGate, name: &str) {
    let held = ours.clone().for_long().enter().await.expect("free");
    assert!(!theirs.gets_in().await.expect("an answer"), "{name}");
    let mut waiting = theirs.begins_to_enter();
    site.until_listening(name, 1).await;
    assert!((&mut waiting).now_or_never().is_none(), "it waits");
    held.leave().await;
    let turn = JavaGate::promptly(waiting).await;
    assert!(ours.try_enter().await.expect("an answer").is_none(), "{name}");
    theirs.leaves(&turn).await;
}

/// One of ours that waits for its turn.
pub(super) fn wait_at(gate: &Gate) -> JoinHandle<Turn> {
    let gate = gate.clone();
    tokio::spawn(async move { gate.enter().await.expect("a turn") })
}

fn turn_at(lock: &Lock) -> JoinHandle<Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.expect("a turn") })
}

async fn readers_go_together_and_their_last_end_is_told(visit: Visit) {
    let client = visit.client().await;
    for name in names(&visit) {
        let lock = client.read_write_lock(&name);
        let reader = JavaGate::new(&visit.java("one"), Kind::Read, &name);
        let writer = JavaGate::new(&visit.java("two"), Kind::Write, &name);
        // Ours leaves last, and Java's writer is told.
        let read = reader.enters().await;
        let guard = lock.read().lease(LONG).lock().await.expect("readers go together");
        assert!(!writer.gets_in().await.expect("an answer"), "{name}");
        let mut waiting = writer.begins_to_enter();
        visit.until_listening(&name, 1).await;
        reader.leaves(&read).await;
        assert!((&mut waiting).now_or_never().is_none(), "one of two readers is left");
        guard.unlock().await.expect("held");
        let written = JavaGate::promptly(waiting).await;
        assert!(lock.read().try_lock().await.expect("an answer").is_none(), "{name}");
        writer.leaves(&written).await;
        // Java's leaves last, and our writer is told.
        let guard = lock.read().lease(LONG).lock().await.expect("free");
        let read = reader.enters().await;
        assert!(lock.write().try_lock().await.expect("an answer").is_none(), "{name}");
        let mut waiting = turn_at(&lock.write());
        visit.until_listening(&name, 1).await;
        guard.unlock().await.expect("held");
        assert!((&mut waiting).now_or_never().is_none(), "one of two readers is left");
        reader.leaves(&read).await;
        let guard = promptly("we are told", waiting).await.expect("no panic");
        assert!(!reader.gets_in().await.expect("an answer"), "{name}");
        guard.unlock().await.expect("held");
    }
}

async fn the_end_of_a_writer_is_told_to_readers(visit: Visit) {
    let client = visit.client().await;
    for name in names(&visit) {
        let lock = client.read_write_lock(&name);
        let readers = ["one", "two"].map(|thread| JavaGate::new(&visit.java(thread), Kind::Read, &name));
        let writer = JavaGate::new(&visit.java("three"), Kind::Write, &name);
        // Ours tells both of Java's.
        let guard = lock.write().lease(LONG).lock().await.expect("free");
        assert!(!readers[0].gets_in().await.expect("an answer"), "{name}");
        let waiting = readers.each_ref().map(JavaGate::begins_to_enter);
        visit.until_listening(&name, 1).await;
        guard.unlock().await.expect("held");
        for (reader, answer) in readers.iter().zip(waiting) {
            let read = JavaGate::promptly(answer).await;
            reader.leaves(&read).await;
        }
        // Java's tells both of ours.
        let written = writer.enters().await;
        assert!(lock.read().try_lock().await.expect("an answer").is_none(), "{name}");
        let waiting = [turn_at(&lock.read()), turn_at(&lock.read())];
        visit.until_listening(&name, 1).await;
        writer.leaves(&written).await;
        for turn in waiting {
            let guard = promptly("we are told", turn).await.expect("no panic");
            guard.unlock().await.expect("held");
        }
    }
}

async fn the_end_of_a_count_is_told(visit: Visit) {
    let (java, waiter) = (visit.java("one"), visit.java("two"));
    for is_ours_last in [false, true] {
        for name in names(&visit) {
            let latch = visit.client().await.latch(&name);
            java.says(&name, "trySetCount 2", "true").await;
            assert!(!latch.try_set_count(3).await.expect("an answer"), "{name}");
            let mut theirs = waiter.begins(&name, "await");
            let waiting = latch.clone();
            let mut ours = tokio::spawn(async move { waiting.wait().await });
            visit.until_listening(&name, 2).await;
            if is_ours_last {
                java.does(&name, "countDown").await;
                assert_eq!(latch.count().await.expect("an answer"), 1, "{name}");
            } else {
                assert_eq!(latch.count_down().await.expect("an answer"), 1, "{name}");
                java.says(&name, "getCount", "1").await;
            }
            assert!(
                (&mut theirs).now_or_never().is_none() && (&mut ours).now_or_never().is_none(),
                "they wait"
            );
            if is_ours_last {
                assert_eq!(latch.count_down().await.expect("an answer"), 0, "{name}");
            } else {
                java.does(&name, "countDown").await;
            }
            promptly("we are told", ours).await.expect("no panic").expect("an answer");
            JavaGate::promptly(theirs).await;
        }
    }
}

async fn turns_of_java_and_us_lose_none(visit: Visit) {
    let (name, counter, client) = (visit.name(), visit.name(), visit.client().await);
    let request = format!("herd {} {name} {counter} {MEMBERS} {TURNS}", visit.kind.name());
    let java = visit.redisson().thread(&counter).begin(&request);
    let server = visit.site().master_of(&counter).await;
    take_turns(&client, &server.url(), [visit.kind.name(), &name, &counter], TURNS).await;
    assert_eq!(java.await.expect("no exception"), (MEMBERS * TURNS).to_string());
    let count: usize = server.client().await.get(&counter).await.expect("a counter");
    assert_eq!(count, 2 * MEMBERS * TURNS);
}
